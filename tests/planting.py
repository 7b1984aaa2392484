"""Plants one known fault in one completion, and says what the truth is.

A plant knows nothing of how faults are detected. It takes a completion that an engine really made and
damages it the way reported bugs do (each function names the thread where there is one), and returns the
damaged row with the ground truth: the kinds that are right, the first offending token, and whether the
tokens make kind and place decidable at all (a whole period dropped from a loop leaves the same tokens).

Tokens after the fault are either the rest of the original completion (the engine's state was right and only
its output was damaged), or they are to be generated again from the damaged prefix (`Plant.keep` tokens of it
belong to the fault): the realistic case where the engine's state was damaged too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Entries = list[list[list[Any]]]
"""Top logprobs as in a capture file: per output position `[[token_id, logprob (nats)], …]`."""

EOS = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One completion record of a capture, as plain lists."""

    request: str
    prompt: list[int]
    tokens: list[int]
    text: str | None = None
    finish_reason: str | None = "length"
    stop_reason: int | str | None = None
    logprobs: Entries | None = None
    round: int = 0
    sample: int = 0

    def record(self) -> dict[str, Any]:
        return {
            "record": "completion",
            "request": self.request,
            "round": self.round,
            "sample": self.sample,
            "prompt_token_ids": self.prompt,
            "token_ids": self.tokens,
            "text": self.text,
            "finish_reason": self.finish_reason,
            "stop_reason": self.stop_reason,
            "logprobs": self.logprobs,
        }


@dataclass(frozen=True, slots=True)
class Plant:
    """A damaged row and the truth about it.

    `kinds`: right answers, the best first. `position`: the first offending token; `positions` are all
    places that the tokens cannot tell apart from it (always with `position`, empty when it is None).
    `origin[t]` is the index of token t in the undamaged row, or None where the fault made it up.
    `keep`: number of leading tokens that a regenerated continuation starts from.
    `visible` is False where the damaged row equals the undamaged one.
    """

    fault: str
    row: Row
    kinds: tuple[str, ...]
    position: int | None
    positions: frozenset[int]
    length: int | None
    keep: int
    origin: tuple[int | None, ...]
    visible: bool
    kind_decidable: bool
    missing: bool = False
    donor: str | None = None


# --- looking at tokens -------------------------------------------------------------------------------


def first_difference(left: Sequence[int], right: Sequence[int]) -> int:
    """Index of the first unequal token; the shorter length where one is a prefix of the other."""
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return min(len(left), len(right))


def period_at(tokens: Sequence[int], place: int, longest: int = 24) -> int | None:
    """Smallest period p such that the 2 p tokens before `place` and the p tokens from it repeat, or None."""
    for period in range(1, longest + 1):
        start, stop = place - 2 * period, place + period
        if start < 0 or stop > len(tokens):
            return None
        if all(tokens[t] == tokens[t + period] for t in range(start, place)):
            return period
    return None


def shifted(damaged: Sequence[int], original: Sequence[int], place: int, shift: int, length: int) -> bool:
    """True when `length` damaged tokens from `place` are the original ones `shift` further on."""
    start = place + shift
    if start < 0 or start + length > len(original) or place + length > len(damaged):
        return False
    return list(damaged[place : place + length]) == list(original[start : start + length])


# --- making a plant ----------------------------------------------------------------------------------


def made(
    fault: str,
    row: Row,
    origin: list[int | None],
    tokens: list[int],
    *,
    kinds: tuple[str, ...],
    place: int,
    length: int,
    keep: int,
    limit: int | None = None,
    **changes: Any,
) -> Plant:
    """Builds the plant: cuts to `limit` tokens and works out what the tokens leave undecided."""
    if limit is not None:
        tokens, origin = tokens[:limit], origin[:limit]
    new = replace(row, tokens=tokens, text=None, logprobs=None, **changes)
    difference = first_difference(row.tokens, tokens)
    same = tokens == row.tokens and new.finish_reason == row.finish_reason
    found = difference if difference < max(len(tokens), len(row.tokens)) else place
    return Plant(
        fault=fault,
        row=new,
        kinds=kinds,
        position=found,
        positions=frozenset(range(min(place, found), max(place, found) + 1)),
        length=length,
        keep=min(keep, len(tokens)),
        origin=tuple(origin),
        visible=not same,
        kind_decidable=not same,
    )


def _origin(*parts: range | int) -> list[int | None]:
    """Index map: a range is original tokens, a number is that many made-up ones."""
    result: list[int | None] = []
    for part in parts:
        result.extend(part if isinstance(part, range) else [None] * part)
    return result


