"""What the store gives back, as frozen types. Times are ISO 8601 in UTC; durations are in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from parity.messages import Message
from parity.plan import Plan
from parity.records import Evidence, Json, Key, TokenIds, evidence_from_json
from parity.records.first_faults import FOLLOWS
from parity.records.next_steps import NextStep


class RunStatus(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class TriageState(StrEnum):
    NEW = "new"
    CONFIRMED = "confirmed"
    BENIGN = "benign"
    DUPLICATE = "duplicate"
    REPORTED = "reported"
    FIXED = "fixed"
    KNOWN = "known"
    """A bug that somebody has on file: the link says where."""


class FindingSort(StrEnum):
    """Orders that have an index: the value is the column. Ties are broken by the order of insertion,
    which is arm, then request in the plan's order, round, sample, position."""

    WORST = "weight"
    KIND = "kind"
    REQUEST = "ordinal"
    POSITION = "position"
    GAP = "gap"
    STATE = "state"
    ARM = "arm"


class RunSort(StrEnum):
    """Orders of runs; ties are broken by the date."""

    DATE = "date"
    VERDICT = "verdict"
    NEW = "new"
    FOUND = "found"
    TIME = "time"
    MODEL = "model"
    NAME = "name"


class RunFilter(Struct, frozen=True):
    """Which runs; an empty set means no restriction.

    `text` is looked for, ignoring case, in id, name, tags, model, command, verdict and status. `verdicts` names a
    status where a run has no verdict.
    """

    text: str = ""
    verdicts: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()


class RunRow(Struct, frozen=True):
    """One run. `plan` is without its requests, which come from `Store.requests`; `rounds` is 0 where nobody said."""

    id: str
    source: str
    """"run" (parity ran the engines) or "compare" (captures made elsewhere)."""
    created: str
    finished: str | None
    status: RunStatus
    verdict: str | None
    reasons: tuple[Message, ...]
    message: Message | None
    """Why it failed, for a failed run."""
    model: str
    baseline: str
    plan: Plan
    score_files: tuple[str, ...]
    """Where the scores came from, where captures were compared."""
    plan_hash: str
    command: str
    versions: Mapping[str, str]
    directory: str | None
    duration: float | None
    name: str = ""
    """What somebody calls it."""
    tags: tuple[str, ...] = ()


class ArmRow(Struct, frozen=True):
    """One arm of a run; `verdict`, `reasons`, `notes`, `counts`, `stats` compare it with the run's baseline."""

    id: int
    run: str
    name: str
    backend: str
    variant: str
    is_baseline: bool
    status: str
    """pending, captured, compared or failed."""
    message: Message | None
    capture: str | None
    engine: Mapping[str, Json]
    environment: Mapping[str, Json]
    counters: Mapping[str, Json] | None
    verdict: str | None
    reasons: tuple[Message, ...]
    notes: tuple[Message, ...]
    """What a reader of the verdict must know."""
    next_steps: tuple[NextStep, ...]
    """What would settle the reasons of an INCONCLUSIVE verdict; none in runs that an earlier parity stored."""
    counts: Mapping[str, int]
    """Findings by kind."""
    stats: Mapping[str, Json]
    tokens_per_second: float | None
    acceptance_rate: float | None
    """Accepted over proposed draft tokens, between 0 and 1."""
    acceptance_length: float | None
    """Tokens per decode step, the sampled one included: at least 1."""


class RequestRow(Struct, frozen=True):
    ordinal: int
    name: str
    prompt: str | None
    prompt_token_ids: TokenIds


class CompletionRow(Struct, frozen=True):
    """One completion of one arm; `token_ids` is int64 of shape (n_tokens,)."""

    arm: str
    request: str
    round: int
    sample: int
    n_tokens: int
    finish_reason: str | None
    stop_reason: str | int | None
    cls: str | None
    """identical, near_tie, corrupt, unjudged or missing; None for the baseline and before comparing."""
    first_divergence: int | None
    text: str | None
    token_ids: TokenIds

    @property
    def key(self) -> Key:
        return Key(self.request, self.round, self.sample)


