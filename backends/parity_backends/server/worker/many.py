"""Many calls to a server at once."""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Callable, Iterable, Protocol

from parity_backends.worker.protocol import Channel, Stopped

from .transport import Endpoint

WAKE_SECONDS = 0.5


class Caller(Protocol):
    """Whose calls they are."""

    endpoint: Endpoint
    concurrency: int
    stop: threading.Event
    channel: Channel


def all_calls(arm: Caller, calls: Iterable[Callable[[], Any]], finished: Callable[[Any], None], total: int) -> None:
    """Make all calls, `concurrency` at once; `finished` gets each result as it comes, in this thread."""
    done = 0
    with ThreadPoolExecutor(max_workers=arm.concurrency) as pool:
        waiting: set[Future[Any]] = {pool.submit(call) for call in calls}
        try:
            while waiting:
                ended, waiting = wait(waiting, timeout=WAKE_SECONDS, return_when=FIRST_COMPLETED)
                if arm.stop.is_set():
                    raise Stopped
                arm.endpoint.expire()
                failed = [future for future in ended if future.exception() is not None]
                for future in ended:  # what has come is kept, also beside a failure
                    if future not in failed:
                        finished(future.result())
                        done += 1
                if failed:
                    failed[0].result()
                arm.channel.event("progress", running=len(waiting), completions=done, total=total)
        finally:
            for future in waiting:
                future.cancel()
            while wait(waiting, timeout=0.1).not_done:  # one that began in this moment is cut off as well
                arm.endpoint.abort()
