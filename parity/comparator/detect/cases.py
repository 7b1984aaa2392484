"""What detectors look at: a pair of completions, and what is known of the run before any pair."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from enum import Enum
from typing import Final, overload

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from parity.comparator.detect.events import Event
from parity.comparator.detect.leak import Donors
from parity.comparator.detect.rules import Broken
from parity.comparator.detect.stops import StopRules
from parity.comparator.inputs.normalise import Inputs
from parity.comparator.inputs.said import Writer
from parity.comparator.reference.gaps import BoolArray, Decided, TokenGaps
from parity.comparator.reference.isolated import Isolated
from parity.comparator.reference.moves import Moves
from parity.comparator.reference.own_logprobs import OwnNoise
from parity.comparator.reference.rivals import Rival, Rivals
from parity.comparator.reference.scores import Reference
from parity.comparator.reference.tolerance import Doubt
from parity.comparator.streams.pairing import Pairs
from parity.messages import Message
from parity.records import Completion, Key, Kind

CONTRADICTION = 0.25
"""Nats beyond the tolerance by which the reference must reject the baseline's own token to be taken as a
contradiction: the baseline chose it, with the noise of one more kernel. More than that where the baseline's own tokens
show more noise (`Doubt.limit`): vLLM 0.32 on CPU chose one of 38,260 that its prefill has 0.56 nats below the best."""


class Habit(Struct, frozen=True):
    """At how many positions of a completion own logprobs are off that say nothing of it."""

    positions: float
    choices: Set[Hashable] = frozenset()
    """Those that are off as far after the same tokens in completions of several prompts."""


class Usual(Struct, frozen=True):
    """What is usual of own logprobs: `between` the arms', and `by_scores`."""

    between: Callable[[], Habit]
    by_scores: Callable[[Completion], Habit]


class Setup(Struct, frozen=True):
    """The run as the detectors find it."""

    inputs: Inputs
    pairs: Pairs
    reference: Reference
    rivals: Rivals
    """The baseline's tokens where the pairs part (`References.rivals`)."""
    rules: StopRules
    vocab_size: int | None
    invalid: frozenset[Key]
    """Candidate completions with a token id outside the vocabulary."""
    tolerance: float
    """Nats, in force."""
    doubt: Doubt
    isolated: Isolated | None
    """Single tokens that the scores reject in the baseline's own completions; None where these are not scored, or only
    those that differ, and no such token is in them."""
    own_noise: Callable[[], OwnNoise | None]
    """How far the baseline's own logprobs of likely tokens lie from scores, be these few; None where unknown."""
    knows_own_noise: bool
    """All of the baseline's completions, if any, are scored: their own logprobs show how far these lie from scores."""
    lists_show_choices: bool
    """The engine's own lists are what it chose from: no penalty, bias or ban stands between."""
    lists_hide_choices: bool
    """The baseline's lists, under the penalties asked for, do not explain what it chose: where no score does, nothing
    says which arm is off."""
    rejects_own: tuple[int, int] | None
    """Without penalties: as `trust.rejects_own` has it. Where no score does, nothing says which arm is off."""
    scores_show_lists: bool
    """The engines' own logprobs are of the kind that scores are."""
    moves: Callable[[], Moves]
    """Where no score can reject a token: at how many tokens logits moved between the arms, by their lists."""
    usual: Usual | None
    """How many own logprobs are off, each looked up where it is asked; None where scores reject the baseline and
    support the candidate: its own logprobs are no measure then."""
    donors: Callable[[], Donors]
    """Where tokens of another request may come from: everything that ran."""
    writer: Writer
    """How the candidate makes text of tokens."""
    broken: Broken
    """What the arms broke of the requests' own rules."""

    def farthest_own(self) -> float:
        """Nats by which these lie off at most; 0 where unknown."""
        noise = self.own_noise()
        return 0.0 if noise is None else noise.farthest

    @property
    def arms(self) -> tuple[str, str]:
        """Names of baseline and candidate."""
        return self.inputs.arms

    @property
    def contradiction(self) -> float:
        """Nats below the best from which on the reference contradicts a choice of the baseline."""
        return max(self.tolerance + CONTRADICTION, self.doubt.limit)


