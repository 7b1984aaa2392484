"""The rows of the running batch, where the model runner is: in this process, or in a rank of its own.

A rank counts for itself, step by step, and is asked once a round. Asking it after each step would make the engine wait
for it, and an engine that schedules asynchronously would no longer do so.
"""

from __future__ import annotations

from typing import Any, Callable, Optional


class RowCounts:
    """Counts how the batch changes from one step to the next: proof that rows joined, left and moved."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.joined = self.left = self.moved = 0
        self.before: dict[str, int] = {}
        self.rows: list[str] = []

    def step(self, rows: list[str]) -> None:
        """After a step: the request in each of its rows."""
        self.sizes[len(rows)] = self.sizes.get(len(rows), 0) + 1
        if rows == self.rows:  # as in most steps: to count what stayed takes twenty times as long
            return
        self.rows = rows
        now = {name: row for row, name in enumerate(rows)}
        stayed = now.keys() & self.before.keys()
        if stayed:
            self.joined += len(now) - len(stayed)
            self.left += len(self.before) - len(stayed)
            self.moved += sum(now[name] != self.before[name] for name in stayed)
        self.before = now

    def counters(self) -> dict[str, Any]:
        return {"rows_joined": self.joined, "rows_left": self.left, "rows_moved": self.moved}


def runner_of(holder: Any) -> Any:
    """The model runner of an LLM, an engine or a worker; what was given itself where none is to be seen."""
    runner = getattr(holder, "llm_engine", holder)
    for name in ("model_executor", "driver_worker", "worker", "model_runner"):
        runner = getattr(runner, name, runner)
    return runner


def count_rows(holder: Any) -> bool:
    """Have the model runner of this process count its rows from now on, anew; whether it can."""
    runner = runner_of(holder)
    if not hasattr(runner, "parity_rows"):
        if getattr(runner, "input_batch", None) is not None:
            after_each(runner, "execute_model", lambda made: runner.input_batch.req_ids)
        elif hasattr(runner, "req_states") and hasattr(runner, "prepare_inputs"):
            # vLLM's second model runner makes the batch anew in each step (`v1/worker/gpu/model_runner.py`).
            after_each(runner, "prepare_inputs", lambda made: getattr(made, "req_ids", None) or [])
        else:
            return False
    runner.parity_rows = RowCounts()
    return True


def after_each(runner: Any, name: str, rows_in: Callable[[Any], Any]) -> None:
    method = getattr(runner, name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        made = method(*args, **kwargs)
        rows = [str(row) for row in rows_in(made) if row is not None]
        if rows:
            runner.parity_rows.step(rows)
        return made

    setattr(runner, name, counted)


def counted_rows(holder: Any) -> Optional[tuple[dict[int, int], dict[str, Any]]]:
    """Steps by the size of their batch, and `RowCounts.counters`, since `count_rows`; None where nothing counted."""
    rows = getattr(runner_of(holder), "parity_rows", None)
    return None if rows is None else (dict(rows.sizes), rows.counters())


def about_runner(holder: Any) -> dict[str, Any]:
    """Which model runner it is, and what it resolved for itself: for the header."""
    runner = runner_of(holder)
    if "ModelRunner" not in type(runner).__name__:
        return {}
    found: dict[str, Any] = {"model_runner": type(runner).__module__ + "." + type(runner).__name__}
    backends = {group.backend.get_name() for groups in getattr(runner, "attn_groups", None) or () for group in groups}
    if backends:
        found["attention_backends"] = sorted(backends)
    if getattr(getattr(runner, "device", None), "type", None) != "cuda":
        return found  # elsewhere other kernels stand in for the one that it names
    context = getattr(getattr(runner, "compilation_config", None), "static_forward_context", None) or {}
    kernels = [getattr(layer, "chunk_gated_delta_rule", None) for layer in context.values()]
    for kernel in [kernel for kernel in kernels if kernel is not None][:1]:
        forward = getattr(getattr(kernel, "_forward_method", None), "__name__", None)
        by_method = {"forward_cuda": "flashinfer", "forward_native": "triton"}  # 0.18.0 has no name for it
        found["gdn_prefill_backend"] = getattr(kernel, "gdn_prefill_backend", None) or by_method.get(str(forward))
    return {name: value for name, value in found.items() if value is not None}


def ask_runner(llm: Any, function: Callable[[Any], Any]) -> Any:
    """What `function` gives where the model runner is, of the first rank where there are several; None where it cannot
    be asked. Where the runner is in another process the function travels there by value."""
    engine = getattr(llm, "llm_engine", llm)
    if runner_of(llm) is not getattr(engine, "model_executor", engine):
        return function(llm)
    asked = getattr(engine, "collective_rpc", None)
    if asked is None:
        return None
    try:
        answers = asked(function)
    except Exception:  # an executor that takes names of methods only: the run goes without
        return None
    return answers[0] if answers else None
