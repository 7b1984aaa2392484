"""How well sketches find planted faults of single modules, and how often they accuse a healthy run.

    python benchmarks/locating.py FOLDER [--sizes 100,300,1000,3000] [--faults a,b] [--runs 1000] [--measured]

Starts the CPU engine twice (the fault lab: one with speculation that runs every fault, one without that computes the
same sequences as prefills), and prints for each fault and size how many completions it was planted in, how far the
planted module moved (the median), how many came after a router's flip, how many were accused, at the token where they
were planted, with the right module first, and how many others were accused. `--measured` only reads what an earlier
call left in FOLDER.

Then clean completions are drawn with replacement into `--runs` runs, and accusations are counted.

    python benchmarks/locating.py RUN --arm cpu-mtp

Of an arm of `parity run --sketch` without a fault: how far off each module must be to be accused, and the same drawing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from fault_lab import ENGINE, SPECULATION, planted, run_job, short_requests
from parity_backends.vllm.cpu import CpuBackend
from parity_backends.vllm.local import worker_source

from parity.capture import read_capture
from parity.capture.sketches import Sketches, read_sketches
from parity.explain.aligned import Aligned, align
from parity.explain.located import Locating, locate, locate_drafter
from parity.explain.noise import QUANTUM, after_flips, judge
from parity.records import Key

FAULTS = {
    "norm_off": 0.03, "gates_off": 0.03, "gdn_state_off": 0.03, "conv_state_off": 0.03, "kv_entry_off": 0.03,
    "kv_head_off": 0.03, "rope_row_off": 0.03, "attention_off": 0.03, "mlp_off": 0.03, "experts_off": 0.03,
    "router_off": 0.03, "lm_head_off": 0.03, "drafter_off": 0.03, "drafter_input_off": 0.03,
}  # fmt: skip
OTHERS = {"accepted_counts": 0.1, "state_not_reset": 0.5, "garbled_row": 0.02, "row_swap": 0.05}
OF_PROMPTS = ("state_not_reset",)
"""Begin with the first token of the prompt."""
CLEAN = ("clean-a", "clean-b", "clean-c")


def made(folder: Path, faults: dict[str, float], sizes: list[int]) -> None:
    backend = CpuBackend()
    model, interpreter = backend.default_model(), backend.interpreter(print)
    assert model is not None
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "worker.py"
    source.write_bytes(worker_source())
    requests = short_requests(model)
    captures = [
        {"name": name, "fault": "none", "requests": shifted(requests, 7 * number)} for number, name in enumerate(CLEAN)
    ]
    for fault, rate in faults.items():
        for size in sizes if fault in FAULTS else [0]:
            text = f"{fault}:rate={rate}:seed=3" + (f":permille={size}" if size else "")
            captures.append({"name": f"{fault}-{size}", "fault": text})
    job = {
        "model": str(model), "sampling": {"temperature": 0.0, "max_tokens": 40}, "requests": requests,
        "vocab_size": 2048, "eos_token_ids": [0], "sketcher": str(source),
    }  # fmt: skip
    if not all((folder / one["name"] / "mtp.jsonl").exists() for one in captures):
        run_job(interpreter, folder, "mtp", {**job, "engine": {**ENGINE, **SPECULATION}, "captures": captures})
    score = [[one["name"], "none"] for one in captures]
    base = [{"name": "none", "fault": "none"}]
    run_job(interpreter, folder, "base", {**job, "engine": ENGINE, "captures": base, "score": score})


def shifted(requests: list[dict[str, Any]], by: int) -> list[dict[str, Any]]:
    """Others of the same lengths and vocabulary: each prompt's tokens in another order, and another batch."""
    if not by:
        return requests
    turned = [
        {
            "id": one["id"],
            "prompt_token_ids": [*one["prompt_token_ids"][by % 5 + 1 :], *one["prompt_token_ids"][:by]][:49],
        }
        for one in requests
    ]
    return [one for one in turned[by:] + turned[:by] if len(one["prompt_token_ids"]) > 1]


