"""The requests that an engine runs, as the recorder knows them from what the scheduler says alone.

What the scheduler says is copied before the step (`said_in`); all else is done where blocks of the steps file are made.
What rows need of their requests lies in arrays by place, so that a step of many rows takes it by one index.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

import numpy as np

from parity.capture.step_table import NOTHING, Ragged, spans

from .step_sight import Sight, looked_up, ragged

SHAPING = (
    ("presence_penalty", 0.0), ("frequency_penalty", 0.0), ("repetition_penalty", 1.0), ("min_tokens", 0),
    ("bad_words", None), ("allowed_token_ids", None), ("logit_bias", None), ("structured_outputs", None),
    ("logits_processors", None),
)  # fmt: skip
"""Sampling parameters that make the argmax of the raw logits another token than the one that is chosen."""

NEW, RESUMED = 1, 2
"""How a request came into this step's batch; 0: it was running."""

Named = Callable[[str], Optional[dict[str, Any]]]
"""Which completion the engine's name of a request stands for: request, round and sample of the plan."""


def is_plain(params: Any) -> bool:
    """Greedy, and nothing shapes the logits."""
    if params is None or getattr(params, "temperature", 1.0) != 0:
        return False
    return all(getattr(params, name, None) in (usual, None, [], {}) for name, usual in SHAPING)


def stops_of(params: Any) -> list[int]:
    """Token ids that end a request in the scheduler (vllm/v1/core/sched/utils.py, check_stop)."""
    eos = getattr(params, "eos_token_id", None)
    return sorted({*(getattr(params, "stop_token_ids", None) or ()), *(() if eos is None else (eos,))})


def resumed_names(cached: Any) -> Any:
    """Requests that are back after preemption; up to vLLM 0.11.0 a flag for each."""
    names = getattr(cached, "resumed_req_ids", None)
    if names is not None:
        return names
    flags = getattr(cached, "resumed_from_preemption", None) or ()
    return {name for name, flag in zip(cached.req_ids, flags) if flag}  # noqa: B905


class New(NamedTuple):
    """A request that the scheduler sends whole: in its first step; of the second model runner after preemption too."""

    name: str
    params: Any
    prompt_tokens: int
    completion: dict[str, Any]
    """Which it is, where that is known."""
    computed: int
    blocks: Any

    def record(self) -> dict[str, Any]:
        """Of the steps file, without its number."""
        return {
            "engine_id": self.name,
            "prompt_tokens": self.prompt_tokens,
            "plain": is_plain(self.params),
            "max_tokens": getattr(self.params, "max_tokens", None),
            "stops": stops_of(self.params),
            **self.completion,
        }


class Said(NamedTuple):
    """What a scheduler output says. Of the lists that the engine changes later these are copies."""

    total: int
    """Tokens scheduled."""
    scheduled: dict[str, int]
    finished: list[str]
    new: list[New]
    running: list[str]
    computed: list[int]
    """Tokens computed before this step, of `running`."""
    blocks: list[Any]
    """New blocks of `running`, by group; None of most. The scheduler makes these lists for this output; those that
    are all that a request has become the model runner's own, and grow."""
    resumed: Any

    def longest(self) -> int:
        """As many tokens as any request has after this step, or more."""
        before = max(self.computed, default=0), max((one.computed for one in self.new), default=0)
        return int(max(before) + max(self.scheduled.values(), default=0))


def said_in(output: Any, named: Named) -> Said:
    """`named`: asked of new requests."""
    cached = output.scheduled_cached_reqs
    resumed = set(resumed_names(cached))
    blocks = list(cached.new_block_ids)
    if resumed:
        blocks = [
            tuple(map(list, new)) if new is not None and name in resumed else new
            for name, new in zip(cached.req_ids, blocks)  # noqa: B905 - strict is Python 3.10
        ]
    return Said(
        int(output.total_num_scheduled_tokens),
        dict(output.num_scheduled_tokens),
        list(output.finished_req_ids),
        [_new(data, named) for data in output.scheduled_new_reqs],
        list(cached.req_ids),
        list(cached.num_computed_tokens),
        blocks,
        resumed,
    )


def _new(data: Any, named: Named) -> New:
    name, prompt = data.req_id, len(data.prompt_token_ids or ())
    blocks = tuple(map(list, data.block_ids))
    return New(name, data.sampling_params, prompt, named(name) or {}, int(data.num_computed_tokens), blocks)


