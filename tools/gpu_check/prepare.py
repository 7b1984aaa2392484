"""Make the folder that goes to the GPU machine: plan, worker, checkpoint and the runner; nothing else is needed there.

    python tools/gpu_check/prepare.py gpu-check [--backend cuda] [--rounds 40] [--samples 8] [--max-tokens 64]

The arms are those of vllm#45100: speculation with asynchronous scheduling and FULL_AND_PIECEWISE graphs (where the
race is), and the controls: no speculation, synchronous, PIECEWISE, no graphs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from parity.plan.checkpoint import shipped_checkpoint
from parity.run import load_backend

HERE = Path(__file__).parent
MODEL = "tiny-qwen3-next-mtp"


def arms(backend: str, tokens: int) -> dict[str, dict[str, object]]:
    """Engine settings by the arm's name, over those of the backend's own variants."""
    if backend == "cpu":  # a rehearsal: there are neither graphs nor asynchronous scheduling
        return {"base": {}, "mtp": {}}
    sizes = [size for size in (1, 2, 4, 8, 16, 32, 64, 128, 256) if size % (tokens + 1) == 0]
    sizes = sizes or [(tokens + 1) * rows for rows in (1, 2, 4, 8, 16, 32, 64)]  # FULL needs multiples of k + 1

    def settings(mode: str, asynchronous: bool) -> dict[str, object]:
        graphs: dict[str, object] = {"cudagraph_mode": mode}
        if mode != "NONE":
            graphs["cudagraph_capture_sizes"] = sizes
        return {"enforce_eager": mode == "NONE", "async_scheduling": asynchronous, "compilation_config": graphs}

    return {
        "base": settings("NONE", False),
        "base-async-full": settings("FULL_AND_PIECEWISE", True),
        "mtp-async-full": settings("FULL_AND_PIECEWISE", True),
        "mtp-async-piecewise": settings("PIECEWISE", True),
        "mtp-async-none": settings("NONE", True),
        "mtp-sync-full": settings("FULL_AND_PIECEWISE", False),
        "mtp-sync-none": settings("NONE", False),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backend", default="cuda", choices=("cuda", "ascend", "cpu"))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--num-speculative-tokens", "-k", type=int, default=3)
    parser.add_argument("--churn", default="heavy", choices=("none", "light", "heavy"))
    parser.add_argument("--suite", default="mixed")
    options = parser.parse_args()
    model = shipped_checkpoint(MODEL)
    assert model is not None
    options.folder.mkdir(parents=True)
    command = [
        sys.executable, "-m", "parity", "plan", "--backends", options.backend, "--model", str(model),
        "--suite", options.suite, "--rounds", str(options.rounds), "--samples", str(options.samples),
        "--max-tokens", str(options.max_tokens), "-k", str(options.num_speculative_tokens), "--churn", options.churn,
        "--score", "differing", "-o", str(options.folder / "plan.json"),
    ]  # fmt: skip
    done = subprocess.run(command, check=False)
    if done.returncode:
        return done.returncode
    file = options.folder / "plan.json"
    plan = json.loads(file.read_text(encoding="utf-8"))
    own = {arm["variant"]: arm for arm in plan["arms"]}
    plan["arms"] = [
        {**own["mtp" if name.startswith("mtp") else "base"], "name": f"{options.backend}/{name}", "variant": name,
         "engine": {**own["mtp" if name.startswith("mtp") else "base"]["engine"], **settings}}
        for name, settings in arms(options.backend, options.num_speculative_tokens).items()
    ]  # fmt: skip
    for arm in plan["arms"]:
        if options.backend == "cuda":
            arm["engine"]["gpu_memory_utilization"] = 0.1  # the tiny checkpoint needs no more, and starts fast
    plan["baseline"] = f"{options.backend}/base"
    plan["model"]["path"] = "model"
    file.write_text(json.dumps(plan), encoding="utf-8")
    (options.folder / "worker.py").write_bytes(load_backend(options.backend).worker_source())
    shutil.copy(HERE / "check.py", options.folder / "check.py")
    shutil.copytree(model, options.folder / "model")
    print(f"{options.folder}: carry it to the machine, and run there: python check.py (see tools/gpu_check/README.md)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
