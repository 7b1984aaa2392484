"""Sketches of two computations of the same tokens, paired token by token, with the proof that they are the same.

A token is paired where both sides had the same token id at the same position of the same sequence, everything that the
step computed before it in this row was of that sequence too (what comes after a rejected draft is not), and where what
went into the first layer is equal to the last bit. A position that was computed again counts as it was computed last.
The first position of a completion that cannot be paired ends it: what comes later may have seen anything.

A drafter's first pass is over the target's tokens, each with the token that comes next as its input: it is paired where
that is the sequence's own on both sides, at the same position, and its embedding equal to the last bit. The reference
is the same engine's prefill of the same tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from parity.capture.sketches import Numbers, SketchedModule, Sketches
from parity.records import Capture, Completion, Key

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

RARE_NORM: Final = 0.5
"""A vector shorter than this share of its module's median is measured by that share: what is nearly nothing differs by
its own size from one rounding to the next."""

TIED: Final = 0.02
"""Relative distance of a block of experts beyond which a router's exact tie was decided otherwise: which of two equal
logits an engine takes is not in the logits."""

AT_ONCE: Final = 4096
"""Tokens whose sketches are held in double precision together."""


@dataclass(frozen=True)
class Aligned:
    """Tokens that both sides computed, in the order of completions and positions. Arrays of shape (tokens, …)."""

    keys: tuple[Key, ...]
    modules: tuple[SketchedModule, ...]
    """Those that both sides have, in the order in which they run."""
    completion: Ints
    """An index into `keys`."""
    position: Ints
    """In prompt and completion."""
    prompt_tokens: Ints
    """Of each key, shape (keys,)."""
    plain: npt.NDArray[np.bool_]
    """Whether each key was decoded greedily, its logits shaped by nothing; shape (keys,)."""
    step: Ints
    row: Ints
    distance: Floats
    """Relative difference of what each module gave, shape (tokens, modules): NaN where one side did not see it,
    infinite where only the candidate's is no number."""
    flipped: npt.NDArray[np.bool_]
    """The router chose other experts, shape (tokens, modules); False for what is no router."""
    gap: Floats
    """Of a router, the smaller of the two gaps between the last expert chosen and the next; else NaN."""
    best: Ints
    """The only largest logit of the candidate after each token, -1 where there is none."""
    reference_best: Ints
    follows: Ints
    """The token that the candidate handed out next, -1 after the last."""
    unpaired: Mapping[Key, str]
    """Completions that were not paired to their end, and why: a word of UNPAIRED."""

    def __len__(self) -> int:
        return len(self.completion)


def pooled(one: Aligned, other: Aligned) -> Aligned:
    """The completions of `one`, and after them those of `other`, with the modules that both have."""
    there = {each.name: place for place, each in enumerate(other.modules)}
    modules = [place for place, each in enumerate(one.modules) if each.name in there]
    theirs = [there[one.modules[place].name] for place in modules]

    def tokens(name: str) -> npt.NDArray[Any]:
        return np.concatenate([getattr(one, name), getattr(other, name)])

    def by_module(name: str) -> npt.NDArray[Any]:
        return np.concatenate([getattr(one, name)[:, modules], getattr(other, name)[:, theirs]])

    return Aligned(
        keys=(*one.keys, *other.keys),
        modules=tuple(one.modules[place] for place in modules),
        completion=np.concatenate([one.completion, other.completion + len(one.keys)]),
        position=tokens("position"),
        prompt_tokens=tokens("prompt_tokens"),
        plain=tokens("plain"),
        step=tokens("step"),
        row=tokens("row"),
        distance=by_module("distance"),
        flipped=by_module("flipped"),
        gap=by_module("gap"),
        best=tokens("best"),
        reference_best=tokens("reference_best"),
        follows=tokens("follows"),
        unpaired=one.unpaired,
    )


UNPAIRED: Final = ("no sketches", "no reference", "other tokens", "other input", "sketches ended")
"""Why a completion ends before its end: nothing was sketched of it; the reference did not compute this sequence; the
engine was fed other tokens than it handed out; what went into the first layer is not equal to the last bit; it went on
when sketching had ended."""


@dataclass(frozen=True)
class _Side:
    """Sketches with the rows of each sequence by position."""

    sketches: Sketches
    by_position: Ints
    """Rows of the sketches."""
    first: int
    """Position of the first of them."""
    ended: bool = False
    """It was computed in the last step that was sketched, and sketching ended before the engine did."""


