"""Checks of the processor, the devices and their memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from parity.messages import message
from parity.records.objects import object_of
from parity.run.checks import Check
from parity_backends.vllm.asked import MEMORY_SHARE
from parity_backends.vllm.doctor.hardware import Hardware
from parity_backends.vllm.doctor.said import Facts, ok, problem

MIN_FREE_SHARE = MEMORY_SHARE
"""Of a device's memory: an engine refuses to start where less is free than it is to take."""


def hardware_checks(hardware: Hardware, facts: Facts) -> Iterator[Check]:
    if hardware.is_processor:
        yield from _processor(facts)
        return
    devices = [str(path) for path in facts.get("devices") or []]
    if devices:
        yield ok(message("vllm.devices", "devices"), ", ".join(devices))
    else:
        remedy = message(
            "vllm.install_container_pass",
            "install {driver}; in a container pass the devices on ({pass_on})",
            driver=hardware.driver,
            pass_on=hardware.pass_on,
        )
        yield problem(
            message("vllm.devices", "devices"), message("vllm.no", "no {pattern}", pattern=hardware.pattern), remedy
        )
    yield from _driver(hardware, facts)
    if hardware.manager and devices and not facts.get("manager"):
        remedy = message(
            "vllm.pass_into_container", "pass it into the container: --device {manager}", manager=hardware.manager
        )
        yield problem(
            message("vllm.devices", "devices"), message("vllm.no", "no {pattern}", pattern=hardware.manager), remedy
        )


def _processor(facts: Facts) -> Iterator[Check]:
    flags = [flag for flag in facts.get("cpu_flags") or [] if isinstance(flag, str)]
    yield ok(message("vllm.hardware", "hardware"), f"{facts.get('cpu')} ({facts.get('machine')})")
    if facts.get("machine") == "x86_64" and "avx2" not in flags:
        yield problem(
            message("vllm.instructions", "instructions"),
            message("vllm.no_avx", "no AVX2"),
            message("vllm.vllms_cpu_build", "vLLM's CPU build for x86-64 needs AVX2: use another machine"),
        )


def _driver(hardware: Hardware, facts: Facts) -> Iterator[Check]:
    tool, said = hardware.tool, facts.get("tool")
    if not facts.get("tool_there"):
        remedy = message(
            "vllm.install_container_mount", "install {driver}; in a container mount the tool", driver=hardware.driver
        )
        yield problem(
            message("vllm.driver_tool", "driver tool"), message("vllm.no_path", "no {tool} on PATH", tool=tool), remedy
        )
    elif not said:
        yield problem(
            message("vllm.driver_tool", "driver tool"),
            message("vllm.fails", "{tool} fails", tool=tool),
            message("vllm.run_hand_there", "run `{tool}` by hand there: the driver does not answer", tool=tool),
        )
    elif hardware.driver_version:
        found = re.search(hardware.driver_version, str(said))
        yield ok(
            message("vllm.driver", "driver"),
            facts.get("driver") or (found.group(1) if found else message("vllm.answers", "{tool} answers", tool=tool)),
        )
    else:
        for line in str(said).splitlines():
            fields = [field.strip() for field in line.split(",")]
            yield ok(
                message("vllm.driver", "driver"),
                message(
                    "vllm.driver_2",
                    "{fields}, driver {fields_2}",
                    fields=fields[0],
                    fields_2=fields[1] if len(fields) > 1 else "unknown",
                ),
            )


def torch_checks(hardware: Hardware, facts: Facts) -> Iterator[Check]:
    seen = facts.get("torch")
    if not isinstance(seen, Mapping):
        return
    if seen.get("error"):
        yield problem(message("vllm.torch_sees_devices", "torch sees devices"), seen["error"], hardware.torch_fails)
    elif not seen.get("available"):
        built = (
            message("vllm.built_for", ", built for CUDA {cuda},", cuda=str(seen["cuda"])) if seen.get("cuda") else ""
        )
        yield problem(
            message("vllm.torch_sees_devices", "torch sees devices"),
            message("vllm.torch_sees_none", "torch {seen}{built} sees none", seen=seen.get("version"), built=built),
            hardware.torch_sees_none,
        )
    else:
        yield ok(
            message("vllm.torch_sees_devices", "torch sees devices"),
            ", ".join(str(name) for name in seen.get("names") or [seen.get("count")]),
        )


def memory_checks(hardware: Hardware, facts: Facts) -> Iterator[Check]:
    seen = facts.get("torch")
    pairs = object_of(seen).get("memory")
    for index, pair in enumerate(pairs if isinstance(pairs, list) else []):
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, int) for part in pair) and pair[1]):
            continue
        free, total = pair
        words = message(
            "vllm.device_free",
            "device {index}: {free:.1f} of {total:.1f} GiB free",
            index=index,
            free=free / 1024**3,
            total=total / 1024**3,
        )
        if free < MIN_FREE_SHARE * total:
            yield problem(
                message("vllm.device_memory_2", "device memory"),
                words,
                message("vllm.end_else_runs", "end what else runs there, or set gpu_memory_utilization lower"),
            )
        else:
            yield ok(message("vllm.device_memory_2", "device memory"), words)
    free_host = facts.get("free_memory_gib")
    if isinstance(free_host, int | float):
        least = hardware.least_memory_gib
        if free_host < least:
            yield problem(
                message("vllm.memory", "memory"),
                message("vllm.gib_free", "{free_host} GiB free", free_host=free_host),
                message("vllm.engine_needs_gib", "an engine needs {least} GiB and more: end something", least=least),
            )
        else:
            yield ok(
                message("vllm.memory", "memory"), message("vllm.gib_free", "{free_host} GiB free", free_host=free_host)
            )
    shm = facts.get("free_shm_gib")
    if hardware.shares_memory and isinstance(shm, int | float) and shm < 1:
        yield problem(
            message("vllm.shared_memory", "shared memory"),
            message("vllm.gib_free_dev", "{shm} GiB free in /dev/shm", shm=shm),
            message("vllm.container_shm_size", "in a container: --shm-size 16g or --ipc host"),
        )
