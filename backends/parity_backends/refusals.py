"""What more than one backend has to refuse."""

from __future__ import annotations

from collections.abc import Sequence

from parity.errors import ParityError
from parity.messages import message

CONTROL_ELSEWHERE = message(
    "backends.control_elsewhere", "use --positive-control with a backend that starts its own engine"
)


def no_variant(backend: str, variant: str, known: Sequence[str]) -> ParityError:
    return ParityError(
        message(
            "backends.no_variant", "backend {backend!r} has no variant {variant!r}", backend=backend, variant=variant
        ),
        hint=message("backends.it_has", "it has {names}", names=list(known)),
    )
