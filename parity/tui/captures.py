"""What only the capture files hold: top logprobs and acceptance traces of one completion.

The files may be large, far away or gone, so this looks at one completion only and runs in a thread.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from parity.records import Key, TokenIds, TopLogprobs
from parity.store import ArmRow, RunRow


@dataclass(frozen=True, slots=True)
class Extras:
    """None where the files do not say. Arrays go with the tokens of the named completion."""

    reference: TopLogprobs | None = None
    """The scoring arm's opinion of each candidate token."""
    candidate: TopLogprobs | None = None
    baseline: TopLogprobs | None = None
    accepted: tuple[int, ...] | None = None
    """Draft tokens accepted, per decode step of the candidate."""
    drafted: tuple[int, ...] | None = None
    problem: str | None = None


def load_extras(run: RunRow, baseline: ArmRow | None, candidate: ArmRow | None, key: Key) -> Extras:
    """Everything the files of a run say about one completion. Never raises for a file that is not there."""
    problems: list[str] = []
    own, spec = _completion(_path(run, candidate), key, problems)
    theirs, _ = _completion(_path(run, baseline), key, problems)
    places = [Path(run.directory) / "scores.jsonl"] if run.directory else []
    for arm in (baseline, candidate):
        path = _path(run, arm)
        if path is not None:
            places.append(path)
    reference = own_view = None
    for place in places:
        if not place.is_file():
            continue
        if candidate is not None and reference is None:
            reference = _score(place, candidate.name, key, problems)
        if baseline is not None and own_view is None:
            own_view = _score(place, baseline.name, key, problems)
    accepted, drafted = _trace(spec)
    return Extras(reference, own, theirs or own_view, accepted, drafted, problems[0] if problems else None)


def gaps(scores: TopLogprobs | None, tokens: TokenIds) -> npt.NDArray[np.float64] | None:
    """Nats by which each token lies below the best one, shape (T,); NaN where it is not known.

    A token that is not among the top ones gets the distance to the last of them: a lower bound.
    """
    if scores is None or not len(tokens):
        return None
    length = min(len(scores), len(tokens))
    values = np.where(np.isfinite(scores.values[:length]), scores.values[:length], -np.inf)
    found = np.full(len(tokens), np.nan)
    if not values.size:
        return found
    best, worst = values.max(axis=1), np.where(np.isfinite(values), values, np.inf).min(axis=1)
    hit = scores.ids[:length] == tokens[:length, None]
    chosen = np.where(hit, values, -np.inf).max(axis=1)
    known = np.isfinite(best)
    floor = np.where(np.isfinite(chosen), chosen, worst)
    found[:length][known] = np.maximum(0.0, best[known] - floor[known])
    return found


def _path(run: RunRow, arm: ArmRow | None) -> Path | None:
    """The capture of an arm: where the store says, else where a run's directory has it."""
    if arm is None:
        return None
    candidates = [Path(arm.capture)] if arm.capture else []
    if run.directory:
        candidates.append(Path(run.directory) / f"{arm.name.replace('/', '-')}.jsonl")
    return next((path for path in candidates if path.is_file()), None)


def _records(path: Path, needle: str, problems: list[str]) -> Iterator[dict[str, Any]]:
    """Records whose line holds `needle`: the others are not parsed."""
    marker = orjson.dumps(needle)
    try:
        opener: Any = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rb") as file:
            for line in file:
                if marker in line:
                    try:
                        record = orjson.loads(line)
                    except orjson.JSONDecodeError:
                        problems.append(f"{path}: a line is not valid JSON")
                        continue
                    if isinstance(record, dict):
                        yield record
    except (OSError, EOFError) as error:
        problems.append(f"{path} cannot be read: {error}")


def _is(record: dict[str, Any], kind: str, key: Key) -> bool:
    return record.get("record") == kind and key == (
        record.get("request"),
        record.get("round", 0),
        record.get("sample", 0),
    )


def _completion(path: Path | None, key: Key, problems: list[str]) -> tuple[TopLogprobs | None, Any]:
    if path is None:
        return None, None
    for record in _records(path, key.request, problems):
        if _is(record, "completion", key):
            return _top(record.get("logprobs"), path, problems), record.get("spec")
    return None, None


def _score(path: Path, arm: str, key: Key, problems: list[str]) -> TopLogprobs | None:
    for record in _records(path, key.request, problems):
        if _is(record, "score", key) and record.get("arm") == arm:
            return _top(record.get("logprobs"), path, problems)
    return None


def _top(value: Any, path: Path, problems: list[str]) -> TopLogprobs | None:
    if not isinstance(value, list):
        return None
    try:
        return TopLogprobs.from_json([entry or [] for entry in value])
    except (TypeError, ValueError, OverflowError) as error:
        problems.append(f"{path}: logprobs that cannot be read: {error}")
        return None


def _trace(spec: Any) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    def numbers(value: Any) -> tuple[int, ...] | None:
        if isinstance(value, list) and all(isinstance(n, int) for n in value):
            return tuple(value)
        return None

    if not isinstance(spec, dict):
        return None, None
    return numbers(spec.get("accepted")), numbers(spec.get("drafted"))


def step_of(position: int, accepted: Sequence[int]) -> tuple[int, int] | None:
    """(decode step, place in it) of an output token: the prefill makes token 0, then every step makes its
    accepted draft tokens and one more. None past the trace."""
    if position == 0:
        return None
    first = 1
    for step, count in enumerate(accepted):
        if first <= position <= first + count:
            return step, position - first
        first += count + 1
    return None