def substitution(rng: random.Random, row: Row, place: int, vocab: Sequence[int]) -> Plant:
    """One token is another one; the stream goes on as if nothing had happened."""
    wrong = rng.choice([t for t in vocab if t != row.tokens[place] and t != EOS])
    tokens = [*row.tokens[:place], wrong, *row.tokens[place + 1 :]]
    origin = _origin(range(place), 1, range(place + 1, len(row.tokens)))
    return made("substitution", row, origin, tokens, kinds=("unjustified",), place=place, length=1, keep=place + 1)


def garbled(rng: random.Random, row: Row, place: int, vocab: Sequence[int], length: int) -> Plant:
    """A run of wrong tokens (vllm-ascend#17338): `vocab` decides between random and plausible ones."""
    wrong: list[int] = []
    for offset in range(length):
        usual = row.tokens[min(place + offset, len(row.tokens) - 1)]
        wrong.append(rng.choice([t for t in vocab if t not in (usual, EOS)]))
    tokens = [*row.tokens[:place], *wrong, *row.tokens[place + length :]]
    origin = _origin(range(place), length, range(place + length, len(row.tokens)))
    kinds = ("garbled",) if length >= 5 else ("garbled", "unjustified")
    return made(f"garbled/{length}", row, origin, tokens, kinds=kinds, place=place, length=length, keep=place + length)


def duplication(row: Row, place: int, length: int, limit: int) -> Plant:
    """The `length` tokens before `place` are emitted again, then the stream goes on (vllm-ascend#4930)."""
    tokens = [*row.tokens[:place], *row.tokens[place - length : place], *row.tokens[place:]]
    origin = _origin(range(place), range(place - length, place), range(place, len(row.tokens)))
    plant = made(
        f"duplication/{length}",
        row,
        origin,
        tokens,
        kinds=("duplication",),
        place=place,
        length=length,
        keep=place + length,
        limit=limit,
    )
    rest = min(24, len(plant.row.tokens) - place)
    dropped = any(shifted(plant.row.tokens, row.tokens, place, shift, rest) for shift in range(1, 64))
    return replace(plant, kinds=("duplication", "omission")) if dropped else plant


def omission(row: Row, place: int, length: int, tail: int = 8) -> Plant:
    """The `length` tokens from `place` are lost (vllm-ascend#13863)."""
    tokens = [*row.tokens[:place], *row.tokens[place + length :]]
    origin = _origin(range(place), range(place + length, len(row.tokens)))
    plant = made(
        f"omission/{length}",
        row,
        origin,
        tokens,
        kinds=("omission",),
        place=place,
        length=length,
        keep=place + tail,
    )
    rest = min(24, len(tokens) - place)
    doubled = rest > 0 and any(shifted(tokens, row.tokens, place, -shift, rest) for shift in range(1, 64))
    return replace(plant, kinds=("omission", "duplication")) if doubled else plant


