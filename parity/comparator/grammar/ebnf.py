"""Grammars in extended Backus-Naur form, as xgrammar and llama.cpp read them: `root ::= "a" [0-9]+ ("," item)*`.

Character by character, by Earley's algorithm (Communications of the ACM 13(2), 1970): what a text may be does not
depend on how it is cut into tokens, nor on which of several ways of reading it is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

MOST_ITEMS: Final = 400_000
"""Items of a parse from which on it is given up: about a second."""

MOST_COPIES: Final = 512
"""Repetitions that `{m,n}` may ask for."""


class Unreadable(ValueError):
    """A grammar of another dialect."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character: of these ranges, or of none of them."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False

    def has(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.ranges) != self.negated


Symbol: TypeAlias = Chars | str
Rules: TypeAlias = dict[str, list[tuple[Symbol, ...]]]


@dataclass(frozen=True, slots=True)
class Walk:
    at: int | None
    """The first character that no text of this grammar has there; None: the text begins one."""
    is_whole: bool
    """It may end there."""
    is_over: bool = False
    """It must: nothing can follow."""


def is_ebnf(grammar: str) -> bool:
    """Is it in this form, rather than Lark's (`vllm.v1.structured_output.utils.grammar_is_likely_lark`)?"""
    return any("::=" in re.sub(r"(#|//).*$", "", line) for line in grammar.split("\n"))


def walk(grammar: str, text: str) -> Walk | None:
    """Along the grammar from its rule `root`. None for one that cannot be read here, or that takes too long."""
    rules = _rules(grammar)
    return None if rules is None else _parse(rules, text)


# ---------------------------------------------------------------------- reading a grammar


@lru_cache(maxsize=128)
def _rules(grammar: str) -> Rules | None:
    try:
        rules = _Reader(grammar).rules()
    except Unreadable:
        return None
    named = {symbol for bodies in rules.values() for body in bodies for symbol in body if isinstance(symbol, str)}
    return rules if "root" in rules and named <= rules.keys() else None


_NAME: Final = r"[A-Za-z_][A-Za-z0-9_.\-]*"
_ITEMS: Final = re.compile(
    rf'(?P<head>{_NAME}\s*::=)|(?P<name>{_NAME})|(?P<text>"(?:\\.|[^"\\\n])*")|(?P<chars>\[(?:\\.|[^\]\\])*\])'
    r"|(?P<count>\{\s*\d+\s*(?:,\s*\d*\s*)?\})|(?P<sign>[|()*+?])"
)
_BLANK: Final = re.compile(r"(?:\s|#[^\n]*)*")
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "b": "\b", "f": "\f", "v": "\v", "a": "\a"}


@dataclass
class _Reader:
    grammar: str
    made: Rules = field(default_factory=dict)

    def rules(self) -> Rules:
        items = list(self._items())
        at = 0
        while at < len(items):
            kind, said = items[at]
            if kind != "head":
                raise Unreadable
            name = said[:-3].strip()
            if name in self.made:
                raise Unreadable
            self.made[name] = []
            bodies, at = self._either(items, at + 1)
            self.made[name] = bodies
        return self.made

    def _items(self) -> Iterator[tuple[str, str]]:
        at = 0
        while True:
            blank = _BLANK.match(self.grammar, at)
            at = at if blank is None else blank.end()
            if at >= len(self.grammar):
                return
            found = _ITEMS.match(self.grammar, at)
            if found is None or found.lastgroup is None:
                raise Unreadable
            yield found.lastgroup, found.group()
            at = found.end()

    def _either(self, items: list[tuple[str, str]], at: int) -> tuple[list[tuple[Symbol, ...]], int]:
        """Alternatives, up to `)` or the next rule."""
        bodies: list[tuple[Symbol, ...]] = []
        body: list[tuple[Symbol, ...]] = []
        while at < len(items):
            kind, said = items[at]
            if kind == "head" or said == ")":
                break
            at += 1
            if kind == "sign" and said == "|":
                bodies.append(_joined(body))
                body = []
            elif kind == "sign" and said == "(":
                inner, at = self._either(items, at)
                if at >= len(items) or items[at][1] != ")":
                    raise Unreadable
                at += 1
                body.append((self._new(inner),))
            elif kind in ("sign", "count"):
                if not body:
                    raise Unreadable
                body[-1] = self._repeated(body[-1], said)
            elif kind == "text":
                body.append(tuple(Chars(((one, one),)) for one in _plain(said[1:-1])))
            elif kind == "chars":
                body.append((_chars(said[1:-1]),))
            else:
                body.append((said,))
        return [*bodies, _joined(body)], at

    def _new(self, bodies: list[tuple[Symbol, ...]]) -> str:
        name = f" {len(self.made)}"  # no rule of a grammar has such a name
        self.made[name] = bodies
        return name

    def _repeated(self, part: tuple[Symbol, ...], sign: str) -> tuple[Symbol, ...]:
        if sign == "?":
            return (self._new([(), part]),)
        if sign in "*+":
            least, most = (0 if sign == "*" else 1), None
        else:
            low, comma, high = sign[1:-1].replace(" ", "").partition(",")
            least, most = int(low), int(high) if high else None if comma else int(low)
        if max(least, most or 0) > MOST_COPIES:
            raise Unreadable
        if most is None:
            more = self._new([()])
            self.made[more].append((more, *part))  # to the left: linear in the text
            return (*part * least, more)
        rest: tuple[Symbol, ...] = ()
        for _ in range(most - least):
            rest = (self._new([(), (*part, *rest)]),)
        return (*part * least, *rest)