class FindingRow(Struct, frozen=True):
    """One finding as stored. `gap` is evidence["gap"] (nats) where the detector gives one."""

    id: int
    run: str
    arm: str
    ordinal: int
    request: str
    round: int
    sample: int
    kind: str
    severity: str
    position: int | None
    length: int | None
    gap: float | None
    state: TriageState
    evidence: Mapping[str, Json]
    fingerprint: str
    weight: float = 0.0
    """Of its evidence (`parity.records.weight`): the heaviest come first."""
    label: str = ""
    """The label of its triage."""
    followed: int = 0
    """Faults that come after it in its completion; FOLLOWS where it is one that comes after the first."""
    rule: int | None = None
    """The rule of a known bug that it fits."""

    @property
    def follows(self) -> bool:
        """It comes after another fault of its completion, from which it mostly follows."""
        return self.followed == FOLLOWS

    @property
    def facts(self) -> Evidence:
        """`evidence`, typed as its kind has it."""
        return evidence_from_json(self.kind, self.request, self.evidence)

    @property
    def why(self) -> Message:
        return self.facts.said

    def to_json(self) -> dict[str, Json]:
        """What was found and where, as exports have it."""
        names = ("arm", "request", "round", "sample", "kind", "severity", "position", "length", "fingerprint")
        return {**{name: getattr(self, name) for name in names}, "evidence": dict(self.evidence)}

    @property
    def key(self) -> Key:
        return Key(self.request, self.round, self.sample)


class FindingFilter(Struct, frozen=True):
    """Which findings of a run; an empty set means no restriction.

    `text` is looked for, ignoring case, in the request's name and prompt, and in the triage's label and note.
    """

    arms: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    severities: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()
    text: str = ""
    follow_ups: bool = True
    """Those too that come after the first fault of their completion."""


class Triage(Struct, frozen=True):
    """What a person said about a finding; it belongs to the fingerprint, so it holds in later runs too."""

    state: TriageState = TriageState.NEW
    note: str = ""
    link: str = ""
    duplicate_of: str | None = None
    """Fingerprint of the finding that this one repeats."""
    label: str = ""
    """A word or two to find it by, such as the name of a suspected bug."""

    def to_json(self) -> dict[str, Json]:
        return {
            "state": str(self.state),
            "note": self.note,
            "link": self.link,
            "duplicate_of": self.duplicate_of,
            "label": self.label,
        }

    @staticmethod
    def from_json(value: Mapping[str, Json]) -> Triage:
        """`label` may be missing: the history of older databases has none."""
        return Triage(
            TriageState(value["state"]), value["note"], value["link"], value["duplicate_of"], value.get("label", "")
        )


class TriageChange(Struct, frozen=True):
    """One line of the append-only history. `undoes` names the batch that this change undid."""

    batch: int
    at: str
    fingerprint: str
    before: Triage | None
    after: Triage | None
    undoes: int | None = None
    author: str = ""
    """Who made it; "" of databases of before."""
    run: str | None = None
    """The run on whose screen it was made; None where nobody said."""


class TriageStep(Struct, frozen=True):
    """Changes that were made as one. `before` and `after`: of the first of them."""

    batch: int
    at: str
    author: str
    findings: int
    fingerprint: str
    before: Triage
    after: Triage


class KindCount(Struct, frozen=True):
    kind: str
    severity: str
    findings: int


class Rule(Struct, frozen=True):
    """A known bug, as it is recognised in later runs: prompts and places may be others there."""

    kind: str
    link: str = ""
    """The issue in which it is on file."""
    signs: Mapping[str, str] = field(default_factory=dict)
    """What the evidence must say (`parity.records.signs`)."""
    conditions: tuple[str, ...] = ()
    """What must hold for the arm (`parity.records.conditions`)."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Packages of the arm that must have this version."""
    model: str = ""
    """The model that it is known of; "" for any."""
    id: int = 0
    author: str = ""
    created: str = ""


class RuleUse(Struct, frozen=True):
    """A rule, how many findings of how many runs it has taken, and the newest of those runs."""

    rule: Rule
    findings: int
    runs: int
    newest: str | None


class Occurrence(Struct, frozen=True):
    """A run that asked a request of an arm, and what came of one kind of finding there: None where it did not occur."""

    run: str
    created: str
    finding: int | None
    position: int | None
    state: TriageState | None
