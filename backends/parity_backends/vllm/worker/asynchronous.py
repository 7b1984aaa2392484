"""vLLM's AsyncLLM through the few calls of its LLMEngine that an arm uses: requests arrive while others decode.

The engine core is a process of its own here, which takes its steps whenever it likes. So batches depend on
timing, and no two runs are quite the same: that is what this is for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

POLL_SECONDS = 0.005
"""How long a step waits for something to come; arrivals are as exact as this."""


class AsyncEngine:
    """Looks like an LLMEngine: add, step, abort. A step is what has come since the last one, maybe nothing."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.sizes: dict[int, int] = {}
        self.live: dict[str, Any] = {}
        self.outputs: deque[Any] = deque()
        self.trouble: list[BaseException] = []
        self.news = asyncio.Event()
        arguments = AsyncEngineArgs(**settings)
        self.llm = self.loop.run_until_complete(self._open(AsyncLLM, arguments))
        self.vllm_config = self.llm.vllm_config

    async def _open(self, kind: Any, arguments: Any) -> Any:
        return kind.from_engine_args(arguments, stat_loggers=[step_logger(self.sizes)])

    @property
    def engine_core(self) -> Any:
        return self.llm

    def collective_rpc(self, method: Any, args: tuple[Any, ...] = ()) -> Any:
        """What each rank answers."""
        return self.loop.run_until_complete(self.llm.collective_rpc(method, args=args))

    def get_metrics(self) -> Any:
        from vllm.v1.metrics.reader import get_metrics_snapshot

        return get_metrics_snapshot()

    def add_request(self, name: str, prompt: Any, params: Any) -> None:
        self.live[name] = self.loop.create_task(self._follow(name, prompt, params))

    async def _follow(self, name: str, prompt: Any, params: Any) -> None:
        try:
            async for output in self.llm.generate(prompt, params, name):
                self.outputs.append((name, output))
                self.news.set()
        except Exception as error:
            if name in self.live:
                self.trouble.append(error)
                self.news.set()

    def has_unfinished_requests(self) -> bool:
        return bool(self.live)

    def get_num_unfinished_requests(self) -> int:
        return len(self.live)

    def step(self) -> list[Any]:
        self.loop.run_until_complete(self._wait())
        if self.trouble:
            raise self.trouble[0]
        found = []
        while self.outputs:
            name, output = self.outputs.popleft()
            if name in self.live:  # else it was aborted
                if output.finished:
                    del self.live[name]
                found.append(output)
        return found

    async def _wait(self) -> None:
        self.news.clear()
        if not self.outputs:
            try:
                await asyncio.wait_for(self.news.wait(), POLL_SECONDS)
            except asyncio.TimeoutError:
                return

    def abort_request(self, names: list[str]) -> None:
        for name in names:
            task = self.live.pop(name, None)
            self.loop.run_until_complete(self.llm.abort(name))
            if task is not None:
                task.cancel()

    def take_sizes(self) -> dict[int, int]:
        """How many steps ran that many requests, since the last time this was asked."""
        taken = dict(self.sizes)
        self.sizes.clear()
        return taken


def step_logger(sizes: dict[int, int]) -> Any:
    """A logger of vLLM's statistics that counts how many requests each step ran."""
    from vllm.v1.metrics.loggers import StatLoggerBase

    class StepLogger(StatLoggerBase):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            pass

        def record(self, scheduler_stats: Any, iteration_stats: Any, *others: Any, **named: Any) -> None:
            running = getattr(scheduler_stats, "num_running_reqs", None)
            if running:
                sizes[running] = sizes.get(running, 0) + 1

        def log_engine_initialized(self) -> None:
            pass

    return StepLogger
