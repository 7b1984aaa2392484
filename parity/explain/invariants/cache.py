"""Blocks, slots and recurrent states: are they the request's own, and nobody else's?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.capture.step_table import DECODE, NOTHING, PREFILL, SPECULATIVE, Ragged, spans
from parity.explain.invariants.check import (
    Broken,
    Invariant,
    groups_with,
    no_longer,
    reaches_block_end,
    unequal,
    unequal_lists,
)
from parity.explain.ledger import RESUMED, Ledger, Owned
from parity.messages import message

NULL_BLOCK = 0
"""vLLM's placeholder (vllm/v1/core/block_pool.py): any row may point to it."""


def tables_are_the_schedulers(ledger: Ledger) -> Iterator[Broken]:
    for group in groups_with(ledger, "table_off", "table_found", "table_own"):
        off = ledger.numbers(f"table_off/{group}")
        yield Broken(
            np.flatnonzero(off != NOTHING),
            ledger.numbers(f"table_own/{group}"),
            ledger.numbers(f"table_found/{group}"),
        )


def slots_are_the_rows_own(ledger: Ledger) -> Iterator[Broken]:
    computed, scheduled = ledger.computed, ledger.numbers("scheduled")
    for group in groups_with(ledger, "written", "slots_off", "new_blocks"):
        size = ledger.steps.header.groups[group].block_size
        if not size:
            continue
        begin = computed // size
        counts = np.where(scheduled > 0, (computed + scheduled - 1) // size - begin + 1, 0)
        written = ledger.lists(f"written/{group}")
        yield from unequal_lists(written, ledger.owned(group).at(begin, no_longer(counts, written)))
        yield from unequal(ledger.numbers(f"slots_off/{group}"), np.zeros(len(ledger), dtype=np.int64))


def one_owner(ledger: Ledger) -> Iterator[Broken]:
    for group in range(len(ledger.steps.header.groups)):
        owned = ledger.owned(group) if ledger.steps.has(f"new_blocks/{group}") else None
        for name in (f"written/{group}", f"state_slots/{group}"):
            if ledger.steps.has(name):
                yield from _shared(ledger, ledger.lists(name), owned)


def _shared(ledger: Ledger, blocks: Ragged, owned: Owned | None) -> Iterator[Broken]:
    """Of two rows with the same block the one to which it was not given, and the second where that does not say."""
    rows = np.repeat(np.arange(len(ledger)), blocks.counts)
    real = blocks.values > NULL_BLOCK
    rows, ids = rows[real], blocks.values[real]
    step = ledger.steps.step_index[rows]
    order = np.lexsort((rows, ids, step))
    rows, ids, step = rows[order], ids[order], step[order]
    again = np.flatnonzero((np.diff(step) == 0) & (np.diff(ids) == 0) & (np.diff(rows) != 0))
    one, two, block = rows[again], rows[again + 1], ids[again]
    if owned is not None and len(again):
        second = np.array([owned.has(a, i) or not owned.has(b, i) for a, b, i in zip(one, two, block, strict=True)])
        one, two = np.where(second, one, two), np.where(second, two, one)
    taken, first = np.unique(two, return_index=True)
    other = np.full(len(ledger), NOTHING, dtype=np.int64)
    shared = np.full(len(ledger), NOTHING, dtype=np.int64)
    other[taken], shared[taken] = one[first], block[first]
    yield Broken(taken, np.full(len(ledger), NOTHING), shared, other)


def sequence_lengths(ledger: Ledger) -> Iterator[Broken]:
    due = ledger.computed + ledger.numbers("scheduled")
    for group in groups_with(ledger, "sequence_length"):
        yield from unequal(ledger.numbers(f"sequence_length/{group}"), due)


def decode_rows_are_speculative(ledger: Ledger) -> Iterator[Broken]:
    """A row of one token and its drafts after the prompt; chunks of a prompt, or of what a preempted request computes
    again, are none.

    A row without drafts may take another path, which reads the first of its states: where the step before emitted one
    token the newest is there, and where it emitted more an older one (vLLM v0.32.0, gpu_model_runner.py, on
    `zero_draft_decode_mask`). Beside speculative rows that is the prompts' path.
    """
    if not ledger.steps.header.speculative_tokens:
        return
    drafts = ledger.lists("drafts").counts
    decodes = ledger.decodes & (ledger.numbers("scheduled") == drafts + 1)
    either = decodes & (drafts == 0)
    if ledger.steps.has("sampled"):
        either &= ledger.earlier(ledger.lists("sampled").counts, 1) <= 1
    for group in groups_with(ledger, "path"):
        path = ledger.numbers(f"path/{group}")
        wrong = ((path == SPECULATIVE) != decodes) & ~either
        yield Broken(np.flatnonzero(wrong), np.where(decodes, SPECULATIVE, PREFILL), path)


def accepted_is_what_was_emitted(ledger: Ledger) -> Iterator[Broken]:
    sampled = ledger.lists("sampled").counts
    due = np.where(ledger.numbers("arrival") == RESUMED, 1, ledger.earlier(sampled, 1))
    moved = reaches_block_end(ledger, since_last=True)
    for group in groups_with(ledger, "accepted", "path"):
        spec, accepted = ledger.numbers(f"path/{group}") == SPECULATIVE, ledger.numbers(f"accepted/{group}")
        yield from unequal(accepted, due, spec & ~(moved & (accepted == 1)))


def state_slots_are_the_requests_own(ledger: Ledger) -> Iterator[Broken]:
    if ledger.steps.header.mamba_cache_mode != "none":
        return  # states are copied from block to block there
    for group in groups_with(ledger, "state_slots", "new_blocks"):
        found, owned = ledger.lists(f"state_slots/{group}"), ledger.owned(group)
        counts = np.minimum(found.counts, owned.count)
        due = owned.at(np.zeros(len(ledger), dtype=np.int64), counts)
        part = Ragged(counts, found.values[spans(found.starts[:-1], counts)])
        yield from unequal_lists(part, due)


def first_step_has_no_state(ledger: Ledger) -> Iterator[Broken]:
    computed = ledger.computed > 0
    for group in groups_with(ledger, "path", "initial"):
        path, initial = ledger.numbers(f"path/{group}"), ledger.numbers(f"initial/{group}")
        # Decode paths read the state without asking.
        reads = np.where((path == PREFILL) & (initial != NOTHING), initial, (path != PREFILL).astype(np.int64))
        known = (path != PREFILL) | (initial != NOTHING)
        yield from unequal(reads, computed.astype(np.int64), known)


def tokens_split_in_order(ledger: Ledger) -> Iterator[Broken]:
    for group in groups_with(ledger, "split_off"):
        yield from unequal(ledger.numbers(f"split_off/{group}"), np.zeros(len(ledger), dtype=np.int64))


CACHE = (
    Invariant(
        "block_table",
        message("explain.block_table", "a row's block table is what the scheduler gave its request"),
        ("table_off/*",),
        tables_are_the_schedulers,
        number=message("explain.number.block", "block"),
    ),
    Invariant(
        "slots",
        message("explain.slots", "keys and values go into the slots of the row's own blocks"),
        ("written/*", "computed", "scheduled"),
        slots_are_the_rows_own,
    ),
    Invariant("owner", message("explain.owner", "a block or state slot has one owner"), (), one_owner),
    Invariant(
        "sequence_length",
        message("explain.sequence_length", "the sequence length of a row is its computed and its scheduled tokens"),
        ("sequence_length/*", "computed", "scheduled"),
        sequence_lengths,
        number=message("explain.number.sequence_length", "sequence length"),
    ),
    Invariant(
        "path",
        message(
            "explain.path", "recurrent layers treat the rows that decode as speculative, and so read their newest state"
        ),
        ("path/*", "scheduled", "drafts"),
        decode_rows_are_speculative,
        roughly=("computed",),
        number=message("explain.number.path", "treated as"),
        values={
            SPECULATIVE: message("explain.path.speculative", "decode with drafts"),
            DECODE: message("explain.path.decode", "decode without drafts"),
            PREFILL: message("explain.path.prefill", "prompt"),
        },
    ),
    Invariant(
        "accepted",
        message("explain.accepted", "the accepted count of recurrent layers is what was emitted in the last step"),
        ("accepted/*", "path/*", "sampled"),
        accepted_is_what_was_emitted,
        number=message("explain.number.accepted_count", "accepted count"),
    ),
    Invariant(
        "state_slot",
        message("explain.state_slot", "state slots are the request's own"),
        ("state_slots/*", "new_blocks/*"),
        state_slots_are_the_requests_own,
        number=message("explain.number.state_slots", "state slots"),
    ),
    Invariant(
        "first_state",
        message("explain.first_state", "a request starts from no state, and goes on from its own"),
        ("path/*", "initial/*"),
        first_step_has_no_state,
        roughly=("computed",),
        number=message("explain.number.reads", "reads a state:"),
        values={0: message("explain.no", "no"), 1: message("explain.yes", "yes")},
    ),
    Invariant(
        "split",
        message("explain.split", "tokens of speculative and other rows are split in order"),
        ("split_off/*",),
        tokens_split_in_order,
    ),
)