class Doubted(Enum):
    """Why tokens beyond the tolerance are left open."""

    LITTLE = "little"
    """Two kernels may differ by so little."""
    SILENT = "silent"
    """Nobody recorded the engine's own logprob of it."""
    AS_BASELINE = "as_baseline"
    """The baseline's own completions have such tokens as often."""
    MOVED = "moved"
    """By the engine's own logprobs its logits moved there, no farther than the baseline's do."""
    UNSAID = "unsaid"
    """Single tokens, no more and no farther than chance makes of an arm like the baseline, of which nobody recorded the
    engine's own logprob."""
    ALONE = "alone"
    """Single tokens, no more than chance makes of an arm like the baseline, though none of the baseline's is like them:
    by the engine's own logprobs its logits moved there, or they lie nearer the best than damage leaves them."""
    LOGPROBS_ALONE = "logprobs_alone"
    """The engine's own logprobs of single tokens lie far from the scores, in no more completions than chance makes of
    an arm like the baseline."""
    BY_FEW = "by_few"
    """Single tokens, no more and no farther than chance makes of an arm like the baseline, where only tokens of
    completions that differ are scored."""
    IN_A_ROW = "in_a_row"
    """Several tokens in a row, where the baseline shows moves of its logits that last."""
    CONTRADICTED = "contradicted"
    """Without scores: where the arms part, each one's own list holds its own token for the best and rejects the
    other's, and elsewhere their lists show logits that move as a router moves them."""

    PRECISION = "precision"
    """Single tokens of several completions, nearer the best than damage leaves them, of an arm known to compute in
    other precision: its router chooses other experts, of which the baseline's own tokens show nothing."""

    CUT_OFF = "cut_off"
    """A drawn token alone beyond what its request's cut-off leaves; nobody recorded the engine's own logprob of it."""

    APART = "apart"
    """Without scores: the arms' own logprobs of a few equal tokens lie apart, and their lists show logits that move so
    elsewhere."""


BY_THEMSELVES: Final = frozenset({Doubted.UNSAID, Doubted.ALONE, Doubted.LOGPROBS_ALONE})
"""Doubted though none of the baseline's tokens is like them."""


class InDoubt(Struct, frozen=True):
    """A few tokens beyond the tolerance, the worst of them: position, nats below the best."""

    position: int
    gap: float
    how: Doubted
    was: tuple[Event, ...] = ()
    """What is said of them beside other faults; of those ALONE."""


class Case(Struct, frozen=True):
    """One pair with equal prompts, and what is known of it so far."""

    pairs: Pairs
    row: int
    """Which of these it is: its completions may be made when they are looked at."""
    parts_at: int
    """The first divergent token (`Pairs.parts_at`), -1 where the streams are equal."""
    past: Event | None = None
    """Tokens after an end, or past the limit, which need no reference."""
    gaps: TokenGaps | None = None
    """Of the candidate's tokens, where anything says how good they are."""
    decided: Decided | None = None
    """What the tolerance makes of `gaps`."""
    from_scores: bool = False
    gap_is_the_others: bool = False
    """The gap where they part is that of the baseline's token in the candidate's own list."""
    gap_is_at_most: bool = False
    """The gap where they part may be smaller, and then within the tolerance: by itself it accuses nobody."""
    rival: Rival | None = None
    """With scores: the baseline's token where they part."""
    contradicted: bool = False
    """The score rejects the baseline's token where they part: the candidate is not to blame for that."""
    flip: int | None = None
    """Where the candidate takes another branch than the baseline."""
    unjudged_from: int | None = None
    """From this position on nothing could be decided."""
    suspect: Event | None = None
    """Without a reference: what the place where the streams part looks like. It proves nothing by itself."""
    events: tuple[Event, ...] = ()
    """What is wrong."""
    benign: tuple[Event, ...] = ()
    baseline_broke: bool = False
    """The baseline alone broke a rule of the request: how it ends and what it says are no measure."""
    baseline_end: Message | None = None
    """Why it is the baseline's end that cannot be right."""
    doubtful: InDoubt | None = None
    """Where there is nothing else."""

    @property
    def a(self) -> Completion:
        """The baseline's."""
        return self.pairs.baseline[self.row]

    @property
    def b(self) -> Completion:
        """The candidate's."""
        return self.pairs.candidate[self.row]

    @property
    def key(self) -> Key:
        return self.pairs.keys[self.row]

    @property
    def is_identical(self) -> bool:
        return self.parts_at < 0

    @property
    def ends_at_near_tie(self) -> bool:
        """It ends before the baseline does, and ending there was as likely."""
        return any(event.position == len(self.b.token_ids) for event in self.benign)

    def unsupported(self, tolerance: float) -> BoolArray | None:
        """Tokens that the scores do not support, shape (T,); None without scores."""
        return self.gaps.unsupported(tolerance) if self.gaps is not None and self.from_scores else None

    def rejected(self, start: int, stop: int, tolerance: float) -> list[int]:
        """Tokens from `start` to before `stop` that what is known of them does not support."""
        if self.decided is not None:  # looked for in all completions at once
            return self.decided.rejected_in(start, stop)
        if self.gaps is None:
            return []
        places: list[int] = (np.flatnonzero(self.gaps.gap[start:stop] > tolerance) + start).tolist()
        return places

    def has(self, kind: Kind) -> bool:
        return any(event.kind is kind for event in self.events)

    def widest(self) -> tuple[int, float]:
        """Position and gap of the worst token of its events."""
        assert self.gaps is not None
        places = [place for event in self.events for place in event.places(len(self.gaps.gap))]
        gaps = np.nan_to_num(self.gaps.gap[places], nan=0.0)
        return places[int(gaps.argmax())], float(gaps.max())


