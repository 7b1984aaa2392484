"""What more than one backend has to refuse, and what those without an engine of their own have in common."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from parity.errors import ParityError
from parity.messages import Message, Say, message
from parity.run.envs import EnvSpec


def no_variant(backend: str, variant: str, known: Sequence[str]) -> ParityError:
    return ParityError(
        message(
            "backends.no_variant", "backend {backend!r} has no variant {variant!r}", backend=backend, variant=variant
        ),
        hint=message("backends.it_has", "it has {names}", names=list(known)),
    )


def check_settings(backend: str, given: Collection[str], known: Collection[str]) -> None:
    """Raises ParityError for a setting of an arm that the backend does not have."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ParityError(
            message(
                "backends.no_setting", "backend {backend!r} has no setting {name!r}", backend=backend, name=unknown[0]
            ),
            hint=message("backends.it_has", "it has {names}", names=list(known)),
        )


def no_fault(backend: str, fault: str) -> ParityError:
    return ParityError(
        message(
            "backends.no_fault",
            "the fault {fault!r} cannot be planted by backend {backend!r}",
            fault=fault,
            backend=backend,
        ),
        hint=message("backends.control_elsewhere", "use --positive-control with a backend that starts its own engine"),
    )


class WithoutEngine:
    """A backend that starts none: its worker runs in parity's own Python, as it is."""

    name: str

    def env_defaults(self, variant: str) -> dict[str, str]:
        return {}

    def env_spec(self) -> EnvSpec | None:
        return None

    def interpreter(self, say: Say) -> Path:
        return Path(sys.executable)

    def launch_env(self, interpreter: Path) -> dict[str, str]:
        return {}

    def plant(self, fault: str) -> dict[str, str]:
        raise no_fault(self.name, fault)

    def explain(self, log_tail: str) -> Message | None:
        return None