def aligned(folder: Path, name: str, reference: tuple[Sketches, ...]) -> Aligned:
    return align(read_capture(folder / name / "mtp.jsonl"), read_sketches(folder / name / "mtp.sketches"), reference)


def of_drafter(folder: Path, name: str) -> Aligned:
    """The drafter's steps beside its own prefill."""
    sketches = read_sketches(folder / name / "mtp.sketches")
    steps, again = ([one for one in sketches if one.header.prefill is prefill] for prefill in (False, True))
    return align(read_capture(folder / name / "mtp.jsonl"), steps, again, drafter=True)


def has_drafter(folder: Path, name: str) -> bool:
    """Captures of earlier versions have none."""
    return any(one.header.prefill for one in read_sketches(folder / name / "mtp.sketches"))


def first_planted(folder: Path, name: str) -> dict[str, dict[str, Any]]:
    """The first planting of each completion, by its request."""
    sketches = read_sketches(folder / name / "mtp.sketches")
    names = {one.engine_id: one.request for start in sketches for one in start.requests.values()}
    found: dict[str, dict[str, Any]] = {}
    for one in planted(folder / name):
        found.setdefault(str(names.get(one["request"])), one)
    return found


def judged(folder: Path, name: str, reference: tuple[Sketches, ...]) -> list[Any]:
    """A row of the table: how far the plantings moved their module, and how many were found, where and as what."""
    pairs, first = aligned(folder, name, reference), first_planted(folder, name)
    answer = locate(pairs)
    if name.startswith("drafter"):
        pairs = of_drafter(folder, name)
        answer = locate_drafter(pairs)
    found = {one.key.request: one for one in answer.located}
    by_request = {key.request: number for number, key in enumerate(pairs.keys)}
    states = after_flips(pairs)
    moved, seen, flipped, at_token, right = [], 0, 0, 0, 0
    for request, one in first.items():
        at, module = one.get("at"), one.get("module")
        prompt = int(pairs.prompt_tokens[by_request[request]])
        row = np.flatnonzero((pairs.completion == by_request[request]) & (pairs.position == (at or 0)))
        place = [number for number, each in enumerate(pairs.modules) if each.name == module]
        if at is not None and place and len(row):
            moved.append(float(pairs.distance[row[0], place[0]]))
            flipped += int(states[row[0], place[0]] != 0)
        got = found.get(request)
        if got is None:
            continue
        seen += 1
        expected = at if at is not None else prompt - 1 + one["position"]
        if one["fault"] in OF_PROMPTS:
            expected = 0
        at_token += int(got.position == expected)
        right += int(got.module == module or (module is None and got.position == expected))
    size = f"{np.median(moved):.2g}" if moved else ""
    return [name, len(first), size, flipped, seen, at_token, right, len(found.keys() - first.keys())]


def resampled(every: list[Aligned], locate: Callable[[Aligned], Locating], runs: int, size: int) -> tuple[int, int]:
    """Clean completions drawn with replacement into runs of so many: runs with an accusation, and completions drawn
    from."""
    pool = [(one, rows) for one in every for rows in _rows_of_each(one)]
    rng, accused = np.random.default_rng(0), 0
    for _ in range(runs):
        accused += bool(locate(together([pool[int(at)] for at in rng.integers(len(pool), size=size)])).located)
    return accused, len(pool)


def _rows_of_each(one: Aligned) -> list[np.ndarray]:
    return [np.flatnonzero(one.completion == number) for number in range(len(one.keys))]


