"""Drafts among drawn tokens on the real engine: accepted unchecked, or drawn again after a rejection. Seen?

    python benchmarks/drawn_drafts.py collect FOLDER [--requests 64] [--tokens 64]   goes on by calling it again
    python benchmarks/drawn_drafts.py judge FOLDER
    python benchmarks/drawn_drafts.py collect FOLDER --only mtp --requests 400 --tokens 48 --temperature 1 --top-p 0.9
    python benchmarks/drawn_drafts.py judge FOLDER --only mtp

The embedded checkpoint on the CPU engine, drawn at temperature 0.8 (or `--temperature`) with two drafts, every step
recorded; more than 64 requests are those of many_prompts.py, of which none has one token. One function of vLLM's CPU
build is mended (`reports/sampled-mtp-cpu`), but for the arm `as_it_is`. Candidates: `mtp`; `unverified`, the fault
lab's `unverified_drafts`, a row in each step that has a rejection; `again`, in which one rejection in twenty emits the
rejected draft itself. `judge`: the verdict with the steps and without, and with the sides changed.
"""

from __future__ import annotations

import argparse
import base64
import io
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import parity_faults
from clean_arms import BACKEND, is_whole, prompts
from many_prompts import prompts as many_prompts

from parity.capture import read_capture, read_scores
from parity.comparator import Comparison
from parity.pipeline.analyse import analyse
from parity.pipeline.inside import look_inside, steps_beside, with_drafts, with_steps
from parity.plan import Arm, Plan, Prompt, Sampling, build_plan, read_checkpoint
from parity.run import ScoreItem, load_backend, run_arm

BASE = "base"
FAULTS: dict[str, tuple[str, float]] = {
    "unverified": ("unverified_drafts", 1.0),
}
AGAIN, AS_IT_IS = "again", "as_it_is"
CANDIDATES = ("mtp", *FAULTS, AGAIN, AS_IT_IS)
SUITE = 64
"""Built-in prompts."""
PLUGIN = """
import os


def install():
    import torch
    from vllm.v1.sample import rejection_sampler

    def expand(output, values, ends, replace_from, replace_to, *_, **__):
        lengths = torch.diff(ends.long(), prepend=torch.zeros(1, dtype=torch.long))
        output.copy_(torch.where(values == replace_from, replace_to, values).repeat_interleave(lengths))

    from vllm.utils import cpu_triton_utils

    cpu_triton_utils._expand_kernel_impl = expand  # the platform takes it from there, later
    every = int(os.environ.get("DRAWN_AGAIN", "0"))
    if not every or getattr(rejection_sampler.rejection_sample, "again", False):
        return
    right, count = rejection_sampler.rejection_sample, [0]

    def again(draft_token_ids, num_draft_tokens, *more, **named):
        found = right(draft_token_ids, num_draft_tokens, *more, **named)
        start = 0
        for row, drafts in enumerate(num_draft_tokens):
            made = int((found[row] != -1).sum())
            if 0 < made <= drafts:
                count[0] += 1
                if count[0] % every == 0:
                    found[row, made - 1] = draft_token_ids[start + made - 1]
            start += drafts
        return found

    again.again = True
    rejection_sampler.rejection_sample = again
"""


def packed() -> dict[str, str]:
    """The fault lab as it travels, with PLUGIN beside it, as variables of an arm."""
    ((name, lab),) = parity_faults.packed().items()
    made = io.BytesIO(base64.b64decode(lab))
    with zipfile.ZipFile(made, "a") as archive:
        archive.writestr("drawn_drafts_plugin.py", PLUGIN)
        archive.writestr("drawn_drafts-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: drawn-drafts\nVersion: 1\n")
        entry = "[vllm.general_plugins]\ndrawn_drafts = drawn_drafts_plugin:install\n"
        archive.writestr("drawn_drafts-1.dist-info/entry_points.txt", entry)
    return {name: base64.b64encode(made.getvalue()).decode()}


