"""Conditions that a row-step may be in: what faults are asked to go with.

Each is a mask over the row-steps of a ledger. A new one is a row of the table; what its columns are missing for is left
out. The engine's own limits (budget, cut and padded drafts, the longest length) are among them, for on real faults the
true condition has been there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from parity.capture.step_table import NOTHING
from parity.capture.steps import Ints, Unseen
from parity.explain.ledger import RESUMED, Ledger, Mask
from parity.messages import Message, message


@dataclass(frozen=True)
class Predicate:
    name: str
    said: Message
    holds: Callable[[Ledger], Mask] = field(compare=False)
    """Raises Unseen where a column that it rests on is not there."""


def per_step(ledger: Ledger, values: Ints | Mask) -> Ints:
    """The sum of `values` over the rows of each row-step's step."""
    steps = ledger.steps
    sums = np.bincount(steps.step_index, weights=values, minlength=len(steps.rows)).astype(np.int64)
    found: Ints = sums[steps.step_index]
    return found


def rows_in_step(ledger: Ledger) -> Ints:
    found: Ints = ledger.steps.rows[ledger.steps.step_index]
    return found


def rows_before(ledger: Ledger) -> Ints:
    """Rows of the step before; of the first one, its own."""
    rows = ledger.steps.rows
    found: Ints = np.concatenate((rows[:1], rows[:-1]))[ledger.steps.step_index]
    return found


def moved(ledger: Ledger) -> Mask:
    found: Mask = ledger.running & (ledger.earlier(ledger.steps.row) != ledger.steps.row)
    return found


def new(ledger: Ledger) -> Mask:
    found: Mask = ledger.before == NOTHING
    return found


def prefills(ledger: Ledger) -> Mask:
    return ~ledger.decodes


def joined(ledger: Ledger) -> Mask:
    """Another request came into this step."""
    came = ledger.numbers("arrival") > 0
    return per_step(ledger, came) - came > 0


def left(ledger: Ledger) -> Mask:
    stayed = per_step(ledger, ledger.running)
    found: Mask = stayed < rows_before(ledger)
    return found


def first_decode(ledger: Ledger) -> Mask:
    found: Mask = ledger.decodes & (ledger.earlier(ledger.decodes.astype(np.int64), 0) == 0) & ledger.running
    return found


def emitted_last(count: int) -> Callable[[Ledger], Mask]:
    return lambda ledger: ledger.earlier(ledger.emitted, 0) == count


def drafts(ledger: Ledger) -> Ints:
    found: Ints = ledger.lists("drafts").counts
    return found


def other_count(ledger: Ledger) -> Mask:
    """A neighbour emitted another number of tokens in its last step."""
    last = ledger.earlier(ledger.emitted, 0)
    high, low = np.full(len(ledger.steps.rows), -1), np.full(len(ledger.steps.rows), 1 << 30)
    np.maximum.at(high, ledger.steps.step_index, last)
    np.minimum.at(low, ledger.steps.step_index, last)
    found: Mask = (high != low)[ledger.steps.step_index]
    return found


def short_piece(ledger: Ledger) -> Mask:
    """It computes no more tokens of its prompt than a row with all its drafts has tokens."""
    return ~ledger.decodes & (ledger.numbers("scheduled") <= ledger.steps.header.speculative_tokens + 1)


def first_position(ledger: Ledger) -> Ints:
    """Of the first token that the row-step emits, the prompt counted."""
    return ledger.prompt_tokens + ledger.emitted_before


def at_multiple(of: int, rest: int = 0) -> Callable[[Ledger], Mask]:
    return lambda ledger: first_position(ledger) % of == rest


def crosses(of: int) -> Callable[[Ledger], Mask]:
    return lambda ledger: first_position(ledger) // of != (first_position(ledger) + drafts(ledger)) // of


def crosses_block(ledger: Ledger) -> Mask:
    """New blocks were needed in this step by a request that was running."""
    found = np.zeros(len(ledger), dtype=bool)
    for group in range(len(ledger.steps.header.groups)):
        if ledger.steps.has(f"new_blocks/{group}"):
            found |= ledger.lists(f"new_blocks/{group}").counts > 0
    return found & ledger.running


def limit(ledger: Ledger, name: str) -> int:
    return ledger.steps.header.limits.get(name, 1 << 30)


def preempted(ledger: Ledger) -> Mask:
    resumed = (ledger.numbers("arrival") == RESUMED).astype(np.int64)
    ordered = resumed[ledger.order]
    sums = np.cumsum(ordered)
    base = np.maximum.accumulate(np.where(ledger.begins, sums - ordered, 0))
    found = np.zeros(len(ledger), dtype=bool)
    found[ledger.order] = sums - base > 0
    return found


def taken_over(ledger: Ledger) -> Mask:
    """Another request had this row in the step before."""
    steps = ledger.steps
    starts = np.cumsum(steps.rows) - steps.rows
    before = np.concatenate(([0], starts[:-1]))[steps.step_index] + steps.row
    there = (steps.step_index > 0) & (steps.row < rows_before(ledger))
    found: Mask = there & (ledger.request[np.where(there, before, 0)] != ledger.request)
    return found


