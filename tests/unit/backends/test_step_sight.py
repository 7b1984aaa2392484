"""Columns from raw readings of an engine: those of a made-up engine become the columns that it wrote itself."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from parity_backends.vllm.local import worker_source
from step_world import ATTENTION, BLOCK, STATE, World

from parity.capture.step_table import NOTHING
from parity.capture.steps import RowSteps, read_steps


@pytest.fixture(scope="module")
def worker() -> ModuleType:
    module = ModuleType("worker_under_test")
    exec(compile(worker_source(), "worker.py", "exec"), module.__dict__)
    return module


def sights(worker: ModuleType, world: World, steps: RowSteps) -> list[Any]:
    """What the doors would have seen of these steps."""
    found = []
    begin = 0
    for number, count in enumerate(steps.rows.tolist()):
        rows = range(begin, begin + count)
        one = worker.Sight(number, int(steps.numbers("time_us")[number]))
        requests = [steps.requests[int(steps.numbers("request")[row])] for row in rows]
        one.names = [request.engine_id for request in requests]
        one.finished = steps.lists("finished").row(number)
        one.step_numbers = {
            name: int(steps.numbers(name)[number])
            for name in ("padded", "padded_rows", "graph", "waiting", "states_found_in", "states_left_in")
        }
        one.prompt_lengths = np.array([request.prompt_tokens for request in requests])
        one.plain = np.array([request.plain for request in requests])
        for name in ("request", "arrival", "index_row", "output_row", "computed", "scheduled", "kept", "finish",
                     "buffer_length", "buffer_last"):  # fmt: skip
            one.numbers[name] = steps.numbers(name)[list(rows)]
        for name in ("drafts", "handed", "given", "proposed"):
            one.lists[name] = steps.lists(name).take(list(rows))
        one.arrays = arrays(world, steps, rows)
        one.groups = {
            ATTENTION: {
                **{
                    name: steps.numbers(f"{name}/0")[list(rows)]
                    for name in ("kv_found", "kv_kept", "kv_left", "kv_tokens")
                },
                "sequence_length": steps.numbers("sequence_length/0")[list(rows)],
                "slots": slots(steps, rows),
                "size": BLOCK,
            },
            STATE: {"state": state(steps, rows)},
        }
        begin += count
        found.append(one)
    return found


def arrays(world: World, steps: RowSteps, rows: range) -> dict[str, Any]:
    ids: list[int] = []
    positions: list[int] = []
    scheduled = steps.numbers("scheduled")[list(rows)]
    for row in rows:
        computed, count = int(steps.numbers("computed")[row]), int(steps.numbers("scheduled")[row])
        key = steps.requests[int(steps.numbers("request")[row])].key
        assert key is not None
        tail = steps.lists("inputs").row(row)
        ids += [*world.prompts[key][computed : computed + count - len(tail)].tolist(), *tail]
        positions += range(computed, computed + count)
    lists = [steps.lists("sampled").row(row) for row in rows]
    drafts = [steps.lists("sampler_drafts").row(row) for row in rows]
    best = [[*sampled, *([0] * (len(draft) + 1 - len(sampled)))] for sampled, draft in zip(lists, drafts, strict=True)]
    first = steps.numbers("logits_first")[list(rows)].tolist()
    return {
        "input_ids": np.array(ids),
        "positions": np.array(positions),
        "query_start": np.concatenate(([0], np.cumsum(scheduled))),
        "matrix": np.array([one + [-1] * (world.k + 1 - len(one)) for one in lists]),
        "best": np.array([token for one in best for token in one]),
        "draft_counts": np.array([len(one) for one in drafts]),
        "draft_ids": np.array([token for one in drafts for token in one], dtype=np.int64),
        "logits_indices": np.array(
            [at + i for at, one in zip(first, drafts, strict=True) for i in range(len(one) + 1)]
        ),
    }


def slots(steps: RowSteps, rows: range) -> Any:
    found = []
    for row in rows:
        computed, count = int(steps.numbers("computed")[row]), int(steps.numbers("scheduled")[row])
        blocks = steps.lists("written/0").row(row)
        found += [
            blocks[at // BLOCK - computed // BLOCK] * BLOCK + at % BLOCK for at in range(computed, computed + count)
        ]
    return np.array(found)


def state(steps: RowSteps, rows: range) -> dict[str, Any]:
    """As the metadata of a gated delta net: by path, speculative rows apart."""
    path = steps.numbers("path/1")[list(rows)]
    lists = [steps.lists("state_slots/1").row(row) for row in rows]
    spec, other = np.flatnonzero(path == 0), np.flatnonzero(path != 0)
    initial = steps.numbers("initial/1")[list(rows)]
    counts = steps.numbers("scheduled")[list(rows)]
    of_spec = np.repeat(path == 0, counts)
    return {
        "mask": path == 0 if len(spec) else None,
        "decodes": 0,
        "accepted": steps.numbers("accepted/1")[list(rows)][spec] if len(spec) else None,
        "spec_slots": np.array([lists[row] for row in spec]) if len(spec) else None,
        "other_slots": np.array([lists[row][0] for row in other]) if len(other) else None,
        "initial": initial[other] if len(other) else None,
        "spec_tokens": np.flatnonzero(of_spec),
        "other_tokens": np.flatnonzero(~of_spec),
        **{name: digests(steps, rows, f"state_{name}/1", spec, other) for name in ("found", "left")},
    }


def digests(steps: RowSteps, rows: range, column: str, spec: Any, other: Any) -> list[Any]:
    """Of the slots of speculative rows, and of the others'."""
    lists = [steps.lists(column).row(row) for row in rows]
    return [
        np.array([lists[row] for row in spec]) if len(spec) else None,
        np.array([lists[row][0] for row in other]) if len(other) else None,
    ]


