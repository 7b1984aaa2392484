"""The requests that an engine runs, as the recorder knows them from what the scheduler says alone."""

from __future__ import annotations

from typing import Any, Callable, Optional

import numpy as np

from parity.capture.step_table import NOTHING

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


class Known:
    """One request: its number in the steps file and what its invariants rest on."""

    def __init__(self, number: int, place: int, data: Any) -> None:
        params = data.sampling_params
        self.number, self.place = number, place
        self.prompt_tokens = len(data.prompt_token_ids or ())
        self.plain = is_plain(params)
        self.record: dict[str, Any] = {
            "number": number,
            "engine_id": data.req_id,
            "prompt_tokens": self.prompt_tokens,
            "plain": self.plain,
            "max_tokens": getattr(params, "max_tokens", None),
            "stops": stops_of(params),
        }


def stops_of(params: Any) -> list[int]:
    """Token ids that end a request in the scheduler (vllm/v1/core/sched/utils.py, check_stop)."""
    eos = getattr(params, "eos_token_id", None)
    return sorted({*(getattr(params, "stop_token_ids", None) or ()), *(() if eos is None else (eos,))})


class Requests:
    """All requests in the engine, and for each cache group the blocks that the scheduler gave them."""

    def __init__(self, named: Named, groups: int) -> None:
        self.named = named
        self.known: dict[str, Known] = {}
        self.fresh: list[dict[str, Any]] = []
        """Records of requests that are in no block yet."""
        self.total = 0
        self.free: list[int] = []
        self.own = [np.zeros((0, 8), dtype=np.int32) for _ in range(groups)]
        self.counts = np.zeros((groups, 0), dtype=np.int64)

    def finish(self, names: Any) -> list[int]:
        """The numbers of requests that are over."""
        gone = [self.known.pop(name) for name in names if name in self.known]
        self.free += [one.place for one in gone]
        return sorted(one.number for one in gone)

    def take(self, output: Any) -> tuple[dict[str, int], dict[str, int], dict[str, Any]]:
        """From a scheduler output by name: how requests came, their computed tokens, the blocks given to them."""
        came: dict[str, int] = {}
        computed: dict[str, int] = {}
        blocks: dict[str, Any] = {}
        for data in output.scheduled_new_reqs:
            name = data.req_id
            if name not in self.known:
                self._meet(data)
            came[name], computed[name], blocks[name] = NEW, data.num_computed_tokens, data.block_ids
            self._give(self.known[name].place, data.block_ids, whole=True)
        cached = output.scheduled_cached_reqs
        for name, new, count in zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens):  # noqa: B905
            computed[name] = count
            resumed = name in cached.resumed_req_ids
            if resumed:
                came[name] = RESUMED
            if new is not None and name in self.known:
                blocks[name] = new
                self._give(self.known[name].place, new, whole=resumed)
        return came, computed, blocks

    def _meet(self, data: Any) -> None:
        if not self.free:
            self._grow()
        one = Known(self.total, self.free.pop(), data)
        one.record.update(self.named(data.req_id) or {})
        self.total += 1
        self.known[data.req_id] = one
        self.fresh.append(one.record)

    def _grow(self) -> None:
        size = self.counts.shape[1]
        more = max(16, size)
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

    def table(self, group: int, places: Any, table: Any) -> dict[str, Any]:
        """Where the engine's block table (rows, blocks) first parts from what the scheduler gave each row's request.

        `places` of the rows' requests, shape (rows,).
        """
        counts = self.counts[group, places]
        wide = min(int(counts.max(initial=0)), table.shape[1])
        own, found = self.own[group][places, :wide], table[:, :wide]
        none = np.full(len(places), NOTHING)
        if not wide or bool((own == found).all()):
            return {"table_off": none, "table_found": none, "table_own": none}
        differs = (own != found) & (np.arange(wide) < counts[:, None])
        off, at, rows = differs.any(axis=1), differs.argmax(axis=1), np.arange(len(places))
        return {
            "table_off": np.where(off, at, NOTHING),
            "table_found": np.where(off, found[rows, at], NOTHING),
            "table_own": np.where(off, own[rows, at], NOTHING),
        }
