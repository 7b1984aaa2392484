"""The requests that an engine runs, as the recorder knows them from what the scheduler says alone.

What the scheduler says is copied before the step (`said_in`); all else is done where blocks of the steps file are made.
What rows need of their requests lies in arrays by place, so that a step of many rows takes it by one index.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

import numpy as np

from .step_sight import Sight, looked_up

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
    for name, usual in SHAPING:
        value = getattr(params, name, None)
        if value is not None and value not in (usual, [], {}):
            return False
    return True


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

    def computed_of(self) -> dict[str, int]:
        """Tokens computed before this step, of the requests in it."""
        found = dict(zip(self.running, self.computed))  # noqa: B905 - strict is Python 3.10
        found.update((one.name, one.computed) for one in self.new)
        return found


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


class BatchRows(NamedTuple):
    """Rows of a step, arrays of shape (rows,): as long as the batch stays as it is, all its steps have the same."""

    names: list[str]
    places: Any
    number: Any
    prompt_tokens: Any
    plain: Any
    nothing: Any
    """Zeros."""


class Requests:
    """All requests in the engine."""

    def __init__(self) -> None:
        self.place: dict[str, int] = {}
        """Of each request that the engine has; others may have had it before, though not in the same block of steps."""
        self.fresh: list[dict[str, Any]] = []
        """Records of requests that are in no block yet."""
        self.total = 0
        self.free: list[int] = []
        self.left: list[int] = []
        """Places that are free from the next block on (`release`)."""
        self.number = np.zeros(0, dtype=np.int64)
        self.prompt_tokens = np.zeros(0, dtype=np.int64)
        self.plain = np.zeros(0, dtype=bool)
        self.rows: Optional[BatchRows] = None
        """Of the step before, while its requests keep their places."""
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
        rows = self.rows
        if rows is None or names != rows.names:
            rows = self.rows = self._rows(names)
        scheduled = looked_up(said.scheduled, names, 0)
        if sum(scheduled) != said.total:
            raise RuntimeError("rows of %d tokens, %d scheduled" % (sum(scheduled), said.total))
        sight.prompt_lengths, sight.plain, sight.places = rows.prompt_tokens, rows.plain, rows.places
        sight.numbers.update(
            request=rows.number,
            arrival=looked_up(self.arrival, names, 0) if self.arrival else rows.nothing,
            scheduled=scheduled,
            computed=said.computed if said.running == names else looked_up(said.computed_of(), names),
        )
        sight.came = self.came

    def _rows(self, names: list[str]) -> BatchRows:
        """Raises KeyError."""
        places = np.array(list(map(self.place.__getitem__, names)), dtype=np.int64)
        nothing = np.zeros(len(names), dtype=np.int64)
        return BatchRows(names, places, self.number[places], self.prompt_tokens[places], self.plain[places], nothing)

    def release(self) -> None:
        """Another block of steps begins."""
        self.free, self.left = self.free + self.left, []

    def finish(self, names: Any) -> list[int]:
        """The numbers of requests that are over."""
        gone = [self.place.pop(name) for name in names if name in self.place]
        if not gone:
            return []
        self.rows = None
        self.left += gone
        return sorted(int(self.number[place]) for place in gone)

    def take(self, said: Said) -> None:
        """What a scheduler output says of its requests."""
        self.arrival = dict.fromkeys(said.resumed, RESUMED)
        self.came = []
        for new in said.new:
            known = new.name in self.place  # the second model runner gets them anew after preemption
            if known:
                self._move(new.name)
            else:
                self._meet(new)
            self.arrival[new.name] = RESUMED if known else NEW
            self.came.append((self.place[new.name], new.blocks, True))
        if said.blocks.count(None) == len(said.blocks):
            return
        for name, blocks in zip(said.running, said.blocks):  # noqa: B905 - strict is Python 3.10
            if blocks is not None:
                whole = name in self.arrival
                if whole:
                    self._move(name)
                self.came.append((self.place[name], blocks, whole))

    def _free_place(self) -> int:
        if not self.free:
            self._grow()
        return self.free.pop()

    def _move(self, name: str) -> None:
        """To another place: all that it has came anew."""
        self.rows = None
        old, new = self.place[name], self._free_place()
        for values in (self.number, self.prompt_tokens, self.plain):
            values[new] = values[old]
        self.place[name] = new
        self.left.append(old)

    def _meet(self, new: New) -> None:
        self.rows = None
        place = self.place[new.name] = self._free_place()
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
