"""What the release of an engine cannot run, found on its host before any engine is started there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from parity.errors import BackendError
from parity.messages import Message
from parity.pipeline.arms import left_of
from parity.plan import Plan
from parity.plan.hosts import Host, host_of
from parity.records import Json
from parity.records.objects import object_of, texts_of
from parity.run import Backend, OfRelease
from parity.run.backend import Examinable
from parity.run.launch import run_python

_VERSIONS = """
import importlib.metadata as metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def for_releases(plan: Plan, hosts: Mapping[str, Host], adapters: Mapping[str, Backend]) -> Plan:
    """The plan without the arms that the releases on these hosts cannot run, which are skipped with the reason.

    Raises ParityError where that leaves nothing to compare, or not the baseline.
    """
    config = _config(Path(plan.model.path))
    versions: dict[str, dict[str, str]] = {}
    reasons: dict[str, Message] = {}
    for arm in plan.arms:
        name, host = arm.name.partition("/")[0], host_of(hosts, arm.name, arm.backend)
        adapter: object = adapters.get(name)
        if not isinstance(adapter, OfRelease):
            continue
        if name not in versions:
            here = adapter.examined_python() if isinstance(adapter, Examinable) and not host.far else None
            versions[name] = _asked(host, adapter.distributions, here)
        reason = adapter.impossible_at(versions[name], arm.engine, config) if versions[name] else None
        if reason is not None:
            reasons[arm.name] = reason
    return left_of(plan, reasons)


def _asked(host: Host, names: tuple[str, ...], here: Path | None) -> dict[str, str]:
    """Versions there; {} where they cannot be asked for: what is wrong then is said where the host is looked at."""
    python = None if here is None else str(here)
    try:
        found: Json = json.loads(run_python(host, _VERSIONS, names, timeout=120, python=python).splitlines()[-1])
    except (BackendError, ValueError, IndexError):
        return {}
    return texts_of(found)


def _config(model: Path) -> Mapping[str, Json]:
    try:
        found = json.loads((model / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return object_of(found)
