"""Faults in vllm-ascend's own code, brought back into the release, and found by parity on the emulated NPU.

    .venv/bin/python benchmarks/emulated_faults.py [4930 bonus] [--at build/emulated-faults] [--bisect]

Each is a function of the release with some of its text replaced, in a copy of the installed package, which `parity run
--vllm-ascend` then runs: not an old release, whose vLLM and operators would be others. The same command without it must
PASS. `--bisect` asks `parity bisect settings` which setting the fault needs. What is there already is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "backends"), str(ROOT), str(ROOT / "benchmarks")]

from warm import warm  # noqa: E402

BACKEND = "ascend-emulated"
VARIABLE = "PARITY_VLLM_ASCEND"
"""What `parity run --vllm-ascend` sets."""


@dataclass(frozen=True)
class Fault:
    """`before` stands once in `file`. `options`: of the run in which it shows."""

    says: str
    file: str
    before: str
    after: str
    options: Sequence[str]
    model: str | None = None
    """A tiny family; None: the embedded trained Qwen3-Next."""


SMALL = ("--max-tokens", "16", "--engine", "max_model_len=320")

FAULTS: Mapping[str, Fault] = {
    "4930": Fault(
        "vllm-ascend#4930: tokens of a mixed batch are put apart by a sort that is not stable (its fix: stable=True)",
        "ops/gdn_attn_builder.py",
        "    return torch.argsort(tensor, stable=True)\n",
        "    return torch.argsort(tensor)\n",
        ("--suite", "smoke", "--samples", "3", "--max-num-seqs", "3", "-k", "1", *SMALL),
    ),
    "bonus": Fault(
        "planted in a Triton kernel (bonus_renew): every fifth row takes its neighbour's bonus token",
        "ops/triton/reject_sample.py",
        "    bonus_token_id = tl.load(bonus_token_ids_ptr + position)\n",
        "    source = position\n    if position % 5 == 4:\n        source = position - 1\n"
        "    bonus_token_id = tl.load(bonus_token_ids_ptr + source)\n",
        ("-k", "2", "--max-tokens", "16"),
        "mimo",
    ),
}


def package() -> Path:
    """`vllm_ascend` of the environment."""
    from parity.run import EngineEnv, load_backend

    spec = load_backend(BACKEND).env_spec()
    assert spec is not None
    (found,) = EngineEnv(spec).root.glob("lib/python3*/site-packages/vllm_ascend")
    return found


def checkout(fault: Fault, at: Path) -> Path:
    """A copy of the package with the fault in it."""
    if not at.exists():
        made = at.with_name(at.name + ".new")
        shutil.rmtree(made, ignore_errors=True)
        shutil.copytree(
            package(), made / "vllm_ascend", ignore=shutil.ignore_patterns("_cann_ops_custom", "__pycache__")
        )
        file = made / "vllm_ascend" / fault.file
        text = file.read_text(encoding="utf-8")
        if text.count(fault.before) != 1:
            sys.exit(f"{fault.file}: the text to be replaced is not there once; another release?")
        file.write_text(text.replace(fault.before, fault.after), encoding="utf-8")
        made.rename(at)
    return at


def run(name: str, fault: Fault, at: Path, patched: bool) -> Path:
    """One `parity run`, resumed where it was cut off; its directory."""
    out = at / f"{name}-{'patched' if patched else 'clean'}"
    if (out / "result.json").exists():
        return out
    words = [sys.executable, "-m", "parity", "run", "--out", str(out), "--db", str(at / "parity.db"), "--no-rehearse"]
    changed = {VARIABLE: str(checkout(fault, at / f"vllm-ascend-{name}"))} if patched else {}
    if out.exists():
        words.append("--resume")
    else:
        words += ["--backends", BACKEND, "--variants", "base,mtp", *fault.options]
        if fault.model:
            model = at / f"tiny-{fault.model}"
            if not model.exists():
                made = [sys.executable, "-m", "parity", "model", "tiny", "--arch", fault.model, "-o", str(model)]
                subprocess.run(made, check=True)
            words += ["--model", str(model)]
    with warm(BACKEND, at / f"warm-{os.getpid()}", changed) as python:
        words += ["--python", f"{BACKEND}={python}"]
        print("+", *words[2:], file=sys.stderr, flush=True)
        subprocess.run(words, env={**os.environ, **changed})
    return out


def line(out: Path) -> str:
    """Verdict and kinds of a run's only candidate."""
    if not (out / "result.json").exists():
        return "no result"
    result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    (compared,) = result["arms"].values()
    bad = [one for one in compared["findings"] if one["severity"] == "corrupt"]
    requests = len({(one["request"], one["round"], one["sample"]) for one in bad})
    kinds = Counter(one["kind"] for one in bad)
    said = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
    return (
        f"{compared['verdict']}, {requests} of {compared['stats']['completions']} corrupt{': ' if said else ''}{said}"
    )


def bisect(name: str, at: Path) -> None:
    """Which settings the patched code needs to fail."""
    found = json.loads((at / f"{name}-patched" / "result.json").read_text(encoding="utf-8"))
    words = [sys.executable, "-m", "parity", "bisect", "settings", "--run", found["run"]]
    words += ["--db", str(at / "parity.db"), "--out", str(at / f"{name}-bisect")]
    changed = {VARIABLE: str(at / f"vllm-ascend-{name}")}
    with warm(BACKEND, at / f"warm-{os.getpid()}", changed) as python:
        words += ["--python", f"{BACKEND}={python}"]
        print("+", *words[2:], file=sys.stderr, flush=True)
        subprocess.run(words, env={**os.environ, **changed})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", default=list(FAULTS))
    parser.add_argument("--at", type=Path, default=ROOT / "build" / "emulated-faults")
    parser.add_argument("--bisect", action="store_true")
    args = parser.parse_args()
    at: Path = args.at.absolute()
    at.mkdir(parents=True, exist_ok=True)
    for name in args.faults:
        fault = FAULTS[name]
        print(f"{name}: {fault.says}")
        for patched in (True, False):
            out = run(name, fault, at, patched)
            print(f"  {'with the fault' if patched else 'the release as it is'}: {line(out)}", flush=True)
        if args.bisect:
            bisect(name, at)


if __name__ == "__main__":
    main()
