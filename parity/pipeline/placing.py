"""Backends put on their hosts: which adapter speaks for a name, and what a far host must have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import copy
from dataclasses import replace

from parity.errors import BackendError
from parity.messages import message
from parity.plan import Plan
from parity.plan.hosts import Host, host_of
from parity.records import Json
from parity.run import Backend, Remote, load_backend
from parity.run.launch import place_in_words, python_of, run_python

OLDEST_PYTHON = (3, 9)

_LOOK = """
import importlib.util, json, os, platform, sys
model, modules = sys.argv[1], sys.argv[2:]
print(json.dumps({
    "python": list(sys.version_info[:2]),
    "missing": [name for name in modules if importlib.util.find_spec(name) is None],
    "model": os.path.isfile(os.path.join(model, "config.json")),
    "where": platform.node(),
}))
"""


def load_adapters(hosts: Mapping[str, Host]) -> dict[str, Backend]:
    """The adapter of each backend, by the backend's name, with its host's engine settings among its defaults.

    Raises ParityError for an unknown one.
    """
    return {name: _with_settings(load_backend(host.adapter), host.engine) for name, host in hosts.items()}


def _with_settings(adapter: Backend, settings: Mapping[str, Json]) -> Backend:
    """The adapter, so that variants, --engine and --vary go on top of these settings."""
    if not settings:
        return adapter
    mine = copy(adapter)
    own = adapter.engine_defaults

    def engine_defaults(variant: str, *, num_speculative_tokens: int) -> dict[str, Json]:
        return {**own(variant, num_speculative_tokens=num_speculative_tokens), **settings}

    mine.engine_defaults = engine_defaults  # type: ignore[method-assign]
    return mine


def placed(plan: Plan, hosts: Mapping[str, Host]) -> Plan:
    """The plan with each arm's adapter, for backends with names of their own."""
    return replace(
        plan,
        arms=tuple(replace(arm, backend=host_of(hosts, arm.name, arm.backend).adapter) for arm in plan.arms),
    )


def hosts_of_plan(plan: Plan) -> list[str]:
    """Names of the backends of a plan's arms, in order."""
    return list(dict.fromkeys(arm.name.partition("/")[0] for arm in plan.arms))


def look_at(host: Host, adapter: Backend, plan: Plan) -> None:
    """Ask a far host whether an engine can start there: Python, the engine's packages, the checkpoint.

    Raises BackendError saying what is missing and how to name it.
    """
    modules = adapter.far_modules if isinstance(adapter, Remote) else ()
    model = host.model or plan.model.path
    where = place_in_words(host)
    answer = run_python(host, _LOOK, [model, *modules], timeout=120)
    try:
        found: Json = json.loads(answer.splitlines()[-1])
        version, missing, there = tuple(found["python"]), [str(name) for name in found["missing"]], found["model"]
        old = version < OLDEST_PYTHON
    except (ValueError, KeyError, TypeError, IndexError):
        raise BackendError(
            message(
                "pipeline.backend_answered_another",
                "backend {host!r}: {python} on {where} answered in another tongue: {answer!r}",
                host=host.name,
                python=python_of(host),
                where=where,
                answer=answer[-200:],
            ),
            hint=message(
                "pipeline.python_name_another", "is it a Python? Name another with --python {host}=PATH", host=host.name
            ),
        ) from None
    if old:
        raise BackendError(
            message(
                "pipeline.backend_python",
                "backend {host!r}: {python} on {where} is Python {version}",
                host=host.name,
                python=python_of(host),
                where=where,
                version=".".join(map(str, version)),
            ),
            hint=message(
                "pipeline.name_one_up", "name one from 3.9 up that has the engine: --python {host}=PATH", host=host.name
            ),
        )
    if missing:
        raise BackendError(
            message(
                "pipeline.backend_no",
                "backend {host!r}: {python} on {where} has no {missing}",
                host=host.name,
                python=python_of(host),
                where=where,
                missing=missing,
            ),
            hint=message(
                "pipeline.name_interpreter_python",
                "name the interpreter that has: --python {host}=PATH, or python = … in [backends.{host}]",
                host=host.name,
            ),
        )
    if modules and there is not True:
        raise BackendError(
            message(
                "pipeline.backend_no_checkpoint",
                "backend {host!r}: no checkpoint at {model} on {where}",
                host=host.name,
                model=model,
                where=where,
            ),
            hint=message(
                "pipeline.weights_never_copied",
                "weights are never copied; name the directory there: --model-path {host}=DIR, or "
                "model = … in [backends.{host}]",
                host=host.name,
            ),
        )