def slot_reused(ledger: Ledger) -> Mask:
    """The first state slot of the row was another request's before."""
    found = np.zeros(len(ledger), dtype=bool)
    for group in range(len(ledger.steps.header.groups)):
        if not ledger.steps.has(f"state_slots/{group}"):
            continue
        slots = ledger.lists(f"state_slots/{group}")
        first = np.where(slots.counts > 0, slots.values[np.minimum(slots.starts[:-1], len(slots.values) - 1)], NOTHING)
        order = np.argsort(first, kind="stable")
        same = np.zeros(len(ledger), dtype=bool)
        same[1:] = np.diff(first[order]) == 0
        changed = np.zeros(len(ledger), dtype=bool)
        changed[1:] = same[1:] & (np.diff(ledger.request[order]) != 0)
        owners = np.cumsum(changed)
        base = np.maximum.accumulate(np.where(~same, owners, 0))
        mine = np.zeros(len(ledger), dtype=bool)
        mine[order] = owners - base > 0
        found |= mine & (first != NOTHING)
    return found


def _row(number: int) -> Predicate:
    said = message("explain.is_row", "it is in row {row}", row=number)
    return Predicate(f"row {number}", said, lambda ledger: ledger.steps.row == number)


def _drafts(number: int) -> Predicate:
    said = message("explain.has_drafts", "it has {number} drafts", number=number)
    return Predicate(f"{number} drafts", said, lambda ledger: drafts(ledger) == number)


def _emitted(number: int) -> Predicate:
    said = message("explain.emitted_last", "it emitted {number} tokens in its last step", number=number)
    return Predicate(f"emitted {number} last", said, emitted_last(number))


def _multiple(of: int) -> Predicate:
    said = message("explain.at_multiple", "its first new position is a multiple of {of}", of=of)
    return Predicate(f"position % {of} == 0", said, at_multiple(of))


def _beyond(most: int) -> Predicate:
    said = message("explain.beyond", "its first new position is beyond {most}", most=most)
    return Predicate(f"position > {most}", said, lambda ledger: first_position(ledger) > most)


