"""What parity says of arms that have no fault: it must find nothing, over more than 100,000 tokens.

    python benchmarks/clean_arms.py collect FOLDER [--seconds 200]   needs the CPU engine; go on by calling it again
    python benchmarks/clean_arms.py judge FOLDER [--table]

`collect` runs the embedded checkpoint on this machine: the baseline, and candidates that differ from it in nothing
that may matter: the same again, other batch sizes, speculation with 1, 2 and 3 draft tokens, and bf16 rounding
noise on every logit (the fault lab's `logits_noise`). It starts no arm that may not end within `--seconds`; what is
there already is kept. Then the baseline scores whatever differs from its own, and its own completions.

`judge` compares every candidate with its baseline in several ways: with scores, with scores of both sides and
`--tolerance auto`, with logprobs alone, with neither, and each with the sides swapped where that can be judged.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import parity_faults

from parity.capture import read_capture, read_scores
from parity.comparator import CompareOptions, compare
from parity.plan import Arm, Plan, Prompt, Sampling, build_plan, load_suite, read_checkpoint
from parity.plan.requests import tokenise
from parity.records import Capture, ScoreKey, Scores, Severity
from parity.run import ScoreItem, load_backend, run_arm

BACKEND = "cpu"


@dataclass(frozen=True)
class Clean:
    """One arm: which group it belongs to, what is set in its engine, and seconds it may take at most."""

    name: str
    group: str
    engine: dict[str, Any] = field(default_factory=dict)
    draft_tokens: int = 0
    noise: bool = False
    seconds: float = 90.0


GROUPS = {"long": (224, 128), "short": (32, 64), "listed": (32, 64)}
"""Requests and output tokens. Speculation is slow on a CPU: the `short` ones are for it. `listed`: the engine's own
best logprobs recorded, where the others have that of the chosen token, as every run has."""

ARMS = (
    Clean("base", "long"),
    Clean("again", "long"),
    Clean("seqs4", "long", {"max_num_seqs": 4}, seconds=150),
    Clean("seqs32", "long", {"max_num_seqs": 32}),
    Clean("noise", "long", noise=True),
    Clean("short-base", "short"),
    Clean("seqs1", "short", {"max_num_seqs": 1}),
    Clean("mtp-k1", "short", draft_tokens=1, seconds=90),
    Clean("mtp-k2", "short", draft_tokens=2, seconds=90),
    Clean("mtp-k3", "short", draft_tokens=3, seconds=90),
    Clean("listed-base", "listed"),
    Clean("listed-noise", "listed", noise=True),
    Clean("listed-mtp-k2", "listed", draft_tokens=2, seconds=90),
)
BASELINES = {"long": "base", "short": "short-base", "listed": "listed-base"}


def prompts(model: Path, count: int) -> list[Prompt]:
    """The built-in prompts, then the same ones cut at three quarters, a half and a quarter of their tokens."""
    whole = tokenise(load_suite("mixed"), model)
    made = []
    for quarters in (4, 3, 2, 1):
        for request in whole:
            ids = request.prompt_token_ids[: max(4, len(request.prompt_token_ids) * quarters // 4)]
            made.append(Prompt(f"{request.id}-{quarters}", token_ids=tuple(ids)))
    return made[:count]


def plan_of(group: str) -> Plan:
    """The plan of a group: every arm is asked the same."""
    backend = load_backend(BACKEND)
    model = backend.default_model()
    count, tokens = GROUPS[group]
    arms = []
    for clean in (one for one in ARMS if one.group == group):
        variant = "mtp" if clean.draft_tokens else "base"
        engine = {**backend.engine_defaults(variant, num_speculative_tokens=clean.draft_tokens or 2), **clean.engine}
        env = dict(backend.env_defaults(variant))
        if clean.noise:
            env |= parity_faults.environment("logits_noise") | parity_faults.packed()
        arms.append(Arm(f"{BACKEND}/{clean.name}", BACKEND, variant, engine, env))
    sampling = Sampling(max_tokens=tokens, logprobs=5 if group == "listed" else 0)
    return build_plan(
        read_checkpoint(model), prompts(model, count), arms, baseline=f"{BACKEND}/{BASELINES[group]}", sampling=sampling
    )


def collect(folder: Path, seconds: float) -> bool:
    """Run what is missing and fits into `seconds`; True when everything is there."""
    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds
    for group, name in BASELINES.items():
        for clean in (one for one in ARMS if one.group == group):
            capture, log = folder / f"{clean.name}.jsonl", folder / f"{clean.name}.log"
            if is_whole(capture):
                continue
            if time.monotonic() + clean.seconds > end:
                return False
            with run_arm(plan_of(group), f"{BACKEND}/{clean.name}", capture, log, resume=True) as session:
                session.generate()
        scores, log = folder / f"{group}-scores.jsonl", folder / f"{group}-scores.log"
        if is_whole(scores):
            continue
        if time.monotonic() + 90 > end:
            return False
        arm, capture = f"{BACKEND}/{name}", folder / f"{name}.jsonl"
        with run_arm(plan_of(group), arm, capture, log, resume=True) as session:
            session.score(items(folder, group), scores, top=5)
    return True


def items(folder: Path, group: str) -> list[ScoreItem]:
    """The baseline's completions, and what differs from them."""
    baseline = read_capture(folder / f"{BASELINES[group]}.jsonl")
    wanted = list(baseline)
    found = [ScoreItem(baseline.header.arm, *one.key, one.prompt_token_ids, one.token_ids) for one in wanted]
    for clean in members(group):
        candidate = read_capture(folder / f"{clean.name}.jsonl")
        for one in candidate:
            other = baseline.completions.get(one.key)
            if other is None or other.token_ids.tolist() != one.token_ids.tolist():
                found.append(ScoreItem(candidate.header.arm, *one.key, one.prompt_token_ids, one.token_ids))
    return found


