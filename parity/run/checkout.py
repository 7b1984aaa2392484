"""A checkout of vllm-ascend that the emulated NPU runs in the place of the release."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from parity.errors import ParityError
from parity.messages import message
from parity.records.emulated import BACKEND

VARIABLE = "PARITY_VLLM_ASCEND"
"""Workers inherit it (`parity_emulated_npu/checkout.py`); their captures say whose commit it is."""


def checkout() -> Path | None:
    """The one that was given, if any."""
    value = os.environ.get(VARIABLE)
    return Path(value) if value else None


def take_checkout(path: Path) -> None:
    """Have every worker from here on run it. Raises ParityError where there is none."""
    if not (path / "vllm_ascend" / "__init__.py").is_file():
        raise ParityError(
            message("cli.no_checkout", "{path} is no checkout of vllm-ascend", path=str(path)),
            hint=message("cli.checkout_has", "it holds vllm_ascend/ and csrc/: `git clone` it, and give its root"),
        )
    os.environ[VARIABLE] = str(path.absolute())


def runs_it(backend: str) -> bool:
    """Whether engines of this backend run the checkout."""
    return backend.partition("@")[0] == BACKEND


def check_used(backends: Iterable[str]) -> None:
    """Raises ParityError where a checkout was given and none of these backends would run it."""
    given = checkout()
    if given is not None and not any(runs_it(name) for name in backends):
        raise ParityError(
            message("run.checkout_unused", "no arm would run the checkout of vllm-ascend {path}", path=str(given)),
            hint=message("run.checkout_emulated", "only {backend} does: --backends cpu,{backend}", backend=BACKEND),
        )


def check_given(ran: str | None) -> None:
    """Raises ParityError where a run ran a checkout (its place) and none is given to go on with."""
    if ran is not None and checkout() is None:
        raise ParityError(
            message("run.checkout_missing", "this run ran a checkout of vllm-ascend, and none is given now"),
            hint=message("run.checkout_again", "add --vllm-ascend {path}", path=shlex.quote(ran)),
        )
