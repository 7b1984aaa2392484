"""Many rows from their prompts to their ends, and given tokens through the same steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from worlds.choosing import Chooser, Lapse
from worlds.engine import FUSED, Arm, Batch, best, log_normaliser
from worlds.model import EOS, Model
from worlds.rounding import Floats

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Row:
    """One completion to be made.

    rules: sampling parameters, `max_tokens` among them. seed: what its draws come from. given: output tokens that are
    said before the engine goes on by itself. leak: (output token, row of the same call) from which on it goes on from
    that row's state.
    """

    prompt: tuple[int, ...]
    rules: Mapping[str, Any]
    seed: int = 0
    given: tuple[int, ...] = ()
    lapse: Lapse | None = None
    leak: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """What became of a row. own: the engine's raw logprobs, ids and values of shape (T, columns), the chosen first.
    moved: how many of its choices a lapse has changed, in the mean; worst: nats by which the worst of these lies below
    the best token, where that was to be taken."""

    tokens: Ints
    finish: str
    stop: int | None
    own_ids: Ints
    own: Floats
    moved: float = 0.0
    worst: float = 0.0


@dataclass
class _Open:
    """Rows that are being decoded together, and what they have said."""

    rows: list[int]
    said: Ints
    own_ids: Ints
    own: Floats
    length: Ints
    ends: list[tuple[str, int | None] | None] = field(default_factory=list)


def decode(model: Model, arm: Arm, rows: Sequence[Row], *, columns: int = 1, noise: Sequence[int] = (0,)) -> list[Said]:
    """Every row to its end. `columns`: logprobs recorded per token, the chosen one and the best beside it."""
    found: list[Said] = []
    for start in range(0, len(rows), FUSED):
        found += _decode(model, arm, rows[start : start + FUSED], columns, [*noise, start])
    return found


def _decode(model: Model, arm: Arm, rows: Sequence[Row], columns: int, noise: Sequence[int]) -> list[Said]:
    count = len(rows)
    begins = np.array([len(row.prompt) for row in rows])
    limits = np.array([int(row.rules["max_tokens"]) for row in rows])
    forced_until = begins + np.array([len(row.given) for row in rows])
    forced = np.zeros((count, int(forced_until.max()) + 1), dtype=np.int64)
    for index, row in enumerate(rows):
        forced[index, : forced_until[index]] = [*row.prompt, *row.given]
    stops = [frozenset(int(one) for one in row.rules.get("stop_token_ids") or ()) for row in rows]
    to_eos = np.array([not row.rules.get("ignore_eos") for row in rows])
    longest = int(limits.max())
    said = np.full((count, longest), -1, dtype=np.int64)
    own_ids = np.full((count, longest, columns), -1, dtype=np.int64)
    own = np.full((count, longest, columns), np.nan, dtype=np.float32)
    ends: list[tuple[str, int | None] | None] = [None] * count
    length, moved, worst = np.zeros(count, dtype=np.int64), np.zeros(count), np.zeros(count)
    batch = Batch(model, arm, count, noise)
    asked = [row.rules for row in rows], [row.prompt for row in rows], [row.seed for row in rows]
    lapses = {index: row.lapse for index, row in enumerate(rows) if row.lapse}
    chooser = Chooser(*asked, lapses, model.shape.vocabulary)
    sound = Chooser(*asked, {}, model.shape.vocabulary) if lapses else None
    leaks: dict[int, list[tuple[int, int]]] = {}
    for index, row in enumerate(rows):
        if row.leak:
            leaks.setdefault(int(begins[index]) + row.leak[0] - 1, []).append((index, row.leak[1]))
    here = np.arange(count)
    alive = np.ones(count, dtype=np.bool_)
    in_step = np.full(count, -1, dtype=np.int64)  # -1: the token that a prefill makes
    feed = forced[:, 0].copy()
    for step in range(int((begins + limits).max()) - 1):
        for index, donor in leaks.get(step, ()):
            spots = [np.flatnonzero(here == one) for one in (index, donor)]
            if all(len(spot) for spot in spots):
                batch.leak(int(spots[0][0]), int(spots[1][0]))
        at = step + 1 - begins[here]
        decoding = alive & (at >= 0)
        live = min(int(alive.sum()), arm.rows)
        drafted = model.usual[model.context(feed, batch.last)]
        logits = batch.step(feed, live, wanted=bool(decoding.any()))
        chosen = np.zeros(len(here), dtype=np.int64)
        if len(logits):
            chosen = chooser.choose(logits, at, in_step)
            if sound is not None:
                right = sound.choose(logits, at, in_step)
                logits = chooser.raw
                chosen = chooser.verified(chosen, drafted, logits, at, in_step, arm.draft)
                moved[here] += decoding * chooser.moved(sound, chosen, right)
                worst[here] = np.fmax(worst[here], np.where(decoding, sound.below(chosen), 0.0))
        following = step + 1
        if following < forced.shape[1]:
            given = following < forced_until[here]
            chosen = np.where(given, forced[here, following], chosen)
        accepted = (at > 0) & (chosen == drafted) & (in_step < arm.draft)
        in_step = np.where(at < 0, -1, np.where(accepted, in_step + 1, 0))
        if len(logits):
            spots = np.flatnonzero(decoding)
            places = here[spots], at[spots]
            said[places] = chosen[spots]
            if columns:
                some = logits if len(spots) == len(logits) else logits[spots]
                normaliser = log_normaliser(some)
                own_ids[(*places, 0)] = chosen[spots]
                own[(*places, 0)] = some[np.arange(len(spots)), chosen[spots]] - normaliser
                own[(*places, 0)] += np.float32(arm.broken.lift)
                if columns > 1:
                    ids, values = best(some, columns - 1)
                    own_ids[places[0], places[1], 1:] = ids
                    own[places[0], places[1], 1:] = values - normaliser[:, None]
            chooser.note(chosen, decoding, at)
            if sound is not None:
                sound.note(chosen, decoding, at)
            length[places[0]] = at[spots] + 1
            over = decoding & ((at + 1 >= limits[here]) | ((chosen == EOS) & to_eos[here]))
            if chooser.stops:
                over |= decoding & np.array([int(token) in stops[row] for token, row in zip(chosen, here, strict=True)])
            for spot in np.flatnonzero(over).tolist():
                token, row = int(chosen[spot]), int(here[spot])
                if token == EOS and to_eos[row]:
                    ends[row] = ("stop", None)
                elif token in stops[row]:
                    ends[row] = ("stop", token)
                else:
                    ends[row] = ("length", None)
            alive &= ~over
            if not alive.any():
                break
            if int(alive.sum()) * 4 < 3 * len(here):
                kept = np.flatnonzero(alive)
                batch.keep(kept)
                chooser.keep(kept)
                if sound is not None:
                    sound.keep(kept)
                here, chosen, alive, in_step = here[kept], chosen[kept], alive[kept], in_step[kept]
        feed = chosen
    made = []
    for index in range(count):
        many, end = int(length[index]), ends[index] or ("length", None)
        lapsed = float(moved[index]), float(worst[index])
        made.append(Said(said[index, :many], *end, own_ids[index, :many], own[index, :many], *lapsed))
    return made


@dataclass(frozen=True, slots=True)
class Forced:
    """A scored completion: ids and logprobs (nats) of shape (T, top + 1), logsumexp of the logits of shape (T,).

    The best tokens first; the last column is the chosen token where it is not among them, else empty (-1, NaN).
    """

    ids: Ints
    values: npt.NDArray[np.float64]
    logsumexp: npt.NDArray[np.float64]


def force(model: Model, arm: Arm, pairs: Sequence[tuple[Sequence[int], Ints]], *, top: int = 5) -> list[Forced]:
    """Given completions after their prompts, scored."""
    order = sorted(range(len(pairs)), key=lambda one: len(pairs[one][0]) + len(pairs[one][1]))
    found: dict[int, Forced] = {}
    for start in range(0, len(order), FUSED):
        some = order[start : start + FUSED]
        for index, scored in zip(some, _force(model, arm, [pairs[one] for one in some], top), strict=True):
            found[index] = scored
    return [found[index] for index in range(len(pairs))]


def _force(model: Model, arm: Arm, pairs: Sequence[tuple[Sequence[int], Ints]], top: int) -> list[Forced]:
    begins = np.array([len(prompt) for prompt, _ in pairs])
    totals = begins + np.array([len(tokens) for _, tokens in pairs])
    fed = np.zeros((len(pairs), int(totals.max())), dtype=np.int64)
    for index, (prompt, tokens) in enumerate(pairs):
        fed[index, : totals[index]] = [*prompt, *tokens.tolist()]
    longest = int((totals - begins).max())
    ids = np.full((len(pairs), longest, top + 1), -1, dtype=np.int64)
    values = np.full((len(pairs), longest, top + 1), np.nan)
    sums = np.full((len(pairs), longest), np.nan)
    outside = (fed < 0) | (fed >= model.shape.vocabulary)
    fed[outside] = 0
    batch = Batch(model, arm, len(pairs), [0])
    here = np.arange(len(pairs))
    for step in range(fed.shape[1] - 1):
        going = totals[here] > step + 1
        if int(going.sum()) * 4 < 3 * len(here):
            kept = np.flatnonzero(going)
            batch.keep(kept)
            here, going = here[kept], going[kept]
        at = step + 1 - begins[here]
        wanted = going & (at >= 0)
        logits = batch.step(fed[here, step], len(here), wanted=bool(wanted.any()))
        if not len(logits):
            continue
        spots = np.flatnonzero(wanted)
        some = logits if len(spots) == len(logits) else logits[spots]
        normaliser = log_normaliser(some)
        rows, places = here[spots], at[spots]
        chosen = fed[rows, step + 1]
        listed, logs = best(some, top)
        sums[rows, places] = normaliser
        ids[rows, places, :top], values[rows, places, :top] = listed, logs - normaliser[:, None]
        apart = ~(listed == chosen[:, None]).any(axis=1)
        mine = some[np.arange(len(spots)), chosen] - normaliser
        ids[rows[apart], places[apart], top] = chosen[apart]
        values[rows[apart], places[apart], top] = mine[apart]
    lengths = (totals - begins).tolist()
    return [Forced(ids[row, :long], values[row, :long], sums[row, :long]) for row, long in enumerate(lengths)]
