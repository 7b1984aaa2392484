"""Drawn rows of a real engine that hold another request's tokens, or were decoded at another temperature: found?

    python benchmarks/crossed_rows.py collect FOLDER [--temperature 0.8] [--seconds 200]   goes on by calling it again
    python benchmarks/crossed_rows.py judge FOLDER [--runs 20]

The embedded checkpoint on the CPU engine, 128 requests. Arms: `leak`, the fault lab's `row_leak` until a row ends (the
rest of the completion is another row's), `greedy_leak`, its `temperature_leak`, and `swapped`: pairs of completions of
the arm `again` exchanged in the capture. The baseline scores all arms, and while it is up the second scoring of
`parity run` is asked (detect/crossings.py). `judge`: rows hit, found, named `row_leak`, with the right donor. Then runs
in which one row in twenty is what the same engine says at another temperature, other rows in each run.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
import parity_faults
from clean_arms import BACKEND, is_whole, prompts

from parity.capture import read_capture, read_scores, write_capture
from parity.comparator import compare
from parity.comparator.detect.crossings import crossings, sequence
from parity.pipeline.controls import MARK, prompt_digest
from parity.plan import Arm, Plan, Sampling, build_plan, read_checkpoint
from parity.records import RUN, Capture, Key, Kind, ScoreKey, Verdict
from parity.records.crossings import Crossed, Crossing
from parity.run import ScoreItem, load_backend, run_arm

FAULTS: dict[str, tuple[str, float, dict[str, int]]] = {
    "leak": ("row_leak", 0.02, {"span": 64}),
    "greedy_leak": ("temperature_leak", 0.05, {}),
}
"""Arms, and the fault, its rate and its options."""
OTHER_TEMPERATURES = {"greedy": 0.0, "colder": 0.3, "hotter": 1.5}
"""Arms of the sound engine whose rows are put among those of `again`."""

BASE, AGAIN, SWAPPED = "base", "again", "swapped"
REQUESTS, TOKENS, ROWS, PAIRS = 128, 48, 8, 6
SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Hit:
    """A row that a fault has changed; the requests whose tokens it may hold."""

    donors: frozenset[str] = frozenset()


def plan_of(temperature: float, seed: int = 1) -> Plan:
    """The baseline's is of seed 1, the candidates' of seed 2: what is drawn stands nowhere twice."""
    backend = load_backend(BACKEND)
    model = backend.default_model()
    engine = {**backend.engine_defaults("base", num_speculative_tokens=2), "max_num_seqs": ROWS}
    env = dict(backend.env_defaults("base"))
    faults = {
        name: parity_faults.environment(fault, rate, **options) | parity_faults.packed()
        for name, (fault, rate, options) in FAULTS.items()
    }
    arms = [Arm(f"{BACKEND}/{name}", BACKEND, "base", engine, env) for name in (BASE, AGAIN, *OTHER_TEMPERATURES)]
    arms += [Arm(f"{BACKEND}/{name}", BACKEND, "base", engine, env | more) for name, more in faults.items()]
    sampling = Sampling(max_tokens=TOKENS, temperature=temperature, seed=seed, logprobs=0)
    return build_plan(
        read_checkpoint(model), prompts(model, REQUESTS), arms, baseline=f"{BACKEND}/{BASE}", sampling=sampling
    )


def collect(folder: Path, seconds: float, temperature: float) -> bool:
    """Run what is missing as long as `seconds` last; True when everything is there."""
    folder.mkdir(parents=True, exist_ok=True)
    end, plan = time.monotonic() + seconds, plan_of(temperature)
    for name in (arm.name for arm in plan.arms):
        short = name.rpartition("/")[2]
        capture = folder / f"{short}.jsonl"
        if not is_whole(capture):
            if time.monotonic() > end:
                return False
            asked = plan if short == BASE else plan_of(OTHER_TEMPERATURES.get(short, temperature), 2)
            with run_arm(asked, name, capture, capture.with_suffix(".log"), resume=True) as session:
                session.generate()
    swap(folder)
    scores, answers = folder / "scores.jsonl", folder / "crossings.jsonl"
    if is_whole(scores) and (folder / "asked.json").exists():
        return True
    if time.monotonic() > end:
        return False
    arms = {name: read_candidate(folder, name) for name in candidates(folder)}
    base = read_capture(folder / f"{BASE}.jsonl")
    with run_arm(plan, plan.baseline, folder / f"{BASE}.jsonl", folder / "scores.log", resume=True) as session:
        items = [
            ScoreItem(arm.header.arm, *one.key, one.prompt_token_ids, one.token_ids)
            for arm in (base, *arms.values())
            for one in arm
        ]
        session.score(items, scores, top=20)
        asked = ask(base, {name: arms[name] for name in (AGAIN, SWAPPED, *FAULTS)}, folder)
        if asked:
            items = [
                ScoreItem(one.arm, str(number), 0, 0, *sequence(one, arms[one.arm.rpartition("/")[2]]))
                for number, one in enumerate(asked)
            ]
            session.score(items, answers, top=20)
        (folder / "asked.json").write_bytes(
            orjson.dumps([[one.arm, [*one.receiver], [*one.donor], one.start] for one in asked])
        )
    return True


def read_candidate(folder: Path, name: str) -> Capture:
    """As if it had been asked with the baseline's seed."""
    capture, base = read_capture(folder / f"{name}.jsonl"), read_capture(folder / f"{BASE}.jsonl").header
    extra = {**capture.header.extra, "plan_digest": base.plan_digest}
    return replace(capture, header=replace(capture.header, sampling=base.sampling, extra=extra))


