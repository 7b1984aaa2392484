"""Faults in vllm-ascend's own code, brought back into the release, and found by parity on the emulated NPU.

    .venv/bin/python benchmarks/emulated_faults.py [4930 13863 bonus ngram budget topp] [--at build/emulated-faults]
                                                   [--bisect]

Each is a function of the release with some of its text replaced, in a copy of the installed package, which `parity run
--vllm-ascend` then runs: not an old release, whose vLLM and operators would be others. The same command without it must
PASS. `ngram` and `budget` are faults of 0.23.0 itself, run as released and with mends; `topp` is code of 0.23.0 that an
emulated A2 does not run by itself. `--bisect` asks `parity bisect settings` which setting the fault needs. What is
there already is not run again.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "backends"), str(ROOT), str(ROOT / "benchmarks")]

from cut import beyond_the_cut  # noqa: E402
from emulated_edits import BACKEND, FAULTS, PLANTED, RELEASED, Edit, Fault  # noqa: E402
from emulated_hunt import prompts  # noqa: E402
from warm import warm  # noqa: E402

VARIABLE = "PARITY_VLLM_ASCEND"
"""What `parity run --vllm-ascend` sets."""

NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}


def package() -> Path:
    """`vllm_ascend` of the environment."""
    from parity.run import load_backend

    python = load_backend(BACKEND).interpreter(print)
    (found,) = python.parent.parent.glob("lib/python3*/site-packages/vllm_ascend")
    return found


def edited(texts: Mapping[str, str], edits: Sequence[Edit]) -> dict[str, str]:
    """The texts of these files after the edits."""
    made = dict(texts)
    for edit in edits:
        if made[edit.file].count(edit.before) != 1:
            raise ValueError(f"{edit.file}: the text to be replaced is not there once; another release?")
        made[edit.file] = made[edit.file].replace(edit.before, edit.after)
    return made


def checkout(edits: Sequence[Edit], at: Path) -> Path:
    """A copy of the package with the edits in it."""
    if not at.exists():
        made = at.with_name(at.name + ".new")
        shutil.rmtree(made, ignore_errors=True)
        shutil.copytree(
            package(), made / "vllm_ascend", ignore=shutil.ignore_patterns("_cann_ops_custom", "__pycache__")
        )
        files = {edit.file: made / "vllm_ascend" / edit.file for edit in edits}
        texts = {name: file.read_text(encoding="utf-8") for name, file in files.items()}
        for name, text in edited(texts, edits).items():
            files[name].write_text(text, encoding="utf-8")
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


def label(name: str, fault: Fault, which: str) -> str:
    """Of the folders of one of the fault's codes."""
    return f"{name}-clean" if which == RELEASED else f"{name}-patched{list(fault.edits).index(which) or ''}"


def run(name: str, fault: Fault, at: Path, which: str) -> Path:
    """One `parity run`, resumed where it was cut off; its directory."""
    out = at / label(name, fault, which)
    if (out / "result.json").exists():
        return out
    words = [sys.executable, "-m", "parity", "run", "--out", str(out), "--db", str(at / "parity.db"), "--no-rehearse"]
    changed = {}
    if which != RELEASED:
        changed[VARIABLE] = str(checkout(fault.edits[which], at / f"vllm-ascend-{out.name}"))
    if out.exists():
        words.append("--resume")
    else:
        asked = [*fault.arms, *fault.options, "--record"]
        if fault.model:
            model = at / f"tiny-{fault.model}"
            if not model.exists():
                made = [sys.executable, "-m", "parity", "model", "tiny", "--arch", fault.model, "-o", str(model)]
                subprocess.run(made, check=True)
            asked += ["--model", str(model)]
        if fault.hunted:
            asked += ["--prompts", str(prompts(at / "prompts.jsonl"))]
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
    tail = "".join(
        f"; {arm}: {many} of {tokens} tokens beyond the cut" for arm, (many, tokens) in beyond_the_cut(out).items()
    )
    corrupt = f"{requests} of {compared['stats']['completions']} corrupt{': ' if said else ''}{said}"
    return f"{compared['verdict']}, {corrupt}{tail}"


def bisect(name: str, at: Path) -> None:
    """Which settings the patched code needs to fail."""
    found = json.loads((at / f"{name}-patched" / "result.json").read_text(encoding="utf-8"))
    words = [sys.executable, "-m", "parity", "bisect", "settings", "--run", found["run"]]
    words += ["--db", str(at / "parity.db"), "--out", str(at / f"{name}-bisect")]
    changed = {VARIABLE: str(at / f"vllm-ascend-{name}-patched")}
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
        for which in (*fault.edits, RELEASED):
            print(f"  {which}: {line(run(name, fault, at, which))}", flush=True)
        if args.bisect and PLANTED in fault.edits:
            bisect(name, at)


if __name__ == "__main__":
    main()
