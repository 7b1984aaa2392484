"""From what the probe saw to checks with remedies."""

from __future__ import annotations

from parity.records.objects import texts_of
from parity.run.checks import Check
from parity_backends.vllm.doctor.checkpoint import model_checks
from parity_backends.vllm.doctor.devices import hardware_checks, memory_checks, torch_checks
from parity_backends.vllm.doctor.hardware import HARDWARE
from parity_backends.vllm.doctor.said import Facts
from parity_backends.vllm.doctor.software import (
    emulated_checks,
    engine_checks,
    method_checks,
    plugin_checks,
    torch_version_checks,
    variable_checks,
)


def judge(backend: str, facts: Facts) -> list[Check]:
    """All checks of one backend, a row of HARDWARE, in the order of the things that need each other."""
    hardware, versions = HARDWARE[backend], texts_of(facts.get("versions"))
    checks = [
        *hardware_checks(hardware, facts),
        *torch_checks(hardware, facts),
        *engine_checks(hardware, facts, versions),
    ]
    if hardware.through_plugin:
        checks += plugin_checks(facts, versions)
    else:
        checks += emulated_checks(versions) if hardware.emulated else torch_version_checks(hardware, versions)
    checks += variable_checks(hardware, facts)
    checks += memory_checks(hardware, facts)
    if facts.get("model") is not None:
        checks += model_checks(hardware, facts, facts["model"])
    checks += method_checks(hardware, facts, versions)
    return checks
