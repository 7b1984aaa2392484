"""What the adapters share: where the worker's text is, what is importable in an interpreter."""

from __future__ import annotations

import glob
import io
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from parity.errors import ParityError
from parity.messages import Message, Say, message, verbatim
from parity.paths import expanded
from parity.run.envs import MARKER, EngineEnv
from parity_backends.bundle import bundle

PROBE = """
import importlib.metadata as m, json, sys
found = {"python": ".".join(map(str, sys.version_info[:3]))}
for name in sys.argv[1:]:
    try:
        found[name] = m.version(name)
    except m.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def own_cache(interpreter: Path) -> dict[str, str]:
    """Variables of an environment of parity's own, {} for another's.

    vLLM keeps what it found out about a model class by the class's name, for one version of vLLM at a time: versions
    that share a cache look again at each start, in a process that imports all of vLLM (0.23.0, 0.32.0
    `model_executor/models/registry.py`). So each environment has a cache of its own. Its modules are compiled once:
    where PYTHONDONTWRITEBYTECODE is set, as in many containers, each start would compile them all again.
    """
    root = interpreter.parent.parent
    if not (root / MARKER).exists():
        return {}
    cache = {} if "VLLM_CACHE_ROOT" in os.environ else {"VLLM_CACHE_ROOT": str(root / "cache")}
    return {**cache, "PYTHONDONTWRITEBYTECODE": ""}


def managed(environment: EngineEnv, backend: str, say: Say) -> Path:
    """The Python of an environment of parity's own: built where it is not there, renewed where parity's files in it
    are old."""
    if environment.ready():
        return environment.python
    if not environment.installed():
        say(
            message(
                "cpu.building",
                "no engine environment for backend {backend!r} yet: building it, once, in {folder}",
                backend=backend,
                folder=str(environment.root),
            )
        )
    environment.create(say=say)
    return environment.python


ENGINE_SETTINGS = "parity.records:engine_settings"
"""The one table travels: what the worker reads back is what the other side knows of."""

WORKER_MODULES = (
    "parity:plurals", "parity_backends.worker:sentences",
    "parity_backends.worker:asked", "parity_backends.worker:protocol", "parity_backends.worker:sampling",
    "parity_backends.worker:records", "parity:secrecy",
    "environment", "table", ENGINE_SETTINGS, "arguments", "checkpoints", "limits", "rows", "resolved",
    "parity_backends.worker:counters", "parity.records:plan_digest", "parity_backends.worker:planned",
    "parity_backends.worker:identity", "faults", "listed",
    "parity_backends.worker:seeds", "schedule", "rounds", "asynchronous", "logits",
    "parity.capture:step_table", "state_columns", "parity_backends.worker:copies", "host_copies",
    "step_sight", "step_requests", "step_owners", "step_blocks", "state_digests", "kv_digests", "kv_watch", "recorder",
    "first_runner", "second_runner", "recording",
    "parity.capture:sketch_table", "parity_backends.worker:sketch_sums", "parity_backends.worker:sketch_modules",
    "parity_backends.worker:sketch_blocks", "sketch_drafter", "sketching", "sketch_phases", "memory", "arm", "main",
)  # fmt: skip
"""Of parity_backends.vllm.worker where no other is named, each after those it imports."""


RECORDER_MODULES = (
    "parity:plurals", "parity_backends.worker:sentences",
    "parity.capture:step_table", "state_columns", "parity_backends.worker:copies", "host_copies",
    "step_sight", "step_requests", "step_owners", "step_blocks", "state_digests", "kv_digests", "kv_watch", "recorder",
    "first_runner", "second_runner", "rows", "recording", "steps_plugin",
)  # fmt: skip


def recorder_plugin() -> bytes:
    """The flight recorder as a plugin of vLLM: a zip file that PYTHONPATH may name, the same bytes each time."""
    texts = {
        "parity_record.py": bundle("parity_backends.vllm.worker", RECORDER_MODULES).decode("utf-8"),
        "parity_record-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: parity-record\nVersion: 1\n",
        "parity_record-1.dist-info/entry_points.txt": "[vllm.general_plugins]\nparity_record = parity_record:install\n",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)  # its date is 1980
    return buffer.getvalue()


def worker_source() -> bytes:
    """The vLLM worker as one file, to send to the interpreter that has the engine."""
    return bundle("parity_backends.vllm.worker", WORKER_MODULES)


PROBE_MODULES = (
    "parity:plurals", "parity_backends.worker:sentences", "parity:secrecy", "environment", "table", ENGINE_SETTINGS,
    "arguments", "checkpoints", "limits", "parity_backends.vllm.doctor:probe",
)  # fmt: skip


KIT_MODULES = (
    "parity_backends.worker:asked", "parity_backends.worker:sampling", "parity_backends.worker:records",
    "parity:secrecy", "parity.capture:sealing", "packing", "engine", "program",
)  # fmt: skip


def kit_program() -> bytes:
    """The program of `parity kit`, as one file."""
    return bundle("parity_backends.vllm.kit", KIT_MODULES)


def doctor_probe() -> str:
    """The program that looks at a host for `parity doctor`, as one file."""
    return bundle("parity_backends.vllm.worker", PROBE_MODULES).decode("utf-8")


def installed_versions(interpreter: Path, *names: str) -> dict[str, str] | Message:
    """Versions of the distributions installed for `interpreter` (its own under "python"), importing none.

    A message says why it could not be asked.
    """
    import json

    try:
        done = subprocess.run(
            [str(interpreter), "-c", PROBE, *names], capture_output=True, text=True, timeout=30, check=True
        )
        found: dict[str, str] = json.loads(done.stdout)
    except FileNotFoundError:
        return message("backends.no_file", "no such file")
    except PermissionError:
        return message("backends.cannot_execute", "not executable")
    except subprocess.TimeoutExpired:
        return message("backends.no_answer", "does not answer within 30 s")
    except (subprocess.CalledProcessError, ValueError, OSError) as error:
        return message(
            "backends.no_interpreter", "does not work as a Python interpreter ({error})", error=type(error).__name__
        )
    return found


def plant(fault: str) -> dict[str, str]:
    """Environment that plants `NAME[:rate=R][:seed=N][:OPTION=N]`; the plugin itself travels in it."""
    import parity_faults

    name, *settings = fault.split(":")
    try:
        values = dict(setting.split("=", 1) for setting in settings)
        usual = parity_faults.FAULTS[name].usual_rate if name in parity_faults.FAULTS else 1.0
        rate, seed = float(values.pop("rate", usual)), int(values.pop("seed", 0))
        return {**parity_faults.environment(name, rate, seed, "-", **values), **parity_faults.packed()}
    except ValueError as error:
        raise ParityError(
            message("vllm.no_fault", "the fault {fault!r} cannot be planted: {error}", fault=fault, error=str(error)),
            hint=message(
                "vllm.how_to_plant", "write NAME[:rate=R][:seed=N]; docs/fault-lab.md says what each fault does"
            ),
        ) from None


def not_executable(variable: str, value: str) -> Message:
    return message(
        "backends.not_executable", "{variable}={value} is not an executable file", variable=variable, value=value
    )


def not_set(variable: str) -> Message:
    return message("backends.not_set", "{variable}: not set", variable=variable)


def devices(pattern: str) -> list[str]:
    """Device files that match, sorted."""
    return sorted(glob.glob(pattern))


def tool_output(tool: str, *args: str) -> str | None:
    """What a vendor's tool prints, None where it is not installed; a failure is in the text."""
    path = shutil.which(tool)
    if path is None:
        return None
    try:
        done = subprocess.run([path, *args], capture_output=True, text=True, timeout=20, check=False)
    except (subprocess.TimeoutExpired, OSError) as error:
        return f"({tool} failed: {type(error).__name__})"
    if done.returncode:
        return f"({tool} failed with exit code {done.returncode})"
    return done.stdout.strip()


def configured_interpreter(variable: str) -> tuple[Path, Message]:
    """The interpreter named by an environment variable, else the current one, and how it was chosen."""
    value = os.environ.get(variable)
    if value:
        return expanded(value), verbatim(f"{variable}={value}")
    return Path(sys.executable), message(
        "backends.own_python", "the Python that runs parity ({python})", python=sys.executable
    )
