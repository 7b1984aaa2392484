"""The worker's schedule of a round, and what it counts, with an engine of a few lines."""

from __future__ import annotations

import threading
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from parity_backends.vllm.worker.rounds import Round, Watch, add_up
from parity_backends.vllm.worker.schedule import round_schedule

NAMES = [f"p{i}" for i in range(20)]


def test_without_churn_all_join_at_once_in_the_plans_order() -> None:
    joins = round_schedule({}, NAMES, 3)
    assert [(join.index, join.batch, join.at, join.abort_after) for join in joins] == [
        (i, 0, 0.0, None) for i in range(20)
    ]


def test_a_schedule_depends_on_nothing_but_seed_and_round() -> None:
    churn = {"arrival": "poisson", "every": 1.5, "shuffle": True, "abort_share": 0.2, "abort_after": [3, 9], "seed": 7}

    def told(round_: int, seed: int = 7) -> list[tuple[int, int, float, int | None]]:
        return [(j.index, j.batch, j.at, j.abort_after) for j in round_schedule({**churn, "seed": seed}, NAMES, round_)]

    assert told(1) == told(1)
    assert told(1) != told(2)
    assert told(1) != told(1, seed=8)
    assert sorted(join[0] for join in told(1)) == list(range(20))
    taken_back = [join[3] for join in told(1) if join[3] is not None]
    assert len(taken_back) == 4
    assert all(3 <= after <= 9 for after in taken_back)
    # Pinned: another Python must make the same schedule, or a resumed round is another round.
    assert [join[0] for join in told(0)[:6]] == PINNED_ORDER


PINNED_ORDER = [17, 3, 1, 0, 8, 15]


def test_poisson_arrivals_have_their_mean() -> None:
    joins = round_schedule({"arrival": "poisson", "every": 2.0}, [str(i) for i in range(4000)], 0)
    assert joins[-1].at / 3999 == pytest.approx(2.0, rel=0.06)
    fixed = round_schedule({"arrival": "fixed", "every": 2.0}, NAMES, 0)
    assert [join.at for join in fixed] == [2.0 * i for i in range(20)]


def test_the_needle_is_alone_first_and_then_in_random_batches_never_taken_back() -> None:
    churn = {"needle": "p5", "batch_sizes": [4, 8], "abort_share": 0.9, "abort_after": [1, 2]}
    first = round_schedule(churn, NAMES, 0)
    assert [join.index for join in first if join.batch == 0] == [5]
    places = set()
    for number in range(1, 12):
        joins = round_schedule(churn, NAMES, number)
        sizes = Counter(join.batch for join in joins)
        assert all(4 <= size <= 8 for batch, size in sizes.items() if batch != max(sizes))
        home = next(join for join in joins if join.index == 5)
        assert home.abort_after is None
        assert sizes[home.batch] > 1 or home.batch == max(sizes)
        places.add((home.batch, [join.index for join in joins if join.batch == home.batch].index(5)))
    assert len(places) > 3


class Engine:
    """A token per request and step; at most `rows` at a time; holes are filled from the end, as vLLM does."""

    def __init__(self, rows: int) -> None:
        self.limit = rows
        self.waiting: list[str] = []
        self.rows: list[str] = []
        self.left: dict[str, int] = {}
        self.whole: dict[str, bool] = {}
        self.tokens: dict[str, list[int]] = {}
        self.gone: list[str] = []
        self.sizes: list[int] = []

    def has_unfinished_requests(self) -> bool:
        return bool(self.waiting or self.rows)

    def get_num_unfinished_requests(self) -> int:
        return len(self.waiting) + len(self.rows)

    def _fill(self, gone: list[str]) -> None:
        for name in gone:
            if name in self.rows:
                at = self.rows.index(name)
                self.rows[at] = self.rows[-1]
                self.rows.pop()

    def abort_request(self, names: list[str]) -> None:
        self.gone += names
        self._fill(names)

    def step(self) -> list[Any]:
        self._fill([name for name in self.rows if self.left[name] == 0])
        while self.waiting and len(self.rows) < self.limit:
            self.rows.append(self.waiting.pop(0))
        self.sizes.append(len(self.rows))
        outputs = []
        for name in list(self.rows):
            self.left[name] -= 1
            self.tokens[name].append(len(self.tokens[name]))
            done = self.left[name] == 0
            if done or not self.whole[name]:
                sample = SimpleNamespace(
                    index=0,
                    token_ids=list(self.tokens[name]),
                    text="x",
                    finish_reason="length" if done else None,
                    stop_reason=None,
                    logprobs=None,
                )
                outputs.append(SimpleNamespace(request_id=name, finished=done, outputs=[sample]))
        for name in [name for name in self.rows if self.left[name] == 0]:
            self.rows_before_removal = name
        self.seen = list(self.rows)
        self._fill([name for name in self.rows if self.left[name] == 0])
        return outputs


