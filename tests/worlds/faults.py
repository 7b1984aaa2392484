"""What can be wrong, by name: numerics of a whole arm, rules ignored, rows damaged, and what a verdict may call it.

`catalogue()` gives every fault in the sizes that the benchmark plants. A fault does not know how it is detected.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from parity.records import Key
from worlds.choosing import Lapse
from worlds.engine import SOUND, Broken
from worlds.model import EOS

NUMERICS = ("numerics", "unjustified", "garbled")
"""Kinds that wrong numbers everywhere may have: the run's, or those of single completions that broke."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """A row's tokens after a damage. place: the first damaged token; keep: where the engine would go on from."""

    tokens: tuple[int, ...]
    place: int
    keep: int
    finish: str | None = None


Damage = Callable[[random.Random, Sequence[int], Sequence[int], int], Damaged]
"""(random numbers, the row's tokens, the donor's tokens, size of the vocabulary) to the damaged row."""


@dataclass(frozen=True, slots=True)
class Where:
    """The completions that a fault of the whole arm is in: with prompts of so many tokens or more, of this sample, of
    this round (-1: the last), of one request in so many."""

    prompt: int = 0
    sample: int | None = None
    round: int | None = None
    one_in: int = 1

    def holds(self, key: Key, prompt: int, rounds: int) -> bool:
        return (
            prompt >= self.prompt
            and zlib.crc32(key.request.encode()) % self.one_in == 0
            and self.sample in (None, key.sample)
            and (self.round is None or self.round % rounds == key.round)
        )


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault in one size.

    family: what it belongs to; size: as people say it. kinds: right answers. broken: of the arm as a whole; the others
    hit `share` of the rows. lapse: a rule forgotten, by every row where `share` is 0; leak: a row goes on from another
    one's state; damage: its tokens are changed, after which the engine goes on from them (`again`) or as if nothing had
    happened; swap: two rows' completions are exchanged; missing: the completion is not returned. rules: what every
    request must ask for it to be a fault at all; own: what one request after the other asks besides, again and again.
    where: the completions that it is in; rounds: how many there are. same_draws: what does not count for the draws,
    "request", "sample" or "round".
    """

    name: str
    size: str
    family: str
    kinds: tuple[str, ...]
    broken: Broken = SOUND
    lapse: Lapse | None = None
    leak: bool = False
    damage: Damage | None = None
    again: bool = False
    swap: bool = False
    missing: bool = False
    share: float = 0.0
    rules: Mapping[str, Any] = field(default_factory=dict)
    own: tuple[Mapping[str, Any], ...] = ()
    needs_donor: bool = False
    where: Where | None = None
    rounds: int = 1
    same_draws: str = ""

    @property
    def hits_rows(self) -> bool:
        return self.share > 0

    def at(self, share: float) -> Fault:
        """The same, for another share of the rows."""
        return replace(self, share=share, size=f"{self.size}, {share:.0%} of rows".lstrip(", "))


# ------------------------------------------------------------------ numbers


def numerics() -> list[Fault]:
    made = [
        *(("bias on 32 ids", f"{b:g} nats", Broken(bias=b)) for b in (0.02, 0.05, 0.1, 0.2, 0.5)),
        *(("bias on half of the ids", f"{b:g} nats", Broken(bias=b, biased=256)) for b in (0.05, 0.1, 0.2)),
        *(("output weights scaled", f"{x:.1%}", Broken(scale=x)) for x in (0.001, 0.003, 0.01, 0.03, -0.01)),
        ("weights quantised", "int8", Broken(weights="int8")),
        ("weights quantised", "fp8", Broken(weights="fp8")),
        ("KV cache quantised", "fp8", Broken(cache="fp8")),
        *(("position off by one", f"1 step in {n}", Broken(position_every=n)) for n in (5, 20, 100, 500)),
        *(("stale state", f"1 step in {round(1 / r)}", Broken(stale=r)) for r in (0.1, 0.01, 0.001)),
        ("logprobs shifted", "0.001 nats", Broken(lift=0.001)),
        *(("noise on every logit", f"{n:g} bf16 units", Broken(noise=n)) for n in (1.0, 2.0, 4.0)),
    ]
    return [Fault(name, size, "numerics", NUMERICS, broken=broken) for name, size, broken in made]