class Requests:
    """All requests in the engine."""

    def __init__(self) -> None:
        self.place: dict[str, int] = {}
        """Of each request that the engine has; others may have had it before."""
        self.fresh: list[dict[str, Any]] = []
        """Records of requests that are in no block yet."""
        self.total = 0
        self.free: list[int] = []
        self.number = np.zeros(0, dtype=np.int64)
        self.prompt_tokens = np.zeros(0, dtype=np.int64)
        self.plain = np.zeros(0, dtype=bool)
        self.computed: dict[str, int] = {}
        """Tokens computed before this step, of the requests in it."""
        self.arrival: dict[str, int] = {}
        """How those came that were not running."""
        self.came: list[tuple[int, Any, bool]] = []
        """Blocks that came in this step: whose (its place), by group, and whether these are all that it has."""

    def step(self, sight: Sight) -> None:
        """What the scheduler said, as columns of a step. In the steps' order. Raises KeyError, RuntimeError."""
        for said in sight.said:
            sight.finished += self.finish(said.finished)
            if said.total > 0:
                self.take(said)
        said, names = sight.said[-1], sight.names
        places = self.places(names)
        scheduled = looked_up(said.scheduled, names, 0)
        if sum(scheduled) != said.total:
            raise RuntimeError("rows of %d tokens, %d scheduled" % (sum(scheduled), said.total))
        sight.prompt_lengths = self.prompt_tokens[places]
        sight.plain = self.plain[places]
        sight.numbers.update(
            request=self.number[places],
            arrival=looked_up(self.arrival, names, 0) if self.arrival else np.zeros(len(names), dtype=np.int64),
            scheduled=scheduled,
            computed=looked_up(self.computed, names),
        )
        sight.places, sight.came = places, self.came

    def finish(self, names: Any) -> list[int]:
        """The numbers of requests that are over."""
        gone = [self.place.pop(name) for name in names if name in self.place]
        self.free += gone
        return sorted(int(self.number[place]) for place in gone)

    def take(self, said: Said) -> None:
        """What a scheduler output says of its requests."""
        self.computed = dict(zip(said.running, said.computed))  # noqa: B905 - strict is Python 3.10
        self.arrival = dict.fromkeys(said.resumed, RESUMED)
        self.came = []
        for new in said.new:
            known = new.name in self.place  # the second model runner gets them anew after preemption
            if not known:
                self._meet(new)
            self.arrival[new.name], self.computed[new.name] = RESUMED if known else NEW, new.computed
            self.came.append((self.place[new.name], new.blocks, True))
        for name, blocks in zip(said.running, said.blocks):  # noqa: B905
            if blocks is not None:
                self.came.append((self.place[name], blocks, name in self.arrival))

    def places(self, names: Any) -> Any:
        """The places of requests. Raises KeyError."""
        return np.array(list(map(self.place.__getitem__, names)), dtype=np.int64)

    def _meet(self, new: New) -> None:
        if not self.free:
            self._grow()
        place = self.free.pop()
        self.place[new.name] = place
        self.number[place] = self.total
        record = new.record()
        self.prompt_tokens[place], self.plain[place] = record["prompt_tokens"], record["plain"]
        self.fresh.append({"number": self.total, **record})
        self.total += 1

    def _grow(self) -> None:
        size = len(self.number)
        more = max(16, size)
        for name in ("number", "prompt_tokens", "plain"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros(more, old.dtype)]))
        self.free += range(size + more - 1, size - 1, -1)


class Owners:
    """The blocks that the scheduler gave each request, step by step: where blocks of the steps file are made."""

    def __init__(self, groups: int) -> None:
        self.own = [np.zeros((0, 8), dtype=np.int32) for _ in range(groups)]
        """Of each place its blocks, shape (places, blocks)."""
        self.counts = np.zeros((groups, 0), dtype=np.int64)

    def step(self, sight: Sight) -> None:
        """Makes columns of the blocks that came in a step, and of the engine's tables of them. In the steps' order."""
        to = np.array([place for place, _, _ in sight.came], dtype=np.int64)
        self._make_room(1 + max(int(to.max(initial=-1)), int(sight.places.max(initial=-1))))
        added = np.array([not whole for _, _, whole in sight.came], dtype=bool)
        for group in range(len(self.own)):
            lists = ragged([blocks[group] for _, blocks, _ in sight.came])
            self._give(group, to, lists, added)
            found = sight.groups.setdefault(group, {})
            found["new_blocks"] = self._of_rows(sight.places, to, lists)
            table = found.pop("table", None)
            if table is not None:
                counts = self.counts[group, sight.places]
                found.update(parted_tables(self.own[group][sight.places, : table.shape[1]], counts, table))

    def _make_room(self, places: int) -> None:
        more = places - self.counts.shape[1]
        if more > 0:
            more = max(more, places)
            self.own = [np.concatenate([one, np.zeros((more, one.shape[1]), one.dtype)]) for one in self.own]
            self.counts = np.concatenate([self.counts, np.zeros((len(self.own), more), dtype=np.int64)], axis=1)

    def _give(self, group: int, to: Any, lists: Ragged, added: Any) -> None:
        begin = self.counts[group, to] * added
        ends = begin + lists.counts
        while int(ends.max(initial=0)) > self.own[group].shape[1]:
            self.own[group] = np.concatenate([self.own[group], np.zeros_like(self.own[group])], axis=1)
        self.own[group][np.repeat(to, lists.counts), spans(begin, lists.counts)] = lists.values
        self.counts[group, to] = ends

    def _of_rows(self, places: Any, to: Any, lists: Ragged) -> Ragged:
        """The lists of the requests at these places, for each row."""
        which = np.full(self.counts.shape[1], NOTHING, dtype=np.int64)
        which[to] = np.arange(len(to))
        which = which[places]
        rows = np.flatnonzero(which != NOTHING)
        mine = lists.take(which[rows])
        counts = np.zeros(len(places), dtype=np.int64)
        counts[rows] = mine.counts
        return Ragged(counts, mine.values)


def parted_tables(own: Any, counts: Any, table: Any) -> dict[str, Any]:
    """Where the engine's block table (rows, blocks) first parts from the scheduler's."""
    wide = own.shape[1]
    found = {name: np.full(len(counts), NOTHING) for name in ("table_off", "table_found", "table_own")}
    rows = np.flatnonzero((own != table[:, :wide]).any(axis=1))
    differs = (own[rows] != table[rows, :wide]) & (np.arange(wide) < counts[rows, None])
    off, at = differs.any(axis=1), differs.argmax(axis=1)
    rows, at = rows[off], at[off]
    found["table_off"][rows] = at
    found["table_found"][rows], found["table_own"][rows] = table[rows, at], own[rows, at]
    return found
