"""From the sampler to the caller: is what is handed out what was sampled, and does it end where it should?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.capture.step_table import NOTHING, Ragged, same_lists, spans
from parity.explain.invariants.check import Broken, Invariant, reaches_block_end, unequal, unequal_lists
from parity.explain.ledger import Ledger
from parity.messages import message

STOP, LENGTH = 0, 1
"""Values of the column `finish` (vllm/v1/engine/__init__.py, FinishReason)."""


def handed_is_what_was_sampled(ledger: Ledger) -> Iterator[Broken]:
    sampled = ledger.lists("sampled")
    counts = np.where(ledger.emits, sampled.counts, 0)
    due = Ragged(counts, sampled.values[spans(sampled.starts[:-1], counts)])
    yield from unequal_lists(ledger.lists("handed"), due)


def given_is_what_was_handed(ledger: Ledger) -> Iterator[Broken]:
    """The whole of it, or its beginning where the request ends."""
    handed, given = ledger.handed, ledger.lists("given")
    ends = ledger.numbers("finish") != NOTHING
    counts = np.where(ends, np.minimum(given.counts, handed.counts), handed.counts)
    due = Ragged(counts, handed.values[spans(handed.starts[:-1], counts)])
    wrong = ~same_lists(given, due)
    yield Broken(np.flatnonzero(wrong), handed, given)


def count_kept(ledger: Ledger) -> Iterator[Broken]:
    """One stands for none: the second model runner keeps it after a piece of a prompt, where nothing is sampled (vLLM
    0.32.0, v1/worker/gpu/model_states/mamba_hybrid.py, `postprocess_state`)."""
    kept, sampled = ledger.numbers("kept"), ledger.lists("sampled").counts
    neutral = (kept == 1) & ((sampled == 0) | reaches_block_end(ledger))
    yield from unequal(kept, sampled, ~neutral)


def buffer_holds_them(ledger: Ledger) -> Iterator[Broken]:
    handed = ledger.handed
    emits = handed.counts > 0
    length = ledger.prompt_tokens + ledger.emitted_before + handed.counts
    yield from unequal(ledger.numbers("buffer_length"), length, emits)
    ends = np.maximum(handed.starts[1:] - 1, 0)
    last = handed.values[ends] if len(handed.values) else np.zeros(len(ledger), dtype=np.int64)
    yield from unequal(ledger.numbers("buffer_last"), last, emits)


def ends_where_it_should(ledger: Ledger) -> Iterator[Broken]:
    """By the rules of vllm/v1/core/sched/utils.py (check_stop): a stop token, the request's own limit, the longest
    length. What ends it here is the scheduler; stop strings are the front end's."""
    given, finish = ledger.lists("given"), ledger.numbers("finish")
    has = given.counts > 0
    ends = np.maximum(given.starts[1:] - 1, 0)
    last = given.values[ends] if len(given.values) else np.zeros(len(ledger), dtype=np.int64)
    stops, early = _stops(ledger, given, last)
    total = ledger.emitted_before + given.counts
    limited = (ledger.max_tokens != NOTHING) & (total >= ledger.max_tokens)
    longest = ledger.steps.header.limits.get("max_model_len", 0)
    full = limited | ((ledger.prompt_tokens + total >= longest) if longest else np.zeros(len(ledger), dtype=bool))
    due = np.where(stops, STOP, np.where(full, LENGTH, NOTHING))
    known = (finish == STOP) | (finish == LENGTH) | (finish == NOTHING)
    yield from unequal(finish, due, has & known)
    over = (ledger.max_tokens != NOTHING) & (total > ledger.max_tokens)
    yield Broken(np.flatnonzero(over & has), ledger.max_tokens, total)
    yield Broken(early, np.full(len(ledger), STOP), finish)
    again = ledger.running & (ledger.earlier(finish) != NOTHING) & ~ledger.dropped
    yield Broken(np.flatnonzero(again), ledger.earlier(finish), finish)


def _stops(ledger: Ledger, given: Ragged, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the last token given ends its request; and row-steps with such a token before their last."""
    stops = np.zeros(len(ledger), dtype=bool)
    early = np.zeros(len(ledger), dtype=bool)
    rows = np.repeat(np.arange(len(ledger)), given.counts)
    is_last = np.zeros(len(rows), dtype=bool)
    is_last[given.starts[1:][given.counts > 0] - 1] = True
    for tokens in {one.stops for one in ledger.steps.requests.values() if one.stops}:
        numbers = [number for number, one in ledger.steps.requests.items() if one.stops == tokens]
        own = np.isin(ledger.request, numbers)
        stops |= own & np.isin(last, tokens)
        early[rows[np.isin(given.values, tokens) & ~is_last & own[rows]]] = True
    return stops & (given.counts > 0), np.flatnonzero(early)


HANDOVER = (
    Invariant(
        "handed",
        message("explain.handed", "what the runner hands out is what was sampled, and nothing of a chunk of a prompt"),
        ("handed", "sampled", "computed", "scheduled"),
        handed_is_what_was_sampled,
        number=message("explain.number.tokens", "tokens"),
    ),
    Invariant(
        "given",
        message("explain.given", "what the caller gets is what was handed out"),
        ("given", "handed", "finish"),
        given_is_what_was_handed,
        number=message("explain.number.tokens", "tokens"),
    ),
    Invariant(
        "kept",
        message("explain.kept", "the accepted count kept for the next step is what was sampled"),
        ("kept", "sampled"),
        count_kept,
        number=message("explain.number.accepted_count", "accepted count"),
    ),
    Invariant(
        "buffer",
        message("explain.buffer", "the engine's buffer of tokens is as long as what was handed out, and ends with it"),
        ("buffer_length", "buffer_last", "handed"),
        buffer_holds_them,
    ),
    Invariant(
        "end",
        message("explain.end", "a request ends at its stop token or its limit, and not before or after"),
        ("given", "finish", "handed"),
        ends_where_it_should,
    ),
)
