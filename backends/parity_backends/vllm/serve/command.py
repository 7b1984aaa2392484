"""A command line of `vllm serve` to what it asks of the engine."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parity.errors import ParityError
from parity.messages import message
from parity.paths import expanded
from parity.plan.trusting import of_settings
from parity.records.deployment import Deployment
from parity.secrecy import without_secrets
from parity.trust import Trust, trust_in
from parity_backends.vllm.serve import flags
from parity_backends.vllm.serve.recipe import DEEPEST, words_of_recipe

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_OF_THE_SHELL = re.compile(r"[;&|]+|\d*(>|<).*")
_MODULE = "vllm.entrypoints.openai.api_server"

ONE_ENGINE = ("data_parallel_size", "nnodes", "data_parallel_rank")
"""More than one engine, or more than one machine, which the worker does not start."""


def words_of(text: str) -> tuple[list[str], dict[str, str], list[str]]:
    """Words after `vllm serve`, variables before it, and the names of what else stood there. Raises ParityError."""
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise ParityError(
            message("serve.no_command", "{text!r} is no command: {said}", text=_shown(text), said=str(error)),
            hint=message("serve.close_quotes", "close every quotation mark"),
        ) from None
    begins = _begins(words)
    if begins is None:
        raise ParityError(
            message("serve.none", "there is no `vllm serve` in {text!r}", text=_shown(text)),
            hint=message(
                "serve.give",
                "give the whole command ('vllm serve MODEL --tensor-parallel-size 4'), a recipe file that ends in "
                ".yaml, or the URL of the server",
            ),
        )
    before, words = words[: begins[0]], words[begins[1] :]
    ends = next((at for at, word in enumerate(words) if _OF_THE_SHELL.fullmatch(word)), len(words))
    env: dict[str, str] = {}
    wrapper = [word for word in before if not _ASSIGNMENT.fullmatch(word) and word not in ("env", "exec", "export")]
    aside = wrapper[:1]
    for word in before:
        assigned = _ASSIGNMENT.fullmatch(word)
        if assigned is None:
            continue
        if without_secrets({assigned[1]: assigned[2]}) != {assigned[1]: assigned[2]}:
            aside.append(assigned[1])
        else:
            env[assigned[1]] = assigned[2]
    return words[:ends], env, aside


def _shown(text: str) -> str:
    return str(without_secrets(text))[:80]


def _begins(words: Sequence[str]) -> tuple[int, int] | None:
    """Where the command begins, and where its flags do."""
    for at, word in enumerate(words):
        if word.rsplit("/", 1)[-1] == "vllm" and words[at + 1 : at + 2] == ["serve"]:
            return at, at + 2
        if word == "-m" and words[at + 1 : at + 2] == [_MODULE]:
            return max(at - 1, 0), at + 2
    return None


def from_words(words: Sequence[str], env: Mapping[str, str] | None = None, aside: Sequence[str] = ()) -> Deployment:
    """What these flags ask of an engine. Raises ParityError for one that vLLM does not have or would not take."""
    values = _values(_with_recipe(words))
    model = values.pop("model_tag", None) or values.get("model")
    left_out = [name for name in values if flags.is_aside(name)]
    engine = _speculation({name: value for name, value in values.items() if name not in left_out})
    for name in ONE_ENGINE:
        if (engine.get(name) or 1) != 1:
            raise ParityError(
                message(
                    "serve.several", "{name}={value}: an arm is one engine on one host", name=name, value=engine[name]
                ),
                hint=message(
                    "serve.several_hint",
                    "leave it out to run one of the engines, or compare with the server as it runs: --server URL",
                ),
            )
    named = [*aside, *("--" + name.replace("_", "-") for name in left_out if name != "model")]
    return Deployment(engine, dict(env or {}), model, tuple(named))


def _values(words: Sequence[str]) -> dict[str, Any]:
    """What each flag is given. Raises ParityError."""
    given, rest = flags.parser().parse_known_args(_nested([_dashed(word) for word in words]))
    for word in rest:
        if word.startswith("-"):
            raise flags.unknown(word)
        raise flags.refused(message("serve.stray", "{word!r} belongs to no flag", word=word))
    values = vars(given)
    for name, value in values.items():
        if _too_large(value):
            said = message("serve.too_large", "{name}: a number of more than 64 bits, or lists in lists", name=name)
            raise flags.refused(said)
    return values


def _too_large(value: Any, depth: int = 0) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    large = isinstance(value, int) and abs(value) >= 1 << 63
    return large or depth > DEEPEST or any(_too_large(one, depth + 1) for one in inner)


def _recipe(path: str) -> list[str]:
    """The words of a recipe. Raises ParityError for one of somebody else that would have code imported."""
    words = words_of_recipe(path)
    would = list(of_settings({name: value for name, value in _values(words).items() if not flags.is_aside(name)}))
    if would and trust_in(expanded(path)) is Trust.NONE:
        raise ParityError(
            message(
                "serve.untrusted",
                "the recipe {path} is not trusted, and would have set: {found}",
                path=path,
                found=would[:20],
            ),
            hint=message(
                "trust.look",
                "read it; then `parity trust {directory}` takes what lies there",
                directory=str(expanded(path).resolve().parent),
            ),
        )
    return words


def _speculation(engine: dict[str, Any]) -> dict[str, Any]:
    """The short forms `--spec-method`, `--spec-model` and `--spec-tokens` as parts of the speculative settings."""
    short = {"spec_method": "method", "spec_model": "model", "spec_tokens": "num_speculative_tokens"}
    parts = {short[name]: value for name, value in engine.items() if name in short}
    rest = {name: value for name, value in engine.items() if name not in short}
    return {**rest, "speculative_config": {**(rest.get("speculative_config") or {}), **parts}} if parts else rest


def _with_recipe(words: Sequence[str]) -> list[str]:
    """With the words of `--config FILE` before all others, which win."""
    found: list[str] = []
    rest: list[str] = []
    left = iter(words)
    for word in left:
        flag, equals, value = word.partition("=")
        if flag == "--config":
            found += _recipe(value if equals else next(left, ""))
        else:
            rest.append(word)
    model = rest[:1] if rest and not rest[0].startswith("-") else []
    return [*model, *found, *rest[len(model) :]]


def _dashed(word: str) -> str:
    """`--max_model_len=8` as `--max-model-len=8`; keys after a dot stay as they are. `-O3` in full."""
    if re.fullmatch(r"-O=?\d", word):
        return "--optimization-level=" + word[-1]
    if not word.startswith("--"):
        return "--optimization-level" if word == "-O" else word
    flag, equals, value = word.partition("=")
    name, dot, keys = flag.partition(".")
    return name.replace("_", "-") + dot + keys + equals + value


def _nested(words: Sequence[str]) -> list[str]:
    """`--speculative-config.method mtp` as JSON of the whole, as vLLM does it (`FlexibleArgumentParser`)."""
    plain: list[str] = []
    collected: dict[str, dict[str, Any]] = {}
    left: Iterator[str] = iter(words)
    for word in left:
        flag, equals, value = word.partition("=")
        if not flag.startswith("-") or "." not in flag:
            plain.append(word)
            continue
        if not equals:
            value = next(left, "")
        key, *keys = flag.split(".")
        inner = collected.setdefault(key, {})
        for name in keys[:-1]:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise flags.refused(message("serve.two_values", "{flag} sets a value and parts of it", flag=key))
        listed = keys[-1].endswith("+")
        inner[keys[-1].removesuffix("+")] = value.split(",") if listed else _value(value)
    return [*plain, *(word for key, inner in collected.items() for word in (key, json.dumps(inner)))]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