def plan_of(candidates: Sequence[str], requests: int, sampling: Sampling) -> Plan:
    backend = load_backend(BACKEND)
    model = backend.default_model()
    arms = []
    for name in (BASE, *candidates):
        variant = BASE if name == BASE else "mtp"
        engine = backend.for_seeds(backend.engine_defaults(variant, num_speculative_tokens=2))
        engine["max_num_seqs"] = 16
        env = {**backend.env_defaults(variant), **(packed() if name != AS_IT_IS else {})}
        if name in FAULTS:
            env |= parity_faults.environment(*FAULTS[name])
        if name == AGAIN:
            env["DRAWN_AGAIN"] = "20"
        arms.append(Arm(f"{BACKEND}/{name}", BACKEND, variant, engine, env))
    asked = prompts(model, requests)
    if requests > SUITE:
        asked = [Prompt(f"p{n}", text) for n, text in enumerate(many_prompts(requests, seed=5))]
    plan = build_plan(read_checkpoint(model), asked, arms, baseline=f"{BACKEND}/{BASE}", sampling=sampling)
    return replace(plan, record=True)


def collect(folder: Path, plan: Plan, candidates: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in candidates:
        capture = folder / f"{name}.jsonl"
        if not is_whole(capture):
            with run_arm(plan, f"{BACKEND}/{name}", capture, capture.with_suffix(".log"), resume=True) as session:
                session.generate()
    scores, base = folder / "scores.jsonl", folder / f"{BASE}.jsonl"
    if is_whole(scores):
        return
    with run_arm(plan, plan.baseline, base, folder / "base.log", resume=True) as session:
        if not is_whole(base):
            session.generate()
        arms = [read_capture(folder / f"{name}.jsonl") for name in (BASE, *candidates)]
        items = [
            ScoreItem(arm.header.arm, *one.key, one.prompt_token_ids, one.token_ids) for arm in arms for one in arm
        ]
        session.score(items, scores, top=20)


def judge(folder: Path, candidates: Sequence[str]) -> None:
    scores, base = read_scores(folder / "scores.jsonl"), read_capture(folder / f"{BASE}.jsonl")
    base_inside = look_inside(base, steps_beside(folder / f"{BASE}.jsonl"))
    model = load_backend(BACKEND).default_model()
    print("| arm | drafts | accepted | steps | verdict | p of `drafts` | rows with a violation | said first |")
    print("|---|---|---|---|---|---|---|---|")
    for name in candidates:
        path = folder / f"{name}.jsonl"
        arm = read_capture(path)
        inside = look_inside(arm, steps_beside(path))
        counts = arm.counters or {}
        drafts = [counts.get("draft_tokens"), counts.get("accepted_tokens")]
        for steps in (False, True):
            seen = with_drafts(arm, inside) if steps else arm
            found = analyse(base, seen, scores, tolerance=0.25, model=model)
            whole = with_steps(found, base_inside, inside) if steps else found
            _print_row([name, *drafts, "yes" if steps else "no"], whole, inside.broken if steps else "-")
        turned = analyse(arm, base, scores, tolerance=0.25, model=model)
        _print_row([f"{BASE} after {name}", "-", "-", "no"], turned, "-")


def _print_row(begin: Sequence[object], found: Comparison, broken: object) -> None:
    tests = found.stats.sampling
    p_value = tests.p_values.get("drafts") if tests else None
    shown = f"{p_value:.2g}" if p_value is not None else "-"
    cells = [*begin, found.verdict, shown, broken, str(found.reasons[0])[:160]]
    print("| " + " | ".join(map(str, cells)) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    for part in (parts.add_parser("collect"), parts.add_parser("judge")):
        part.add_argument("folder", type=Path)
        part.add_argument("--only", choices=CANDIDATES, action="append", help="this candidate alone; repeatable")
        part.add_argument("--requests", type=int, default=64)
        part.add_argument("--tokens", type=int, default=64)
        part.add_argument("--temperature", type=float, default=0.8)
        part.add_argument("--top-p", type=float, default=1.0)
    asked = parser.parse_args()
    candidates = tuple(asked.only or CANDIDATES)
    if asked.part == "judge":
        judge(asked.folder, candidates)
        return
    sampling = Sampling(
        max_tokens=asked.tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        seed=1,
        logprobs=0,
    )
    collect(asked.folder, plan_of(candidates, asked.requests, sampling), candidates)


if __name__ == "__main__":
    main()