def align(
    capture: Capture,
    candidate: Sequence[Sketches],
    reference: Sequence[Sketches],
    *,
    prefixes: bool = False,
    drafter: bool = False,
) -> Aligned:
    """Pair the tokens of every completion of a capture. `reference` holds prefills of whole sequences.

    With `prefixes` a completion whose sequence is not among them is paired as far as one of the same prompt is
    equal: for a reference that computed another engine's completions. With `drafter` its modules come after the
    target's, and only tokens are paired that it was given too."""
    sequences = _sequences(reference)
    of_prompt = _by_prompt(sequences, capture) if prefixes else {}
    found: list[tuple[Key, _Side, _Side]] = []
    unpaired: dict[Key, str] = {}
    of_key = _by_key(candidate)
    for completion in sorted(capture, key=lambda one: one.key):
        tokens = np.concatenate([completion.prompt_token_ids, completion.token_ids]).astype(np.int64)
        if not len(completion.token_ids):
            continue
        ours, theirs = of_key.get(completion.key), sequences.get(tokens.tobytes())
        if theirs is None and prefixes:
            theirs = _longest(of_prompt.get(completion.prompt_token_ids.astype(np.int64).tobytes(), ()), tokens)
        if ours is None or theirs is None:
            unpaired[completion.key] = UNPAIRED[0] if ours is None else UNPAIRED[1]
            continue
        side = _side(ours[0], ours[1], tokens, drafter)
        if drafter:
            theirs = _given_what_follows(theirs, tokens)
        paired, why = _paired(side, theirs, len(tokens) - 1, drafter)
        if why:
            unpaired[completion.key] = why
        if paired is not None:
            found.append((completion.key, *paired))
    return _measured(found, {one.key: one for one in capture}, unpaired, drafter)


def _by_key(candidate: Sequence[Sketches]) -> dict[Key, tuple[Sketches, Ints]]:
    """Of each completion the rows of the start that computed it last."""
    found: dict[Key, tuple[Sketches, Ints]] = {}
    for sketches in candidate:
        for number, rows in _rows_of_requests(sketches):
            key = sketches.requests[number].key if number in sketches.requests else None
            if key is not None:
                found[key] = (sketches, rows)
    return found


def _rows_of_requests(sketches: Sketches) -> Iterable[tuple[int, Ints]]:
    request = sketches.columns["request"]
    if not len(request):
        return
    order = np.argsort(request, kind="stable")
    numbers, begins = np.unique(request[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, begins[1:]), strict=True)


def _sequences(reference: Sequence[Sketches]) -> dict[bytes, _Side]:
    """Prefills by the tokens that they computed, from the first on."""
    found: dict[bytes, _Side] = {}
    for sketches in reference:
        for _, rows in _rows_of_requests(sketches):
            last = _last_of_each(sketches.columns["position"][rows], rows)
            if last is not None and last[1] == 0:
                found[sketches.columns["token"][last[0]].tobytes()] = _Side(sketches, last[0], 0)
    return found


def _by_prompt(sequences: Mapping[bytes, _Side], capture: Capture) -> dict[bytes, list[_Side]]:
    """Prefills by the prompts of a capture with which they begin."""
    lengths = sorted({len(one.prompt_token_ids) for one in capture})
    wanted = {one.prompt_token_ids.astype(np.int64).tobytes() for one in capture}
    found: dict[bytes, list[_Side]] = {}
    for raw, side in sequences.items():
        for length in lengths:
            if raw[: 8 * length] in wanted and len(raw) > 8 * length:
                found.setdefault(raw[: 8 * length], []).append(side)
    return found


def _longest(sides: Sequence[_Side], tokens: Ints) -> _Side | None:
    """The prefill that is equal to `tokens` longest, cut to what is equal."""
    best: _Side | None = None
    for side in sides:
        theirs = side.sketches.columns["token"][side.by_position][: len(tokens)]
        differs = theirs != tokens[: len(theirs)]
        equal = int(differs.argmax()) if differs.any() else len(theirs)
        if best is None or equal > len(best.by_position):
            best = _Side(side.sketches, side.by_position[:equal], 0)
    return best


def _last_of_each(position: Ints, rows: Ints) -> tuple[Ints, int] | None:
    """The last row of each position, and the first position; None where positions are missing between."""
    if not len(rows):
        return None
    first, last = int(position.min()), int(position.max())
    if last - first >= len(rows):
        return None
    by_position = np.full(last - first + 1, -1, dtype=np.int64)
    by_position[position - first] = rows  # of several the last stays, rows are in the order of steps
    return None if (by_position < 0).any() else (by_position, first)


def _drafted(sketches: Sketches, rows: Ints, tokens: Ints) -> npt.NDArray[np.bool_]:
    """Rows in which the drafter was given the token that follows in the sequence, at the same position."""
    columns = sketches.columns
    position = columns["position"][rows]
    inside = (position >= 0) & (position + 1 < len(tokens)) & (columns["drafted_at"][rows] == position)
    found = np.zeros(len(rows), dtype=bool)
    found[inside] = columns["drafted"][rows][inside] == tokens[position[inside] + 1]
    return found