class Cases(Sequence[Case]):
    """Cases that wait. Of most nothing is known but where they part: these are made when they are looked at."""

    def __init__(
        self, pairs: Pairs, rows: npt.NDArray[np.int64], held: Mapping[int, Case], gaps: Mapping[Key, TokenGaps]
    ) -> None:
        """rows: shape (N,); held: by place, those of which more is known; gaps: of those that wait without them."""
        self._pairs, self._rows, self._held, self._gaps = pairs, rows, held, gaps

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> Case: ...
    @overload
    def __getitem__(self, place: slice) -> list[Case]: ...
    def __getitem__(self, place: int | slice) -> Case | list[Case]:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(len(self)))]
        found = self._held.get(place)
        if found is not None:
            missing = found.from_scores and found.gaps is None
            return structs.replace(found, gaps=self._gaps[found.key]) if missing else found
        row = int(self._rows[place])
        at = int(self._pairs.parts_at[row])
        return Case(self._pairs, row, at, flip=at, unjudged_from=at)

    def __iter__(self) -> Iterator[Case]:
        return map(self.__getitem__, range(len(self)))

    def but(self, changed: Mapping[int, Case]) -> Cases:
        """With others in some places."""
        return Cases(self._pairs, self._rows, {**self._held, **changed}, self._gaps) if changed else self


def replaced(cases: Sequence[Case], changed: Mapping[int, Case]) -> Sequence[Case]:
    """The cases with others in some places."""
    if isinstance(cases, Cases):
        return cases.but(changed)
    return [changed.get(place, case) for place, case in enumerate(cases)] if changed else cases


def is_bare(case: Case) -> bool:
    """Is nothing known of it but where it parts?"""
    return (
        case.parts_at >= 0
        and case.flip == case.unjudged_from == case.parts_at
        and case.gaps is None
        and not case.events
        and not case.benign
        and case.suspect is None
        and case.past is None
        and case.rival is None
        and case.baseline_end is None
        and case.doubtful is None
        and not (case.contradicted or case.baseline_broke or case.gap_is_the_others)
    )


Look = Callable[[Sequence[Case], Setup], Sequence[Case]]


class PairByPair(Struct, frozen=True):
    """For a detector that needs one pair at a time."""

    look: Callable[[Case, Setup], Case]

    def __call__(self, cases: Sequence[Case], setup: Setup) -> Sequence[Case]:
        return [self.look(case, setup) for case in cases]


def pair_by_pair(look: Callable[[Case, Setup], Case]) -> Look:
    """`Detector.look` of one that needs one pair at a time."""
    return PairByPair(look)


def _always(setup: Setup) -> bool:
    return True


def _every(case: Case, setup: Setup) -> bool:
    return True


class Detector(Struct, frozen=True):
    """One question to the pairs of a greedy run; registry.py has them in the order in which they are asked."""

    kinds: frozenset[Kind]
    """What it can find."""
    look: Look
    """The cases with what it found, in the same order."""
    at_equal_tokens: bool = False
    """It has to see every pair. Without, pairs with equal tokens are left out unless something else in them differs."""
    is_asked: Callable[[Setup], bool] = _always
    """Is there anything to look for in this run?"""
    together: Callable[[Case, Setup], bool] = _every
    """Which cases it is given all at once, for what one request says may stand in another; it would leave the others as
    they are. Not asked where `look` is `pair_by_pair`: that one is given a part of the cases at a time."""
