"""AsyncLLM behind the calls of an LLMEngine, with an AsyncLLM of a few lines."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from parity_backends.vllm.worker.asynchronous import AsyncEngine
from parity_backends.vllm.worker.recorder import Unrecordable
from parity_backends.vllm.worker.recording import recorder_of
from parity_backends.vllm.worker.rounds import Round
from parity_backends.vllm.worker.schedule import round_schedule

TOKEN_SECONDS = 0.002


class FakeAsyncLLM:
    """A token of each request every TOKEN_SECONDS; what is taken back ends with an output of its own, as in vLLM."""

    vllm_config = "the configuration"

    def __init__(self, loggers: list[Any]) -> None:
        self.loggers = [logger(None) for logger in loggers]
        self.running: set[str] = set()
        self.aborted: list[str] = []

    @classmethod
    def from_engine_args(cls, arguments: Any, stat_loggers: list[Any]) -> FakeAsyncLLM:
        assert arguments == {"model": "m"}
        asyncio.get_running_loop()
        return cls(stat_loggers)

    async def generate(self, prompt: Any, params: Any, name: str) -> AsyncIterator[Any]:
        if prompt == "bad":
            raise RuntimeError("the engine is dead")
        self.running.add(name)
        try:
            for count in range(1, params.tokens + 1):
                await asyncio.sleep(TOKEN_SECONDS)
                for logger in self.loggers:
                    logger.record(SimpleNamespace(num_running_reqs=len(self.running)), None, engine_idx=0)
                done = count == params.tokens or name in self.aborted
                if done or not params.whole:
                    reason = "abort" if name in self.aborted else "length" if done else None
                    sample = SimpleNamespace(
                        index=0, token_ids=list(range(count)), text="x", finish_reason=reason, stop_reason=None,
                        logprobs=None,
                    )  # fmt: skip
                    yield SimpleNamespace(request_id=name, finished=done, outputs=[sample])
                if done:
                    return
        finally:
            self.running.discard(name)

    async def collective_rpc(self, method: Any, timeout: float | None = None, args: tuple[Any, ...] = ()) -> list[Any]:
        return [method(SimpleNamespace(rank=0, model_runner=SimpleNamespace()), *args)]

    async def abort(self, name: str) -> None:
        self.aborted.append(name)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> AsyncEngine:
    for name, content in {
        "vllm": {"AsyncEngineArgs": lambda **settings: settings},
        "vllm.v1": {},
        "vllm.v1.engine": {},
        "vllm.v1.engine.async_llm": {"AsyncLLM": FakeAsyncLLM},
        "vllm.v1.metrics": {},
        "vllm.v1.metrics.loggers": {"StatLoggerBase": object},
    }.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return AsyncEngine({"model": "m"})


class Arm:
    samples = 1
    asynchronous = True

    def remember(self, record: dict[str, Any]) -> None:
        pass

    def __init__(self, engine: AsyncEngine, lengths: list[int]) -> None:
        self.engine = engine
        self.llm = SimpleNamespace(llm_engine=engine)
        self.requests = [{"id": f"p{i}", "prompt_token_ids": [i], "max_tokens": n} for i, n in enumerate(lengths)]
        self.records: list[dict[str, Any]] = []
        self.channel = SimpleNamespace(record=self.records.append, records=self.records.extend)
        self.stop = threading.Event()
        self.added: list[float] = []

    def progress(self, done: int, tokens: int) -> None:
        pass

    def add_request(self, request: dict[str, Any], round_: int, *, whole: bool = True) -> str:
        self.added.append(time.perf_counter())
        name = str(len(self.added))
        self.engine.add_request(name, "prompt", SimpleNamespace(tokens=request["max_tokens"], whole=whole))
        return name


def run(arm: Arm, churn: dict[str, Any]) -> Round:
    round_ = Round(arm, 0, round_schedule(churn, [one["id"] for one in arm.requests], 0), 0, 0)
    round_.run()
    return round_


def test_its_ranks_can_be_asked(engine: AsyncEngine) -> None:
    """So the recorder of its first rank begins there: this runner has none of the doors."""
    llm = SimpleNamespace(llm_engine=engine)
    with pytest.raises(Unrecordable, match="has no execute_model"):
        recorder_of(llm, print, "cpu/mtp", lambda name: None)


def test_requests_arrive_by_the_clock_while_others_decode(engine: AsyncEngine) -> None:
    arm = Arm(engine, [40, 40, 40])
    began = time.perf_counter()
    done = run(arm, {"arrival": "fixed", "every": 0.03, "unit": "seconds", "asynchronous": True})
    assert sorted(len(record["token_ids"]) for record in arm.records) == [40, 40, 40]
    assert all(at - began >= 0.03 * number for number, at in enumerate(arm.added))  # late on a busy machine, not early
    counters = done.watch.counters()
    assert counters["arrivals_while_decoding"] == 2
    assert counters["steps"] == sum(counters["batch_sizes"].values()) == 120
    assert int(max(counters["batch_sizes"])) > 1
    assert "rows_moved" not in counters  # the rows are in another process
    assert not engine.has_unfinished_requests()


def test_a_request_is_taken_back(engine: AsyncEngine) -> None:
    arm = Arm(engine, [200, 20])
    run(arm, {"abort_share": 0.5, "abort_after": [5, 5], "asynchronous": True, "seed": 1})
    ended = sorted(record["finish_reason"] for record in arm.records)
    assert ended == ["abort", "length"]
    gone = next(record for record in arm.records if record["finish_reason"] == "abort")
    assert 5 <= len(gone["token_ids"]) < 20
    assert gone["aborted"] is True
    assert engine.llm.aborted
    assert len(arm.records) == 2


def test_an_engine_that_dies_is_an_error_not_a_wait(engine: AsyncEngine) -> None:
    engine.add_request("1", "bad", SimpleNamespace(tokens=1, whole=True))

    def until_it_fails() -> None:
        for _ in range(100):
            engine.step()

    with pytest.raises(RuntimeError, match="the engine is dead"):
        until_it_fails()


def test_it_looks_like_an_engine(engine: AsyncEngine) -> None:
    assert engine.vllm_config == "the configuration"
    assert engine.engine_core is engine.llm
    assert engine.step() == []
    assert engine.take_sizes() == {}
