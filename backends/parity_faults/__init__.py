"""A vLLM general plugin that plants one named fault in a running engine.

It needs the standard library and the engine, Python 3.9 or newer, and nothing of parity. vLLM loads it in
every process that it starts (front end, engine core, each worker), through the entry point group
`vllm.general_plugins` (vllm/plugins/__init__.py), where it is installed or where its zip file (`launch.bundle`)
is on PYTHONPATH. It does nothing unless the environment says so:

    PARITY_FAULT      NAME[:rate=R][:seed=N][:from_step=N][:max=N][:independent=1][:from_version=V]
                      [:noise=SEED][:when=CONDITION[+CONDITION]][:block=N];
                      "none" installs the hooks, plants nothing
    PARITY_FAULT_LOG  a JSON Lines file for what was really planted; "-" is stderr

`configure` changes the fault of this process at run time (engine core in the same process only).
"""

from __future__ import annotations

import os

from .catalogue import FAULTS, Fault, describe, prompt_key
from .launch import bundle, environment, packed, unpacked
from .planting import CONDITIONS, Planting, parse

__all__ = [
    "CONDITIONS",
    "FAULTS",
    "Fault",
    "Planting",
    "bundle",
    "configure",
    "describe",
    "environment",
    "install",
    "packed",
    "parse",
    "prompt_key",
    "unpacked",
]


def install() -> None:
    """The entry point: reads the environment and wraps the engine; again is harmless.

    Raises ValueError for a PARITY_FAULT that names nothing: a control that plants nothing must not look
    like one that found nothing.
    """
    text = os.environ.get("PARITY_FAULT", "")
    if not text:
        return
    from . import hooks

    planting = parse(text)
    if hooks.wrap_engine():
        hooks.STATE.configure(planting, os.environ.get("PARITY_FAULT_LOG", "-"))


def configure(text: str, log: str = "-") -> None:
    """Plants another fault from now on, counting steps from 0; `install` must have run before the engine.

    Raises ValueError as `parse` does, RuntimeError when the engine of this process is not wrapped.
    """
    from . import hooks

    if not hooks.STATE.wrapped:
        raise RuntimeError("the engine is not wrapped: set PARITY_FAULT=none before it starts")
    hooks.STATE.configure(parse(text), log)