def _given_what_follows(side: _Side, tokens: Ints) -> _Side:
    """A prefill up to the first token at which its drafter was given another than the next one, as at a chunk's end."""
    other = np.flatnonzero(~_drafted(side.sketches, side.by_position, tokens))
    end = int(other[0]) if len(other) else len(side.by_position)
    return _Side(side.sketches, side.by_position[:end], side.first)


def _side(sketches: Sketches, rows: Ints, tokens: Ints, drafter: bool = False) -> _Side:
    """The rows of a completion by position, as far as they are computed of these tokens without a gap."""
    columns = sketches.columns
    position, step = columns["position"][rows], columns["step"][rows]
    inside = (position >= 0) & (position < len(tokens))
    right = np.zeros(len(rows), dtype=bool)
    right[inside] = columns["token"][rows][inside] == tokens[position[inside]]
    if drafter:
        right &= _drafted(sketches, rows, tokens)
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (np.diff(step) != 0) | (np.diff(position) != 1)
    wrong = np.cumsum(~right)
    before = (wrong - ~right)[np.flatnonzero(new)][np.cumsum(new) - 1]
    valid = right & (wrong == before)
    first = int(position[inside].min()) if inside.any() else 0
    by_position = np.full(len(tokens) - first, -1, dtype=np.int64)
    by_position[position[valid] - first] = rows[valid]
    missing = np.flatnonzero(by_position < 0)
    end = int(missing[0]) if len(missing) else len(by_position)
    ended = sketches.stopped is not None and bool(len(step)) and int(step.max()) == int(columns["step"].max())
    return _Side(sketches, by_position[:end], first, ended and not (by_position[end:] >= 0).any())


def _paired(ours: _Side, theirs: _Side, fed: int, drafter: bool = False) -> tuple[tuple[_Side, _Side] | None, str]:
    """Both sides cut to what is equal, and why that is not all of the `fed` tokens."""
    end = min(ours.first + len(ours.by_position), fed)
    why = "" if end == fed else UNPAIRED[4 if ours.ended else 2]
    if len(theirs.by_position) < end:
        end, why = len(theirs.by_position), UNPAIRED[1]
    if not (ours.sketches.has_entry and theirs.sketches.has_entry):
        return None, UNPAIRED[3]
    rows, other = ours.by_position[: end - ours.first], theirs.by_position[ours.first : end]
    names = ("entry", "drafter_entry") if drafter else ("entry",)
    both = [(ours.sketches.columns[name][rows], theirs.sketches.columns[name][other]) for name in names]
    differs = np.any([(one != two) | (one < 0) for one, two in both], axis=0)
    if differs.any():
        stop = int(differs.argmax())
        rows, other, why = rows[:stop], other[:stop], UNPAIRED[3]
    if not len(rows):
        return None, why
    return (_Side(ours.sketches, rows, ours.first), _Side(theirs.sketches, other, ours.first)), why


def _measured(
    found: list[tuple[Key, _Side, _Side]],
    completions: Mapping[Key, Completion],
    unpaired: Mapping[Key, str],
    drafter: bool,
) -> Aligned:
    keys = tuple(key for key, _, _ in found)
    names = [{one.name for one in side.sketches.modules} for _, *sides in found for side in sides]
    common = set.intersection(*names) if names else set()
    known = [one for one in found[0][1].sketches.modules if drafter or not one.drafter] if found else []
    modules = tuple(sorted((one for one in known if one.name in common and one.order >= 0), key=lambda one: one.order))
    counts = np.array([len(ours.by_position) for _, ours, _ in found], dtype=np.int64)
    total, wide = int(counts.sum()), len(modules)
    distance = np.full((total, wide), np.nan)
    lengths = np.full((total, wide), np.nan)
    gap, flipped = np.full((total, wide), np.nan), np.zeros((total, wide), dtype=bool)
    columns = {name: np.zeros(total, dtype=np.int64) for name in ("position", "step", "row")}
    best, theirs_best, follows = (np.full(total, -1, dtype=np.int64) for _ in range(3))
    at = 0
    for key, ours, theirs in found:
        here = slice(at, at + len(ours.by_position))
        at = here.stop
        distance[here], lengths[here] = _difference(ours, theirs, modules)
        gap[here], flipped[here] = _routed(ours, theirs, modules)
        for name, column in columns.items():
            column[here] = ours.sketches.columns[name][ours.by_position]
        best[here], theirs_best[here] = _only_best(ours), _only_best(theirs)
        one = completions[key]
        tokens = np.concatenate([one.prompt_token_ids, one.token_ids])
        follows[here] = tokens[columns["position"][here] + 1]
    distance = _relative(distance, lengths)
    return Aligned(
        keys=keys,
        modules=modules,
        completion=np.repeat(np.arange(len(keys)), counts),
        prompt_tokens=np.array([len(completions[key].prompt_token_ids) for key in keys], dtype=np.int64),
        plain=np.array([_is_plain(ours) for _, ours, _ in found], dtype=bool),
        distance=distance,
        flipped=flipped | _tied(modules, gap, distance),
        gap=gap,
        best=best,
        reference_best=theirs_best,
        follows=follows,
        unpaired=unpaired,
        **columns,
    )


