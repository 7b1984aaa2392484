"""When sketches are made of an engine: in the rounds of an arm, and while it scores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable, Optional

from .sketching import Sketcher, Unsketchable
from .step_requests import Named


@contextmanager
def sketched(sketcher: Optional[Sketcher], phase: str) -> Iterator[None]:
    """Steps meanwhile are sketched, where there is a sketcher."""
    if sketcher is None:
        yield
        return
    sketcher.begin(phase)
    try:
        yield
    finally:
        sketcher.end()


def sketcher_of(
    llm: Any, write: Callable[[dict[str, Any]], None], arm: str, named: Named, level: str, most: int = 0
) -> Sketcher:
    """The sketcher of an engine in this process. Raises Unsketchable."""
    runner: Any = getattr(llm, "llm_engine", llm)
    for name in ("model_executor", "driver_worker", "worker", "model_runner"):
        runner = getattr(runner, name, None)
    if runner is None:
        raise Unsketchable("the engine runs in another process")
    return Sketcher(runner, write, arm, named, level, most)