def ask(base: Capture, arms: dict[str, Capture], folder: Path) -> list[Crossing]:
    """What `parity run` would ask."""
    scores, found = read_scores(folder / "scores.jsonl"), list[Crossing]()
    for arm in arms.values():
        said = compare(base, arm, scores)
        found += crossings(arm, said.findings, [key.request for key in base.completions], scores)
    return found


def swap(folder: Path) -> None:
    """The arm `again` with pairs of completions exchanged, each with its own logprobs."""
    again, rng = read_capture(folder / f"{AGAIN}.jsonl"), random.Random(1)
    keys = rng.sample(sorted(key for key, one in again.completions.items() if len(one.token_ids) >= 16), 2 * PAIRS)
    made = dict(again.completions)
    for one, other in zip(keys[::2], keys[1::2], strict=True):
        for key, source in ((one, again.completions[other]), (other, again.completions[one])):
            kept = again.completions[key]
            made[key] = replace(source, key=key, prompt_token_ids=kept.prompt_token_ids)
    header = replace(again.header, arm=f"{BACKEND}/{SWAPPED}")
    write_capture(folder / f"{SWAPPED}.jsonl", replace(again, header=header, completions=made), compact=True)
    pairs = {
        str(a.request): str(b.request)
        for a, b in zip([*keys[::2], *keys[1::2]], [*keys[1::2], *keys[::2]], strict=True)
    }
    (folder / f"{SWAPPED}.json").write_bytes(orjson.dumps(pairs))


def candidates(folder: Path) -> list[str]:
    return [name for name in (AGAIN, SWAPPED, *FAULTS, *OTHER_TEMPERATURES) if is_whole(folder / f"{name}.jsonl")]


def planted(folder: Path, name: str, clean: Capture, arm: Capture) -> dict[Key, Hit]:
    """The rows that the fault has changed, `clean` being what the engine says without it."""
    if name == SWAPPED:
        pairs = orjson.loads((folder / f"{SWAPPED}.json").read_bytes())
        return {key: Hit(frozenset({pairs[key.request]})) for key in arm.completions if key.request in pairs}
    log = folder / f"{name}.log"
    lines = [line for line in log.read_bytes().splitlines() if MARK in line] if name in FAULTS else []
    records = [orjson.loads(line[line.find(MARK) + len(MARK) :]) for line in lines]
    hit: dict[str, set[str]] = {}
    numbered = [key.request for key in clean.completions]
    for record in records:
        if record["record"] == "planted":
            donor = str(record.get("donor", "")).partition("-")[0]  # the engine's requests are counted from 1
            hit.setdefault(record["prompt"], set()).update([numbered[int(donor) - 1]] if donor.isdigit() else [])
    return {
        key: Hit(frozenset(hit[prompt_digest(one.prompt_token_ids.tolist())]))
        for key, one in arm.completions.items()
        if prompt_digest(one.prompt_token_ids.tolist()) in hit and not equal(arm, clean, key)
    }