def equal(a: Any, b: Any) -> bool:
    if isinstance(b, tuple):
        return bool(np.array_equal(a.counts, b.counts) and np.array_equal(a.values, b.values))
    return bool(np.array_equal(a, b))


@pytest.mark.parametrize("seed", range(6))
def test_readings_become_the_columns(worker: ModuleType, seed: int) -> None:
    world = World(seed)
    steps = world.recorded()
    found = worker.Columns(sights(worker, world, steps)).all()
    owned = {name for name in steps.columns if name.startswith(("new_blocks", "table"))}  # `Owners` makes these
    assert set(found) == set(steps.columns) - owned
    assert [name for name in found if not equal(found[name], steps.columns[name])] == []


def test_what_is_settled_with_the_block_is_what_the_doors_saw(worker: ModuleType) -> None:
    """Drafts as a matrix, and what follows from sampling parameters, are made into lists where blocks are packed."""
    sight = worker.Sight(0, 0)
    sight.names, sight.proposed = ["a", "b"], np.array([[5, 6], [7, 8]], dtype=np.int32)
    sight.settle()
    assert equal(sight.lists["proposed"], worker.Ragged(np.array([2, 2]), np.array([5, 6, 7, 8])))
    params = SimpleNamespace(temperature=0.0, max_tokens=9, stop_token_ids=[4], eos_token_id=2)
    asked = SimpleNamespace(
        req_id="x", prompt_token_ids=[1, 2, 3], sampling_params=params, num_computed_tokens=0, block_ids=[[1]]
    )
    output = SimpleNamespace(
        scheduled_new_reqs=[asked], scheduled_cached_reqs=SimpleNamespace(req_ids=[], num_computed_tokens=[],
        new_block_ids=[], resumed_req_ids=set()), finished_req_ids=(), total_num_scheduled_tokens=3,
        num_scheduled_tokens={"x": 3},
    )  # fmt: skip
    (new,) = worker.said_in(output, lambda name: {"request": name, "round": 1}).new
    assert new.record() == {
        "engine_id": "x", "prompt_tokens": 3, "plain": True, "max_tokens": 9, "stops": [2, 4],
        "request": "x", "round": 1,
    }  # fmt: skip


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_lists_are_kept_as_they_were_when_they_were_seen(worker: ModuleType, kind: Any) -> None:
    lists = [kind([]), kind([5, 600]), kind([7])]
    kept = worker.held(lists)
    assert isinstance(kept, bytes) == (kind is list)
    if kind is list:
        lists[1].append(8)
    lists.pop()
    sight = worker.Sight(0, 0)
    sight.names, sight.held["handed"] = ["a", "b", "c"], kept
    sight.settle()
    assert equal(worker.as_ragged([sight.lists["handed"]]), worker.Ragged(np.array([0, 2, 1]), np.array([5, 600, 7])))