class Arm:
    samples = 1
    asynchronous = False

    def remember(self, record: dict[str, Any]) -> None:
        pass

    def __init__(self, lengths: list[int], rows: int) -> None:
        self.engine = Engine(rows)
        engine = self.engine

        class Runner:
            @property
            def input_batch(self) -> Any:
                return SimpleNamespace(req_ids=engine.seen)

        self.llm = SimpleNamespace(llm_engine=Runner())
        self.requests = [{"id": f"p{i}", "prompt_token_ids": [i], "max_tokens": n} for i, n in enumerate(lengths)]
        self.records: list[dict[str, Any]] = []
        self.channel = SimpleNamespace(record=self.records.append, records=self.records.extend)
        self.stop = threading.Event()
        self.added: list[tuple[int, str]] = []

    def progress(self, done: int, tokens: int) -> None:
        pass

    def add_request(self, request: dict[str, Any], round_: int, *, whole: bool = True) -> str:
        name = str(len(self.added) + 1)
        self.added.append((len(self.engine.sizes), request["id"]))
        self.engine.waiting.append(name)
        self.engine.left[name] = request["max_tokens"]
        self.engine.whole[name] = whole
        self.engine.tokens[name] = []
        return name


def run(arm: Arm, churn: dict[str, Any], number: int = 0) -> Round:
    joins = round_schedule(churn, [request["id"] for request in arm.requests], number)
    round_ = Round(arm, number, joins, 0, 0)
    round_.run()
    return round_


def test_a_round_without_churn_runs_everything_and_counts_its_steps() -> None:
    arm = Arm([4, 4, 4], 8)
    done = run(arm, {})
    assert [record["request"] for record in arm.records] == ["p0", "p1", "p2"]
    assert done.done == 3
    assert done.tokens == 12
    assert done.watch.counters() == {
        "steps": 4,
        "batch_sizes": {"3": 4},
        "arrivals_while_decoding": 0,
        "aborted": 0,
        "rows_joined": 0,
        "rows_left": 0,
        "rows_moved": 0,
    }


def test_fixed_arrivals_join_while_others_decode() -> None:
    arm = Arm([6, 2, 6, 2], 8)
    done = run(arm, {"arrival": "fixed", "every": 2})
    assert [step for step, _ in arm.added] == [0, 2, 4, 6]
    counters = done.watch.counters()
    assert counters["arrivals_while_decoding"] == 3
    assert counters["rows_joined"] >= 2
    assert counters["rows_left"] >= 1
    assert counters["batch_sizes"]["2"] >= 2


def test_rows_that_fill_a_hole_are_counted_as_moved() -> None:
    done = run(Arm([2, 5, 5], 8), {})
    assert done.watch.counters()["rows_moved"] == 1
    assert done.watch.counters()["rows_left"] == 1


def test_a_gap_without_work_is_not_waited_for() -> None:
    arm = Arm([2, 2], 8)
    run(arm, {"arrival": "fixed", "every": 1000})
    assert len(arm.engine.sizes) == 4


def test_batches_come_one_after_the_other() -> None:
    arm = Arm([3] * 6, 8)
    run(arm, {"batch_sizes": [2, 2]})
    assert [step for step, _ in arm.added] == [0, 0, 3, 3, 6, 6]
    assert set(arm.engine.sizes) == {2}


def test_requests_taken_back_end_where_they_were_and_say_so() -> None:
    arm = Arm([50, 50], 8)
    done = run(arm, {"abort_share": 0.5, "abort_after": [7, 7]})
    ended = {record["finish_reason"]: record for record in arm.records}
    assert set(ended) == {"abort", "length"}
    assert ended["abort"]["aborted"] is True
    assert ended["abort"]["text"] is None
    assert len(ended["abort"]["token_ids"]) == 7
    assert "aborted" not in ended["length"]
    assert arm.engine.gone
    assert done.watch.counters()["aborted"] == 1


def test_a_request_that_ends_before_it_is_taken_back_ends_normally() -> None:
    arm = Arm([3, 3], 8)
    run(arm, {"abort_share": 0.9, "abort_after": [7, 7]})
    assert [record["finish_reason"] for record in arm.records] == ["length", "length"]


def test_where_rows_cannot_be_seen_nothing_is_claimed_of_them() -> None:
    watch = Watch()
    watch.step(None, 5)
    assert watch.counters() == {
        "steps": 1,
        "batch_sizes": {"5": 1},
        "arrivals_while_decoding": 0,
        "aborted": 0,
    }


def test_counters_add_up() -> None:
    total: dict[str, Any] = {}
    for part in ({"a": 1, "b": [1, 2], "h": {"1": 2}}, {"a": 2, "b": [3, 4], "h": {"1": 1, "3": 1}}):
        add_up(total, part)
    assert total == {"a": 3, "b": [4, 6], "h": {"1": 3, "3": 1}}