PREDICATES: tuple[Predicate, ...] = (
    *(_row(number) for number in range(4)),
    Predicate("last row", message("explain.last_row", "it is in the last row"),
         lambda ledger: ledger.steps.row == rows_in_step(ledger) - 1),
    Predicate("moved", message("explain.moved", "its row moved in this step"), moved),
    Predicate("moved before", message("explain.moved_before", "its row moved in the step before"),
         lambda ledger: ledger.earlier(moved(ledger).astype(np.int64), 0) == 1),
    Predicate("another moved", message("explain.another_moved", "another row moved, and its own did not"),
         lambda ledger: (per_step(ledger, moved(ledger)) > 0) & ~moved(ledger)),
    Predicate("taken over", message("explain.taken_over", "another request had its row in the step before"),
         taken_over),
    Predicate("new", message("explain.is_new", "its request is new in this step"), new),
    Predicate("first decode", message("explain.first_decode", "it is its request's first step after the prompt"),
         first_decode),
    Predicate("joined", message("explain.joined", "another request joined in this step"), joined),
    Predicate("left", message("explain.left", "a request left before this step"), left),
    Predicate("shrank", message("explain.shrank", "the batch has fewer rows than before"),
         lambda ledger: rows_in_step(ledger) < rows_before(ledger)),
    Predicate("grew", message("explain.grew", "the batch has more rows than before"),
         lambda ledger: rows_in_step(ledger) > rows_before(ledger)),
    Predicate("full", message("explain.full", "the batch has as many rows as it may"),
         lambda ledger: rows_in_step(ledger) >= limit(ledger, "max_num_seqs")),
    Predicate("alone", message("explain.alone", "it is alone in its batch"), lambda ledger: rows_in_step(ledger) == 1),
    Predicate("mixed", message("explain.mixed", "it decodes while another row computes a prompt"),
         lambda ledger: ledger.decodes & (per_step(ledger, prefills(ledger)) > 0)),
    Predicate("prefill", message("explain.prefill", "it computes the end of its prompt"), prefills),
    Predicate("two prefills", message("explain.two_prefills", "several rows compute prompts"),
         lambda ledger: per_step(ledger, prefills(ledger)) > 1),
    Predicate("short piece beside",
         message("explain.short_piece", "another row computes a piece of a prompt no longer than a row with drafts"),
         lambda ledger: per_step(ledger, short_piece(ledger)) - short_piece(ledger) > 0),
    Predicate("chunked", message("explain.chunked", "its prompt was computed in several steps"),
         lambda ledger: prefills(ledger) & ledger.running),
    *(_drafts(number) for number in range(3)),
    Predicate("drafts cut", message("explain.drafts_cut", "it decodes with fewer drafts than the engine proposes"),
         lambda ledger: ledger.decodes & (drafts(ledger) < ledger.steps.header.speculative_tokens)),
    Predicate("drafts padded", message("explain.drafts_padded", "it has drafts that nothing proposed"),
         lambda ledger: ~ledger.running & (drafts(ledger) > 0)),
    Predicate("all accepted", message("explain.all_accepted", "all its drafts were accepted in its last step"),
         lambda ledger: (ledger.earlier(drafts(ledger), 0) > 0)
         & (ledger.earlier(ledger.emitted, 0) == ledger.earlier(drafts(ledger), 0) + 1)),
    Predicate("rejected", message("explain.rejected", "a draft of it was rejected in its last step"),
         lambda ledger: (ledger.earlier(ledger.emitted, 0) > 0)
         & (ledger.earlier(ledger.emitted, 0) <= ledger.earlier(drafts(ledger), 0))),
    *(_emitted(number) for number in (1, 2, 3)),
    Predicate("emitted more last", message("explain.emitted_more", "it emitted more than one token in its last step"),
         lambda ledger: ledger.earlier(ledger.emitted, 0) > 1),
    Predicate("another count",
         message("explain.other_count", "rows emitted unequal numbers of tokens in their last steps"),
         other_count),
    *(_multiple(of) for of in (8, 16, 32)),
    Predicate("position % 16 == 1",
         message("explain.after_multiple", "its first new position is 1 after a multiple of 16"),
         at_multiple(16, 1)),
    Predicate("crosses 16", message("explain.crosses", "its new positions cross a multiple of 16"), crosses(16)),
    Predicate("new block", message("explain.new_block", "it got a new block in this step"), crosses_block),
    *(_beyond(most) for most in (32, 64)),
    Predicate("near longest", message("explain.near_longest", "it is within 8 tokens of the longest length"),
         lambda ledger: first_position(ledger) + 8 >= limit(ledger, "max_model_len")),
    Predicate("near its limit", message("explain.near_limit", "it is within 4 tokens of its own limit"),
         lambda ledger: (ledger.max_tokens != NOTHING) & (ledger.emitted_before + 4 >= ledger.max_tokens)),
    Predicate("budget", message("explain.budget", "the step has as many tokens as it may"),
         lambda ledger: ledger.numbers("tokens")[ledger.steps.step_index] >= limit(ledger, "max_num_batched_tokens")),
    Predicate("waiting", message("explain.waiting", "other requests wait"),
         lambda ledger: ledger.numbers("waiting")[ledger.steps.step_index] > 0),
    Predicate("padded", message("explain.padded", "the batch is padded"),
         lambda ledger: (ledger.numbers("padded") > ledger.numbers("tokens"))[ledger.steps.step_index]),
    Predicate("graph", message("explain.graph", "the step replays a graph"),
         lambda ledger: ledger.numbers("graph")[ledger.steps.step_index] > 0),
    Predicate("slot reused", message("explain.slot_reused", "its state slot was another request's before"),
         slot_reused),
    Predicate("preempted", message("explain.preempted", "its request was preempted before"), preempted),
    Predicate("one-token prompt", message("explain.one_token", "its prompt is one token"),
         lambda ledger: ledger.prompt_tokens == 1),
    Predicate("short prompt", message("explain.short_prompt", "its prompt is shorter than 8 tokens"),
         lambda ledger: ledger.prompt_tokens < 8),
    Predicate("drawn", message("explain.drawn", "its request is drawn, or its logits are shaped"),
         lambda ledger: ~ledger.plain),
    Predicate("drawn beside", message("explain.drawn_beside", "another row is drawn, or its logits are shaped"),
         lambda ledger: per_step(ledger, ~ledger.plain) - ~ledger.plain > 0),
    Predicate("even step", message("explain.even_step", "the step's number is even"),
         lambda ledger: ledger.steps.step % 2 == 0),
    Predicate("even request", message("explain.even_request", "the request's number is even"),
         lambda ledger: ledger.request % 2 == 0),
)  # fmt: skip


CIRCUMSTANCES: Final = frozenset({
    "last row", "another moved", "joined", "left", "shrank", "grew", "full", "alone", "two prefills", "another count",
    "budget", "waiting", "even step", "even request",
})  # fmt: skip
"""What the batch is like around a row. Of sixty reported faults none had one of these as its cause: they come with what
was (a row moves when another leaves, a prompt is computed beside it when one joins)."""

CIRCUMSTANTIAL: Final = 1 / 3
"""Their prior, that of the others being 1."""


def prior_of(name: str) -> float:
    return CIRCUMSTANTIAL if name in CIRCUMSTANCES else 1.0


def asked_of(ledger: Ledger) -> dict[str, Mask]:
    """Every predicate whose columns were seen, by name."""
    asked = {}
    for one in PREDICATES:
        with suppress(Unseen):  # what it rests on was not recorded: it is not asked
            asked[one.name] = one.holds(ledger)
    return asked