# ------------------------------------------------------------------ rows


def _place(rng: random.Random, tokens: Sequence[int], room: int = 1) -> int:
    most = max(1, len(tokens) - room)
    return rng.randrange(min(2, most - 1) if most > 1 else 0, most)


def _wrong(rng: random.Random, usual: int, vocabulary: int) -> int:
    return rng.choice(
        [one for one in (rng.randrange(1, vocabulary) for _ in range(4)) if one != usual] or [usual % 9 + 1]
    )


def substitute(length: int) -> Damage:
    def damage(rng: random.Random, tokens: Sequence[int], donor: Sequence[int], vocabulary: int) -> Damaged:
        place = _place(rng, tokens, length)
        wrong = [_wrong(rng, one, vocabulary) for one in tokens[place : place + length]]
        return Damaged((*tokens[:place], *wrong, *tokens[place + length :]), place, place + length)

    return damage


def lose(length: int) -> Damage:
    def damage(rng: random.Random, tokens: Sequence[int], donor: Sequence[int], vocabulary: int) -> Damaged:
        place = _place(rng, tokens, 2 * length)
        return Damaged((*tokens[:place], *tokens[place + length :]), place, place + 8)

    return damage


def double(length: int) -> Damage:
    def damage(rng: random.Random, tokens: Sequence[int], donor: Sequence[int], vocabulary: int) -> Damaged:
        place = max(length, _place(rng, tokens, length))
        again = (*tokens[:place], *tokens[place - length : place], *tokens[place:])[: len(tokens)]
        return Damaged(again, place, place + length)

    return damage


