"""The requests that an engine runs, as the recorder knows them from what the scheduler says alone.

What rows need of their requests lies in arrays by place, so that a step of many rows takes it by one index.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import numpy as np

from parity.capture.step_table import NOTHING, Ragged

from .step_sight import ragged

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


class Requests:
    """All requests in the engine, and for each cache group the blocks that the scheduler gave them."""

    def __init__(self, named: Named, groups: int) -> None:
        self.named = named
        self.place: dict[str, int] = {}
        """Of each request that the engine has; others may have had it before."""
        self.fresh: list[dict[str, Any]] = []
        """Records of requests that are in no block yet."""
        self.total = 0
        self.free: list[int] = []
        self.number = np.zeros(0, dtype=np.int64)
        self.prompt_tokens = np.zeros(0, dtype=np.int64)
        self.plain = np.zeros(0, dtype=bool)
        self.computed = np.zeros(0, dtype=np.int64)
        """Tokens computed before this step, NOTHING of requests that are not in it."""
        self.arrival = np.zeros(0, dtype=np.int64)
        self.given: dict[str, Any] = {}
        """Blocks that came in this step, by request and then by group."""
        self.own = [np.zeros((0, 8), dtype=np.int32) for _ in range(groups)]
        self.counts = np.zeros((groups, 0), dtype=np.int64)

    def finish(self, names: Any) -> list[int]:
        """The numbers of requests that are over."""
        gone = [self.place.pop(name) for name in names if name in self.place]
        self.free += gone
        return sorted(int(self.number[place]) for place in gone)

    def take(self, output: Any) -> None:
        """What a scheduler output says of its requests."""
        self.computed[:] = NOTHING
        self.arrival[:] = 0
        self.given = {}
        for data in output.scheduled_new_reqs:
            name = data.req_id
            came = NEW
            if name in self.place:  # the second model runner gets them anew after preemption
                came = RESUMED
            else:
                self._meet(data)
            place = self.place[name]
            self.arrival[place], self.computed[place] = came, data.num_computed_tokens
            self.given[name] = data.block_ids
            self._give(place, data.block_ids, whole=True)
        self._take_running(output.scheduled_cached_reqs)

    def _take_running(self, cached: Any) -> None:
        names = cached.req_ids
        if not names:
            return
        places = self.places(names)
        self.computed[places] = cached.num_computed_tokens
        resumed = resumed_names(cached)
        if resumed:
            self.arrival[[self.place[name] for name in names if name in resumed]] = RESUMED
        for row, new in enumerate(cached.new_block_ids):
            if new is not None:
                name = names[row]
                self.given[name] = new
                self._give(int(places[row]), new, whole=name in resumed)

    def places(self, names: Any) -> Any:
        """The places of requests. Raises KeyError."""
        return np.fromiter(map(self.place.__getitem__, names), dtype=np.int64, count=len(names))

    def new_blocks(self, group: int, names: list[str]) -> Ragged:
        """Blocks that came in this step, for each row."""
        if not self.given:
            return Ragged(np.zeros(len(names), dtype=np.int64), np.zeros(0, dtype=np.int64))
        return ragged([self.given[name][group] if name in self.given else () for name in names])

    def _meet(self, data: Any) -> None:
        if not self.free:
            self._grow()
        place, params = self.free.pop(), data.sampling_params
        self.place[data.req_id] = place
        self.number[place] = self.total
        self.prompt_tokens[place] = len(data.prompt_token_ids or ())
        self.plain[place] = is_plain(params)
        record = {
            "number": self.total,
            "engine_id": data.req_id,
            "prompt_tokens": int(self.prompt_tokens[place]),
            "plain": bool(self.plain[place]),
            "max_tokens": getattr(params, "max_tokens", None),
            "stops": stops_of(params),
        }
        record.update(self.named(data.req_id) or {})
        self.fresh.append(record)
        self.total += 1

    def _grow(self) -> None:
        size = self.counts.shape[1]
        more = max(16, size)
        for name in ("number", "prompt_tokens", "plain", "computed", "arrival"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros(more, old.dtype)]))
        self.own = [np.concatenate([one, np.zeros((more, one.shape[1]), one.dtype)]) for one in self.own]
        self.counts = np.concatenate([self.counts, np.zeros((len(self.own), more), dtype=np.int64)], axis=1)
        self.free += range(size + more - 1, size - 1, -1)

    def _give(self, place: int, blocks: Any, whole: bool) -> None:
        for group, ids in enumerate(blocks):
            begin = 0 if whole else int(self.counts[group, place])
            end = begin + len(ids)
            while end > self.own[group].shape[1]:
                self.own[group] = np.concatenate([self.own[group], np.zeros_like(self.own[group])], axis=1)
            self.own[group][place, begin:end] = ids
            self.counts[group, place] = end

    def owned(self, group: int, places: Any, wide: int) -> tuple[Any, Any]:
        """Blocks of the requests at these places, shape (rows, at most `wide`), and how many of them each has."""
        counts = self.counts[group, places]
        wide = min(int(counts.max(initial=0)), wide)
        return self.own[group][places, :wide], counts


def parted_tables(own: Any, counts: Any, table: Any) -> dict[str, Any]:
    """Where the engine's block table (rows, blocks) first parts from the scheduler's (`Requests.owned`)."""
    wide = own.shape[1]
    found, none = table[:, :wide], np.full(len(counts), NOTHING)
    if not wide or bool((own == found).all()):
        return {"table_off": none, "table_found": none, "table_own": none}
    differs = (own != found) & (np.arange(wide) < counts[:, None])
    off, at, rows = differs.any(axis=1), differs.argmax(axis=1), np.arange(len(counts))
    return {
        "table_off": np.where(off, at, NOTHING),
        "table_found": np.where(off, found[rows, at], NOTHING),
        "table_own": np.where(off, own[rows, at], NOTHING),
    }
