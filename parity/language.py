"""What people read, in their language: English, or Simplified Chinese.

Everything is written, stored and compared in English; a sentence is translated when it is shown, by finding the
template it was made from (`parity/locale/zh.json`, English to Chinese). So captures, the database and JSON are the
same in every language, a run that was made in one is read in another, and a sentence without a translation is shown in
English rather than not at all.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

LANGUAGES: Final = ("en", "zh")
VARIABLE: Final = "PARITY_LANG"

_FIELD = re.compile(r"\{(\w+)(!t|:d|:w)?\}")
_MATCHES = {":d": r"[-+0-9.,%e]+?", ":w": r"\S+?"}
_chosen: str | None = None


def use(language: str | None) -> None:
    """Show everything in this language from now on; None goes by the environment again."""
    global _chosen
    _chosen = language


def current() -> str:
    """The language in use: chosen, else PARITY_LANG, else that of the locale where it is Chinese, else English."""
    if _chosen is not None:
        return _chosen
    named = os.environ.get(VARIABLE)
    if named:
        return "zh" if named.lower().startswith("zh") else "en"
    locale = next((value for name in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := os.environ.get(name))), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def t(text: str) -> str:
    """`text` in the language in use."""
    language = current()
    return text if language == "en" else catalogue(language).translate(text)


class Catalogue:
    """Templates with their translations.

    A template is an English sentence with fields: `{name}` stands for any text and is taken over as it is,
    `{name!t}` for a sentence that is translated in turn, `{name:d}` for a number, `{name:w}` for a word without
    spaces. The translation names the same fields, each as `{name}`.
    """

    def __init__(self, messages: Mapping[str, str]) -> None:
        self.messages = dict(messages)
        self._plain = {english: other for english, other in messages.items() if not _FIELD.search(english)}
        templates = [english for english in messages if _FIELD.search(english)]
        # The template with the most words of its own wins: "{a} in {b}" fits nearly everything.
        templates.sort(key=lambda english: -len(_FIELD.sub("", english)))
        self._templates = [(english, _literals(english), messages[english]) for english in templates]

    def translate(self, text: str) -> str:
        """The translation, or `text` itself; of text over several lines, line by line where the first is known."""
        first, newline, _ = text.partition("\n")
        if newline and self.knows(first):
            return self._by_line(text)
        return self._found(text) or self._by_line(text)

    def knows(self, text: str) -> bool:
        return self._found(text) is not None

    def _found(self, text: str) -> str | None:
        if text in self._plain:
            return self._plain[text]
        for english, literals, other in self._templates:
            # Patterns are made only of templates that can have become this text: making all takes 0.2 s.
            if all(literal in text for literal in literals) and (match := _pattern(english).fullmatch(text)):
                nested = _nested(english)
                fields = {
                    name: self.translate(value) if name in nested else value
                    for name, value in match.groupdict().items()
                }
                return _FIELD.sub(lambda field, fields=fields: fields[field[1]], other)  # type: ignore[misc]
        return None

    def _by_line(self, text: str) -> str:
        if "\n" not in text:
            return text
        return "\n".join(self._found(line) or line for line in text.split("\n"))


def _literals(english: str) -> tuple[str, ...]:
    """What stands between the fields."""
    return tuple(literal for literal in _FIELD.sub("\0", english).split("\0") if literal)


@cache
def _pattern(english: str) -> re.Pattern[str]:
    """Matches what the template can have become. A field that is named twice must hold the same text twice."""
    parts: list[str] = []
    seen: set[str] = set()
    end = 0
    for field in _FIELD.finditer(english):
        parts.append(re.escape(english[end : field.start()]))
        repeated = field[1] in seen
        parts.append(f"(?P={field[1]})" if repeated else f"(?P<{field[1]}>{_MATCHES.get(field[2], '.+?')})")
        seen.add(field[1])
        end = field.end()
    parts.append(re.escape(english[end:]))
    return re.compile("".join(parts), re.DOTALL)


def _nested(english: str) -> frozenset[str]:
    return frozenset(field[1] for field in _FIELD.finditer(english) if field[2] == "!t")


def fields_of(template: str) -> set[str]:
    """Names of a template's fields."""
    return {field[1] for field in _FIELD.finditer(template)}


@cache
def catalogue(language: str) -> Catalogue:
    """The shipped catalogue of a language."""
    path = Path(__file__).parent / "locale" / f"{language}.json"
    return Catalogue(json.loads(path.read_text(encoding="utf-8")))


def untranslated(lines: Iterable[str], language: str = "zh") -> list[str]:
    """Those that the catalogue does not know; for tests and translators."""
    known = catalogue(language)
    return [line for line in lines if line.strip() and not known.knows(line)]
