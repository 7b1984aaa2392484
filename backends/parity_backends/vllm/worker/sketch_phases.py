"""When sketches are made of an engine: in the rounds of an arm, and while it scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


def unchunked(sequences: Iterable[tuple[int, ...]], config: Any) -> Iterator[list[tuple[int, ...]]]:
    """Groups of prompts that the engine of this configuration takes whole, in one step each; a longer one is alone.

    At a chunk's end vLLM 0.32.0's first runner gives its drafter the prompt's last token for the next one."""
    scheduler, speculative = config.scheduler_config, getattr(config, "speculative_config", None)
    slots = int(getattr(speculative, "num_speculative_tokens", None) or 0)
    limits = [getattr(scheduler, name, None) for name in ("max_num_scheduled_tokens", "max_num_batched_tokens")]
    most = min(int(one) for one in limits if one)
    group: list[tuple[int, ...]] = []
    taken = 0
    for sequence in sequences:
        wanted = len(sequence) + slots
        if group and taken + wanted > most:
            yield group
            group, taken = [], 0
        group.append(sequence)
        taken += wanted
    if group:
        yield group