def loop(rng: random.Random, row: Row, place: int, period: int, vocab: Sequence[int] | None) -> Plant:
    """The tail is one short piece again and again (vllm#36872): what was just said, or chosen tokens."""
    if vocab is None:
        piece = row.tokens[place - period : place]
    else:
        piece = [rng.choice([t for t in vocab if t not in (EOS, row.tokens[place])]) for _ in range(period)]
    count = len(row.tokens) - place
    tokens = [*row.tokens[:place], *(piece * (count // period + 1))[:count]]
    origin = _origin(range(place), count)
    return made(
        f"loop/{period}{'' if vocab is None else '-made-up'}",
        row,
        origin,
        tokens,
        kinds=("repetition",),
        place=place,
        length=count,
        keep=len(tokens),
    )


def early_stop(rng: random.Random, row: Row, place: int, vocab: Sequence[int], garbage: int = 0) -> Plant:
    """An EOS that nothing supports, after `garbage` wrong tokens (vllm#45100, vllm#41493)."""
    wrong = [rng.choice([t for t in vocab if t not in (EOS, row.tokens[place])]) for _ in range(garbage)]
    tokens = [*row.tokens[:place], *wrong, EOS]
    plant = made(
        f"early-stop{f'-garbled/{garbage}' if garbage else ''}",
        row,
        _origin(range(place), garbage + 1),
        tokens,
        kinds=("early_stop", "garbled") if garbage else ("early_stop",),
        place=place,
        length=garbage + 1,
        keep=len(tokens),
        finish_reason="stop",
    )
    return replace(plant, positions=frozenset({place, place + garbage}))


def cut_short(row: Row, place: int, finish_reason: str | None) -> Plant:
    """The tokens just end: `stop` without an EOS, `length` before max_tokens, or `abort`."""
    return made(
        f"cut-short-{finish_reason}",
        row,
        _origin(range(place)),
        row.tokens[:place],
        kinds=("early_stop", "omission"),
        place=place,
        length=len(row.tokens) - place,
        keep=place,
        finish_reason=finish_reason,
    )


def overrun_eos(row: Row, place: int) -> Plant:
    """An EOS in the middle, and the stream goes on all the same."""
    tokens = [*row.tokens[:place], EOS, *row.tokens[place:]][: len(row.tokens)]
    origin = _origin(range(place), 1, range(place, len(row.tokens)))[: len(tokens)]
    plant = made(
        "overrun-eos",
        row,
        origin,
        tokens,
        kinds=("overrun", "early_stop"),
        place=place,
        length=1,
        keep=len(tokens),
    )
    return replace(plant, positions=frozenset({place, place + 1}))


def overrun_length(row: Row, extra: Sequence[int]) -> Plant:
    """More tokens than max_tokens allows; `row` has exactly max_tokens."""
    tokens = [*row.tokens, *extra]
    return made(
        "overrun-length",
        row,
        _origin(range(len(row.tokens)), len(extra)),
        tokens,
        kinds=("overrun",),
        place=len(row.tokens),
        length=len(extra),
        keep=len(tokens),
    )


def overrun_stop(row: Row, more: Sequence[int]) -> Plant:
    """`row` ended rightly (EOS or stop token); the candidate goes on with `more`."""
    place = len(row.tokens)
    tokens = [*row.tokens, *more]
    plant = made(
        "overrun-stop",
        row,
        _origin(range(place), len(more)),
        tokens,
        kinds=("overrun",),
        place=place,
        length=len(more),
        keep=len(tokens),
        finish_reason="length",
        stop_reason=None,
    )
    return replace(plant, positions=frozenset({place - 1, place}))


def row_leak(row: Row, place: int, donor: Row, start: int, length: int, *, of_prompt: bool = False) -> Plant:
    """A span of another request's completion or prompt (vllm#14645, llama.cpp#28286, vllm-ascend#14118)."""
    source = donor.prompt if of_prompt else donor.tokens
    span = list(source[start : start + length])
    tokens = [*row.tokens[:place], *span, *row.tokens[place + length :]]
    origin = _origin(range(place), len(span), range(place + length, len(row.tokens)))
    plant = made(
        f"row-leak{'-prompt' if of_prompt else ''}/{length}",
        row,
        origin,
        tokens,
        kinds=("row_leak",),
        place=place,
        length=len(span),
        keep=place + len(span),
        limit=len(row.tokens),
    )
    return replace(plant, donor=donor.request)


def invalid_token(row: Row, place: int, token: int) -> Plant:
    """An id that no vocabulary has: -1 (padding of rejected drafts), the vocabulary's size, int32's last."""
    tokens = [*row.tokens[:place], token, *row.tokens[place + 1 :]]
    origin = _origin(range(place), 1, range(place + 1, len(row.tokens)))
    return made(
        f"invalid/{token}",
        row,
        origin,
        tokens,
        kinds=("invalid_token",),
        place=place,
        length=1,
        keep=len(tokens),
    )


# --- faults that are not in the tokens ---------------------------------------------------------------


def _untouched(fault: str, row: Row, kinds: tuple[str, ...], position: int | None, **changes: Any) -> Plant:
    return Plant(
        fault=fault,
        row=replace(row, **changes),
        kinds=kinds,
        position=position,
        positions=frozenset() if position is None else frozenset({position}),
        length=None,
        keep=len(row.tokens),
        origin=tuple(range(len(row.tokens))),
        visible=True,
        kind_decidable=True,
    )


def wrong_logprobs(rng: random.Random, row: Row, how: str) -> Plant:
    """The engine's own logprobs are wrong (vllm#38711; one row per step as in vLLM 0.11 with MTP)."""
    entries = [[list(pair) for pair in entry] for entry in row.logprobs or []]
    count = len(entries)
    place = rng.randrange(4, max(5, count - 4))
    position: int | None = place
    if how == "shifted":
        entries = [*entries[:place], *entries[place - 1 : -1]]
    elif how == "nan":
        entries[place] = [[token, float("nan")] for token, _ in entries[place]]
    elif how == "minus-infinity":
        entries[place] = [[token, float("-inf")] for token, _ in entries[place]]
    elif how == "positive":
        entries[place] = [[token, 0.5 + abs(value)] for token, value in entries[place]]
    elif how == "short":
        entries, position = entries[::2], None
    elif how == "long":
        entries, position = [*entries, entries[-1]], None
    elif how == "offset":
        entries = [*entries[:place], *([[t, v - 2.0] for t, v in e] for e in entries[place:])]
    elif how == "of-another-token":
        token = row.tokens[place]
        entries[place] = next(entry for entry in reversed(entries) if all(listed != token for listed, _ in entry))
    else:
        raise ValueError(how)
    return _untouched(f"logprobs-{how}", row, ("logprob_mismatch",), position, logprobs=entries)


def wrong_text(row: Row, how: str, other: str) -> Plant:
    """The text is not what the tokens say (TensorRT-LLM#3753)."""
    text = row.text or ""
    third = len(text) // 3
    changed = {
        "character": text[:third] + ("x" if text[third] != "x" else "y") + text[third + 1 :],
        "doubled": text[: 2 * third] + text[third:],
        "dropped": text[:third] + text[third + 12 :],
        "empty": "",
        "other-row": other,
    }[how]
    return _untouched(f"text-{how}", row, ("text_mismatch",), None, text=changed)


def other_prompt(rng: random.Random, row: Row, how: str) -> Plant:
    """The candidate got another prompt: a changed id, one in front (a BOS), the last one lost."""
    place = rng.randrange(len(row.prompt))
    prompt = {
        "changed": [*row.prompt[:place], (row.prompt[place] + 1) % 2000, *row.prompt[place + 1 :]],
        "bos": [EOS, *row.prompt],
        "cut": row.prompt[:-1],
    }[how]
    return _untouched(f"prompt-{how}", row, ("input_mismatch",), None, prompt=prompt)


def missing(row: Row) -> Plant:
    """The completion is not there (vllm#14280)."""
    return replace(_untouched("missing", row, ("missing_completion",), None), missing=True)


def duplicate_sample(row: Row, twin: Row) -> Plant:
    """A sample at a temperature above 0 is the very same as another one of its request."""
    return _untouched(
        "duplicate-sample",
        row,
        ("duplicate_completion",),
        None,
        tokens=list(twin.tokens),
        text=twin.text,
        logprobs=twin.logprobs,
        finish_reason=twin.finish_reason,
        stop_reason=twin.stop_reason,
    )


# --- putting a capture together ----------------------------------------------------------------------


def with_tail(plant: Plant, tail: Sequence[int], finish_reason: str, original: Row) -> Plant:
    """The damaged prefix with a continuation that an engine made from it."""
    tokens = [*plant.row.tokens[: plant.keep], *tail]
    origin = (*plant.origin[: plant.keep], *([None] * len(tail)))
    same = tokens == original.tokens
    row = replace(plant.row, tokens=tokens, finish_reason=finish_reason)
    difference = first_difference(original.tokens, tokens)
    place = min(plant.positions) if plant.positions else difference
    return replace(
        plant,
        fault=f"{plant.fault}+regenerated",
        row=row,
        origin=origin,
        visible=not same,
        kind_decidable=plant.kind_decidable and not same,
        position=difference if plant.visible else plant.position,
        positions=plant.positions | frozenset(range(min(place, difference), max(place, difference) + 1)),
    )


def carried_entries(plant: Plant, entries: Entries, made_up: Callable[[int, int], list[list[Any]]]) -> Entries:
    """Decode logprobs for a damaged row: each token keeps its own entry; `made_up(position, token)` gives
    one for tokens that the fault made up."""
    result: Entries = []
    for position, (token, index) in enumerate(zip(plant.row.tokens, plant.origin, strict=True)):
        result.append(made_up(position, token) if index is None else entries[index])
    return result


def capture_records(
    rows: Sequence[Row],
    header: Mapping[str, Any],
    scores: Mapping[tuple[str, int, int], Entries] | None = None,
) -> list[dict[str, Any]]:
    """The records of a capture file: header, completions, scores of the arm itself, footer."""
    scored = [
        {
            "record": "score",
            "arm": header["arm"],
            "request": request,
            "round": round_,
            "sample": sample,
            "logprobs": entries,
        }
        for (request, round_, sample), entries in (scores or {}).items()
    ]
    return [
        {"record": "header", "schema": "parity.capture/1", **header},
        *(row.record() for row in rows),
        *scored,
        {"record": "footer", "completions": len(rows), "scores": len(scored), "counters": {}},
    ]
