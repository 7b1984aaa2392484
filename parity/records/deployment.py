"""How somebody runs an engine in production, as far as an arm can be run the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from parity.records import Json


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a command line, a recipe or a running server asks of its engine."""

    engine: Mapping[str, Json] = field(default_factory=dict)
    """Arguments of `vllm.LLM`, without the model."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that stood before the command."""
    model: str | None = None
    """The checkpoint as it was named there."""
    aside: tuple[str, ...] = ()
    """Flags that say how the server serves, not how its engine computes: names only, since values may be secret."""