def _joined(parts: list[tuple[Symbol, ...]]) -> tuple[Symbol, ...]:
    return tuple(symbol for part in parts for symbol in part)


def _plain(said: str) -> list[str]:
    """The characters of a literal."""
    found: list[str] = []
    at = 0
    while at < len(said):
        escape = _ESCAPE.match(said, at)
        if escape is None:
            found.append(said[at])
            at += 1
            continue
        code = escape.group(1) or escape.group(2) or escape.group(3)
        found.append(chr(int(code, 16)) if code else _ESCAPED.get(escape.group(4), escape.group(4)))
        at = escape.end()
    return found


def _chars(said: str) -> Chars:
    negated = said.startswith("^")
    body = said[1:] if negated else said
    marked = re.sub(r"\\-", "\\\\x2d", body)  # an escaped hyphen makes no range
    ranges: list[tuple[str, str]] = []
    parts = re.findall(r"\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\.|.", marked, re.DOTALL)
    at = 0
    while at < len(parts):
        low = _plain(parts[at])[0]
        if at + 2 < len(parts) and parts[at + 1] == "-":
            ranges.append((low, _plain(parts[at + 2])[0]))
            at += 3
        else:
            ranges.append((low, low))
            at += 1
    return Chars(tuple(ranges), negated)


# ---------------------------------------------------------------------- reading a text

_Item: TypeAlias = tuple[str, int, int, int]
"""(rule, its alternative, symbols of it that are read, where it began)"""


def _parse(rules: Rules, text: str) -> Walk | None:
    empty = _nullable(rules)
    columns: list[dict[_Item, None]] = []
    waiting: list[dict[str, list[_Item]]] = []
    """Items of each column that wait for a rule."""
    column: dict[_Item, None] = {("root", body, 0, 0): None for body in range(len(rules["root"]))}
    total = 0
    for place in range(len(text) + 1):
        columns.append(column)
        waits: dict[str, list[_Item]] = {}
        waiting.append(waits)
        agenda = list(column)
        scans: dict[_Item, None] = {}
        while agenda:
            item = agenda.pop()
            rule, body, read, began = item
            symbols = rules[rule][body]
            if read == len(symbols):
                new = [(r, b, n + 1, o) for r, b, n, o in waiting[began].get(rule, ())]
            else:
                symbol = symbols[read]
                if isinstance(symbol, Chars):
                    if place < len(text) and symbol.has(text[place]):
                        scans[(rule, body, read + 1, began)] = None
                    continue
                first = symbol not in waits
                waits.setdefault(symbol, []).append(item)
                new = [(symbol, each, 0, place) for each in range(len(rules[symbol]))] if first else []
                if symbol in empty:
                    new.append((rule, body, read + 1, began))
            for one in new:
                if one not in column:
                    column[one] = None
                    agenda.append(one)
        total += len(column)
        if total > MOST_ITEMS:
            return None
        if place == len(text):
            whole = any(
                rule == "root" and began == 0 and read == len(rules[rule][body]) for rule, body, read, began in column
            )
            awaited = (rules[rule][body][read : read + 1] for rule, body, read, _ in column)
            return Walk(None, whole, whole and not any(isinstance(one, Chars) for ahead in awaited for one in ahead))
        if not scans:
            return Walk(place, False)
        column = scans
    raise AssertionError("the last column returns")


def _nullable(rules: Rules) -> frozenset[str]:
    """Rules that may be nothing."""
    found: set[str] = set()
    while True:
        more = {
            name
            for name, bodies in rules.items()
            if name not in found and any(all(isinstance(s, str) and s in found for s in body) for body in bodies)
        }
        if not more:
            return frozenset(found)
        found |= more
