"""The kinds of findings: one row each, and everything that is said, drawn or decided by kind is a column of it.

    from parity.records.kinds import Family, Kind, KindRow, register

    SWAP = register(KindRow(name="swap", family=Family.TOKENS, title=message("kind.swap", "two tokens swapped")))

A `Kind` is the name in captures, stores and reports, so it is a string; `kind.row` is its row. Kinds are open: a name
that nobody registered (of a plug-in, of a later parity) is a Kind with a row that only repeats it. docs/kinds.md
defines each, parity/comparator/detect decides them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, Literal

from parity.messages import Message, message, verbatim
from parity.records.evidence import (
    CopyOfSampleEvidence,
    CutoffEvidence,
    EndEvidence,
    Evidence,
    InputEvidence,
    InvalidTokenEvidence,
    LeakEvidence,
    LogprobEvidence,
    MissingEvidence,
    NearTieEvidence,
    NumericsEvidence,
    RoundsEvidence,
    RuleEvidence,
    TemperatureEvidence,
    TextEvidence,
    TokensEvidence,
    ViolationEvidence,
)


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

MIDDLE: Final = 100
"""Precedence of a kind that says nothing of it: after all that name a structure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRow:
    """What parity knows of one kind."""

    name: str
    family: Family
    title: Message
    """In a few words, for reports."""
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
    may_be_doubted: bool = False
    """Rests on the reference's gaps alone, and so gives way where these are small."""
    may_come_and_go: bool = False
    """Absent in another round of the same request, it is nondeterminism too."""
    needs_expected_tokens: bool = True
    """It shows only where one knows which tokens to expect."""
    panel: Literal["logprobs", "origin", "steps"] = "logprobs"
    """What a screen shows first."""

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