def loop(period: int) -> Damage:
    def damage(rng: random.Random, tokens: Sequence[int], donor: Sequence[int], vocabulary: int) -> Damaged:
        place = max(period, _place(rng, tokens, 6 * period))
        piece = list(tokens[place - period : place])
        rest = (piece * (len(tokens) // period + 1))[: len(tokens) - place]
        return Damaged((*tokens[:place], *rest), place, len(tokens), "length")

    return damage


def end_early() -> Damage:
    def damage(rng: random.Random, tokens: Sequence[int], donor: Sequence[int], vocabulary: int) -> Damaged:
        place = _place(rng, tokens, 3)
        return Damaged((*tokens[:place], EOS), place, place + 1, "stop")

    return damage


def rest_of_donor() -> Damage:
    def damage(rng: random.Random, tokens: Sequence[int], donor: Sequence[int], vocabulary: int) -> Damaged:
        place = _place(rng, tokens[: len(donor)], 12)
        rest = [*tokens[:place], *donor[place:]][: len(tokens)]
        return Damaged(tuple(rest), place, len(rest))

    return damage


def all_of_donor() -> Damage:
    def damage(rng: random.Random, tokens: Sequence[int], donor: Sequence[int], vocabulary: int) -> Damaged:
        return Damaged(tuple(donor), 0, len(donor))

    return damage


def span_of_donor(length: int) -> Damage:
    def damage(rng: random.Random, tokens: Sequence[int], donor: Sequence[int], vocabulary: int) -> Damaged:
        place = _place(rng, tokens[: len(donor)], length)
        span = donor[place : place + length]
        return Damaged((*tokens[:place], *span, *tokens[place + length :]), place, place + length)

    return damage


def rows() -> list[Fault]:
    def both(name: str, size: str, kinds: tuple[str, ...], damage: Damage, **more: Any) -> list[Fault]:
        plain = Fault(name, size, "rows", kinds, damage=damage, share=0.02, **more)
        return [plain, replace(plain, name=f"{name}, engine goes on", again=True)]

    leaks: dict[str, Any] = {"needs_donor": True}
    return [
        *both("token replaced", "1 token", ("unjustified", "garbled"), substitute(1)),
        *both("tokens replaced", "8 tokens", ("garbled",), substitute(8)),
        *both("tokens lost", "3 tokens", ("omission",), lose(3)),
        *both("tokens lost", "12 tokens", ("omission",), lose(12)),
        *both("tokens doubled", "3 tokens", ("duplication",), double(3)),
        *both("tokens doubled", "12 tokens", ("duplication",), double(12)),
        Fault("loop", "period 3", "rows", ("repetition",), damage=loop(3), share=0.02),
        Fault("early end", "", "rows", ("early_stop",), damage=end_early(), share=0.02),
        *both("span of another row", "16 tokens", ("row_leak",), span_of_donor(16), **leaks),
        Fault("rest of another row", "", "rows", ("row_leak",), damage=rest_of_donor(), share=0.02, **leaks),
        Fault("all of another row", "", "rows", ("row_leak",), damage=all_of_donor(), share=0.02, **leaks),
        Fault("completions swapped", "", "rows", ("row_leak",), swap=True, share=0.02, **leaks),
        Fault("state of another row", "", "rows", ("row_leak", "garbled", "unjustified"), leak=True, share=0.02),
        Fault("completion missing", "", "rows", ("missing_completion",), missing=True, share=0.02),
    ]


# ------------------------------------------------------------------ rules and draws


def ignored() -> list[Fault]:
    def lapse(name: str, size: str, rules: Mapping[str, Any], **more: Any) -> Fault:
        start = more.pop("start", 0)
        values = more.pop("values", dict.fromkeys(rules))
        made = Lapse(start=start, values=values, late=more.pop("late", 0))
        kinds = more.pop("kinds", ("unjustified", "garbled", "repetition", "forbidden_token"))
        return Fault(name, size, "rules", kinds, lapse=made, share=more.pop("share", 0.1), rules=rules)

    return [
        lapse("repetition penalty ignored", "1.3", {"repetition_penalty": 1.3}),
        lapse("repetition penalty ignored", "1.1", {"repetition_penalty": 1.1}),
        lapse("repetition penalty ignored", "1.2, everywhere", {"repetition_penalty": 1.2}, share=1.0),
        lapse("repetition penalty ignored", "1.3, from token 32 on", {"repetition_penalty": 1.3}, start=32),
        lapse("presence penalty ignored", "1.5", {"presence_penalty": 1.5}),
        lapse("frequency penalty ignored", "1.0", {"frequency_penalty": 1.0}),
        lapse("penalty counts late", "3 tokens", {"presence_penalty": 2.0}, values={}, late=3),
        lapse("min_tokens ignored", "64", {"min_tokens": 64}, kinds=("early_stop", "forbidden_token"), share=1.0),
        lapse("banned word said", "", {"bad_ids": [[3], [4], [5, 6]]}, share=1.0),
        lapse("other than allowed ids", "", {"allowed_token_ids": list(range(256))}),
        lapse("logit_bias ignored", "-100 on 8 ids", {"logit_bias": {str(n): -100.0 for n in range(1, 9)}}, share=1.0),
    ]


def neighbours() -> list[Fault]:
    """Every second request asks for a penalty, and rows get that of the request beside them."""

    def given(name: str, value: float) -> Fault:
        asked: dict[str, Any] = {name: value}
        return Fault(
            f"another row's {name.replace('_', ' ')}",
            f"{value:g}",
            "neighbours",
            ("unjustified", "garbled", "repetition"),
            lapse=Lapse(values=asked),
            share=0.1,
            own=(asked, {}),
        )

    wanted = {
        "presence_penalty": (0.3, 0.5, 1.0, 1.5),
        "frequency_penalty": (0.2, 0.4, 1.0),
        "repetition_penalty": (1.05, 1.1, 1.3),
    }
    return [given(name, value) for name, values in wanted.items() for value in values]


def sampled() -> list[Fault]:
    def drawn(name: str, size: str, values: Mapping[str, Any], asked: Mapping[str, Any], share: float) -> Fault:
        kinds = ("wrong_temperature", "unjustified", "garbled", "repetition")
        kinds = ("beyond_cutoff",) if name.endswith(("_p ignored", "_k ignored")) else kinds
        return Fault(name, size, "sampled", kinds, lapse=Lapse(values=values), share=share, rules=asked)

    warm = {"temperature": 1.0}
    return [
        drawn("decoded greedily", "of temperature 1", {"temperature": 0.0}, warm, 0.05),
        drawn("decoded greedily", "of temperature 0.7", {"temperature": 0.0}, {"temperature": 0.7}, 0.05),
        drawn("at temperature 1.5", "of temperature 0.7", {"temperature": 1.5}, {"temperature": 0.7}, 0.05),
        drawn("at temperature 0.3", "of temperature 1", {"temperature": 0.3}, warm, 0.05),
        drawn("at temperature 1.1", "of temperature 1, all", {"temperature": 1.1}, warm, 1.0),
        drawn("top_k ignored", "20", {"top_k": 0}, {"temperature": 1.0, "top_k": 20}, 0.1),
        drawn("top_p ignored", "0.8", {"top_p": 1.0}, {"temperature": 1.0, "top_p": 0.8}, 0.1),
        drawn("top_p ignored", "0.95", {"top_p": 1.0}, {"temperature": 0.7, "top_p": 0.95}, 0.1),
        drawn("min_p ignored", "0.1", {"min_p": 0.0}, {"temperature": 1.0, "min_p": 0.1}, 0.1),
        Fault("completions swapped", "", "sampled", ("row_leak", "garbled"), swap=True, share=0.05, rules=warm),
        Fault(
            "rest of another row",
            "",
            "sampled",
            ("row_leak", "garbled"),
            damage=rest_of_donor(),
            share=0.05,
            rules=warm,
        ),
        Fault("tokens replaced", "8 tokens", "sampled", ("garbled",), damage=substitute(8), share=0.05, rules=warm),
        Fault("samples missing", "", "sampled", ("missing_completion",), missing=True, share=0.05, rules=warm),
        Fault("KV cache quantised", "fp8", "sampled", NUMERICS, broken=Broken(cache="fp8"), rules=warm),
    ]


def places() -> list[Fault]:
    """Drawn tokens that are wrong at one place of every completion, and right by themselves."""

    def at(name: str, size: str, values: Mapping[str, Any], asked: float = 1.0, **where: int) -> Fault:
        kinds = ("wrong_temperature", "unjustified")
        return Fault(name, size, "places", kinds, lapse=Lapse(values=values, **where), rules={"temperature": asked})

    greedy = {"temperature": 0.0}
    return [
        at("first token drawn greedily", "of temperature 1", greedy, stop=1),
        at("first token drawn greedily", "of temperature 0.7", greedy, 0.7, stop=1),
        at("first token drawn hotter", "2 for 1", {"temperature": 2.0}, stop=1),
        at("token 6 drawn greedily", "of temperature 1", greedy, start=5, stop=6),
        at("last token drawn greedily", "of temperature 1", greedy, start=127, stop=128),
        at("second token of each step drawn greedily", "of temperature 1", greedy, step=1),
        at("third token of each step drawn greedily", "of temperature 1", greedy, step=2),
        at("third token of each step drawn greedily", "of temperature 0.7", greedy, 0.7, step=2),
    ]


def catalogue() -> list[Fault]:
    """Every fault in every size."""
    return [*numerics(), *rows(), *ignored(), *neighbours(), *sampled(), *places()]
