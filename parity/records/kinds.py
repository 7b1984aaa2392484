"""The kinds of findings: one row each, and everything that is said, drawn or decided by kind is a column of it.

    from parity.records.kinds import Family, Kind, KindRow, register

    SWAP = register(KindRow(name="swap", family=Family.TOKENS, title=message("kind.swap", "two tokens swapped")))

A `Kind` is the name in captures, stores and reports, so it is a string; `kind.row` is its row. Kinds are open: a name
that nobody registered (of a plug-in, of a later parity) is a Kind with a row that only repeats it. docs/kinds.md
defines each, parity/comparator/detect decides them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar, Final, Literal

from parity.messages import Message, message, verbatim
from parity.records.evidence import Evidence


class Severity(StrEnum):
    BENIGN = "benign"
    CORRUPT = "corrupt"


class Family(StrEnum):
    """What a kind is about."""

    NOISE = "noise"
    TOKENS = "tokens"
    ENDS = "ends"
    RULES = "rules"
    """The request's own: forbidden tokens, stop strings, a grammar."""
    SET = "set"
    OUTPUT = "output"
    """What the engine says of its output: logprobs, text."""
    INPUT = "input"
    RUN = "run"
    """The run as a whole."""
    ENGINE = "engine"
    """Inside the engine: steps, state."""


class Stretch(StrEnum):
    """What the tokens of a finding are."""

    NONE = "none"
    UNSUPPORTED = "unsupported"
    """Tokens that the reference does not support, without a structure of their own."""
    COPY = "copy"
    """Tokens of the completion itself, again."""
    FOREIGN = "foreign"
    """Tokens of another request."""
    LOST = "lost"
    """Tokens of the baseline that the candidate lacks: the finding's length counts these."""


WHY: Final = message("kind.question.why", "Why does the candidate say this?")

CLAIMS: Final[Mapping[Family, Message]] = {
    Family.NOISE: message("kind.claim.noise", "{count} of {completions} completions part at near-ties"),
    Family.TOKENS: message(
        "kind.claim.tokens", "{count} of {completions} completions hold tokens that rounding does not explain"
    ),
    Family.ENDS: message(
        "kind.claim.ends",
        "{count} of {completions} completions ends where it should not",
        plural="{count} of {completions} completions end where they should not",
    ),
    Family.RULES: message(
        "kind.claim.rules",
        "{count} of {completions} completions breaks a rule of its own request",
        plural="{count} of {completions} completions break a rule of their own request",
    ),
    Family.SET: message("kind.claim.set", "{count} of {completions} completions are not what was asked for"),
    Family.OUTPUT: message(
        "kind.claim.output", "what the engine says of {count} of {completions} completions is not what it gave"
    ),
    Family.INPUT: message(
        "kind.claim.input",
        "{count} of {completions} completions answers another question than the baseline's, so nothing follows from "
        "it about the engine",
        plural="{count} of {completions} completions answer another question than the baseline's, so nothing follows "
        "from them about the engine",
    ),
    Family.RUN: message("kind.claim.run", "the run as a whole is not what the baseline's is"),
    Family.ENGINE: message(
        "kind.claim.engine", "steps of {count} of {completions} completions break what always holds in an engine"
    ),
}
"""What a report says of an arm in which kinds of a family were found."""
DRAWN: Final = message(
    "kind.claim.drawn", "{count} of {completions} completions hold tokens that nothing draws at that temperature"
)
"""The same of tokens that were drawn at random."""

