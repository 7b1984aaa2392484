"""Were both arms asked the same thing, as their headers say?"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from parity.comparator.inputs import settings
from parity.messages import Message, message
from parity.records import Capture, Completion, Json
from parity.records.sampling import Effect, parameter


def highest_own_temperature(*captures: Capture) -> float:
    """Of the requests that have one of their own; 0 without any."""
    own = (capture.completions[key].sampling for capture in captures for key in capture.own_sampling)
    return max(map(temperature_in, own), default=0.0)


def own_differences(
    a: Completion, b: Completion, left: Mapping[str, Json], right: Mapping[str, Json]
) -> tuple[str, ...]:
    """Sampling parameters of one request that its two completions were asked with differently, where it has its own;
    `left` and `right`: all of either."""
    if not a.sampling and not b.sampling and a.max_tokens is None and b.max_tokens is None:
        return ()
    own = {*a.sampling, *b.sampling, *(["max_tokens"] if a.max_tokens != b.max_tokens else [])}
    return tuple(name for name in _asked_of(left, right) if name in own and _plain(name, left) != _plain(name, right))


def temperature_in(sampling: Mapping[str, Json]) -> float:
    """The sampling temperature; 0 (greedy) where nothing says it."""
    value = sampling.get("temperature")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


class Questions(Struct, frozen=True):
    """Ways in which the arms were not asked the same."""

    differences: tuple[Message, ...] = ()
    """Each leaves nothing to conclude."""
    parameters: frozenset[str] = frozenset()
    """Sampling parameters among them."""


def different_questions(baseline: Capture, candidate: Capture) -> Questions:
    """Ways in which the two arms were not asked the same thing, as their headers say."""
    left, right = baseline.header.sampling, candidate.header.sampling
    parameters = [name for name in _asked_of(left, right) if _plain(name, left) != _plain(name, right)]
    found = [
        _names_no_sampling(name, baseline, candidate)
        or message(
            "inputs.sampling_differs",
            "sampling differs: {name} is {baseline} and {candidate}",
            name=name,
            baseline=repr(left.get(name)),
            candidate=repr(right.get(name)),
        )
        for name in parameters
    ]
    parts, _ = settings.differing_parts(baseline.header, candidate.header)
    if parts:
        found.append(
            message(
                "inputs.fingerprints_differ",
                "the model fingerprints differ ({parts}): not the same checkpoint or tokenizer",
                parts=parts,
            )
        )
    known = settings.has_fingerprints(baseline.header, candidate.header)
    names = [capture.header.model.rstrip("/").rpartition("/")[2] for capture in (baseline, candidate)]
    if not known and all(names) and names[0] != names[1]:
        found.append(
            message(
                "inputs.models_differ",
                "the models differ: {baseline} and {candidate}",
                baseline=names[0],
                candidate=names[1],
            )
        )
    sizes = baseline.header.vocab_size, candidate.header.vocab_size
    if None not in sizes and sizes[0] != sizes[1]:
        found.append(
            message(
                "inputs.vocabulary_differs",
                "vocabulary differs: {baseline} and {candidate} tokens",
                baseline=sizes[0],
                candidate=sizes[1],
            )
        )
    eos = baseline.header.eos_token_ids, candidate.header.eos_token_ids
    if all(eos) and set(eos[0] or ()) != set(eos[1] or ()):  # who names none has the other's (`stops.stop_rules`)
        found.append(
            message(
                "inputs.eos_differs",
                "EOS tokens differ: {baseline} and {candidate}",
                baseline=str(list(eos[0] or ())),
                candidate=str(list(eos[1] or ())),
            )
        )
    return Questions(tuple(found), frozenset(parameters))


def _names_no_sampling(name: str, *arms: Capture) -> Message | None:
    """Of a temperature that differs because a header, of a script as a rule, says nothing of how its arm was asked."""
    silent = [arm.header.arm for arm in arms if not arm.header.sampling]
    if name != "temperature" or len(silent) != 1:
        return None
    other = next(arm.header for arm in arms if arm.header.sampling)
    return message(
        "inputs.sampling_unsaid",
        "the header of {arm} names no sampling parameters, which counts as greedy, and {other} has the temperature "
        "{temperature}: where it was asked with the same, write them into it (`sampling`, docs/capture.md)",
        arm=silent[0],
        other=other.arm,
        temperature=repr(other.sampling.get("temperature")),
    )


def _asked_of(left: Mapping[str, Json], right: Mapping[str, Json]) -> list[str]:
    """Sampling parameters to compare: those that both name, and where both name some at all, those that one leaves to
    its default. The temperature always: missing, it means greedy."""
    names = set(left) & set(right)
    if left and right:
        names |= {name for name in set(left) | set(right) if (row := parameter(name)) is not None and row.assumed}
    hottest = max(temperature_in(left), temperature_in(right))
    return sorted(name for name in names | {"temperature"} if _matters(name, hottest))


def _matters(name: str, hottest: float) -> bool:
    """May this parameter change a completion at this temperature?"""
    row = parameter(name)
    if row is None:
        return True
    return row.compared and (name == "temperature" or hottest > 0 or row.effect is not Effect.DRAWS)


def _plain(name: str, sampling: Mapping[str, Json]) -> Json:
    """A parameter's value, whichever way its absence is written."""
    row, value = parameter(name), sampling.get(name)
    return value if row is None else row.plain(value)
