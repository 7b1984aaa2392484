"""From logits to tokens, row by row, by each request's own rules, in the order in which vLLM's sampler applies them.

Allowed ids, bad words, `min_tokens`, `logit_bias`, penalties, and at temperatures above 0 min-p, top-k, top-p and a
draw. A lapse is a rule that the engine forgets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from worlds.model import EOS
from worlds.rounding import Floats

Ints = npt.NDArray[np.int64]

NUMBERS = {
    "temperature": 0.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "min_tokens": 0,
}
"""Rules that are one number each, and the number that does nothing."""


@dataclass(frozen=True, slots=True)
class Lapse:
    """Rules that an engine gets wrong for a row, from one output token on.

    values: what they are for it instead, by name; None: nothing. late: tokens by which what was said counts too late.
    step: the place in a decode step at which alone it lapses; -1: at every one. rate: chance of it at each token.
    prompt: "counted", tokens of the prompt count as said; "forgotten", they count for no penalty. second: the second
    best token is taken. draft: what becomes of drafts: "accepted" unchecked, "likely": accepted from one half on,
    "redrawn": after a rejection the token is drawn from all tokens, "second": after one the second best is taken.
    stale: whose logits it gets: "own", those of its own step before, "other", those of the row beside it.
    """

    start: int = 0
    stop: int = 1 << 30
    values: Mapping[str, Any] = field(default_factory=dict)
    late: int = 0
    step: int = -1
    rate: float = 1.0
    prompt: str = ""
    second: bool = False
    draft: str = ""
    stale: str = ""

    def holds(self, at: int, place: int) -> bool:
        """Does it lapse at this output token, which is at that place of its decode step?"""
        return self.start <= at < self.stop and self.step in (-1, place)


class Chooser:
    """Chooses the next tokens of a batch. Rules by row; `seeds`: one number per row that its draws come from."""

    def __init__(
        self,
        rules: Sequence[Mapping[str, Any]],
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        lapses: Mapping[int, Lapse],
        vocabulary: int,
    ) -> None:
        rows = len(rules)
        self.vocabulary = vocabulary
        self.number = {
            name: np.array([float(one.get(name, none) or none) for one in rules]) for name, none in NUMBERS.items()
        }
        self.seeds = np.array(seeds, dtype=np.uint64)
        self.rules = list(rules)
        self.lapses = [lapses.get(row) for row in range(rows)]
        self.ends = [_ends(one) for one in rules]
        self.shaped = any(_shapes(one) for one in rules) or any(one and _shapes(one.values) for one in self.lapses)
        lapsing = [one for one in lapses.values() if one]
        penalties = [name for name in NUMBERS if name.endswith("_penalty")]
        self.penal = any(self._any(name, NUMBERS[name]) for name in penalties)
        self.penal |= any(name in one.values for one in lapsing for name in penalties)
        self.said = [[] for _ in range(rows)] if self.shaped else None
        if self.penal:
            self.prompted = np.zeros((rows, vocabulary), dtype=np.bool_)
            self.count = np.zeros((rows, vocabulary), dtype=np.int32)
            for row, prompt in enumerate(prompts):
                lapse = self.lapses[row]
                self.prompted[row, list(prompt)] = lapse is None or lapse.prompt != "forgotten"
                if lapse is not None and lapse.prompt == "counted":
                    np.add.at(self.count[row], list(prompt), 1)
            self.waiting: list[list[int]] = [[] for _ in range(rows)]
        self.stops = any(one.get("stop_token_ids") for one in rules)
        self.drawn, self.weights = np.empty(0, dtype=np.int64), np.empty((0, vocabulary), dtype=np.float32)
        self.one_noise = any(one.get("one_noise") for one in rules)
        self.any_stale = any(one.stale for one in lapsing)
        self.before: Floats | None = None
        self.random = self._any("temperature") or any("temperature" in one.values for one in lapsing)

    def _any(self, name: str, none: float = 0.0) -> bool:
        return bool((self.number[name] != none).any())

    def keep(self, rows: Ints) -> None:
        """Goes on with these rows alone."""
        self.number = {name: values[rows] for name, values in self.number.items()}
        self.seeds = self.seeds[rows]
        self.before = None if self.before is None else self.before[rows]
        picked = rows.tolist()
        self.rules, self.lapses = [self.rules[r] for r in picked], [self.lapses[r] for r in picked]
        self.ends = [self.ends[r] for r in picked]
        if self.said is not None:
            self.said = [self.said[r] for r in picked]
        if self.penal:
            self.prompted, self.count = self.prompted[rows], self.count[rows]
            self.waiting = [self.waiting[r] for r in picked]

    def lapsing(self, at: Ints, places: Ints) -> list[int]:
        """Rows that lapse at these output positions and places of their decode steps."""
        found = [row for row, one in enumerate(self.lapses) if one and one.holds(int(at[row]), int(places[row]))]
        rates = [self.lapses[row].rate for row in found]  # type: ignore[union-attr]
        if min(rates, default=1.0) >= 1:
            return found
        chance = _uniform(self.seeds[found] ^ _OTHER, at[found])
        return [row for row, rate, drawn in zip(found, rates, chance, strict=True) if drawn < rate]

    def choose(self, raw: Floats, at: Ints, places: Ints | None = None) -> Ints:
        """Tokens for output positions `at`, at these places of their decode steps, shape (rows,); what a row still in
        its prompt gets means nothing."""
        number, rules = self.number, self.rules
        steps = np.full(len(at), -1) if places is None else places
        lapsed = self.lapsing(at, steps)
        if lapsed:
            number = {name: values.copy() for name, values in number.items()}
            rules = list(rules)
            for row in lapsed:
                values = self.lapses[row].values  # type: ignore[union-attr]
                rules[row] = {**rules[row], **values}
                for name, value in values.items():
                    if name in number:
                        number[name][row] = NUMBERS[name] if value is None else value
        if self.any_stale:
            raw = self._stale(raw, lapsed)
        self.raw = logits = raw
        self.drawn = self.drawn[:0]
        early = np.flatnonzero(at < number["min_tokens"])
        if self.shaped or self.penal or len(early):
            logits = raw.copy()
        if self.shaped:
            self._shape(logits, rules)
        for row in early.tolist():
            logits[row, self.ends[row]] = -np.inf
        if self.shaped:
            for row, rule in enumerate(rules):
                for token, bias in (rule.get("logit_bias") or {}).items():
                    logits[row, int(token)] += np.float32(bias)
        if self.penal:
            self._penalise(logits, number)
        chosen = logits.argmax(axis=1)
        if self.random:
            drawn = np.flatnonzero(number["temperature"] > 0)
            if len(drawn):
                some = {name: values[drawn] for name, values in number.items()}
                weights = _weights(logits[drawn], some)
                pick = _pick_ranked if self.one_noise else _pick
                chosen[drawn] = pick(weights, _uniform(self.seeds[drawn], at[drawn]))
                self.drawn, self.weights = drawn, weights
        for row in lapsed:
            if self.lapses[row].second:  # type: ignore[union-attr]
                chosen[row] = _second(logits[row])
                self.weights[self.drawn == row] = np.eye(self.vocabulary, dtype=np.float32)[chosen[row]]
        self.chosen, self.logits = chosen, logits
        return chosen

    def _stale(self, raw: Floats, lapsed: Sequence[int]) -> Floats:
        """The logits that rows really get."""
        made = raw.copy()
        for row in lapsed:
            how = self.lapses[row].stale  # type: ignore[union-attr]
            if how == "other":
                made[row] = raw[(row + 1) % len(raw)]
            elif how and self.before is not None:
                made[row] = self.before[row]
        self.before = raw
        return made

    def below(self, others: Ints) -> Floats:
        """Nats by which these tokens lie below those that were to be taken; 0 where those were drawn; shape (rows,)."""
        rows = np.arange(len(others))
        found = np.where(others == self.chosen, 0.0, self.logits[rows, self.chosen] - self.logits[rows, others])
        found[self.drawn] = 0.0
        return found

    def verified(self, chosen: Ints, drafted: Ints, raw: Floats, at: Ints, places: Ints, most: int) -> Ints:
        """What becomes of `chosen` where drafts are not checked as they should be; `most`: tokens drafted a step."""
        made = chosen
        for row in self.lapsing(at, places) if any(one and one.draft for one in self.lapses) else ():
            how, token = self.lapses[row].draft, int(drafted[row])  # type: ignore[union-attr]
            if not how or at[row] <= 0 or places[row] >= most or token == chosen[row]:
                continue
            made = chosen.copy() if made is chosen else made
            one = {name: values[[row]] for name, values in self.number.items()}
            if how == "accepted":
                made[row] = token
            elif how == "second":
                made[row] = _second(raw[row])
            elif how == "redrawn":
                made[row] = _pick(_weights(raw[[row]], one), _uniform(self.seeds[[row]] ^ _AGAIN, at[[row]]))[0]
            elif np.exp(raw[row, token] - raw[row].max()) > 0.5:
                made[row] = token
        return made

    def moved(self, sound: Chooser, mine: Ints, right: Ints) -> npt.NDArray[np.float64]:
        """How far what this chooser draws from is from what `sound` does: total variation, which is 1 for another
        token where either takes the best one; shape (rows,)."""
        apart = (mine != right).astype(np.float64)
        both, here, there = np.intersect1d(self.drawn, sound.drawn, return_indices=True)
        same = mine[both] == self.chosen[both]  # what drafts did not change
        sides = [
            one[rows] / one[rows].sum(axis=1, keepdims=True)
            for one, rows in ((self.weights, here), (sound.weights, there))
        ]
        apart[both] = np.where(same, np.abs(sides[0] - sides[1]).sum(axis=1) / 2, 1.0)
        return apart

    def note(self, tokens: Ints, counted: npt.NDArray[np.bool_], at: Ints) -> None:
        """What was said at output positions `at`, for the rows that `counted` names."""
        if not (self.penal or self.said is not None):
            return
        for row in np.flatnonzero(counted).tolist():
            token = int(tokens[row])
            if self.said is not None:
                self.said[row].append(token)
            if self.penal:
                lapse = self.lapses[row]
                late = lapse.late if lapse and lapse.start <= at[row] < lapse.stop else 0
                waiting = self.waiting[row]
                waiting.append(token)
                while len(waiting) > late:
                    self.count[row, waiting.pop(0)] += 1

    def _shape(self, logits: Floats, rules: Sequence[Mapping[str, Any]]) -> None:
        for row, rule in enumerate(rules):
            allowed = rule.get("allowed_token_ids")
            if allowed:
                barred = np.ones(self.vocabulary, dtype=np.bool_)
                barred[list(allowed)] = False
                logits[row, barred] = -np.inf
            for word in rule.get("bad_ids") or ():
                head = list(word[:-1])
                said = self.said[row] if self.said is not None else []
                if not head or said[-len(head) :] == head:
                    logits[row, word[-1]] = -np.inf

    def _penalise(self, logits: Floats, number: Mapping[str, npt.NDArray[np.float64]]) -> None:
        strength = number["repetition_penalty"]
        rows = np.flatnonzero(strength != 1.0)
        if len(rows):
            seen = self.prompted[rows] | (self.count[rows] > 0)
            part, by = logits[rows], strength[rows, None].astype(np.float32)
            logits[rows] = np.where(seen, np.where(part > 0, part / by, part * by), part)
        for name, times in (("frequency_penalty", self.count), ("presence_penalty", None)):
            strength = number[name]
            rows = np.flatnonzero(strength != 0.0)
            if len(rows):
                counts = self.count[rows] if times is not None else self.count[rows] > 0
                logits[rows] -= strength[rows, None].astype(np.float32) * counts.astype(np.float32)


_OTHER, _AGAIN = np.uint64(0x5851F42D4C957F2D), np.uint64(0x14057B7EF767814F)
"""Streams of draws beside those of the tokens."""


def _second(logits: Floats) -> int:
    return int(np.argpartition(-logits, 1)[:2][np.argsort(-logits[np.argpartition(-logits, 1)[:2]])[1]])


def _ends(rules: Mapping[str, Any]) -> list[int]:
    """Tokens that `min_tokens` keeps away."""
    stops = [int(token) for token in rules.get("stop_token_ids") or ()]
    return stops if rules.get("ignore_eos") else [EOS, *stops]


def _shapes(rules: Mapping[str, Any]) -> bool:
    return any(rules.get(name) for name in ("allowed_token_ids", "bad_ids", "logit_bias"))


def _uniform(seeds: npt.NDArray[np.uint64], at: Ints) -> npt.NDArray[np.float64]:
    """One number in [0, 1) per row and output position, whatever the batch (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = seeds + (at.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) / 2**53


def _weights(logits: Floats, number: Mapping[str, npt.NDArray[np.float64]]) -> Floats:
    """What tokens are drawn from, shape (rows, vocabulary); not normalised."""
    scaled = logits / number["temperature"][:, None].astype(np.float32)
    scaled -= scaled.max(axis=1, keepdims=True)
    weight = np.exp(scaled)
    weight[weight < number["min_p"][:, None].astype(np.float32)] = 0
    top_k, top_p = number["top_k"].astype(np.int64), number["top_p"]
    for row in np.flatnonzero((top_k > 0) & (top_k < logits.shape[1])).tolist():
        least = np.partition(weight[row], -top_k[row])[-top_k[row]]
        weight[row, weight[row] < least] = 0
    rows = np.flatnonzero(top_p < 1)
    if len(rows):
        ranked = -np.sort(-weight[rows], axis=1)
        reached = np.cumsum(ranked, axis=1) >= top_p[rows, None] * ranked.sum(axis=1, keepdims=True)
        least = ranked[np.arange(len(rows)), reached.argmax(axis=1)]
        weight[rows] *= weight[rows] >= least[:, None]
    return weight


def _pick(weight: Floats, chance: npt.NDArray[np.float64]) -> Ints:
    reach = np.cumsum(weight, axis=1, dtype=np.float64)
    found = (reach <= (chance * reach[:, -1])[:, None]).sum(axis=1)
    return np.minimum(found, weight.shape[1] - 1).astype(np.int64)


def _pick_ranked(weight: Floats, chance: npt.NDArray[np.float64]) -> Ints:
    """The likeliest token first, as samplers do that sort."""
    order = np.argsort(-weight, axis=1, kind="stable")
    return np.take_along_axis(order, _pick(np.take_along_axis(weight, order, 1), chance)[:, None], 1)[:, 0]
