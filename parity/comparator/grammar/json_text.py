"""JSON, or the beginning of one: is it well-formed so far, and how is it written without choices of style?

Engines differ in the whitespace they allow, in escapes and in how they write the same number or string. None of that
is a fault, so what is judged by a schema is the plain form.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Final

from msgspec import Struct


class Scan(Struct, frozen=True):
    """What a text is as JSON."""

    at: int | None
    """The first character that no JSON text can have there; None: the text begins one."""
    is_whole: bool
    """It ends there, too."""
    plain: str
    """Without whitespace, each string with the fewest escapes; what is half said at the end is left out."""
    places: tuple[int, ...]
    """Character of the text that each one of `plain` stands for."""
    keys: tuple[str, ...]
    """Names of members, in the order in which they first come."""
    half_key: str | None = None
    """The name in which the text ends."""
    is_in_string: bool = False
    """It ends inside of one."""
    open_keys: tuple[tuple[str, ...], ...] = ()
    """The names that each object which is not closed yet has so far."""
    has_disorder: bool = False
    """Two objects have the same members in another order."""
    has_exponent: bool = False
    """A number is written with one, which some engines allow and others do not."""
    has_escaped_key: bool = False
    """A name is written with an escape: llguidance takes it for another one than its schema describes."""

    def place(self, at: int, end: int) -> int:
        """Where in the text the character `at` of `plain` stands; `end` past the last one."""
        return self.places[at] if at < len(self.places) else end


@lru_cache(maxsize=8)  # a scan has a number for each character
def scan(text: str, *, takes_controls: bool = False) -> Scan:
    """Read as far as it is JSON. `takes_controls`: strings may hold control characters but for ends of lines."""
    reader = _Reader(text, takes_controls)
    at = reader.run()
    whole = at is None and reader.expects == _DONE and not reader.open
    keys, places = tuple(dict.fromkeys(reader.keys)), tuple(reader.places)
    return Scan(
        at,
        whole,
        "".join(reader.plain),
        places,
        keys,
        reader.half_key,
        reader.is_in_string,
        tuple(tuple(one) for one in reader.open_keys),
        reader.has_disorder,
        reader.has_exponent,
        reader.has_escaped_key,
    )


_VALUE, _ITEM, _MEMBER, _KEY, _COLON, _NEXT, _DONE = range(7)
"""What may come: a value, a value or `]`, a name or `}`, a name, `:`, `,` or a closing bracket, nothing."""

_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_BEGUN: Final = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:(?<=[0-9])[eE][+-]?[0-9]*)?)?")
_WORDS: Final = ("true", "false", "null")
SPACE: Final = " \t\n\r"
_CONTROLS: Final = "".join(map(chr, range(32)))
_DELETE: Final = "\\u007f"
"""As llguidance wants it, which takes no other form; JSON lets the character stand as it is."""
_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}


class _Reader:
    def __init__(self, text: str, takes_controls: bool) -> None:
        self.text, self.at = text, 0
        self.refused = "\r\n" if takes_controls else _CONTROLS
        self.expects = _VALUE
        self.open: list[str] = []
        """Brackets that will close what is open."""
        self.plain: list[str] = []
        self.places: list[int] = []
        self.keys: list[str] = []
        self.half_key: str | None = None
        self.is_in_string = False
        self.has_disorder = False
        self.has_exponent = False
        self.has_escaped_key = False
        self.open_keys: list[list[str]] = []
        """Of each object and list that is open; a list has none."""

    def run(self) -> int | None:
        """The first character that cannot be; None where all can."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in SPACE:
                self.at += 1
            if self.at >= len(self.text):
                return None
            if not self._step():
                return self.at

    def _step(self) -> bool:
        """Read one item; whether it may stand there. Where not, `at` is the character that may not."""
        char = self.text[self.at]
        if char in "]}" and self.open and char == self.open[-1] and self._may_close(char):
            self.open.pop()
            self.open_keys.pop()
            self._keep(char)
            self._value_ended()
            return True
        if self.expects in (_KEY, _MEMBER):
            return char == '"' and self._string(is_key=True)
        if self.expects == _COLON:
            self.expects = _VALUE
            return char == ":" and self._keep(char)
        if self.expects == _NEXT:
            self.expects = _KEY if self.open[-1] == "}" else _VALUE
            return char == "," and self._keep(char)
        return self.expects in (_VALUE, _ITEM) and self._value(char)

    def _may_close(self, char: str) -> bool:
        return self.expects in ((_NEXT, _MEMBER) if char == "}" else (_NEXT, _ITEM))

    def _value(self, char: str) -> bool:
        if char in "{[":
            self.open.append("}" if char == "{" else "]")
            self.open_keys.append([])
            self.expects = _MEMBER if char == "{" else _ITEM
            return self._keep(char)
        if char == '"':
            return self._string(is_key=False)
        return self._word() if char.isalpha() else self._number()

    def _word(self) -> bool:
        for word in _WORDS:
            said = self.text[self.at : self.at + len(word)]
            if word.startswith(said):
                self._keep(said)
                if said == word:
                    self._value_ended()
                return True
            if said[0] == word[0]:
                self.at += next(n for n, (x, y) in enumerate(zip(said, word, strict=False)) if x != y)
        return False

    def _number(self) -> bool:
        begun = _NUMBER_BEGUN.match(self.text, self.at)
        assert begun is not None  # it matches nothing, too
        said = begun.group()
        if not said:
            return False
        self.has_exponent |= "e" in said.lower()
        if begun.end() == len(self.text):
            self._keep(said)
            if _NUMBER.fullmatch(said):
                self._value_ended()
            return True
        if not _NUMBER.fullmatch(said):
            self.at = begun.end()
            return False
        self._keep(said)
        self._value_ended()
        return True

    def _string(self, *, is_key: bool) -> bool:
        """A string, as far as it goes."""
        self._keep('"')
        said: list[str] = []
        while self.at < len(self.text):
            char, length = self.text[self.at], 1
            if char == '"':
                self._keep('"')
                if is_key:
                    self._named("".join(said))
                    self.expects = _COLON
                else:
                    self._value_ended()
                return True
            if char in self.refused:
                return False
            if char == "\\":
                self.has_escaped_key |= is_key
                found = self._escape()
                if found is None:
                    return False
                char, length = found
                if not length:
                    self.at = len(self.text)
                    break
            said.append(char)
            for one in _DELETE if char == "\x7f" else json.dumps(char, ensure_ascii=False)[1:-1]:
                self.plain.append(one)
                self.places.append(self.at)
            self.at += length
        self.half_key, self.is_in_string = "".join(said) if is_key else None, True
        return True

    def _named(self, key: str) -> None:
        own = self.open_keys[-1]
        self.keys.append(key)
        self.has_disorder |= bool(own) and self.keys.index(key) < self.keys.index(own[-1])
        own.append(key)

    def _escape(self) -> tuple[str, int] | None:
        """(character, length of its escape), length 0 where the text ends in it; None where it is none."""
        after = self.text[self.at + 1 : self.at + 2]
        if not after:
            return "", 0
        if after in _ESCAPES:
            return _ESCAPES[after], 2
        if after != "u":
            self.at += 1
            return None
        digits = self.text[self.at + 2 : self.at + 6]
        if not all(one in "0123456789abcdefABCDEF" for one in digits):
            self.at += 2
            return None
        if len(digits) < 4:
            return "", 0
        code = int(digits, 16)
        if not 0xD800 <= code < 0xE000:
            return chr(code), 6
        other = self.text[self.at + 6 : self.at + 12]
        if code < 0xDC00 and re.fullmatch(r"\\u[dD][c-fC-F][0-9a-fA-F]{2}", other):
            return chr(0x10000 + ((code - 0xD800) << 10) + (int(other[2:], 16) - 0xDC00)), 12
        if code < 0xDC00 and len(other) < 6 and "\\ud".startswith(other[:3].lower()):
            return "", 0
        return "\ufffd", 6

    def _keep(self, said: str) -> bool:
        for one in said:
            self.plain.append(one)
            self.places.append(self.at)
            self.at += 1
        return True

    def _value_ended(self) -> None:
        self.expects = _NEXT if self.open else _DONE
