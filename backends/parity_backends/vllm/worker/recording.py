"""Starts the flight recorder of an engine: in this process, or where a rank of its own runs."""

from __future__ import annotations

from typing import Any, Optional, Union

from parity_backends.worker.sentences import Sentence, message

from .first_runner import FirstRunner
from .recorder import Recorder, Unrecordable
from .rows import runner_of
from .second_runner import SecondRunner
from .step_blocks import Write
from .step_requests import Named

FUNCTIONS_ASKED = {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}
"""Without it vLLM takes no function to call in a process of its own (0.32.0, v1/serial_utils.py). What it allows to be
unpickled comes from processes of this engine."""


def record_runner(
    runner: Any, scheduler: Any, write: Write, arm: str, named: Named, with_states: bool = False
) -> Recorder:
    """The recorder of a model runner in this process. Raises Unrecordable."""
    kind = SecondRunner if hasattr(runner, "req_states") else FirstRunner
    missing = [name for name in kind.needs if not hasattr(runner, name)]
    if missing:
        what = "%s.%s" % (type(runner).__module__, type(runner).__name__)
        why = message("unseen.no_door", "the model runner {runner} has no {missing}", runner=what, missing=missing)
        raise Unrecordable(why)
    return kind(runner, scheduler, write, arm, named, with_states)


def recorder_of(
    llm: Any, write: Write, arm: str, named: Named, with_states: bool = False
) -> Union[Recorder, RankRecorder]:
    """The recorder of an engine: `write` takes records of the steps file, `named` says which completion a name of the
    engine stands for. `with_states`: with digests of recurrent states, in this process. Raises Unrecordable."""
    engine = getattr(llm, "llm_engine", llm)
    runner: Any = engine
    for name in ("model_executor", "driver_worker", "worker", "model_runner"):
        runner = getattr(runner, name, None)
    if runner is None:
        return RankRecorder(engine, write, arm, named)
    core: Any = engine
    for name in ("engine_core", "engine_core", "scheduler"):
        core = getattr(core, name, None)
    return record_runner(runner, core, write, arm, named, with_states)


class RankRecorder:
    """The recorder of the first rank of an engine whose ranks are processes: it is there, and sends what it has when it
    is asked to flush. What the scheduler gives to the caller is not seen."""

    def __init__(self, engine: Any, write: Write, arm: str, named: Named) -> None:
        self.engine, self.write, self.named = engine, write, named
        if not hasattr(engine, "collective_rpc"):
            raise Unrecordable(message("unseen.engine_elsewhere", "the engine runs in another process"))
        try:
            why = self._ask(record_in_rank, arm)
        except Exception as error:  # an executor that takes names of methods only
            why = message("unseen.ranks", "the ranks cannot be asked: {said}", said=str(error))
            raise Unrecordable(why) from None
        if why:
            raise Unrecordable(why)

    def _ask(self, function: Any, *args: Any) -> Any:
        return self.engine.collective_rpc(function, args=args)[0]

    @property
    def on(self) -> bool:
        return bool(self._ask(rank_records, None))

    @on.setter
    def on(self, wanted: bool) -> None:
        self._ask(rank_records, wanted)

    def flush(self) -> None:
        for record in self._ask(taken_from_rank):
            for one in record.get("requests", ()):
                one.update(self.named(one["engine_id"]) or {})
            self.write(record)


def record_in_rank(worker: Any, arm: str) -> Optional[Sentence]:
    """In a rank: begin to record; why that cannot be, or nothing."""
    if getattr(worker, "rank", 0):
        return None
    lines: list[Any] = []
    runner = runner_of(worker)
    try:
        runner.parity_recorder = (record_runner(runner, None, lines.append, arm, lambda name: None), lines)
    except Unrecordable as error:
        return error.said
    return None


def rank_records(worker: Any, wanted: Any) -> bool:
    """In a rank: whether it records, after `wanted` (None: as it is)."""
    recorder, _ = getattr(runner_of(worker), "parity_recorder", (None, None))
    if recorder is None:
        return False
    if wanted is not None:
        recorder.on = wanted
    return bool(recorder.on)


def taken_from_rank(worker: Any) -> list[Any]:
    """In a rank: records of the steps file since it was last asked."""
    recorder, lines = getattr(runner_of(worker), "parity_recorder", (None, []))
    if recorder is not None:
        recorder.flush()
    taken = list(lines)
    del lines[:]
    return taken