def together(parts: list[tuple[Aligned, np.ndarray]]) -> Aligned:
    """One run of these completions, each under a name of its own."""
    of_tokens = ("position", "step", "row", "distance", "flipped", "gap", "best", "reference_best", "follows")
    joined = {name: np.concatenate([getattr(one, name)[rows] for one, rows in parts]) for name in of_tokens}
    numbers = [int(one.completion[rows[0]]) for one, rows in parts]
    return replace(
        parts[0][0],
        keys=tuple(Key(f"c{number}", 0, 0) for number in range(len(parts))),
        completion=np.repeat(np.arange(len(parts)), [len(rows) for _, rows in parts]),
        prompt_tokens=np.array([one.prompt_tokens[at] for (one, _), at in zip(parts, numbers, strict=True)]),
        plain=np.array([one.plain[at] for (one, _), at in zip(parts, numbers, strict=True)]),
        unpaired={},
        **joined,
    )


def needed(pairs: Aligned, module: int) -> float:
    """How far off a module must be, relative to its size, where all before it is as it mostly is; NaN where it says
    nothing."""
    found = judge(pairs)
    excess, distance = found.excess[:, module], pairs.distance[:, module]
    known = np.isfinite(excess) & (distance > QUANTUM) & (abs(excess) > 0.5)
    if not known.any():
        return float("nan")
    usual = float(np.nanmedian(found.usual[:, module]))
    spread = float(np.median(np.log(distance[known] / usual) / excess[known]))
    beyond = float(np.median(found.level)) + float(np.nanmedian(found.before[:, module]))
    return usual * float(np.exp(beyond * spread))


def of_run(folder: Path, arm: str, runs: int, size: int) -> None:
    """What is said of an arm of a run."""
    capture, sketches = read_capture(folder / f"{arm}.jsonl"), read_sketches(folder / f"{arm}.sketches")
    steps, again = ([one for one in sketches if one.header.prefill is prefill] for prefill in (False, True))
    target = align(capture, steps, read_sketches(folder / "scores.sketches"))
    drafter = [align(capture, steps, again, drafter=True)] if again else []
    for whose, every, judge_it in (("target", [target], locate), ("drafter", drafter, locate_drafter)):
        for pairs in every:
            own = [number for number, one in enumerate(pairs.modules) if one.drafter == (whose == "drafter")]
            for number in own:
                print(f"{pairs.modules[number].name}: off by {needed(pairs, number):.2g}")
            accused, pool = resampled([pairs], judge_it, runs, size)
            print(f"{whose}: {accused} of {runs} runs of {size} completions accused, drawn from {pool}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", default="100,300,1000,3000", help="thousandths")
    parser.add_argument("--faults", default=",".join([*FAULTS, *OTHERS]))
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--size", type=int, default=24, help="completions of a resampled run")
    parser.add_argument("--measured", action="store_true", help="read what is in the folder")
    parser.add_argument("--arm", help="FOLDER is a run's, and this an arm of it, as its files are called")
    asked = parser.parse_args()
    if asked.arm:
        of_run(asked.folder, asked.arm, asked.runs, asked.size)
        return
    rates = {**FAULTS, **OTHERS}
    if not asked.measured:
        chosen = {one: rates[one] for one in asked.faults.split(",") if one}
        made(asked.folder, chosen, [int(size) for size in asked.sizes.split(",")])
    reference = read_sketches(asked.folder / "scores.sketches")
    titles = ("fault-size", "planted", "distance", "after a flip", "accused", "at its token", "right module", "others")
    print("| " + " | ".join(titles) + " |")
    print("|" + "---|" * len(titles))
    for path in sorted(asked.folder.glob("*/mtp.sketches")):
        print("| " + " | ".join(str(one) for one in judged(asked.folder, path.parent.name, reference)) + " |")
    target = [aligned(asked.folder, name, reference) for name in CLEAN]
    drafter = [of_drafter(asked.folder, name) for name in CLEAN if has_drafter(asked.folder, name)]
    for whose, every, judge_it in (("target", target, locate), ("drafter", drafter, locate_drafter)):
        accused, pool = resampled(every, judge_it, asked.runs, asked.size) if every else (0, 0)
        print(f"{whose}: {accused} of {asked.runs} runs of {asked.size} clean completions accused, drawn from {pool}")


if __name__ == "__main__":
    main()
