"""Invariants over made-up steps: right bookkeeping breaks none, and each wrong number is found at its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_world import STATE, World, changed

from parity.capture.step_table import DECODE, NOTHING, PREFILL, SPECULATIVE
from parity.capture.steps import CacheGroup, RowSteps
from parity.explain.invariants import INVARIANTS, invariants_of
from parity.explain.ledger import Ledger
from parity.explain.violations import check
from parity.records.verification import accepts_at_its_probability, draws_another_after_a_rejection

SEEDS = st.integers(0, 10**6)


@settings(deadline=None, max_examples=40)
@given(seed=SEEDS, rows=st.integers(1, 6), k=st.integers(0, 3), budget=st.integers(4, 30))
def test_right_bookkeeping_breaks_nothing(seed: int, rows: int, k: int, budget: int) -> None:
    world = World(seed, rows=rows, k=k, budget=budget)
    checked = check(world.recorded(), world.prompts)
    assert checked.violations == ()
    assert not checked.unasked
    assert checked.row_steps > 0


def at(steps: RowSteps, where: np.ndarray) -> int | None:
    rows = np.flatnonzero(where)
    return int(rows[len(rows) // 2]) if len(rows) else None


def plants(steps: RowSteps) -> dict[str, tuple[str, int | None, object]]:
    """By invariant: a column, a row-step where it can be wrong, and a wrong value."""
    ledger = Ledger(steps)
    every = np.ones(len(steps), dtype=bool)
    spec = steps.numbers(f"path/{STATE}") == 0
    prefill = ~spec
    emits = ledger.emits
    drafted = steps.lists("drafts").counts > 0
    running = (ledger.computed_due != NOTHING) & (steps.numbers("computed") > 0)

    def number(name: str, where: np.ndarray, more: int = 1) -> tuple[str, int | None, object]:
        index = at(steps, where)
        return name, index, None if index is None else int(steps.numbers(name)[index]) + more

    def tokens(name: str, where: np.ndarray) -> tuple[str, int | None, object]:
        index = at(steps, where & (steps.lists(name).counts > 0))
        return name, index, None if index is None else [*steps.lists(name).row(index)[:-1], 900]

    return {
        "row": number("output_row", every),
        "length": number("query_length", every),
        "computed": number("computed", running),
        "position": number("position", every),
        "inputs": tokens("inputs", every),
        "drafts": tokens("drafts", drafted & running & (ledger.earlier(ledger.emitted, 0) > 0)),
        "block_table": number("table_off/0", every),
        "slots": tokens("written/0", every),
        "sequence_length": number("sequence_length/0", every),
        "path": number(f"path/{STATE}", spec, 2),
        "accepted": number(f"accepted/{STATE}", spec),
        "state_slot": tokens(f"state_slots/{STATE}", every),
        "state_kept": tokens(f"state_found/{STATE}", running & (steps.lists(f"state_slots/{STATE}").counts == 1)),
        "kv_kept": number("kv_kept/0", running),
        "first_state": number(f"initial/{STATE}", prefill & (steps.numbers(f"initial/{STATE}") == 0)),
        "split": number(f"split_off/{STATE}", every),
        "logits": number("logits_first", every),
        "sampler_drafts": tokens("sampler_drafts", drafted),
        "chosen": tokens("chosen", emits),
        "handed": tokens("sampled", emits),
        "given": tokens("given", every),
        "kept": number("kept", every),
        "buffer": number("buffer_length", emits),
    }


@pytest.mark.parametrize(
    "name", sorted({one.name for one in INVARIANTS} - {"one_row", "owner", "prefix", "verified", "rejected", "end"})
)
@settings(deadline=None, max_examples=8)
@given(seed=SEEDS)
def test_a_wrong_number_is_found_at_its_place(name: str, seed: int) -> None:
    world = World(seed)
    steps = world.recorded()
    column, index, value = plants(steps)[name]
    if index is None:
        return
    assert value != (steps.lists(column).row(index) if isinstance(value, list) else None)
    checked = check(changed(steps, column, index, value), world.prompts)  # type: ignore[arg-type]
    own = [one for one in checked.violations if one.invariant == name]
    # The next step's computed tokens rest on this step's: they are off as well then.
    assert [one.index for one in own][: 1 if name == "computed" else None] == [index]
    assert (own[0].step, own[0].row) == (steps.step[index], steps.row[index])
    assert name == "block_table" or own[0].expected != own[0].found
    request = steps.requests[int(steps.numbers("request")[index])]
    assert own[0].key == request.key
    # What rests on the number may break too: at that row-step, or at the request's next one.
    assert {one.request.number for one in checked.violations} == {request.number}


@pytest.mark.parametrize("path", [DECODE, PREFILL])
@pytest.mark.parametrize("drafted", [False, True])
@settings(deadline=None, max_examples=20)
@given(seed=SEEDS)
def test_a_row_without_drafts_may_take_the_other_path_where_its_newest_state_is_the_first(
    drafted: bool, path: int, seed: int
) -> None:
    """Seen in vllm-ascend 0.23.0 with n-gram drafts on Qwen3-Next: 682 of 717 row-steps take another path, and few of
    them are wrong."""
    steps = (world := World(seed, k=2)).recorded()
    ledger = Ledger(steps)
    rows = ledger.decodes & (steps.numbers(f"path/{STATE}") == SPECULATIVE)
    rows &= (steps.lists("drafts").counts > 0) == drafted
    for far in (False, True):
        last = ledger.earlier(steps.lists("sampled").counts, 1)
        index = at(steps, rows & ((last > 1) == far))
        if index is None:
            continue
        found = check(changed(steps, f"path/{STATE}", index, path), world.prompts).violations
        assert ("path" in {one.invariant for one in found}) == (drafted or far)


def drawn_world(seed: int) -> tuple[World, RowSteps]:
    """Of requests that are drawn."""
    steps = (world := World(seed, k=2)).recorded()
    requests = {number: msgspec.structs.replace(one, plain=False) for number, one in steps.requests.items()}
    return world, replace(steps, requests=requests)


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS)
def test_a_rejected_draft_that_is_drawn_again_is_found(seed: int) -> None:
    world, steps = drawn_world(seed)
    assert check(steps, world.prompts).violations == ()
    sampled, drafts = steps.lists("sampled"), steps.lists("drafts")
    index = at(steps, Ledger(steps).emits & (sampled.counts > 0) & (sampled.counts <= drafts.counts))
    if index is None:
        return
    made = sampled.row(index)
    again = changed(steps, "sampled", index, [*made[:-1], drafts.row(index)[len(made) - 1]])
    (found,) = [one for one in check(again, world.prompts).violations if one.invariant == "rejected"]
    assert found.index == index
    assert "rejected" not in {one.invariant for one in check(again, world.prompts, invariants_of(SYNTHETIC)).violations}


SYNTHETIC = {"speculative_config": {"method": "mtp", "rejection_sample_method": "synthetic"}}


@pytest.mark.parametrize(
    ("asked", "additions", "accepts", "draws_another"),
    [
        ({}, {}, True, True),
        ({"draft_sample_method": "greedy", "rejection_sample_method": "standard"}, {}, True, True),
        ({"draft_sample_method": "probabilistic"}, {}, False, True),
        ({"rejection_sample_method": "block"}, {}, False, True),
        ({"rejection_sample_method": "block", "draft_sample_method": "probabilistic"}, {}, False, False),
        ({"rejection_sample_method": "synthetic"}, {}, False, False),
        ({}, {"enable_block_verify": True}, False, True),
        ({"draft_sample_method": "probabilistic"}, {"enable_entropy_verify": True}, False, False),
    ],
)
def test_which_rules_hold_of_which_settings(
    asked: dict[str, str], additions: dict[str, bool], accepts: bool, draws_another: bool
) -> None:
    engine: dict[str, Any] = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2, **asked}}
    if additions:
        engine["asked"] = {"additional_config": {"rejection_sampler_config": additions}}
    assert accepts_at_its_probability(engine) is accepts
    assert draws_another_after_a_rejection(engine) is draws_another


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS)
def test_a_shared_state_slot_names_both(seed: int) -> None:
    world = World(seed, rows=4)
    steps = world.recorded()
    pairs = np.flatnonzero(steps.row == 1)
    index = int(pairs[len(pairs) // 2])
    slots = steps.lists(f"state_slots/{STATE}")
    mine = slots.row(index)
    taken = changed(steps, f"state_slots/{STATE}", index, [slots.row(index - 1)[0], *mine[1:]])
    owner = [one for one in check(taken, world.prompts).violations if one.invariant == "owner"]
    assert [one.index for one in owner] == [index]
    shared = owner[0].shared_with
    assert shared is not None
    assert shared.number == steps.numbers("request")[index - 1]


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS)
def test_who_wrote_a_state_between_two_steps_is_named(seed: int) -> None:
    world = World(seed, rows=4)
    steps = world.recorded()
    ledger = Ledger(steps)
    found, slots = (steps.lists(f"{name}/{STATE}") for name in ("state_found", "state_slots"))
    for index in np.flatnonzero(ledger.running).tolist():
        earlier = int(ledger.before[index])
        between = [one for one in range(earlier + 1, index) if ledger.request[one] != ledger.request[index]]
        slot = slots.row(index)[0]
        if between and slots.row(earlier)[0] == slot:
            break
    else:
        return
    writer = between[-1]
    wrong = changed(steps, f"state_found/{STATE}", index, [7, *found.row(index)[1:]])
    (alone,) = [one for one in check(wrong, world.prompts).violations if one.invariant == "state_kept"]
    assert (alone.index, alone.shared_with) == (index, None)
    taken = changed(wrong, f"state_slots/{STATE}", writer, [slot, *slots.row(writer)[1:]])
    kept = [one for one in check(taken, world.prompts).violations if one.invariant == "state_kept"]
    (one,) = [one for one in kept if one.index == index]
    assert one.shared_with == steps.requests[int(ledger.request[writer])]
    assert one.found == 7


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS)
def test_who_wrote_into_keys_and_values_is_named(seed: int) -> None:
    """A row of the same step, where they changed within it; nobody, where they had changed before."""
    world = World(seed, rows=4)
    steps = world.recorded()
    ledger = Ledger(steps)
    new, in_step = steps.lists("new_blocks/0"), steps.step_index
    for index in np.flatnonzero(ledger.running).tolist():
        before = int(ledger.before[index])
        beside = np.flatnonzero((in_step == in_step[index]) & (ledger.request != ledger.request[index]))
        if len(beside) and new.counts[before]:
            break
    else:
        return
    writer = int(beside[-1])
    blocks = [*steps.lists("written/0").row(writer), new.row(before)[0]]
    written = changed(steps, "written/0", writer, blocks)
    left = int(steps.numbers("kv_left/0")[before])
    for column, of, name in (
        ("kv_kept/0", steps, None),
        ("kv_kept/0", written, int(ledger.request[writer])),
        ("kv_found/0", written, None),
    ):
        found = check(changed(of, column, index, 7), world.prompts).violations
        (one,) = [each for each in found if each.invariant == "kv_kept"]
        assert (one.index, one.found, one.expected) == (index, 7, left)
        assert (None if one.shared_with is None else one.shared_with.number) == name


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS)
def test_a_rejected_draft_that_is_kept_is_not_verified(seed: int) -> None:
    steps = (world := World(seed, k=2)).recorded()
    drafts, sampled = steps.lists("drafts"), steps.lists("sampled")
    rejected = np.flatnonzero((sampled.counts <= drafts.counts) & Ledger(steps).emits)
    if not len(rejected):
        return
    index = int(rejected[len(rejected) // 2])
    kept = [*drafts.row(index), 901]
    wrong = changed(changed(steps, "sampled", index, kept), "handed", index, kept)
    found = [one for one in check(wrong, world.prompts).violations if one.index == index]
    assert "verified" in {one.invariant for one in found}
    assert "chosen" not in {one.invariant for one in found}
    assert found[0].position == Ledger(steps).emitted_before[index]


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS)
def test_tokens_that_are_no_drafts_are_no_prefix(seed: int) -> None:
    """Also of requests that are drawn, of which nobody knows what the target chose."""
    world = World(seed)
    steps = world.recorded()
    drawn = replace(steps, requests={n: replace_plain(one) for n, one in steps.requests.items()})
    accepted = np.flatnonzero((steps.lists("sampled").counts > 1) & Ledger(steps).emits)
    if not len(accepted):
        return
    index = int(accepted[0])
    tokens = steps.lists("sampled").row(index)
    wrong = changed(drawn, "sampled", index, [902, *tokens[1:]])
    names = {one.invariant for one in check(wrong, world.prompts).violations}
    assert "prefix" in names
    assert not names & {"chosen", "verified"}


def replace_plain(request: object) -> object:
    import msgspec

    return msgspec.structs.replace(request, plain=False)  # type: ignore[type-var]


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS)
def test_a_request_ends_where_it_should(seed: int) -> None:
    world = World(seed, steps=60)
    steps = world.recorded()
    ended = np.flatnonzero(steps.numbers("finish") != NOTHING)
    if not len(ended):
        return
    index = int(ended[0])
    checked = check(changed(steps, "finish", index, NOTHING), world.prompts)
    assert [(one.index, one.invariant) for one in checked.violations if one.invariant == "end"] == [(index, "end")]


def test_a_column_that_was_not_seen_leaves_its_invariant_unasked() -> None:
    world = World(3)
    steps = world.recorded()
    without = replace(steps, columns={name: one for name, one in steps.columns.items() if name != "chosen"})
    checked = check(without, world.prompts)
    assert set(checked.unasked) == {"chosen", "verified"}
    assert "prefix" in checked.asked


def ahead(world: World, **said: object) -> RowSteps:
    """Its steps as under asynchronous scheduling: drafts count as accepted."""
    steps = world.recorded()
    ledger, computed = Ledger(steps), steps.numbers("computed").copy()
    computed[ledger.running & (computed == ledger.prompt_tokens + ledger.emitted_before - 1)] += 2
    columns = {**steps.columns, "computed": computed}
    return replace(steps, columns=columns, header=msgspec.structs.replace(steps.header, **said))


def test_counts_that_run_ahead_are_put_right_by_what_was_handed_out() -> None:
    """Under asynchronous scheduling drafts count as accepted, and positions on the device are put right."""
    for seed in range(40):
        world = World(seed, k=3)
        steps = ahead(world)
        assert {"position", "sequence_length"} <= {one.invariant for one in check(steps, world.prompts).violations}
        checked = check(ahead(world, unseen={"computed": "drafts count"}), world.prompts)
        assert checked.violations == ()
        assert set(checked.unasked) == {"computed"}
        (found,) = np.flatnonzero(steps.step == steps.step[len(steps) // 2])[:1]
        wrong = changed(ahead(world, unseen={"computed": ""}), "position", found, 4000)
        assert {one.index for one in check(wrong, world.prompts).violations} == {found}


def test_counts_that_run_ahead_are_asked_of_nothing_where_nobody_saw_what_was_handed_out() -> None:
    steps = ahead(world := World(3, k=3), unseen={"computed": "drafts count", "handed": "elsewhere"})
    columns = {name: values for name, values in steps.columns.items() if not name.startswith("handed")}
    checked = check(replace(steps, columns=columns), world.prompts)
    assert checked.violations == ()
    assert {"position", "inputs", "slots", "sequence_length"} <= set(checked.unasked)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_comes_after_a_request_has_ended_is_not_taken(asynchronous: bool) -> None:
    """Under asynchronous scheduling its next step has been asked for when it ends (vLLM v0.32.0, `update_from_output`);
    of a request that goes on tokens that nobody takes are lost."""
    found = set()
    for seed in range(30):
        world = World(seed)
        steps = replace(
            world.recorded(), header=msgspec.structs.replace(world.recorded().header, asynchronous=asynchronous)
        )
        ledger = Ledger(steps)
        lasts = np.setdiff1d(np.arange(len(steps)), ledger.before)
        last = next((row for row in lasts.tolist() if ledger.emitted[row] and steps.numbers("finish")[row] < 0), None)
        amid = next(row for row in np.flatnonzero(ledger.running & (ledger.emitted > 0)).tolist() if row not in lasts)
        inner = int(ledger.before[amid])
        for name, row in (("last", last), ("amid", inner)):
            if row is not None and ledger.emitted[row]:
                broken = check(changed(steps, "given", row, []), world.prompts).violations
                found.add((name, tuple(sorted({one.invariant for one in broken}))))
    assert found == {("amid", ("given",)), ("last", () if asynchronous else ("given",))}


def test_whose_row_it_was() -> None:
    for seed in range(50):
        world = World(seed)
        steps = world.recorded()
        ledger = Ledger(steps)
        moved = np.flatnonzero(ledger.running & (ledger.earlier(steps.row) != steps.row))
        if len(moved):
            break
    index = int(moved[0])
    (violation,) = check(changed(steps, "kept", index, 77), world.prompts).violations
    before = violation.row_before
    assert before is not None
    step, row = int(steps.step[index]), int(steps.row[index])
    there = np.flatnonzero((steps.step == step - 1) & (steps.row == row))
    assert before.number == steps.numbers("request")[there[0]]


@pytest.mark.parametrize("mode", ["none", "align"])
def test_where_a_state_moves_to_another_block_its_accepted_count_may_be_one(mode: str) -> None:
    """With a prefix cache, at the end of a block: kept there, and read in the next step. Nowhere else."""
    for seed in range(200):
        world = World(seed, k=3)
        steps = world.recorded()
        groups = (steps.header.groups[0], CacheGroup("state", size := 12, 3))
        steps = replace(steps, header=msgspec.structs.replace(steps.header, mamba_cache_mode=mode, groups=groups))
        ledger, computed = Ledger(steps), steps.numbers("computed")
        ends = (computed + steps.numbers("scheduled")) // size > computed // size
        several = steps.lists("sampled").counts > 1
        spec = steps.numbers(f"path/{STATE}") == SPECULATIVE
        follows = spec & (ledger.earlier(np.where(several & ends, 1, 0), 0) == 1) & ledger.running
        quiet = ~ends & (ledger.earlier(np.where(ends, 1, 0), 1) == 0)
        far = spec & several & quiet & ledger.running & (steps.numbers(f"accepted/{STATE}") > 1)
        at_end, after, inside = at(steps, several & ends), at(steps, follows), at(steps, far)
        if None not in (at_end, after, inside):
            break

    def broken(column: str, index: int | None, value: int) -> set[str]:
        assert index is not None
        return {one.invariant for one in check(changed(steps, column, index, value), world.prompts).violations}

    accepted, allowed = f"accepted/{STATE}", mode == "align"
    assert broken("kept", at_end, 1) == (set() if allowed else {"kept"})
    assert broken(accepted, after, 1) == (set() if allowed else {"accepted"})
    assert broken("kept", at_end, 9) == {"kept"}
    assert broken(accepted, after, 9) == {"accepted"}
    assert broken("kept", inside, 1) == {"kept"}
    assert broken(accepted, inside, 1) == {"accepted"}
