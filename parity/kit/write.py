"""The archive: the plan, the worker, the checkpoint and the program that runs them, as one file that Python runs."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from parity._version import __version__
from parity.errors import ParityError, writing
from parity.kit.arms import variants
from parity.messages import message
from parity.pipeline.planning import PlanRequest, make_plan
from parity.plan import Plan, Sampling
from parity.plan.checkpoint import shipped_checkpoint
from parity.plan.churn import ChurnRequest
from parity.run import Backend, Kit, Portable

CHECKPOINT: Final = "tiny-qwen3-next-mtp"

MEMORY: Final = {"gpu_memory_utilization": 0.1, "kv_cache_memory_bytes": 2**30}
"""Of a device: more than the checkpoint of 5 MB needs. With the size of the cache named vLLM measures nothing, which
fails beside others on the same device; the share is then only what must be free."""

DRAFTS: Final = 3
"""As in vllm#45100."""

_WHEN: Final = (2026, 1, 1, 0, 0, 0)
"""The same kit is the same file."""


@dataclass(frozen=True, slots=True)
class KitRequest:
    """What a kit is to run, and the minutes that it may take."""

    backend: str = "cuda"
    minutes: float = 15.0
    rounds: int = 4
    samples: int = 8
    max_tokens: int = 64
    suite: str = "mixed"
    temperature: float = 0.0
    """Above 0, `samples` are asked for as the `n` of each request."""
    top_p: float = 1.0
    sketch: str = "layers"
    """Of which modules activations are sketched in eager arms, one of `parity.plan.types.SKETCHED` or none."""
    sketch_tokens: int = 20_000
    """Of each such arm its first tokens; a token takes 39 bytes for each module."""


def kit_of(name: str, backend: Backend) -> Kit:
    """What the adapter gives to take along. Raises ParityError where it has no engine to run."""
    if isinstance(backend, Portable):
        return backend.kit()
    raise ParityError(
        message("kit.no_engine", "backend {name!r} starts no engine that a kit could run", name=name),
        hint=message("kit.engines", "kits are for cuda, ascend and cpu"),
    )


def kit_plan(request: KitRequest, backend: Backend) -> Plan:
    """The plan of a kit, on the embedded checkpoint, which lies beside it as `model`. Raises ParityError."""
    names, own = variants(request.backend, DRAFTS)
    plan = make_plan(
        PlanRequest(
            (request.backend,),
            names,
            model=shipped_checkpoint(CHECKPOINT),
            suite=request.suite,
            num_speculative_tokens=DRAFTS,
            sampling=Sampling(
                max_tokens=request.max_tokens, logprobs=0, temperature=request.temperature, top_p=request.top_p
            ),
            rounds=request.rounds,
            samples=request.samples,
            churn=ChurnRequest(preset="heavy"),
            engine={} if request.backend.startswith("cpu") else dict(MEMORY),
            named_variants=own,
            record=True,
            sketch=request.sketch,
        ),
        {request.backend: backend},
    )
    return plan.with_model_path("model")


def write_kit(request: KitRequest, backend: Backend, path: Path) -> Plan:
    """Write the archive. Raises ParityError where it cannot be made or written."""
    kit, plan = kit_of(request.backend, backend), kit_plan(request, backend)
    model = shipped_checkpoint(CHECKPOINT)
    assert model is not None
    needs = {
        "schema": "parity.kit/1",
        "parity": __version__,
        "backend": request.backend,
        "minutes": request.minutes,
        "modules": kit.modules,
        "devices": kit.devices,
        "tool": kit.tool,
        "hardware": kit.hardware,
        "sketch_tokens": request.sketch_tokens,
    }
    files = {
        "__main__.py": kit.program,
        "worker.py": backend.worker_source(),
        "plan.json": orjson.dumps(plan.to_json(), option=orjson.OPT_INDENT_2),
        "kit.json": orjson.dumps(needs, option=orjson.OPT_INDENT_2),
        **{f"model/{file.name}": file.read_bytes() for file in sorted(model.iterdir()) if file.is_file()},
    }
    with (
        writing(path, message("kit.name_another", "name another file with -o")),
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, _WHEN), data, zipfile.ZIP_DEFLATED)
    return plan