def judge(folder: Path) -> None:
    base, scores = read_capture(folder / f"{BASE}.jsonl"), read_scores(folder / "scores.jsonl")
    asked = [
        Crossing(arm, Key(*a), Key(*b), start)
        for arm, a, b, start in orjson.loads((folder / "asked.json").read_bytes())
    ]
    answers = read_scores(folder / "crossings.jsonl") if asked else {}
    clean = read_candidate(folder, AGAIN)
    print("| arm | tokens | questions | verdict | rows hit | found | `row_leak` | donor right | others accused |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in (one for one in candidates(folder) if one not in OTHER_TEMPERATURES):
        arm = read_candidate(folder, name)
        mine = [(number, one) for number, one in enumerate(asked) if one.arm == arm.header.arm]
        crossed: Crossed = {
            one: answers[key] for number, one in mine if (key := ScoreKey(one.arm, str(number), 0, 0)) in answers
        }
        result = compare(base, arm, scores, None, crossed)
        hits = planted(folder, name, clean, arm)
        rows = {key: [one for one in result.corrupt if one.key == key] for key in arm.completions}
        found = [key for key in hits if rows[key]]
        named = [key for key in hits if any(one.kind is Kind.ROW_LEAK for one in rows[key])]
        right = [
            key
            for key in named
            if any(getattr(one.evidence, "donor_request", None) in hits[key].donors for one in rows[key])
        ]
        others = sum(bool(some) for key, some in rows.items() if key not in hits and key.request != RUN)
        tokens = sum(len(one.token_ids) for one in arm)
        counts = [len(mine), result.verdict, len(hits), len(found), len(named), len(right), others]
        print(f"| `{name}` | {tokens:,} | " + " | ".join(map(str, counts)) + " |")
        for key in hits:
            kinds = [f"{one.kind} at {one.position}" for one in rows[key]]
            print(f"  {name} {key}: {', '.join(kinds) or 'not found'}", file=sys.stderr)


def mixed(folder: Path, runs: int) -> None:
    """Rows of the arms at other temperatures among those of `again`."""
    base, scores = read_capture(folder / f"{BASE}.jsonl"), read_scores(folder / "scores.jsonl")
    clean = read_candidate(folder, AGAIN)
    own = {key: top for key, top in scores.items() if key.arm in (base.header.arm, clean.header.arm)}
    print("\n| rows among those of `again` | rows a run | runs DIVERGED | rows hit | found | others accused |")
    print("|---|---|---|---|---|---|")
    for name in (one for one in candidates(folder) if one in OTHER_TEMPERATURES):
        other, rng = read_candidate(folder, name), random.Random(1)
        keys = sorted(clean.completions)
        diverged = hit = found = accused = 0
        for _ in range(runs):
            rows = rng.sample(keys, round(SHARE * len(keys)))
            made = replace(clean, completions={**clean.completions, **{key: other.completions[key] for key in rows}})
            judged = {
                ScoreKey(clean.header.arm, *key): scores[ScoreKey(other.header.arm, *key)]
                for key in rows
                if ScoreKey(other.header.arm, *key) in scores
            }
            result = compare(base, made, {**own, **judged})
            corrupt = {one.key for one in result.corrupt if one.key.request != RUN}
            differ = {key for key in rows if not equal(clean, other, key)}
            diverged += result.verdict is Verdict.DIVERGED
            hit, found, accused = hit + len(differ), found + len(differ & corrupt), accused + len(corrupt - set(rows))
            for key in sorted(differ - corrupt):
                print(
                    f"  {name} {key.request}, {len(made.completions[key].token_ids)} tokens: not found", file=sys.stderr
                )
        each = round(SHARE * len(keys))
        print(f"| `{name}` | {each} of {len(keys)} | {diverged} of {runs} | {hit} | {found} | {accused} |")


def equal(one: Capture, other: Capture, key: Key) -> bool:
    return one.completions[key].token_ids.tolist() == other.completions[key].token_ids.tolist()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("collect", "judge"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--runs", type=int, default=20, help="with rows at another temperature, of each kind")
    parser.add_argument("--seconds", type=float, default=200.0, help="start nothing after that")
    options = parser.parse_args()
    if options.what == "judge":
        judge(options.folder)
        mixed(options.folder, options.runs)
        return 0
    if not collect(options.folder, options.seconds, options.temperature):
        print("not everything yet: call again", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
