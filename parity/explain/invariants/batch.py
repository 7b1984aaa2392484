"""The batch: is each row the request's own, with the tokens and positions that come next?"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np

from parity.capture.step_table import NOTHING, Ragged, same_lists, spans
from parity.capture.steps import Ints
from parity.explain.invariants.check import Broken, Invariant, no_longer, unequal, unequal_lists
from parity.explain.ledger import Ledger
from parity.messages import message


def rows_agree(ledger: Ledger) -> Iterator[Broken]:
    for name in ("index_row", "output_row"):
        if ledger.steps.has(name):
            yield from unequal(ledger.numbers(name), ledger.steps.row)


def one_row_each(ledger: Ledger) -> Iterator[Broken]:
    order = np.lexsort((ledger.request, ledger.steps.step_index))
    step, request = ledger.steps.step_index[order], ledger.request[order]
    again = np.flatnonzero((np.diff(step) == 0) & (np.diff(request) == 0))
    other = np.full(len(ledger), NOTHING, dtype=np.int64)
    other[order[again + 1]] = order[again]
    yield Broken(order[again + 1], ledger.steps.row[np.maximum(other, 0)], ledger.steps.row, other)


def lengths_agree(ledger: Ledger) -> Iterator[Broken]:
    yield from unequal(ledger.numbers("query_length"), ledger.numbers("scheduled"))


def computed_is_what_was_emitted(ledger: Ledger) -> Iterator[Broken]:
    due = ledger.computed_due
    yield from unequal(ledger.numbers("computed"), due, due != NOTHING)


def positions_go_on(ledger: Ledger) -> Iterator[Broken]:
    yield from unequal(ledger.numbers("position"), ledger.computed)
    yield from unequal(ledger.numbers("positions_off"), np.zeros(len(ledger), dtype=np.int64))


def inputs_due(ledger: Ledger) -> Ragged:
    """The input ids after the prompt: tokens emitted before, then the drafts."""
    computed, scheduled, prompt = ledger.computed, ledger.numbers("scheduled"), ledger.prompt_tokens
    due = np.clip(computed + scheduled - prompt, 0, scheduled)
    counts = no_longer(due, ledger.lists("inputs"))
    place = spans(computed + scheduled - prompt - due, counts)
    rows = np.repeat(np.arange(len(ledger)), counts)
    stream, base = ledger.stream
    drafts = ledger.lists("drafts")
    later = place - ledger.emitted_before[rows]
    known = later < 0
    drafted = ~known & (later < drafts.counts[rows])
    values = np.full(len(place), NOTHING, dtype=np.int64)
    values[known] = stream[(base[rows] + place)[known]]
    values[drafted] = drafts.values[(drafts.starts[:-1][rows] + later)[drafted]]
    found = ledger.lists("inputs")  # for a placeholder the engine may compute anything
    anything = np.flatnonzero(drafted & (ledger.without_drafts & (counts == found.counts))[rows])
    inside = anything - (np.cumsum(counts) - counts)[rows[anything]]
    values[anything] = found.values[found.starts[:-1][rows[anything]] + inside]
    return Ragged(counts, values)


def inputs_are_the_requests_own(ledger: Ledger) -> Iterator[Broken]:
    yield from unequal_lists(ledger.lists("inputs"), inputs_due(ledger))
    if not ledger.steps.has("prompt_crc"):
        return
    found = ledger.numbers("prompt_crc")
    due = found.copy()
    computed, scheduled = ledger.computed, ledger.numbers("scheduled")
    for row in np.flatnonzero(computed < ledger.prompt_tokens).tolist():
        key = ledger.request_of(row).key
        prompt = None if key is None else ledger.prompts.get(key)
        if prompt is not None:
            part = prompt[int(computed[row]) : int(computed[row] + scheduled[row])]
            due[row] = zlib.crc32(np.ascontiguousarray(part, dtype="<i4").tobytes())
    yield from unequal(found, due)


def drafts_are_the_proposed(ledger: Ledger) -> Iterator[Broken]:
    """Fewer than proposed may be scheduled; of a request that emitted nothing in its last step none are."""
    drafts, proposed = ledger.lists("drafts"), ledger.lists("proposed")
    asked = ledger.running & (drafts.counts > 0) & (ledger.earlier(ledger.emitted, 0) > 0) & ~ledger.without_drafts
    before = np.maximum(ledger.before, 0)
    counts = np.where(asked, np.minimum(drafts.counts, proposed.counts[before]), 0)
    begin: Ints = proposed.starts[:-1][before]
    due = Ragged(counts, proposed.values[spans(begin, counts)])
    wrong = asked & ~same_lists(drafts, due)
    yield Broken(np.flatnonzero(wrong), due, drafts)


BATCH = (
    Invariant(
        "row",
        message("explain.row", "a request's row is the same in the input batch, its index and what is handed out"),
        ("index_row",),
        rows_agree,
        number=message("explain.number.row", "row"),
    ),
    Invariant("one_row", message("explain.one_row", "a request has one row in a step"), ("request",), one_row_each),
    Invariant(
        "length",
        message("explain.length", "a row's stretch of the batch is as long as was scheduled"),
        ("query_length", "scheduled"),
        lengths_agree,
        number=message("explain.number.length", "length"),
    ),
    Invariant(
        "computed",
        message("explain.computed", "computed tokens advance by exactly what was emitted"),
        ("computed", "scheduled", "drafts", "handed"),
        computed_is_what_was_emitted,
        as_said=True,
        number=message("explain.number.computed_tokens", "computed tokens"),
    ),
    Invariant(
        "position",
        message("explain.position", "positions are consecutive from the computed tokens on"),
        ("position", "positions_off", "computed"),
        positions_go_on,
    ),
    Invariant(
        "inputs",
        message("explain.inputs", "input ids are the prompt, what was emitted before, and the drafts"),
        ("inputs", "handed", "drafts", "computed", "scheduled"),
        inputs_are_the_requests_own,
        number=message("explain.number.input_ids", "input ids"),
    ),
    Invariant(
        "drafts",
        message("explain.drafts", "drafts scheduled are those proposed for the request in its last step"),
        ("drafts", "proposed", "handed"),
        drafts_are_the_proposed,
        number=message("explain.number.drafts", "drafts"),
    ),
)