def test_lists_of_many_steps_are_read_at_once(worker: ModuleType) -> None:
    """What `marshal` wrote of small numbers is read without an object for each; of others one by one."""
    random = np.random.default_rng(0)
    steps = [
        [random.integers(-(1 << 31), 1 << 31, random.integers(0, 4)).tolist() for _ in range(random.integers(1, 9))]
        for _ in range(40)
    ]
    steps.append([[91, 105, 0x5B69], [0x695B5B69]])  # bytes that are `marshal`'s own marks
    kept = [worker.held(one) for one in steps]
    assert any(isinstance(one, bytes) for one in kept)
    for large in ([], [[[1 << 31], [5, -(1 << 40)]]]):
        parts = [worker.let_go(one) if isinstance(one, bytes) else one for one in kept + list(map(worker.held, large))]
        lists = [one for step in steps + large for one in step]
        due = worker.Ragged(np.array(list(map(len, lists))), np.array([number for one in lists for number in one]))
        assert equal(worker.as_ragged(parts), due)
    small = [one for one in kept if isinstance(one, bytes)]
    assert all(worker.let_go(one) is one for one in small)
    assert worker.as_ragged(small).values.dtype == np.int64


def test_lists_of_a_block_are_read_as_those_of_each_step(worker: ModuleType) -> None:
    """What is no list of small numbers is found in whichever step it is, and what was handed out is read once."""
    random = np.random.default_rng(0)
    odd = [[[1], [[2]]], [[1], 2], [[[3]], 4], [[1 << 40]]]
    whole = 0
    for _ in range(300):
        sights = [worker.Sight(number, 0) for number in range(int(random.integers(1, 5)))]
        for sight in sights:
            lists = [random.integers(0, 9, random.integers(0, 4)).tolist() for _ in range(random.integers(0, 5))]
            if random.random() < 0.2:
                lists = odd[int(random.integers(len(odd)))]
            sight.held = {"handed": worker.marshal.dumps(lists, 2), "given": worker.marshal.dumps(lists, 2)}
        read = worker.lists_read(sights)
        try:
            kept = [worker.let_go(sight.held["handed"]) for sight in sights]
            each = worker.joined_lists([worker.as_ragged([one]) for one in kept])
        except (TypeError, ValueError):
            kept = []
        assert ("handed" in read) == (kept != [] and all(isinstance(one, bytes) for one in kept))
        if read:
            whole += 1
            assert read["given"] is read["handed"]
            assert equal(read["handed"], each)
    assert 100 < whole < 300