Kind.NEAR_TIE = register(
    KindRow(
        name="near_tie",
        family=Family.NOISE,
        title=message("kind.near_tie", "parts at a near-tie (benign)"),
        question=message("kind.question.near_tie", "How near were the two tokens?"),
        evidence=NearTieEvidence,
        severity=Severity.BENIGN,
        completion_class="near_tie",
    )
)
Kind.DUPLICATION = register(
    KindRow(
        name="duplication",
        family=Family.TOKENS,
        title=message("kind.duplication", "tokens emitted again"),
        question=message("kind.question.duplication", "Which tokens stand twice?"),
        evidence=TokensEvidence,
        precedence=50,
        stretch=Stretch.COPY,
        lengthens=1,
        explained_away=True,
        may_be_doubted=True,
        may_come_and_go=True,
    )
)
Kind.OMISSION = register(
    KindRow(
        name="omission",
        family=Family.TOKENS,
        title=message("kind.omission", "tokens lost"),
        question=message("kind.question.omission", "Which tokens are missing?"),
        evidence=TokensEvidence,
        precedence=60,
        stretch=Stretch.LOST,
        lengthens=-1,
        may_be_doubted=True,
        may_come_and_go=True,
    )
)
Kind.REPETITION = register(
    KindRow(
        name="repetition",
        family=Family.TOKENS,
        title=message("kind.repetition", "falls into a loop"),
        question=message("kind.question.repetition", "Where does the loop begin, and of what is it made?"),
        evidence=TokensEvidence,
        precedence=40,
        stretch=Stretch.COPY,
        explains_rest=True,
        may_be_doubted=True,
        may_come_and_go=True,
        panel="origin",
    )
)
Kind.EARLY_STOP = register(
    KindRow(
        name="early_stop",
        family=Family.ENDS,
        title=message("kind.early_stop", "ends too early"),
        question=message("kind.question.early_stop", "What ended it?"),
        evidence=EndEvidence,
        precedence=70,
        may_be_doubted=True,
        may_come_and_go=True,
    )
)
Kind.OVERRUN = register(
    KindRow(
        name="overrun",
        family=Family.ENDS,
        title=message("kind.overrun", "goes on past its end"),
        question=message("kind.question.overrun", "Where should it have ended?"),
        evidence=EndEvidence,
        precedence=30,
        explains_rest=True,
        may_come_and_go=True,
    )
)
Kind.ROW_LEAK = register(
    KindRow(
        name="row_leak",
        family=Family.TOKENS,
        title=message("kind.row_leak", "tokens of another request"),
        question=message("kind.question.row_leak", "Whose tokens are these?"),
        evidence=LeakEvidence,
        precedence=20,
        stretch=Stretch.FOREIGN,
        explains_rest=True,
        explained_away=True,
        may_be_doubted=True,
        may_come_and_go=True,
        panel="origin",
    )
)
Kind.GARBLED = register(
    KindRow(
        name="garbled",
        family=Family.TOKENS,
        title=message("kind.garbled", "garbled text"),
        question=message("kind.question.garbled", "Where does it begin, and does it recover?"),
        evidence=TokensEvidence,
        precedence=80,
        stretch=Stretch.UNSUPPORTED,
        explained_away=True,
        may_be_doubted=True,
        may_come_and_go=True,
    )
)
Kind.UNJUSTIFIED = register(
    KindRow(
        name="unjustified",
        family=Family.TOKENS,
        title=message("kind.unjustified", "unsupported tokens"),
        question=message("kind.question.unjustified", "What would the reference have said?"),
        evidence=TokensEvidence,
        precedence=90,
        stretch=Stretch.UNSUPPORTED,
        explained_away=True,
        may_be_doubted=True,
        may_come_and_go=True,
    )
)
Kind.WRONG_TEMPERATURE = register(
    KindRow(
        name="wrong_temperature",
        family=Family.RULES,
        title=message("kind.wrong_temperature", "drawn at another temperature"),
        question=message("kind.question.wrong_temperature", "At which temperature was it drawn?"),
        evidence=TemperatureEvidence,
        precedence=85,
    )
)
Kind.BEYOND_CUTOFF = register(
    KindRow(
        name="beyond_cutoff",
        family=Family.RULES,
        title=message("kind.beyond_cutoff", "drawn beyond the cut-off"),
        question=message("kind.question.beyond_cutoff", "Which tokens had top_k, top_p or min_p cut off?"),
        evidence=CutoffEvidence,
        precedence=86,
    )
)
Kind.MISSING_COMPLETION = register(
    KindRow(
        name="missing_completion",
        family=Family.SET,
        title=message("kind.missing_completion", "missing completions"),
        question=message("kind.question.missing_completion", "Which side lacks it?"),
        evidence=MissingEvidence,
        completion_class="missing",
        needs_expected_tokens=False,
    )
)
Kind.DUPLICATE_COMPLETION = register(
    KindRow(
        name="duplicate_completion",
        family=Family.SET,
        title=message("kind.duplicate_completion", "the same sample twice"),
        question=message("kind.question.duplicate_completion", "Of which sample is it a copy?"),
        evidence=CopyOfSampleEvidence,
        needs_expected_tokens=False,
    )
)
Kind.LOGPROB_MISMATCH = register(
    KindRow(
        name="logprob_mismatch",
        family=Family.OUTPUT,
        title=message("kind.logprob_mismatch", "wrong logprobs"),
        question=message("kind.question.logprob_mismatch", "By how much, and at which tokens?"),
        evidence=LogprobEvidence,
    )
)
Kind.TEXT_MISMATCH = register(
    KindRow(
        name="text_mismatch",
        family=Family.OUTPUT,
        title=message("kind.text_mismatch", "text that is not its tokens"),
        question=message("kind.question.text_mismatch", "Where do text and tokens part?"),
        evidence=TextEvidence,
        needs_expected_tokens=False,
    )
)
Kind.INVALID_TOKEN = register(
    KindRow(
        name="invalid_token",
        family=Family.TOKENS,
        title=message("kind.invalid_token", "token ids outside the vocabulary"),
        question=message("kind.question.invalid_token", "Which ids?"),
        evidence=InvalidTokenEvidence,
        precedence=10,
        explains_rest=True,
    )
)
Kind.FORBIDDEN_TOKEN = register(
    KindRow(
        name="forbidden_token",
        family=Family.RULES,
        title=message("kind.forbidden_token", "a token that the request forbade"),
        question=message("kind.question.forbidden_token", "Which token, and which rule forbade it?"),
        evidence=RuleEvidence,
        precedence=14,
        explains_rest=True,
        needs_expected_tokens=False,
    )
)
Kind.GRAMMAR_VIOLATION = register(
    KindRow(
        name="grammar_violation",
        family=Family.RULES,
        title=message("kind.grammar_violation", "output that its grammar refuses"),
        question=message("kind.question.grammar_violation", "Where does it leave the grammar?"),
        evidence=RuleEvidence,
        precedence=16,
        explains_rest=True,
        needs_expected_tokens=False,
    )
)
Kind.INPUT_MISMATCH = register(
    KindRow(
        name="input_mismatch",
        family=Family.INPUT,
        title=message("kind.input_mismatch", "arms that were asked different things"),
        question=message("kind.question.input_mismatch", "What was each arm asked?"),
        evidence=InputEvidence,
    )
)
Kind.NONDETERMINISM = register(
    KindRow(
        name="nondeterminism",
        family=Family.SET,
        title=message("kind.nondeterminism", "another answer each time"),
        question=message("kind.question.nondeterminism", "Which rounds differ?"),
        evidence=RoundsEvidence,
    )
)
Kind.NUMERICS = register(
    KindRow(
        name="numerics",
        family=Family.RUN,
        title=message("kind.numerics", "numerics that differ everywhere"),
        question=message("kind.question.numerics", "By how much, and is it more than rounding?"),
        evidence=NumericsEvidence,
        needs_expected_tokens=False,
    )
)
Kind.VIOLATION = register(
    KindRow(
        name="violation",
        family=Family.ENGINE,
        title=message("kind.violation", "bookkeeping that a step broke"),
        question=message("kind.question.violation", "Which step and row, and which two numbers?"),
        evidence=ViolationEvidence,
        panel="steps",
        precedence=5,
        needs_expected_tokens=False,
    )
)
