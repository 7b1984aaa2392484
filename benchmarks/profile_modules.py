"""Does `parity profile` mark the module that is wrong, and no other? And how far apart are clean arms?

    parity run --backends cpu,cpu@0.31.0,cpu@0.29.0 --variants base --sketch --arbiter transformers --suite mixed
        --max-tokens 24 --max-num-seqs 8 --max-num-batched-tokens 512 --out RUN
    python benchmarks/profile_modules.py RUN FOLDER [--only NAME…] [--measured]

RUN gives the reference: transformers in float32 over the completions of the CPU engine, and the arms of other versions.
The fault lab then runs the CPU engine once (FOLDER), with one module of all tokens wrong by some size, and without a
fault: in the same order, and in another (other batches). Each of these is profiled beside RUN's first arm, and printed:
how much the distance grows at most in any module beyond what ran before it, where, and which modules stand out. Of
clean arms the same is drawn anew: halves of the completions, one profiled beside the other. `--only` runs these arms of
the lab, in an engine start of their own (FOLDER keeps the others); `--measured` reads what is in FOLDER.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from fault_lab import ENGINE, run_job
from parity_backends.vllm.cpu import CpuBackend
from parity_backends.vllm.local import worker_source

from parity.capture import read_capture
from parity.capture.sketches import Sketches, read_sketches
from parity.explain.aligned import Aligned, align
from parity.explain.profile import Profile, profile
from parity.plan.prompts import load_suite
from parity.plan.requests import tokenise

FAULTS = {
    "kv_fp8": "kv_fp8:rate=1",
    "scale-3": "weight_scale:rate=1:permille=3",
    "scale-10": "weight_scale:rate=1:permille=10",
    "scale-30": "weight_scale:rate=1:permille=30",
    "int8": "weight_quant:rate=1:bits=8",
    "int6": "weight_quant:rate=1:bits=6",
    "fp8": "weight_quant:rate=1:fp8=1",
}
OF_MODULES = (
    "norm_off", "gates_off", "gdn_state_off", "conv_state_off", "rope_row_off", "kv_head_off", "attention_off",
    "mlp_off", "experts_off", "router_off", "lm_head_off",
)  # fmt: skip
"""In all tokens that a request computes; of what modules keep and of what they are told, in those that it decodes."""
FAULTS.update(
    (f"{name}-{permille}", f"{name}:rate=1:every=1:permille={permille}")
    for name in OF_MODULES
    for permille in (10, 30, 100, 300)
)
CLEAN = ("clean", "shuffled")
HALVES = 200


def made(folder: Path, tokens: int, names: Sequence[str]) -> None:
    """One engine start for all of these captures."""
    backend = CpuBackend()
    model = backend.default_model()
    assert model is not None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "worker.py").write_bytes(worker_source())
    suite = tokenise(load_suite("mixed"), model)
    requests = [{"id": one.id, "prompt_token_ids": list(one.prompt_token_ids)} for one in suite]
    requests = [one for one in requests if len(one["prompt_token_ids"]) > 1]
    order = np.random.default_rng(0).permutation(len(requests))
    captures: list[dict[str, Any]] = [
        {"name": name, "fault": f"{FAULTS[name]}:seed=3" if name in FAULTS else "none"} for name in names
    ]
    for one in captures:
        if one["name"] == "shuffled":
            one["requests"] = [requests[int(at)] for at in order]
    job = {
        "model": str(model), "sampling": {"temperature": 0.0, "max_tokens": tokens}, "requests": requests,
        "vocab_size": 2048, "eos_token_ids": [0], "sketcher": str(folder / "worker.py"), "captures": captures,
        "engine": {**ENGINE, "max_num_seqs": 8, "max_model_len": 1024},
    }  # fmt: skip
    run_job(backend.interpreter(print), folder, "base", job)


def aligned(capture: Path, reference: tuple[Sketches, ...]) -> Aligned:
    return align(read_capture(capture), read_sketches(capture.with_suffix(".sketches")), reference, prefixes=True)


def line(name: str, of: Profile) -> str:
    """The largest growth, where it is, and what stands out."""
    judged = [(of_arm.grows, one.name, of_arm) for one in of.modules if (of_arm := one.of_arms[1]) is not None]
    grows, module, at = max(judged, key=lambda one: one[0])
    out = ", ".join(one.name for one in of.standing_out(1)) or "none"
    return f"| {name} | {of.tokens[1]} | {grows:.2f} | {module} | {at.times:.2f} | {out} |"


def halves(one: Aligned, draws: int) -> tuple[list[float], int]:
    """The largest growth of half of the completions beside the other half, and how often a module stood out."""
    rng = np.random.default_rng(0)
    found, out = [], 0
    for _ in range(draws):
        half = rng.permutation(len(one.keys)) < len(one.keys) // 2
        of = profile([("a", only(one, half)), ("b", only(one, ~half))], own_reference=False)
        found.append(max(each.of_arms[1].grows for each in of.modules if each.of_arms[1] is not None))
        out += bool(of.standing_out(1))
    return found, out


def only(one: Aligned, keys: np.ndarray) -> Aligned:
    """Some of the completions."""
    from dataclasses import replace

    rows = keys[one.completion]
    of_tokens = (
        "position", "step", "row", "distance", "flipped", "gap", "best", "reference_best", "follows",
    )  # fmt: skip
    number = np.cumsum(keys) - 1
    return replace(
        one,
        keys=tuple(key for key, kept in zip(one.keys, keys, strict=True) if kept),
        completion=number[one.completion[rows]],
        prompt_tokens=one.prompt_tokens[keys],
        plain=one.plain[keys],
        **{name: getattr(one, name)[rows] for name in of_tokens},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--reference", type=Path, help="the arbiter's sketches; else the only ones of RUN that are so")
    parser.add_argument("--only", nargs="+", default=[*CLEAN, *FAULTS], choices=[*CLEAN, *FAULTS])
    parser.add_argument("--measured", action="store_true", help="read what is in the folder")
    asked = parser.parse_args()
    if not asked.measured:
        made(asked.folder, asked.tokens, asked.only)
    reference = read_sketches(asked.reference or next(asked.run.glob("*arbiter*.sketches")))
    arms = {one.stem: aligned(one, reference) for one in sorted(asked.run.glob("*.jsonl")) if is_arm(one)}
    first = next(name for name in arms if "@" not in name and name.endswith("base"))
    captures = {name: asked.folder / name / "base.jsonl" for name in (*CLEAN, *FAULTS)}
    lab = {name: aligned(path, reference) for name, path in captures.items() if path.exists()}
    print("| arm | tokens | grows at most | in | times | stands out |\n|---|---|---|---|---|---|")
    for name, one in {**arms, **lab}.items():
        if name != first:
            print(line(name, profile([(first, arms[first]), (name, one)], own_reference=False)))
    grown, out = halves(arms[first], HALVES)
    middle, high, most = np.quantile(grown, (0.5, 0.99, 1))
    print(
        f"halves of {first}: grows by {middle:.2f} at the median of {HALVES}, {high:.2f} at 99 %, {most:.2f} at most;"
    )
    print(f"a module stood out in {out}")


def is_arm(path: Path) -> bool:
    return path.with_suffix(".sketches").exists() and not any(word in path.stem for word in ("scores", "arbiter"))


if __name__ == "__main__":
    main()