@pytest.mark.parametrize("lists", [[[1], [[2]], 3], [[1], (2, 3)], [[1], [[2]]]])
def test_what_is_no_list_of_numbers_is_not_read_as_one(worker: ModuleType, lists: list[Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        worker.as_ragged([worker.let_go(worker.held(lists))])


def test_lists_of_several_kinds_are_not_mistaken_for_numbers(worker: ModuleType) -> None:
    """marshal would write an array as its bytes."""
    sight = worker.Sight(0, 0)
    sight.held["handed"] = worker.held([[5], np.array([600])])
    with pytest.raises(TypeError, match="several kinds"):
        sight.settle()


def test_drafts_in_the_schedulers_order_become_those_of_the_rows(worker: ModuleType) -> None:
    drafts = {"c": [7], "a": [5, 6]}
    sight = worker.Sight(0, 0)
    sight.names, sight.drafted = ["a", "b", "c"], list(drafts)
    sight.held["drafts"] = worker.held(list(drafts.values()))
    sight.numbers = {"scheduled": [1] * 3, "computed": [0] * 3}
    sight.settle()
    assert equal(worker.Columns([sight]).lists("drafts"), worker.Ragged(np.array([2, 0, 1]), np.array([5, 6, 7])))


def test_what_a_step_has_of_the_one_before_is_its_own(worker: ModuleType) -> None:
    """Rows, indices and orders that stay as they are are taken over; what changes among them is not."""
    random = np.random.default_rng(0)
    taken = 0

    def seen(choices: list[int]) -> Any:
        names = list("abc")[: 3 - choices[0]]
        sight = worker.Sight(0, 0)
        sight.names = names if choices[1] else names[::-1]
        sight.index = {name: row + choices[2] for row, name in enumerate(sight.names)}
        sight.handed = dict(zip(sight.names, [[0, 1, 2], [1, 0, 2]][choices[3]], strict=False))
        sight.given = sight.names if choices[4] else sight.names[1:]
        sight.ends = {"a": 1} if choices[5] else {}
        sight.held = {name: worker.held([[number] for number in range(len(names))]) for name in ("handed", "given")}
        (sight.held["drafts"], sight.drafted) = (worker.held([[5]]), ["b"]) if choices[6] else (worker.held([]), None)
        sight.empty = [] if choices[6] else ["drafts"]
        return sight

    before, choices = None, [0] * 7
    for _ in range(300):
        choices[int(random.integers(7))] ^= 1
        sight, alone = seen(choices), seen(choices)
        sight.settle(before)
        alone.settle()
        assert sight.order == alone.order
        assert {name: list(values) for name, values in sight.numbers.items()} == {
            name: list(values) for name, values in alone.numbers.items()
        }
        assert set(sight.lists) == set(alone.lists) == {"drafts", "handed", "given"}
        for name, lists in sight.lists.items():
            assert equal(worker.as_ragged([lists]), worker.as_ragged([alone.lists[name]]))
        taken += before is not None and sight.numbers["index_row"] is before.numbers["index_row"]
        before = sight
    assert 50 < taken < 300


def test_tokens_split_into_anothers_place_are_counted(worker: ModuleType) -> None:
    for seed in range(20):
        world = World(seed)
        steps = world.recorded()
        seen = sights(worker, world, steps)
        mixed = [one for one in seen if one.groups[STATE]["state"]["mask"] is not None
                 and len(one.groups[STATE]["state"]["other_tokens"]) > 1]  # fmt: skip
        if mixed:
            break
    given = mixed[0].groups[STATE]["state"]
    tokens = given["other_tokens"].copy()
    given["other_tokens"] = tokens[::-1]
    off = worker.Columns(seen).all()["split_off/1"]
    step = steps.step == mixed[0].step
    assert off[~step].sum() == 0
    assert off[step].sum() == len(tokens) // 2 * 2


@pytest.mark.parametrize("together", [False, True])
def test_block_tables_are_compared_with_the_schedulers(worker: ModuleType, together: bool) -> None:
    """The same in one block of the steps file or in three."""
    params = SimpleNamespace(temperature=0.0)
    requests, owners = worker.Requests(), worker.Owners(1)

    def request(name: str, blocks: list[int]) -> Any:
        return SimpleNamespace(
            req_id=name, sampling_params=params, prompt_token_ids=[1, 2], block_ids=(blocks,), num_computed_tokens=0
        )

    def cached(names: list[str], blocks: list[Any], resumed: set[str]) -> Any:
        return SimpleNamespace(
            req_ids=names, new_block_ids=blocks, num_computed_tokens=[2] * len(names), resumed_req_ids=resumed
        )

    def said_of(new: list[Any], running: Any) -> Any:
        output = SimpleNamespace(
            scheduled_new_reqs=new, scheduled_cached_reqs=running, finished_req_ids=(),
            total_num_scheduled_tokens=len(new) + len(running.req_ids),
            num_scheduled_tokens=dict.fromkeys([one.req_id for one in new] + running.req_ids, 1),
        )  # fmt: skip
        return worker.said_in(output, lambda name: None)

    def seen(rows: str, said: Any, table: list[list[int]]) -> Any:
        sight = worker.Sight(0, 0)
        sight.names, sight.said, sight.groups = list(rows), [said], {0: {"table": np.array(table)}}
        requests.step(sight)
        return sight

    first = [request("a", [5, 6]), request("b", [7])]
    blocks = [([8],), ([9],)]
    steps = [("ab", said_of(first, cached([], [], set())), [[5, 6], [7, 3]])]  # 3 is left over from another: not b's
    first[0].block_ids[0].append(8)  # as the model runner does with its own
    steps.append(("ba", said_of([], cached(["a", "b"], blocks, {"b"})), [[7, 0, 0], [5, 6, 8]]))
    blocks[1][0].append(4)  # all that b has: the model runner's own from now on
    steps.append(("a", said_of([], cached(["a"], [None], set())), [[5, 6, 9]]))
    found: dict[str, list[int]] = {}
    for part in [steps] if together else [[one] for one in steps]:
        requests.release()
        made = owners.columns([seen(*one) for one in part])
        new = made.pop("new_blocks/0")
        for name, values in {**made, "counts": new.counts, "new": new.values}.items():
            found.setdefault(name, []).extend(values.tolist())
    assert found == {
        "table_off/0": [NOTHING, NOTHING, 0, NOTHING, 2], "table_found/0": [NOTHING, NOTHING, 7, NOTHING, 9],
        "table_own/0": [NOTHING, NOTHING, 9, NOTHING, 8], "counts": [2, 1, 1, 1, 0], "new": [5, 6, 7, 9, 8],
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_tables_are_compared_over_any_blocks_of_steps(worker: ModuleType, seed: int) -> None:
    """Requests come, leave and are preempted; entries of the engine's tables are wrong here and there."""
    world = World(seed)
    steps = world.recorded()
    random = np.random.default_rng(seed)
    requests, owners = worker.Requests(), worker.Owners(1)
    owned: dict[str, list[int]] = {}
    due: list[tuple[int, int, int]] = []
    waiting: list[Any] = []
    found: dict[str, list[Any]] = {}

    def write() -> None:
        for name, values in owners.columns(waiting).items():
            found.setdefault(name, []).append(values)
        waiting.clear()

    for number, part in enumerate(steps_of(steps)):
        if waiting and random.random() < 0.3:
            write()
        if not waiting:
            requests.release()
        said, names = said_by(worker, steps, number, part)
        tables = random.integers(1000, 2000, (len(part), 40))  # what other requests left there
        for row, name in zip(tables, names, strict=True):
            whole = name in said.resumed or name not in owned
            mine = owned[name] = ([] if whole else owned[name]) + blocks_of(said, name)
            row[: len(mine)] = mine
            off = int(random.integers(len(mine))) if random.random() < 0.2 else NOTHING
            due.append((NOTHING,) * 3 if off == NOTHING else (off, 5000, mine[off]))
            row[off if off != NOTHING else len(mine)] = 5000
        sight = worker.Sight(number, 0)
        sight.names, sight.said, sight.groups = names, [said], {0: {"table": tables}}
        requests.step(sight)
        waiting.append(sight)
    write()
    parted = zip(*(np.concatenate(found[f"table_{name}/0"]).tolist() for name in ("off", "found", "own")), strict=True)
    assert list(parted) == due
    new = steps.lists("new_blocks/0")
    assert np.concatenate([one.counts for one in found["new_blocks/0"]]).tolist() == new.counts.tolist()
    assert np.concatenate([one.values for one in found["new_blocks/0"]]).tolist() == new.values.tolist()


def test_tables_are_copied_wide_enough_for_the_longest_request(worker: ModuleType) -> None:
    """It is not looked for in each step; requests come and go, and each computes another number of tokens."""
    random = np.random.default_rng(0)
    recorder = SimpleNamespace(groups=[], said=[], names=[], longest=0, bounded=0)
    computed: dict[str, int] = {}
    exact = 0
    for number in range(400):
        fresh = [f"{number}"] if number % 7 == 0 and random.random() < 0.5 else []
        for name in [name for name in computed if random.random() < 0.01]:
            del computed[name]
        scheduled = {name: int(random.integers(1, 4)) for name in [*computed, *fresh]}
        new = [worker.New(name, None, 30, {}, 0, ()) for name in fresh]
        scheduled.update(dict.fromkeys(fresh, 30))
        total, running = sum(scheduled.values()), list(computed)
        nothing = [None] * len(running)
        said = worker.Said(total, scheduled, [], new, running, list(computed.values()), nothing, set())
        recorder.said = [said]
        worker.Recorder.rows(recorder, worker.Sight(number, 0), list(scheduled))
        assert recorder.longest >= said.longest()
        exact += recorder.longest == said.longest()
        for name, count in scheduled.items():  # some of its drafts are rejected
            computed[name] = computed.get(name, 0) + (count if name in fresh else int(random.integers(1, count + 1)))
    assert 400 // 9 <= exact < 400


def steps_of(steps: RowSteps) -> list[list[int]]:
    """The rows of each step."""
    ends = np.cumsum(steps.rows)
    return [list(range(end - count, end)) for end, count in zip(ends, steps.rows, strict=True)]


def said_by(worker: ModuleType, steps: RowSteps, number: int, rows: list[int]) -> tuple[Any, list[str]]:
    """What the scheduler said before this step, and the requests of its rows."""
    names = [steps.requests[int(steps.numbers("request")[row])].engine_id for row in rows]
    arrival = [int(steps.numbers("arrival")[row]) for row in rows]
    blocks = [(steps.lists("new_blocks/0").row(row),) for row in rows]
    scheduled = [int(steps.numbers("scheduled")[row]) for row in rows]
    known = [place for place in range(len(rows)) if arrival[place] != 1]
    said = worker.Said(
        total=sum(scheduled),
        scheduled=dict(zip(names, scheduled, strict=True)),
        finished=[steps.requests[one].engine_id for one in steps.lists("finished").row(number)],
        new=[worker.New(names[at], None, 1, {}, 0, blocks[at]) for at in range(len(rows)) if arrival[at] == 1],
        running=[names[at] for at in known],
        computed=[0 for _ in known],
        blocks=[blocks[at] if blocks[at][0] else None for at in known],
        resumed={names[at] for at in known if arrival[at] == 2},
    )
    return said, names


def blocks_of(said: Any, name: str) -> list[int]:
    """The blocks of the first group that a request is given."""
    given = {one.name: one.blocks for one in said.new} | dict(zip(said.running, said.blocks, strict=True))
    return list(given[name][0]) if given[name] is not None else []


class Runner:
    """As much of a model runner as the recorder asks for; one step calls its methods as vLLM does."""

    attn_groups: tuple[Any, ...] = ()
    input_batch = SimpleNamespace(num_reqs=1, req_ids=["a"], req_id_to_index={"a": 0})

    def execute_model(self, scheduled: Any) -> str:
        return self._model_forward("ids", "positions")

    def _model_forward(self, input_ids: Any, positions: Any) -> str:
        return f"{input_ids} {positions}"

    def _sample(self, logits: Any, metadata: Any) -> str:
        return "sampled"

    def sample_tokens(self, grammar: Any) -> str:
        return "handed " + self._sample(None, None)


class Scheduler:
    def update_from_output(self, scheduled: Any, output: Any) -> str:
        return f"given {output}"


def test_a_recorder_that_fails_stops_and_the_engine_goes_on(worker: ModuleType, tmp_path: Path) -> None:
    """Here its first reading fails: there is no vLLM."""
    runner, scheduler = Runner(), Scheduler()
    llm = SimpleNamespace(
        model_executor=SimpleNamespace(driver_worker=SimpleNamespace(worker=SimpleNamespace(model_runner=runner))),
        engine_core=SimpleNamespace(engine_core=SimpleNamespace(scheduler=scheduler)),
    )
    lines: list[dict[str, Any]] = []
    recorder = worker.recorder_of(llm, lines.append, "cpu/mtp", lambda name: None)
    data = SimpleNamespace(
        req_id="a", sampling_params=None, prompt_token_ids=[1], block_ids=(), num_computed_tokens=0
    )  # fmt: skip
    cached = SimpleNamespace(req_ids=[], new_block_ids=[], num_computed_tokens=[], resumed_req_ids=set())
    step = SimpleNamespace(
        finished_req_ids=(), total_num_scheduled_tokens=1, num_scheduled_tokens={"a": 1},
        scheduled_new_reqs=[data], scheduled_cached_reqs=cached, scheduled_spec_decode_tokens={},
    )  # fmt: skip
    for on in (False, True, True):
        recorder.on = on
        assert runner.execute_model(step) == "ids positions"
        assert scheduler.update_from_output(step, runner.sample_tokens(None)) == "given handed sampled"
    assert [line["record"] for line in lines] == ["steps_header", "steps_stopped"]
    path = tmp_path / "cpu-mtp.steps"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (found,) = read_steps(path)
    assert (len(found), found.header.arm) == (0, "cpu/mtp")
    assert found.stopped is not None
    assert found.stopped.step == 0


@pytest.mark.parametrize(
    ("llm", "why"),
    [
        (SimpleNamespace(), "another process"),
        (
            SimpleNamespace(
                model_executor=SimpleNamespace(driver_worker=SimpleNamespace(worker=SimpleNamespace(model_runner=1))),
                engine_core=SimpleNamespace(engine_core=SimpleNamespace(scheduler=1)),
            ),
            "has no execute_model",
        ),
    ],
)
def test_an_engine_that_cannot_be_recorded_says_why(worker: ModuleType, llm: Any, why: str) -> None:
    with pytest.raises(worker.Unrecordable, match=why):
        worker.recorder_of(llm, print, "cpu/mtp", lambda name: None)


def test_sequence_lengths_are_those_of_all_rows_or_none(worker: ModuleType) -> None:
    """vllm-ascend's MLA leaves those of the decoding rows in its metadata, and all in the prompts' part."""
    whole, decodes = (SimpleNamespace(is_cpu=True, numpy=lambda n=n: np.array([9, 4, 30][:n])) for n in (3, 2))
    for given, found in (
        (SimpleNamespace(seq_lens=whole), whole),
        (SimpleNamespace(seq_lens=decodes, prefill=SimpleNamespace(seq_lens=whole)), whole),
        (SimpleNamespace(seq_lens=decodes, prefill=None), None),
        (SimpleNamespace(seq_lens=None), None),
    ):
        got = worker.sequence_lengths(worker.StepCopies().of, given, 3)
        assert (None if got is None else got.tolist()) == (None if found is None else found.numpy().tolist())


def tensor(*values: int | list[int]) -> SimpleNamespace:
    return SimpleNamespace(is_cpu=True, numpy=lambda: np.array(values))


def test_lengths_of_parts_are_those_of_rows_that_decode_and_of_pieces_of_prompts(worker: ModuleType) -> None:
    """MLA (vLLM 0.32.0): the tokens before a piece stand beside it, where any has them; 0.23.0 has those of chunks."""
    decode = SimpleNamespace(seq_lens=tensor(9, 4, 0, 0))  # padded
    piece = SimpleNamespace(query_start_loc=tensor(0, 5, 12), chunked_context=None)
    later = SimpleNamespace(
        query_start_loc=tensor(0, 5, 12), chunked_context=SimpleNamespace(context_lens=tensor(0, 16))
    )
    in_chunks = SimpleNamespace(
        query_start_loc=tensor(0, 5, 12), chunked_context=SimpleNamespace(seq_lens=tensor([0, 8], [0, 8]))
    )
    of_amx = SimpleNamespace(**vars(later), cpu_seq_lens=tensor(5, 22))  # what its kernel goes by
    for decodes, pieces, prefill, whole in (
        (2, 2, of_amx, [9, 4, 5, 22]),
        (2, 2, piece, [9, 4, 5, 7]),
        (2, 2, later, [9, 4, 5, 23]),
        (2, 2, in_chunks, [9, 4, 5, 23]),
        (0, 2, later, [5, 23]),
        (2, 0, None, [9, 4]),
    ):
        given = SimpleNamespace(num_decodes=decodes, num_prefills=pieces, decode=decode, prefill=prefill)
        assert worker.sequence_lengths(worker.StepCopies().of, given, decodes + pieces).whole().tolist() == whole
        assert worker.sequence_lengths(worker.StepCopies().of, given, decodes + pieces + 1) is None
    older = SimpleNamespace(query_start_loc=tensor(0, 5, 12), chunked_context=SimpleNamespace())
    of_older = SimpleNamespace(num_decodes=2, num_prefills=2, decode=decode, prefill=older)
    assert worker.sequence_lengths(worker.StepCopies().of, of_older, 4) is None
