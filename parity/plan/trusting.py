"""What a file would have this machine run, or send where: taken from files of others only when their user trusts them.

A plan, a `parity.toml`, a `run.json` may come from anybody. What asks a question (prompts, sampling, numerics) is
harmless. What names a program, a host, a server, a secret or code to import is not, and stands in the tables here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from parity.errors import ParityError
from parity.messages import Say, message
from parity.plan.config import Config
from parity.plan.hosts import Host, read_host
from parity.plan.parts import Arm
from parity.plan.types import Plan, read_plan
from parity.records import Json
from parity.text import clip, visible
from parity.trust import Trust, trust_in

_ENGINES: Final = (
    "VLLM_", "ASCEND_", "HCCL_", "NCCL_", "CUDA_", "CUBLAS_", "CUDNN_", "OMP_", "MKL_", "OPENBLAS_", "TORCH_",
    "TORCHINDUCTOR_", "PYTORCH_", "TRITON_", "HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM", "NVIDIA_TF32_OVERRIDE",
    "TASK_QUEUE_ENABLE", "CPU_AFFINITY_CONF", "LCCL_", "ATB_", "NPU_", "INF_NAN_MODE_ENABLE",
)  # fmt: skip
"""How variables of engines and of numerics begin."""

_NO_NUMERICS: Final = (
    "PATH", "DIR", "ROOT", "HOME", "LIB", "PLUGIN", "CONFIG", "FILE", "KEY", "TOKEN_", "_TOKEN", "SECRET", "PASS",
    "URL", "URI", "HOST", "PROXY", "PRELOAD", "EXTENSION", "INSECURE", "REMOTE", "MODULE", "ENDPOINT", "SERVER", "_IP",
    "CERT", "COMMAND", "HOOK",
)  # fmt: skip
"""Words in a variable of an engine that load code, or say where something goes."""

_PLAIN_VALUE: Final = re.compile(r"[A-Za-z0-9_.,:=+@%|-]{0,200}")

_NEVER: Final = re.compile(
    r"PYTHON.*|PATH|LD_.*|DYLD_.*|BASH_ENV|ENV|IFS|SHELLOPTS|GIT_.*|SSH_.*|.*(?:_|^)(?:API_?)?KEYS?|.*SECRET.*|.*PASSW.*"
    r"|.*(?:_|^)TOKEN|.*CREDENTIAL.*",
    re.IGNORECASE,
)
"""Never from a plan of somebody else, trusted or not: what they do belongs into `env` of a backend in one's own
parity.toml."""

_NAMES_CODE: Final = re.compile(
    r"trust_remote_code|.*_cls|.*_class|.*_plugins?|.*_module(?:_path)?|.*_passes|.*_processors?|middleware|.*_endpoint"
    r"|.*_hooks?|.*_func(?:tion)?|hf_token"
)
"""Engine settings whose value is imported, run, or where something is sent. vLLM 0.32.0, `engine/arg_utils.py`."""
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(?:[.:][A-Za-z_]\w*)+")
"""A name as Python imports it."""
_KEYS: Final = re.compile(r"[A-Za-z_]\w*")
"""What may be a name in a text that is no JSON as it stands."""
_FILES: Final = frozenset({"file", "model", "tokenizer", "speculative_model"})
"""Settings that name files: `golden.jsonl` is no module."""
_SENDS: Final = ("url", "api_key_env", "key_over_http")

_ASKS: Final = frozenset(
    {"abort", "allowed-token-ids", "arrival", "as-json", "async-engine", "backends", "bad-words", "baseline",
     "batch-sizes", "churn", "frequency-penalty", "ignore-eos", "include-stop-str-in-output", "interval", "json",
     "k", "kv-blocks", "ladder", "lang", "logit-bias", "logprobs", "max-model-len", "max-num-batched-tokens",
     "max-num-seqs", "max-tokens", "min-p", "min-tokens", "model", "n", "needle", "num-speculative-tokens",
     "output-lengths", "positive-control", "positive-controls", "presence-penalty", "probes", "record",
     "rehearse", "repetition-penalty", "rounds", "samples", "score", "score-top", "seed",
     "shuffle", "sketch", "skip-special-tokens", "stop", "stop-token-ids", "structured-outputs", "suite",
     "temperature", "top-k", "top-p", "until", "variants"}
)  # fmt: skip
"""Options of [plan] that only say what is asked. The others name a server, a secret, a checkout to run, a file to
write, a whole command, what is deleted, or what counts as a difference."""
_SETTINGS: Final = frozenset({"engine", "vary"})
"""Options of [plan] that hold settings of engines."""
_READ: Final = frozenset({"prompts", "replay", "replays"})
"""Options of [plan] that name files whose content comes into plans and reports: those of the project itself."""


# --------------------------------------------------------------------------- what a file would do


def of_host(host: Host) -> Iterator[str]:
    """What a backend's host would run, as `field = value`."""
    for name in ("command", "python", "setup"):
        value = getattr(host, name)
        if value:
            yield _shown(name, " ".join(value) if isinstance(value, tuple) else value)
    if host.adapter != host.name:
        yield _shown("adapter", host.adapter)
    yield from of_variables(host.env)
    yield from of_settings(host.engine)


def of_variables(env: Mapping[str, str]) -> Iterator[str]:
    """Variables that are not plain numerics of an engine."""
    yield from (_shown(f"env.{name}", value) for name, value in env.items() if not is_numerics(name, value))


def is_numerics(name: str, value: str) -> bool:
    """Whether a variable only says how an engine computes."""
    known = name.startswith(_ENGINES) and not any(word in name for word in _NO_NUMERICS)
    return known and _PLAIN_VALUE.fullmatch(value) is not None


