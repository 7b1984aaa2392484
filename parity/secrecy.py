"""Keeping secrets out of what is written down: it is carried to other hosts and pasted into bug reports.

Standard library only, Python 3.9 or newer: it travels with workers.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Any

HIDDEN = "(not recorded)"
LONGEST_VALUE = 2000
"""Characters of one recorded value; what is longer is data, not a setting."""

SECRET_WORDS = frozenset({
    "KEY", "KEYS", "APIKEY", "AUTH", "AUTHORIZATION", "TOKEN", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASS",
    "PASSPHRASE", "PWD", "CREDENTIAL", "CREDENTIALS", "COOKIE", "PRIVATE", "SIGNATURE", "SIG", "SAS", "BEARER",
})  # fmt: skip
"""A name of which a word is one of these has a value that is not to be seen."""

PLURAL_TOKENS = "TOKENS"
"""Most often a number of tokens; anything but a number is taken for secrets."""

SECRET_PART = r"(?:api[_-]?key|access[_-]?key|token|secret|passw(?:or)?d|passphrase|credential|signature|auth)"
NAME_BEGINS = r"(?<![\w.-])"
"""A name is tried at its beginning only: from every place within it, the time would grow with the square of its
length."""
SECRET_NAME = r"(?=[\w.-]*%s)[\w.-]+" % SECRET_PART
IS = r"[\"']?(?:\s*[:=]\s*|\s+)"
COUNT = r"[\w.-]*(?:tokens|token[_-]ids?)%s\[?-?\d{1,9}(?![\w.-])" % IS
"""How many tokens, or which."""
VARIABLE_NAME = r"[A-Z_][A-Z0-9_]*"
VARIABLE = r"[\w.-]*[_-]env%s[\"']?(?-i:%s)(?![\w.-])" % (IS, VARIABLE_NAME)
"""Which variable holds a key."""
PLAIN = "(?!%s|%s)" % (COUNT, VARIABLE)
"""No secret, whatever its name."""
PATTERNS = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), r"\1 ***"),
    (re.compile(r"(?<=\w)(://)[^/\s@]*@"), r"\1***@"),  # user and password of a URL
    (
        re.compile(r"(?<![\w/.+@:-])([A-Za-z_][\w.-]*:)[^\s/@:'\"]+@(?!sha\d+:)(?=\w)"),
        r"\1***@",
    ),  # me:password@host
    (re.compile(r"(\bsshpass\s+-p\s*)(\"[^\"]*\"|'[^']*'|\S+)"), r"\1***"),
    (re.compile(r"(?i)([?&;]%s=)[^&;\s]+" % SECRET_NAME), r"\1***"),  # parameters of a signed URL
    (re.compile(r"(?i)([?&;](?:sig|key|code)=)[^&;\s]+"), r"\1***"),
    (
        re.compile(r"(?i)(%s%s[\w.]*-(?=[\w.-]*%s)[\w.-]+[= ])\S+" % (NAME_BEGINS, PLAIN, SECRET_PART)),
        r"\1***",
    ),  # a command line
    (
        re.compile(
            r"(?i)([\"']?%s%s%s[\"']?\s*[:=]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;}&]+)" % (NAME_BEGINS, PLAIN, SECRET_NAME)
        ),
        r"\1***",
    ),  # JSON, lists
    (re.compile(r"\beyJ(?=([\w-]+))\1\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"), "***"),  # JSON web tokens
    (re.compile(r"\b(?:hf_|gh[pos]_|github_pat_|glpat-|xox[abprs]-|[sp]k-|rk_|npm_|pypi-|nvapi-)[\w-]{8,}"), "***"),
    (re.compile(r"\b(?:AKIA|ASIA|LTAI)[A-Za-z0-9]{12,}"), "***"),  # key ids of clouds
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*", re.DOTALL), "***"),
)
SHAPES = (PATTERNS[1][0], *(pattern for pattern, instead in PATTERNS if instead == "***"))
"""What is a secret in whatever setting it stands: a password in an address, keys of well-known shapes."""
RANDOM = re.compile(r"(?<![\w/.+-])(?=[\w+]*[a-z])(?=[\w+]*[A-Z])(?=[\w+]*\d)[\w+]{32,}=*(?![\w/.])")
"""A long word of mixed letters and digits that is no path: nothing a person would set."""


def is_secret(name: str, value: object = "") -> bool:
    """Whether a setting of this name may hold a secret. Numbers are none: `long_prefill_token_threshold`. Nor are names
    of variables: `api_key_env`."""
    if _is_number(value) or (name.lower().endswith(("_env", "-env")) and re.fullmatch(VARIABLE_NAME, str(value))):
        return False
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name.replace("_", " ").replace("-", " "))
    spelled = [word.upper() for word in words] + re.split(r"[_\W]+", name.upper())
    if any(word in SECRET_WORDS for word in spelled):
        return True
    if PLURAL_TOKENS in spelled:
        return value is not None and not re.fullmatch(r"\s*\d+(\s*,\s*\d+)*\s*", str(value))
    return False


def _is_number(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return bool(value) and all(_is_number(one) for one in value)
    return isinstance(value, (int, float))


def without_secrets(value: Any, name: str = "", *, longest: int = LONGEST_VALUE) -> Any:
    """A value as it may be written down; nested ones too."""
    if name and is_secret(name, value) and value not in (None, "", True, False):
        return HIDDEN
    if isinstance(value, dict):
        return {key: without_secrets(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(inner) for inner in value]
    if not isinstance(value, str):
        return value
    for pattern, instead in PATTERNS:
        value = pattern.sub(instead, value)
    value = RANDOM.sub("***", value)
    if len(value) > longest:
        value = value[:longest] + " (cut: %d characters)" % len(value)
    return value


SPECIAL_TOKENS = frozenset({"bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token"})
"""Tokens of a vocabulary, which nobody hides."""


def secret_settings(value: object, name: str = "") -> list[str]:
    """Names of settings that are secrets, nested ones with dots. Numbers and names of variables are none."""
    if isinstance(value, dict):
        return [
            found
            for key, inner in value.items()
            for found in secret_settings(inner, f"{name}.{key}" if name else str(key))
        ]
    if isinstance(value, (list, tuple)):
        return list(dict.fromkeys(found for inner in value for found in secret_settings(inner, name)))
    if not isinstance(value, str) or not value:
        return []
    last = name.rsplit(".", 1)[-1]
    # What is only blanked may be blanked in doubt; what is refused, not: a variable may have a lower-case name.
    named = is_secret(last, value) and not last.lower().endswith("_env") and last not in SPECIAL_TOKENS
    return [name] if named or any(pattern.search(value) for pattern in SHAPES) else []


HELD_BACK = ("***", HIDDEN)
"""What stands in the place of a secret."""


def is_held_back(text: str) -> bool:
    """Whether something was taken out of a text."""
    return any(mark in text for mark in HELD_BACK)


def without_path(url: str) -> str:
    """An address as it may be written down: of a webhook, whoever knows the path may post."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*://)(?:[^/\s@]*@)?([^/?#\s]*)(.*)", url, re.DOTALL)
    return url if found is None else found[1] + found[2] + ("/***" if found[3].strip("/") else found[3])


