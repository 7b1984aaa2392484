"""What parity says of arms of a real engine whose numbers are wrong everywhere.

    python benchmarks/faulty_arms.py collect FOLDER [--seconds 200] [--requests 128]   goes on by calling it again
    python benchmarks/faulty_arms.py judge FOLDER

As `clean_arms.py`, with the faults of whole runs of the fault lab: the baseline, the same again with other batches (the
control), and arms with one fault each. The baseline scores all of it, so that the choices a fault moves are counted as
well. `judge` compares runs of growing size (a quarter, a half and all of the requests).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import parity_faults
from clean_arms import BACKEND, is_whole, prompts

from parity.capture import read_capture, read_scores
from parity.comparator import compare
from parity.comparator.reference.gaps import token_gaps
from parity.plan import Arm, Plan, Sampling, build_plan, read_checkpoint
from parity.records import Capture, ScoreKey, Scores
from parity.run import ScoreItem, load_backend, run_arm

FAULTS: dict[str, tuple[str, float, dict[str, int]]] = {
    "rope-5": ("rope_off", 0.2, {}),
    "rope-20": ("rope_off", 0.05, {}),
    "rope-100": ("rope_off", 0.01, {}),
    "kv-fp8": ("kv_fp8", 1.0, {}),
    "weights-int8": ("weight_quant", 1.0, {}),
    "weights-fp8": ("weight_quant", 1.0, {"fp8": 1}),
    "scale-1": ("weight_scale", 1.0, {}),
    "bias-20": ("logit_bias", 1.0, {"millinats": 20}),
    "bias-100": ("logit_bias", 1.0, {}),
}
"""Arms, and the fault, the share of steps that it hits, its options; sizes as the catalogue has them, where none is
given."""

BASE, CONTROL = "base", "seqs4"
TOKENS = 128


def plan_of(requests: int) -> Plan:
    """Every arm is asked the same."""
    backend = load_backend(BACKEND)
    model = backend.default_model()
    engine, env = dict(backend.engine_defaults("base", num_speculative_tokens=2)), dict(backend.env_defaults("base"))
    arms = [
        Arm(f"{BACKEND}/{BASE}", BACKEND, "base", engine, env),
        Arm(f"{BACKEND}/{CONTROL}", BACKEND, "base", {**engine, "max_num_seqs": 4}, env),
    ]
    arms += [
        Arm(
            f"{BACKEND}/{name}",
            BACKEND,
            "base",
            engine,
            env | parity_faults.environment(fault, rate, **options) | parity_faults.packed(),
        )
        for name, (fault, rate, options) in FAULTS.items()
    ]
    sampling = Sampling(max_tokens=TOKENS, logprobs=0)
    return build_plan(
        read_checkpoint(model), prompts(model, requests), arms, baseline=f"{BACKEND}/{BASE}", sampling=sampling
    )


def collect(folder: Path, seconds: float, requests: int) -> bool:
    """Run what is missing as long as `seconds` last; True when everything is there."""
    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds
    plan = plan_of(requests)
    names = (BASE, CONTROL, *FAULTS)
    for name in (one for one in names if not is_whole(folder / f"{one}.jsonl")):
        if time.monotonic() > end:
            return False
        with run_arm(plan, f"{BACKEND}/{name}", folder / f"{name}.jsonl", folder / f"{name}.log", resume=True) as arm:
            arm.generate()
    left = [one for one in names if not is_whole(folder / f"{one}-scores.jsonl")]
    if not left or time.monotonic() > end:
        return not left
    with run_arm(plan, f"{BACKEND}/{BASE}", folder / f"{BASE}.jsonl", folder / "scores.log", resume=True) as arm:
        for name in left:
            arm.score(items(read_capture(folder / f"{name}.jsonl")), folder / f"{name}-scores.jsonl", top=5)
    return True


def items(capture: Capture) -> list[ScoreItem]:
    return [ScoreItem(capture.header.arm, *one.key, one.prompt_token_ids, one.token_ids) for one in capture]


def part(capture: Capture, names: Iterable[str]) -> Capture:
    kept = set(names)
    return replace(capture, completions={key: one for key, one in capture.completions.items() if key.request in kept})


def judge(folder: Path) -> None:
    base = read_capture(folder / f"{BASE}.jsonl")
    known = read_scores(folder / f"{BASE}-scores.jsonl")
    names = [key.request for key in base.completions]
    print(
        "| arm | tokens | verdict | completions found | tests of numerics that failed | scale, shift, wide in 10,000 "
        "| off in 1,000 |"
    )
    print("|---|---|---|---|---|---|---|")
    usual = off(base, known)
    for name in (CONTROL, *FAULTS):
        if not is_whole(folder / f"{name}-scores.jsonl"):
            print(f"{name} is not complete: collect first", file=sys.stderr)
            continue
        candidate = read_capture(folder / f"{name}.jsonl")
        scores = {**known, **read_scores(folder / f"{name}-scores.jsonl")}
        for share in (4, 2, 1):
            some = names[::share]
            result = compare(part(base, some), part(candidate, some), scores)
            found = result.stats.numerics
            tokens = sum(len(one.token_ids) for one in part(candidate, some))
            alone = len({one.key for one in result.corrupt if one.request != "*"})
            numbers = ""
            if found and found.candidate and found.scale_ratio is not None and found.mean_shift is not None:
                wide = found.candidate.beyond["0.1"] * 1e4
                numbers = f"{found.scale_ratio:.2f}, {found.mean_shift:+.5f}, {wide:.1f}"
            failed = ", ".join(found.failed) if found else ""
            more = f"{off(candidate, scores) - usual:.2f}" if share == 1 else ""
            print(f"| `{name}` | {tokens:,} | {result.verdict} | {alone} | {failed or 'none'} | {numbers} | {more} |")


def off(arm: Capture, scores: Scores) -> float:
    """Tokens in 1,000 that are not the scorer's best."""
    gaps = [token_gaps(scores[ScoreKey(arm.header.arm, *one.key)], one.token_ids).gap for one in arm]
    return 1000 * sum(int((each > 0).sum()) for each in gaps) / sum(map(len, gaps))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("collect", "judge"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=200.0, help="start nothing after that")
    parser.add_argument("--requests", type=int, default=128)
    options = parser.parse_args()
    if options.what == "judge":
        judge(options.folder)
        return 0
    if not collect(options.folder, options.seconds, options.requests):
        print("not everything yet: call again", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
