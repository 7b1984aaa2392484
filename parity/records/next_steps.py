"""What would decide a run that its verdict leaves open, or say more of what it found, as data: `parity.view.commands`
makes a command of it.

The comparison knows what is missing; it knows neither where the captures lie nor which engines there are. So it names
the steps, the best one first, and whoever shows the run writes the first that can be taken there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from parity.messages import Json


class Step(StrEnum):
    """One thing to do."""

    SCORE = "score"
    """The baseline's engine scores all completions, its own among them."""
    SCORE_TOP = "score_top"
    """It scores them with longer lists: `number` tokens at each place."""
    ARBITER = "arbiter"
    """An engine that is no arm scores both sides where they differ. Greedy decoding only."""
    REFERENCE = "reference"
    """An engine that can score becomes the baseline of what was captured."""
    SAME_PRECISION = "same_precision"
    """The baseline is captured in the candidate's own precision."""
    SWAP = "swap"
    """Another arm becomes the baseline."""
    LOGPROBS = "logprobs"
    """The same again, each arm with `number` logprobs of its own."""
    SAME_QUESTIONS = "same_questions"
    """The candidate is asked what the baseline was asked."""
    AGAIN = "again"
    """The same plan once more."""
    OWN_SEEDS = "own_seeds"
    """The arms are captured again, each request with a seed of its own; greedily where a server gives it none."""
    ROUNDS = "rounds"
    """The same with `number` times as many rounds."""
    LONGER = "longer"
    """The same with `number` times as many output tokens."""
    ONE_SAMPLE = "one_sample"
    """One sample for each request, and `number` times as many rounds."""
    FEWER_BLOCKS = "fewer_blocks"
    """The same with half the KV blocks."""
    UNSHAPED = "unshaped"
    """The same without the sampling parameters `names`."""
    DONORS = "donors"
    """The baseline's engine scores unlikely drawn completions after the prompts of other requests; where none is
    unlikely, the most surprising ones (`EXCHANGED`)."""
    TOKENIZER = "tokenizer"
    """What was captured is compared again, with the checkpoint's tokenizer."""
    USUAL_RATE = "usual_rate"
    """The fault of a positive control is planted as often as is usual."""
    DEEPER = "deeper"
    """The same with what tokens do not show: sketches of modules and the engine's bookkeeping."""
    OTHER_FAULT = "other_fault"
    """A positive control with a fault that changes tokens, in the place of one that does not show."""
    CALIBRATE = "calibrate"
    """The tolerance is measured: the baseline scores its own completions."""


EXCHANGED: Final = "conclude.untried_ways"
"""What `DONORS` settles of a run that found nothing: that completions of two requests were exchanged, which in a flat
model nothing shows but a scorer that is asked about other prompts."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """A step, and the reason (its message's id) that it would settle."""

    step: Step
    settles: str
    number: int | None = None
    names: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        return {
            "step": str(self.step),
            "settles": self.settles,
            **({} if self.number is None else {"number": self.number}),
            **({"names": list(self.names)} if self.names else {}),
        }

    @staticmethod
    def from_json(value: Mapping[str, Json]) -> NextStep | None:
        """From `to_json`; None for a step of a later version."""
        number, names = value.get("number"), value.get("names")
        try:
            step = Step(str(value["step"]))
        except (KeyError, ValueError):
            return None
        return NextStep(
            step,
            str(value.get("settles", "")),
            number if isinstance(number, int) else None,
            tuple(map(str, names)) if isinstance(names, list) else (),
        )


def steps_from(values: Iterable[Mapping[str, Json]]) -> tuple[NextStep, ...]:
    """From a list of `to_json`, those that this version knows."""
    return tuple(step for value in values if (step := NextStep.from_json(value)) is not None)