def _is_plain(side: _Side) -> bool:
    request = side.sketches.requests.get(int(side.sketches.columns["request"][side.by_position[0]]))
    return request is not None and request.plain


def _columns_of(sketches: Sketches, modules: Sequence[SketchedModule]) -> list[int]:
    places = {one.name: place for place, one in enumerate(sketches.modules)}
    return [places[one.name] for one in modules]


def _difference(ours: _Side, theirs: _Side, modules: Sequence[SketchedModule]) -> tuple[Floats, Floats]:
    """The length of each module's difference, and of the reference's vector; NaN where one side saw nothing."""
    parts: list[tuple[Floats, Floats]] = []
    for begin in range(0, len(ours.by_position), AT_ONCE):
        sums: list[Numbers] = []
        seen: list[Numbers] = []
        norms: list[Numbers] = []
        for side in (ours, theirs):
            rows, columns = side.by_position[begin : begin + AT_ONCE], _columns_of(side.sketches, modules)
            norm = side.sketches.norms[rows][:, columns].astype(np.float64)
            sums.append(side.sketches.values[rows][:, columns].astype(np.float64) * norm[:, :, None])
            seen.append(~(norm < 0))
            norms.append(norm)
        with np.errstate(invalid="ignore", over="ignore"):
            length = np.sqrt(np.mean((sums[0] - sums[1]) ** 2, axis=2))
        broken = ~np.isfinite(length) & np.isfinite(norms[1]) & np.isfinite(sums[1]).all(axis=2)
        length = np.where(broken, np.inf, length)
        both = seen[0] & seen[1] & np.isfinite(norms[1])
        parts.append((np.where(both, length, np.nan), np.where(both, norms[1], np.nan)))
    return np.concatenate([one for one, _ in parts]), np.concatenate([one for _, one in parts])


def _relative(length: Floats, norm: Floats) -> Floats:
    if not len(length):
        return length
    middle = np.array([np.median(one[~np.isnan(one)]) if (~np.isnan(one)).any() else np.nan for one in norm.T])
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = length / np.maximum(norm, RARE_NORM * middle)
    return np.where((length == 0) & ~np.isnan(norm), 0.0, found)


def _routed(ours: _Side, theirs: _Side, modules: Sequence[SketchedModule]) -> tuple[Floats, npt.NDArray[np.bool_]]:
    shape = (len(ours.by_position), len(modules))
    gap, flipped = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
    mine, yours = _columns_of(ours.sketches, modules), _columns_of(theirs.sketches, modules)
    for place, (one, other) in enumerate(zip(mine, yours, strict=True)):
        if one not in ours.sketches.experts or other not in theirs.sketches.experts:
            continue
        chosen = ours.sketches.experts[one][ours.by_position], theirs.sketches.experts[other][theirs.by_position]
        if chosen[0].shape == chosen[1].shape:
            flipped[:, place] = (chosen[0] != chosen[1]).any(axis=1)
        gaps = [side.sketches.gaps.get(which) for side, which in ((ours, one), (theirs, other))]
        if gaps[0] is not None and gaps[1] is not None:
            gap[:, place] = np.fmin(gaps[0][ours.by_position], gaps[1][theirs.by_position])
    return gap, flipped


def _tied(modules: Sequence[SketchedModule], gap: Floats, distance: Floats) -> npt.NDArray[np.bool_]:
    """Where a router's logits are equal and its block of experts gave something else."""
    places = {one.name: place for place, one in enumerate(modules)}
    found = np.zeros(gap.shape, dtype=bool)
    for place, one in enumerate(modules):
        block = _block(one.name, places) if one.role == "router" else None
        if block is not None:
            with np.errstate(invalid="ignore"):
                found[:, place] = (gap[:, place] == 0) & (distance[:, block] > TIED)
    return found


def _block(router: str, places: Mapping[str, int]) -> int | None:
    """The block of experts that a router belongs to; its layer, where blocks were not sketched."""
    name = router
    while name:
        name = name.rpartition(".")[0]
        if name in places:
            return places[name]
    return None


def _only_best(side: _Side) -> Ints:
    columns = side.sketches.columns
    found: Ints = np.where(columns["ties"][side.by_position] == 1, columns["best"][side.by_position], -1)
    return found