MIDDLE: Final = 100
"""Precedence of a kind that says nothing of it: after all that name a structure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRow:
    """What parity knows of one kind."""

    name: str
    family: Family
    title: Message
    """In a few words, for reports."""
    claim: Message | None = None
    """What a report says of an arm in which it was found, of {count} of {completions}; None: its family's claim."""
    question: Message = WHY
    """What its reader asks first."""
    evidence: type[Evidence] = Evidence
    """What a finding of this kind about one completion is checked by."""
    severity: Severity = Severity.CORRUPT
    completion_class: Literal["near_tie", "corrupt", "missing"] = "corrupt"
    """What a completion with such a finding is counted as."""
    precedence: int = MIDDLE
    """Where several explain the same tokens, the lower one stands."""
    stretch: Stretch = Stretch.NONE
    lengthens: int = 0
    """Tokens by which one token of its length makes a completion longer than the baseline's: 1, -1 or 0."""
    explains_rest: bool = False
    """Unsupported tokens in it and right after it need no finding of their own."""
    explained_away: bool = False
    """It needs no finding where another kind `explains_rest`."""
    one_place: bool = True
    """Its position is where something went wrong; False: the first token of what shows it together."""
    may_be_doubted: bool = False
    """Rests on the reference's gaps alone, and so gives way where these are small."""
    may_come_and_go: bool = False
    """Absent in another round of the same request, it is nondeterminism too."""
    needs_expected_tokens: bool = True
    """It shows only where one knows which tokens to expect."""
    panel: Literal["logprobs", "origin", "steps"] = "logprobs"
    """What a screen shows first."""

    def claimed(self, count: int, completions: int, *, drawn: bool = False) -> Message:
        """The claim, of so many completions; `drawn`: their tokens were drawn at random."""
        said = DRAWN if drawn and self.family is Family.TOKENS else self.claim or CLAIMS[self.family]
        return replace(said, parameters={"count": count, "completions": completions})

    @property
    def level(self) -> Literal["note", "error"]:
        """The level in SARIF."""
        return "note" if self.severity is Severity.BENIGN else "error"

    @property
    def colour(self) -> Literal["dim", "corrupt"]:
        """The role in themes and style sheets."""
        return "dim" if self.severity is Severity.BENIGN else "corrupt"

    @property
    def anchor(self) -> str:
        """Its section in docs/kinds.md."""
        return f"kinds.md#{self.name}"


class Kind(str):
    """The name of a kind. There is one object for each name, so `is` and `==` agree."""

    __slots__ = ()

    NEAR_TIE: ClassVar[Kind]
    DUPLICATION: ClassVar[Kind]
    OMISSION: ClassVar[Kind]
    REPETITION: ClassVar[Kind]
    EARLY_STOP: ClassVar[Kind]
    OVERRUN: ClassVar[Kind]
    ROW_LEAK: ClassVar[Kind]
    WRONG_TEMPERATURE: ClassVar[Kind]
    BEYOND_CUTOFF: ClassVar[Kind]
    GARBLED: ClassVar[Kind]
    UNJUSTIFIED: ClassVar[Kind]
    MISSING_COMPLETION: ClassVar[Kind]
    DUPLICATE_COMPLETION: ClassVar[Kind]
    LOGPROB_MISMATCH: ClassVar[Kind]
    TEXT_MISMATCH: ClassVar[Kind]
    INVALID_TOKEN: ClassVar[Kind]
    FORBIDDEN_TOKEN: ClassVar[Kind]
    GRAMMAR_VIOLATION: ClassVar[Kind]
    INPUT_MISMATCH: ClassVar[Kind]
    NONDETERMINISM: ClassVar[Kind]
    NUMERICS: ClassVar[Kind]
    VIOLATION: ClassVar[Kind]
    LOCATED_FAULT: ClassVar[Kind]

    def __new__(cls, name: str) -> Kind:
        known = _NAMES.get(name)
        return known if known is not None else _NAMES.setdefault(str(name), super().__new__(cls, name))

    def __repr__(self) -> str:
        return f"Kind({str(self)!r})"

    def __reduce__(self) -> tuple[type[Kind], tuple[str]]:
        return Kind, (str(self),)

    @property
    def row(self) -> KindRow:
        """Its row; for a name that nobody registered one that repeats the name."""
        found = _ROWS.get(self)
        return KindRow(name=str(self), family=Family.RUN, title=verbatim(str(self))) if found is None else found


_NAMES: Final[dict[str, Kind]] = {}
_ROWS: Final[dict[str, KindRow]] = {}


def register(row: KindRow) -> Kind:
    """Make a kind known. Raises ValueError where another row has the name."""
    if _ROWS.setdefault(row.name, row) != row:
        raise ValueError(f"there is a kind {row.name!r} already")
    return Kind(row.name)


def forget(kind: Kind) -> None:
    """Undo `register`."""
    _ROWS.pop(kind, None)


def kinds() -> list[Kind]:
    """All kinds that are registered, in the order in which they were."""
    return [Kind(name) for name in _ROWS]
