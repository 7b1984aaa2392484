"""The flight recorder as a general plugin of vLLM, for servers and engines that parity does not start.

vLLM loads it in each of its processes (entry point group `vllm.general_plugins`, vllm/plugins/__init__.py). It does
nothing unless the environment says so:

    PARITY_RECORD  a folder: the process of the first rank writes steps-HOST-PID.steps there
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import sys
import time
from multiprocessing.util import Finalize
from typing import Any, Optional

from .recorder import Recorder, Unrecordable
from .recording import record_runner

FOLDER_VARIABLE = "PARITY_RECORD"

INSTALLED: list[int] = []
"""Whether `install` has run in this process."""

FLUSH_SECONDS = 5.0
"""A worker that is killed loses no more than this."""

SCHEDULERS: list[Any] = []
"""Of this process: none in a rank of its own."""


def install() -> None:
    """The entry point; again is harmless."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder or INSTALLED:
        return
    INSTALLED.append(os.getpid())
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    init_device = WorkerWrapperBase.init_device

    def init_device_then_wait(self: Any) -> Any:
        made = init_device(self)
        rank = int(getattr(self.worker, "rank", 0) or 0)
        if rank == 0:
            remember_schedulers()
            record_from_first_step(self.worker.model_runner, folder)
        return made

    WorkerWrapperBase.init_device = init_device_then_wait


def remember_schedulers() -> None:
    """Those that this process makes. Not before the device: vllm-ascend 0.18.0 changes classes of vLLM until then, and
    a scheduler's modules that were imported earlier keep the old ones."""
    from vllm.v1.core.sched.scheduler import Scheduler

    make = Scheduler.__init__

    def make_and_remember(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        SCHEDULERS.append(self)

    Scheduler.__init__ = make_and_remember


def record_from_first_step(runner: Any, folder: str) -> None:
    """Begin when the runner gets its first requests: cache groups and the scheduler are there by then."""
    execute_model = runner.execute_model

    def begin_and_execute(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        if not scheduler_output.scheduled_new_reqs:
            return execute_model(scheduler_output, *args, **kwargs)
        runner.execute_model = execute_model
        begin(runner, folder)  # wraps it anew
        return runner.execute_model(scheduler_output, *args, **kwargs)

    runner.execute_model = begin_and_execute


def begin(runner: Any, folder: str) -> Optional[Recorder]:
    """Record into a file of this process; what cannot be recorded is said on stderr."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "steps-%s-%d.steps" % (socket.gethostname(), os.getpid()))
    stream = open(path, "a", encoding="utf-8")  # noqa: SIM115 - as long as the process

    def write(record: dict[str, Any]) -> None:
        stream.write(json.dumps(record) + "\n")
        stream.flush()

    scheduler = SCHEDULERS[-1] if SCHEDULERS else None
    try:
        recorder = record_runner(runner, scheduler, write, "", lambda name: None)
    except Unrecordable as error:
        print("parity: the engine's steps cannot be recorded: %s" % error, file=sys.stderr, flush=True)
        return None
    recorder.on = True
    flush_when_idle(recorder)
    atexit.register(recorder.flush)
    Finalize(None, recorder.flush, exitpriority=100)  # a process of multiprocessing ends without atexit
    print("parity: records the engine's steps in %s" % path, file=sys.stderr, flush=True)
    return recorder


def flush_when_idle(recorder: Recorder) -> None:
    """Write what is held when no request is left: a server may be killed after that."""
    scheduler = recorder.scheduler
    if scheduler is None:  # a worker in a process of its own: an engine without requests sends it a step without tokens
        flush_after_empty_steps(recorder)
        return
    update = scheduler.update_from_output

    def update_and_flush(*args: Any, **kwargs: Any) -> Any:
        outputs = update(*args, **kwargs)
        if not scheduler.has_unfinished_requests():
            recorder.flush()
        return outputs

    scheduler.update_from_output = update_and_flush


def flush_after_empty_steps(recorder: Recorder) -> None:
    """Write what is held after a step without tokens, and every few seconds.

    vllm/v1/core/sched/scheduler.py `has_finished_requests`: a step of its own says which requests are done."""
    runner = recorder.runner
    execute_model, last = runner.execute_model, time.monotonic()

    def execute_and_flush(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        made = execute_model(scheduler_output, *args, **kwargs)
        nonlocal last
        now = time.monotonic()
        if not scheduler_output.total_num_scheduled_tokens or now - last > FLUSH_SECONDS:
            last = now
            recorder.flush()
        return made

    runner.execute_model = execute_and_flush