def of_settings(settings: Mapping[str, Json], where: str = "") -> Iterator[str]:
    """Engine settings that name code, a server or a secret, nested ones too."""
    for name, value in settings.items():
        if name in _SENDS or _NAMES_CODE.fullmatch(name):
            if value:
                yield _shown(where + name, value)
        elif isinstance(value, Mapping):
            yield from of_settings(value, f"{where}{name}.")
        elif name not in _FILES and any(isinstance(one, str) and _DOTTED.fullmatch(one) for one in _each(value)):
            yield _shown(where + name, value)


def _each(value: Json) -> Sequence[Json]:
    return value if isinstance(value, list | tuple) else [value]


def of_plan(plan: Plan) -> Iterator[str]:
    """What the arms of a plan would run."""
    for arm in _arms(plan):
        yield from (f"{arm.name}: {one}" for one in (*of_variables(arm.env), *of_settings(arm.engine)))


def _arms(plan: Plan) -> Sequence[Arm]:
    return plan.arms if plan.arbiter is None else (*plan.arms, plan.arbiter)


def of_config(config: Config) -> Iterator[str]:
    """What a configuration file would run."""
    for host in config.hosts.values():
        yield from (f"[backends.{host.name}] {one}" for one in of_host(host))
    for variant in config.variants.values():
        found = (*of_variables(variant.env), *of_settings(variant.engine))
        yield from (f"[variants.{variant.name}] {one}" for one in found)
    for name, value in config.plan.items():
        option = name.replace("_", "-")
        if option in _READ:
            harmless = all(_lies_with(config.source, one) for one in _words(value))
        else:
            harmless = option in _ASKS or (option in _SETTINGS and not any(_is_odd(one) for one in _words(value)))
        if not harmless:
            yield f"[plan] {_shown(name, value)}"


def _lies_with(source: str | None, named: str) -> bool:
    """Whether a file that a configuration names lies below its own directory: FILE, or NAME=FILE."""
    below = Path(source or ".").resolve().parent
    with suppress(OSError, ValueError, RuntimeError):
        return (below / named.rpartition("=")[2]).resolve().is_relative_to(below)
    return False


def _words(value: Json) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from (f"{name}={one}" for one in _words(inner))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _words(inner)
    else:
        yield str(value)


def _is_odd(setting: str) -> bool:
    """NAME=VALUE of an engine's setting that names code, in JSON too; of --vary there are several values."""
    name, _, text = setting.partition("=")
    value: Any = text
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
    words = [name.replace("-", "_").rsplit(".", 1)[-1], *_KEYS.findall(text)]
    dotted = any(_DOTTED.fullmatch(one) for one in text.split(","))
    return dotted or any(_NAMES_CODE.fullmatch(one) for one in words) or any(of_settings({"value": value}))


def _shown(name: str, value: Any) -> str:
    return f"{name} = {clip(visible(str(value)), 100)}"


# --------------------------------------------------------------------------- asked before it is taken


def take(path: Path, found: Sequence[str], say: Say) -> None:
    """Say that a file's commands are taken. Raises ParityError where nobody has said that they may be."""
    if not found:
        return
    how_far = trust_in(path)
    if how_far is Trust.NONE:
        raise ParityError(
            message(
                "trust.refused",
                "{path} is not trusted, and would have set:{found}",
                path=str(path),
                found="".join(f"\n  {one}" for one in found[:20]),
            ),
            hint=message(
                "trust.look",
                "read it; then `parity trust {directory}` takes what lies there",
                directory=str(path.resolve().parent),
            ),
        )
    if how_far is Trust.GIVEN:
        say(message("trust.taken", "taking hosts, programs and servers from {path}, which is trusted", path=str(path)))


def take_config(config: Config, say: Say) -> Config:
    """A configuration that lies in the working directory: named, and asked about where it would run something."""
    assert config.source is not None
    path = Path(config.source)
    say(message("trust.configuration", "configuration: {path}", path=str(path.absolute())))
    take(path, list(of_config(config)), say)
    models = [clip(visible(one), 100) for one in of_models(config)]
    if models and trust_in(path) is Trust.NONE:
        say(
            message(
                "trust.models",
                "{path} is not trusted and names {models}: engines read its weights and run no code of it",
                path=str(path),
                models=models,
            )
        )
    return config


def of_models(config: Config) -> list[str]:
    """Checkpoints that a configuration names."""
    named = [str(config.plan["model"])] if "model" in config.plan else []
    return list(dict.fromkeys([*named, *(host.model for host in config.hosts.values() if host.model)]))


def plan_to_run(path: Path, say: Say) -> Plan:
    """A plan file that is to be run. Raises ParityError as `read_plan`, and for one that nobody may run so."""
    plan = read_plan(path)
    found = list(of_plan(plan))
    if found and trust_in(path) is not Trust.OWN:
        never = [f"{arm.name}: env.{name}" for arm in _arms(plan) for name in arm.env if _NEVER.fullmatch(name)]
        if never:
            raise ParityError(
                message("trust.never", "{path} sets {names}, which no plan may", path=str(path), names=never),
                hint=message(
                    "trust.own_env", "take it out; what an engine needs there stands in env of a backend in parity.toml"
                ),
            )
    take(path, found, say)
    return plan


def hosts_to_use(tables: Json, path: Path, say: Say) -> dict[str, Host]:
    """The hosts written down in a run's own file. Raises ParityError where it is not trusted, or wrong."""
    tables = tables if isinstance(tables, dict) else {}
    hosts = {name: read_host(name, table, str(path)) for name, table in tables.items()}
    take(path, [f"{host.name}: {one}" for host in hosts.values() for one in of_host(host)], say)
    return hosts
