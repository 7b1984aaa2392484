"""Faults that no threshold of the comparison was set on: at some places only, by a little, or of the drawing itself.

They ask for false PASS verdicts (`benchmarks/wide.py hunt`): each moves some share of the tokens that is counted while
the arm is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from worlds.choosing import Lapse
from worlds.engine import Broken
from worlds.faults import NUMERICS, Fault, Where, double, end_early, lose, span_of_donor

_TOKENS = ("unjustified", "garbled", "duplication", "omission", "row_leak")
_RULED = ("unjustified", "garbled", "repetition", "forbidden_token", "early_stop", "overrun")
_DRAWN = ("wrong_temperature", "beyond_cutoff", "unjustified", "garbled", "repetition", "duplicate_completion")
LATE = {"max_tokens": 256, "ignore_eos": True}
MOST = 1 << 20


def _arm(name: str, size: str, family: str, kinds: tuple[str, ...], **more: Any) -> Fault:
    return Fault(name, size, family, kinds, **more)


def somewhere() -> list[Fault]:
    """Wrong in some completions or some tokens only; greedy."""

    def tokens(name: str, size: str, lapse: Lapse, **more: Any) -> Fault:
        return _arm(name, size, "somewhere", _TOKENS, lapse=lapse, **more)

    def numbers(name: str, size: str, broken: Broken, **more: Any) -> Fault:
        return _arm(name, size, "somewhere", NUMERICS, broken=broken, **more)

    int8, cache = Broken(weights="int8"), Broken(cache="fp8")
    last = {"max_tokens": 128, "ignore_eos": True}
    return [
        *(
            tokens("second best token", f"1 in {round(1 / rate)}", Lapse(second=True, rate=rate))
            for rate in (0.03, 0.01, 0.003, 0.001)
        ),
        tokens("second best token", "the last 4 of 128", Lapse(second=True, start=124), rules=last),
        tokens("second best token", "the last of 128", Lapse(second=True, start=127), rules=last),
        tokens("second best token", "the first", Lapse(second=True, stop=1)),
        tokens("second best token", "1 in 30, prompts of 20 and more", Lapse(second=True, rate=0.03), where=Where(20)),
        tokens("second best token", "1 in 30, last of 3 rounds", Lapse(second=True, rate=0.03), rounds=3,
               where=Where(round=-1)),
        tokens("second best token", "1 in 100, from token 192", Lapse(second=True, rate=0.01, start=192), rules=LATE),
        tokens("second best token", "in 2 of 100 completions, once", Lapse(second=True, start=9, stop=10), share=0.02),
        *(
            tokens("draft accepted unchecked", f"1 in {round(1 / rate)}", Lapse(draft="accepted", rate=rate))
            for rate in (0.03, 0.01, 0.003, 0.001)
        ),
        *(
            tokens("second best after a rejection", f"1 in {round(1 / rate)}", Lapse(draft="second", rate=rate))
            for rate in (0.1, 0.03, 0.01)
        ),
        tokens("second best token", "the third of each step", Lapse(second=True, step=2, rate=0.03)),
        *(numbers("bias on rare ids", f"{b:g} nats", Broken(bias=b, first=400, biased=111)) for b in (0.1, 0.3, 1.0)),
        numbers("one id", "1 nat", Broken(bias=1.0, first=7, biased=1)),
        numbers("KV cache quantised", "fp8, prompts of 20 and more", cache, where=Where(20)),
        numbers("KV cache quantised", "fp8, from token 128", Broken(cache="fp8", start=128), rules=LATE),
        numbers("KV cache quantised", "fp8, last of 3 rounds", cache, where=Where(round=-1), rounds=3),
        numbers("weights quantised", "int8, prompts of 20 and more", int8, where=Where(20)),
        numbers("weights quantised", "int8, last of 3 rounds", int8, where=Where(round=-1), rounds=3),
        numbers("position off by one", "1 step in 5, from token 200", Broken(position_every=5, start=200), rules=LATE),
        numbers("position off by one", "1 step in 20, from token 200", Broken(position_every=20, start=200),
                rules=LATE),
        numbers("bias on half of the ids", "0.2 nats, from token 250", Broken(bias=0.2, biased=256, start=250),
                rules=LATE),
    ]  # fmt: skip


def single_tokens() -> list[Fault]:
    """Tokens that changed places, greedy and drawn; the rest is as it was."""
    warm = {"temperature": 1.0}
    found = []
    for rules, drawn in (({}, ""), (warm, ", drawn")):
        for share in (0.1, 0.02):
            made = [
                ("a token of a neighbour", span_of_donor(1), True),
                ("a token lost", lose(1), False),
                ("a token twice", double(1), False),
            ]
            found += [
                _arm(f"{name}{drawn}", f"{share:.0%} of rows", "tokens", _TOKENS, damage=damage, share=share,
                     needs_donor=donor, rules=rules)
                for name, damage, donor in made
            ]  # fmt: skip
    return found


def wrong_rules() -> list[Fault]:
    """Rules of the request that are kept wrongly; greedy."""

    def rule(name: str, size: str, asked: Mapping[str, Any], values: Mapping[str, Any], **more: Any) -> Fault:
        share = more.pop("share", 0.0)
        return _arm(name, size, "rules kept wrongly", _RULED, lapse=Lapse(values=values, **more), rules=asked,
                    share=share)  # fmt: skip

    def named(name: str, asked: float, *others: float) -> list[Fault]:
        label = name.replace("_", " ")
        return [rule(label, f"{one:g} for {asked:g}", {name: asked}, {name: one}) for one in others]

    bias = {"7": 3.0, "9": 2.0, "12": -2.0}
    turned, halved, before = ({k: -v for k, v in bias.items()}, {k: v / 2 for k, v in bias.items()},
                              {str(int(k) - 1): v for k, v in bias.items()})  # fmt: skip
    return [
        *named("presence_penalty", 0.5, -0.5, 0.6, 0.55, 0.25),
        *named("frequency_penalty", 0.4, -0.4, 0.5, 0.44, 0.2),
        *named("repetition_penalty", 1.2, 0.833, 1.25, 1.1, 1.0),
        rule("presence penalty of the prompt too", "0.5", {"presence_penalty": 0.5}, {}, prompt="counted"),
        rule("frequency penalty of the prompt too", "0.4", {"frequency_penalty": 0.4}, {}, prompt="counted"),
        rule("repetition penalty without the prompt", "1.2", {"repetition_penalty": 1.2}, {}, prompt="forgotten"),
        rule("presence penalty a token late", "1", {"presence_penalty": 1.0}, {}, late=1),
        rule("frequency penalty as presence", "0.4", {"frequency_penalty": 0.4},
             {"frequency_penalty": 0.0, "presence_penalty": 0.4}),
        rule("logit_bias of the other sign", "", {"logit_bias": bias}, {"logit_bias": turned}),
        rule("logit_bias of half the size", "", {"logit_bias": bias}, {"logit_bias": halved}),
        rule("logit_bias on the id before", "", {"logit_bias": bias}, {"logit_bias": before}),
        *(rule("min_tokens", f"{n} for 40", {"min_tokens": 40, "stop_token_ids": [2, 3, 9, 17]}, {"min_tokens": n})
          for n in (39, 41, 60)),
        *(rule("EOS suppressed", f"in {share:.0%} of rows", {"stop_token_ids": [2, 3, 9, 17]}, {"min_tokens": MOST},
               share=share) for share in (1.0, 0.1, 0.03)),
        *(rule("EOS suppressed", f"once in {round(1 / rate)} ends", {}, {"min_tokens": MOST}, rate=rate)
          for rate in (1.0, 0.2)),
    ]  # fmt: skip


def drawing() -> list[Fault]:
    """What is wrong with how all tokens are drawn."""

    def drawn(name: str, size: str, asked: Mapping[str, Any], values: Mapping[str, Any], **more: Any) -> Fault:
        share, fault = more.pop("share", 0.0), {k: more.pop(k) for k in ("where", "rounds", "same_draws") if k in more}
        lapse = Lapse(values=values, **more) if values or more else None
        return _arm(name, size, "drawing", _DRAWN, lapse=lapse, rules=asked, share=share, **fault)

    def named(name: str, asked: Mapping[str, Any], *others: float) -> list[Fault]:
        label = name.replace("_", "-") if len(asked) > 1 else name
        return [drawn(label, f"{one:g} for {asked[name]:g}", asked, {name: one}) for one in others]

    warm, usual = {"temperature": 1.0}, {"temperature": 0.8}
    top_k, top_p, min_p = ({**warm, "top_k": 20}, {**warm, "top_p": 0.9}, {**warm, "min_p": 0.05})
    three = {**usual, "n": 3}
    return [
        *named("temperature", usual, 0.9, 0.85, 0.82, 0.75, 0.7),
        *named("temperature", warm, 1.05, 0.95),
        drawn("temperature", "0.85 for 0.8 in 20% of rows", usual, {"temperature": 0.85}, share=0.2),
        drawn("temperature", "1 for 0.8 in 20% of rows", usual, {"temperature": 1.0}, share=0.2),
        *named("top_k", top_k, 0, 40, 21, 19, 10),
        *named("top_k", {**warm, "top_k": 5}, 6, 4),
        *named("top_p", top_p, 1.0, 0.95, 0.92, 0.88, 0.8),
        *named("min_p", min_p, 0.0, 0.025, 0.1),
        drawn("temperature after the cut-off", "0.7, top-p 0.9", {"temperature": 0.7, "top_p": 0.9}, {"top_p": 0.95}),
        drawn("greedy tokens", "1 in 10", warm, {"temperature": 0.0}, rate=0.1),
        drawn("greedy tokens", "1 in 3", warm, {"temperature": 0.0}, rate=0.33),
        drawn("greedy tokens", "from token 100", warm, {"temperature": 0.0}, start=100),
        drawn("greedy tokens", "from token 120", warm, {"temperature": 0.0}, start=120),
        drawn("greedy", "sample 2 of 3", three, {"temperature": 0.0}, where=Where(sample=2)),
        drawn("greedy", "last of 3 rounds", usual, {"temperature": 0.0}, where=Where(round=-1), rounds=3),
        drawn("temperature", "1.2 for 0.8, prompts of 20 and more", usual, {"temperature": 1.2}, where=Where(20)),
        drawn("samples alike", "n=3", three, {}, same_draws="sample"),
        drawn("rounds alike", "3", usual, {}, same_draws="round", rounds=3),
        drawn("requests draw the same numbers", "", usual, {}, same_draws="request"),
        drawn("presence penalty ignored", "0.5", {**usual, "presence_penalty": 0.5}, {"presence_penalty": 0.0}),
        drawn("presence penalty ignored", "1.5", {**usual, "presence_penalty": 1.5}, {"presence_penalty": 0.0}),
        drawn("repetition penalty ignored", "1.2", {**usual, "repetition_penalty": 1.2}, {"repetition_penalty": 1.0}),
        drawn("repetition penalty ignored", "1.2, 10% of rows", {**usual, "repetition_penalty": 1.2},
              {"repetition_penalty": 1.0}, share=0.1),
        drawn("logit_bias ignored", "3 on one id", {**usual, "logit_bias": {"7": 3.0}}, {"logit_bias": None}),
        drawn("logit_bias ignored", "-100 on 8 ids", {**usual, "logit_bias": {str(n): -100.0 for n in range(1, 9)}},
              {"logit_bias": None}),
        drawn("bad word said", "", {**usual, "bad_ids": [[3], [4], [5, 6]]}, {"bad_ids": None}),
        drawn("bad words: others are left out as well", "", {**usual, "bad_ids": [[3], [4]]},
              {"bad_ids": [[3], [4], [5], [6]]}),
        drawn("allowed ids: half of them", "", {**usual, "allowed_token_ids": list(range(200))},
              {"allowed_token_ids": list(range(100))}),
        drawn("temperature", "1 for 0.7, allowed ids", {"temperature": 0.7, "allowed_token_ids": list(range(200))},
              {"temperature": 1.0}),
        drawn("temperature", "1 for 0.7, bad words", {"temperature": 0.7, "bad_ids": [[3], [4]]}, {"temperature": 1.0}),
        drawn("min_tokens", "39 for 40", {**usual, "min_tokens": 40, "stop_token_ids": [2, 3, 9]}, {"min_tokens": 39}),
        drawn("EOS suppressed", "all", {**usual, "stop_token_ids": [2, 3, 9, 17]}, {"min_tokens": MOST}),
        drawn("EOS suppressed", "10% of rows", {**usual, "stop_token_ids": [2, 3, 9, 17]}, {"min_tokens": MOST},
              share=0.1),
        drawn("EOS suppressed", "50% of rows, temperature 10", {"temperature": 10.0}, {"min_tokens": MOST}, share=0.5),
        *(_arm("early end, drawn", f"{share:.0%} of rows, temperature {asked['temperature']:g}", "drawing",
               ("early_stop",), damage=end_early(), again=True, share=share, rules=asked)
          for asked in (warm, {"temperature": 10.0}) for share in (0.5, 0.1)),
        *(drawn("draft accepted unchecked", f"1 in {round(1 / rate)}", usual, {}, draft="accepted", rate=rate)
          for rate in (1.0, 0.1, 0.03, 0.01)),
        drawn("likely drafts always accepted", "from half of the best on", usual, {}, draft="likely"),
        drawn("drawn anew from all after a rejection", "", usual, {}, draft="redrawn"),
        drawn("second best after a rejection", "1 in 10", usual, {}, draft="second", rate=0.1),
        *(drawn("second best token", f"1 in {round(1 / rate)}", usual, {}, second=True, rate=rate)
          for rate in (0.1, 0.03)),
        _arm("weights quantised", "int8, sample 2 of 3", "drawing", NUMERICS, broken=Broken(weights="int8"),
             rules=three, where=Where(sample=2)),
        _arm("bias on half of the ids", "0.2 nats", "drawing", NUMERICS, broken=Broken(bias=0.2, biased=256),
             rules=usual),
        _arm("bias on rare ids", "0.3 nats", "drawing", NUMERICS, broken=Broken(bias=0.3, first=400, biased=111),
             rules=usual),
    ]  # fmt: skip


def other_numbers() -> list[Fault]:
    """Numerics that none of `worlds.faults` is like, and in some rows; greedy."""
    made: list[tuple[str, str, Broken, int]] = [
        *(("matrix of rank one added", f"{x:.1%} of each weight", Broken(rank=x), 1) for x in (0.003, 0.01, 0.03)),
        *(("one of eight experts scaled", f"{x:.0%}", Broken(expert=x), 1) for x in (0.01, 0.1)),
        *(("KV cache quantised", f"fp8, 1 row in {n}", Broken(cache="fp8"), n) for n in (4, 16)),
        ("weights quantised", "int8, 1 row in 4", Broken(weights="int8"), 4),
        ("weights quantised", "fp8, 1 row in 16", Broken(weights="fp8"), 16),
        ("bias on half of the ids", "0.2 nats, 1 row in 8", Broken(bias=0.2, biased=256), 8),
        ("position off by one", "1 step in 5, 1 row in 8", Broken(position_every=5), 8),
        ("noise on every logit", "1 bf16 units, 1 row in 4", Broken(noise=1.0), 4),
        ("output weights scaled", "1.0%, from token 96", Broken(scale=0.01, start=96), 1),
        ("weights quantised", "int8, from token 96", Broken(weights="int8", start=96), 1),
    ]
    return [
        _arm(name, size, "numbers", NUMERICS, broken=broken, where=None if one_in == 1 else Where(one_in=one_in))
        for name, size, broken, one_in in made
    ]


def unseen() -> list[Fault]:
    """Every one of them."""
    return [*somewhere(), *single_tokens(), *wrong_rules(), *drawing(), *other_numbers()]