def command_words(words: list[str], *, longest: int = LONGEST_VALUE) -> list[str]:
    """A command line as it may be written down: values of --webhook without their path, and no secrets in any word."""
    out: list[str] = []
    before = ""
    for word in words:
        said = word
        if before == "--webhook":
            said = without_path(word)
        elif word.startswith("--webhook="):
            said = "--webhook=" + without_path(word[len("--webhook=") :])
        elif (before == "-p" and out[-2:-1] == ["sshpass"]) or (
            before.startswith("--") and "=" not in before and is_secret(before.lstrip("-"), word)
        ):
            said = "***"
        out.append(str(without_secrets(said, longest=longest)))
        before = word
    return out


SHORTEST_HIDDEN = 6
"""Characters of what is blanked wherever it stands; less is too likely to be something else."""


def hidden_parts(words: list[str]) -> list[str]:
    """What `command_words` takes out of a command line, longest first: to be blanked wherever else it is said."""
    found = set()
    whole = max((len(word) for word in words), default=0)
    for word, said in zip(words, command_words(words, longest=whole)):  # noqa: B905 - of one length, and Python 3.9
        if said != word:
            begin = _alike(word, said)
            end = _alike(word[begin:][::-1], said[::-1])
            found.add(word[begin : len(word) - end])
    return sorted((one for one in found if len(one) >= SHORTEST_HIDDEN), key=len, reverse=True)


def _alike(one: str, other: str) -> int:
    """Characters at the beginning of both."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other)))  # noqa: B905


def blanked(text: str, parts: list[str]) -> str:
    """A text in which none of these stands."""
    for part in parts:
        text = text.replace(part, "***")
    return text
