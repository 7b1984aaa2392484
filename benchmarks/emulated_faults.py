"""Faults in vllm-ascend's own code, brought back into the release, and found by parity on the emulated NPU.

    .venv/bin/python benchmarks/emulated_faults.py [4930 bonus ngram] [--at build/emulated-faults] [--bisect]

Each is a function of the release with some of its text replaced, in a copy of the installed package, which `parity run
--vllm-ascend` then runs: not an old release, whose vLLM and operators would be others. The same command without it must
PASS; `ngram` is a fault of 0.23.0 itself. `--bisect` asks `parity bisect settings` which setting the fault needs. What
is there already is not run again.
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
    """Each text of `edits` that is replaced stands once in `file`; without any the fault is the release's own.
    `options`: of the run in which it shows."""

    says: str
    file: str
    edits: Sequence[tuple[str, str]]
    options: Sequence[str]
    model: str | None = None
    """A tiny family; None: the embedded trained Qwen3-Next."""
    variant: str = "mtp"
    """`mtp`, or `ngram`, which only a plan can ask for."""


SMALL = ("--max-tokens", "16", "--engine", "max_model_len=320")

FAULTS: Mapping[str, Fault] = {
    "4930": Fault(
        "vllm-ascend#4930: tokens of a mixed batch are put apart by a sort that is not stable (its fix: stable=True)",
        "ops/gdn_attn_builder.py",
        [("    return torch.argsort(tensor, stable=True)\n", "    return torch.argsort(tensor)\n")],
        ("--suite", "smoke", "--samples", "3", "--max-num-seqs", "3", "-k", "1", *SMALL),
    ),
    "bonus": Fault(
        "planted in a Triton kernel (bonus_renew): every fifth row takes its neighbour's bonus token",
        "ops/triton/reject_sample.py",
        [
            (
                "    bonus_token_id = tl.load(bonus_token_ids_ptr + position)\n",
                "    source = position\n    if position % 5 == 4:\n        source = position - 1\n"
                "    bonus_token_id = tl.load(bonus_token_ids_ptr + source)\n",
            )
        ],
        ("-k", "2", "--max-tokens", "16"),
        "mimo",
    ),
    "ngram": Fault(
        "vllm-ascend 0.23.0's own: where a row accepted drafts and gets none then, a hybrid model reads an older state",
        "worker/model_runner_v1.py",
        (),
        ("--suite", "mixed", "--max-tokens", "32", "--engine", "max_model_len=1024", "--record"),
        variant="ngram",
    ),
}

NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}


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
        for before, after in fault.edits:
            if text.count(before) != 1:
                sys.exit(f"{fault.file}: the text to be replaced is not there once; another release?")
            text = text.replace(before, after)
        file.write_text(text, encoding="utf-8")
        made.rename(at)
    return at


def with_ngram(path: Path, asked: Sequence[str]) -> Path:
    """The plan of these options with n-gram drafts in the place of the checkpoint's own."""
    from parity.trust import remember

    subprocess.run([sys.executable, "-m", "parity", "plan", *asked, "-o", str(path)], check=True)
    plan = json.loads(path.read_text(encoding="utf-8"))
    arm = next(arm for arm in plan["arms"] if arm["variant"] == "mtp")
    arm.update(name=f"{BACKEND}/ngram", variant="ngram")
    arm["engine"]["speculative_config"] = NGRAM
    path.write_text(json.dumps(plan), encoding="utf-8")
    remember(path)
    return path


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
        asked = ["--backends", BACKEND, "--variants", "base,mtp", *fault.options]
        if fault.model:
            model = at / f"tiny-{fault.model}"
            if not model.exists():
                made = [sys.executable, "-m", "parity", "model", "tiny", "--arch", fault.model, "-o", str(model)]
                subprocess.run(made, check=True)
            asked += ["--model", str(model)]
        words += asked if fault.variant == "mtp" else ["--plan", str(with_ngram(at / f"{name}.json", asked))]
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
        for patched in (True, False) if fault.edits else (False,):
            out = run(name, fault, at, patched)
            print(f"  {'with the fault' if patched else 'the release as it is'}: {line(out)}", flush=True)
        if args.bisect and fault.edits:
            bisect(name, at)


if __name__ == "__main__":
    main()