def members(group: str) -> list[Clean]:
    return [one for one in ARMS if one.group == group and one.name != BASELINES[group]]


def is_whole(path: Path) -> bool:
    """Does this file end with its footer?"""
    return path.is_file() and path.stat().st_size > 0 and b'"footer"' in path.read_bytes()[-8192:]


# ------------------------------------------------------------------ judging


def bare(capture: Capture) -> Capture:
    """Without the engine's own logprobs."""
    return replace(capture, completions={key: replace(one, logprobs=None) for key, one in capture.completions.items()})


def ways(
    baseline: Capture, candidate: Capture, scores: Scores
) -> Iterator[tuple[str, Capture, Scores, CompareOptions]]:
    mine = {key: top for key, top in scores.items() if key.arm == candidate.header.arm}
    own = {ScoreKey(*key): top for key, top in scores.items() if key.arm == baseline.header.arm}
    plain = CompareOptions()
    yield "scores", bare(candidate), mine, plain
    yield "both scored", bare(candidate), {**own, **mine}, plain
    yield "auto", bare(candidate), {**own, **mine}, CompareOptions(tolerance="auto")
    yield "neither", bare(candidate), {}, plain
    if any(one.logprobs is not None for one in candidate):
        yield "logprobs", candidate, {}, plain
        yield "all", candidate, {**own, **mine}, plain


def judge(folder: Path, *, table: bool) -> bool:
    """Print what is said of every arm; True when nothing was found."""
    total, wrong, lines = 0, 0, []
    for group, name in BASELINES.items():
        if not is_whole(folder / f"{group}-scores.jsonl"):
            print(f"the group {group} is not complete: collect first", file=sys.stderr)
            wrong += 1
            continue
        baseline, scores = read_capture(folder / f"{name}.jsonl"), read_scores(folder / f"{group}-scores.jsonl")
        for clean in members(group):
            candidate = read_capture(folder / f"{clean.name}.jsonl")
            tokens = sum(len(one.token_ids) for one in candidate)
            total += tokens
            said = []
            for way, arm, known, options in ways(baseline, candidate, scores):
                left = baseline if way in ("logprobs", "all") else bare(baseline)
                result = compare(left, arm, known, options)
                found = [one for one in result.findings if one.severity is Severity.CORRUPT]
                wrong += len(found)
                said.append(f"{way} {result.verdict} {len(found)}")
                if way == "scores":
                    differing = result.stats.completions - result.stats.identical
                    largest = largest_gap(candidate, known)
                for one in found:
                    print(f"  {clean.name}, {way}: {one.key} {one.kind} at {one.position}: {one.evidence.why}")
            settings = ", ".join(f"{key} {value}" for key, value in clean.engine.items())
            settings += f"{clean.draft_tokens} draft tokens" if clean.draft_tokens else ""
            settings += "every logit one bf16 unit up or down" if clean.noise else ""
            lines.append((clean.name, settings or "nothing changed", tokens, differing, largest, "; ".join(said)))
    for line in lines:
        if table:
            print("| `{}` | {} | {:,} | {} | {:.3f} | {} |".format(*line))
        else:
            print("{:14s} {:38s} {:7,} tokens, {:3d} differ, largest gap {:.3f}: {}".format(*line))
    print(f"{total:,} tokens of candidates, {wrong} corrupt findings")
    return wrong == 0


def largest_gap(candidate: Capture, scores: Scores) -> float:
    """Nats by which a token of a completion that differs lies below the best one, at most."""
    from parity.comparator.reference.gaps import token_gaps

    gaps = [
        token_gaps(scores[ScoreKey(candidate.header.arm, *one.key)], one.token_ids).gap.max()
        for one in candidate
        if len(one.token_ids) and ScoreKey(candidate.header.arm, *one.key) in scores
    ]
    return float(max(gaps, default=0.0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("collect", "judge"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=200.0, help="start nothing that may not end by then")
    parser.add_argument("--table", action="store_true", help="as a Markdown table")
    options = parser.parse_args()
    if options.what == "judge":
        return 0 if judge(options.folder, table=options.table) else 1
    if not collect(options.folder, options.seconds):
        print("not everything yet: call again", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
