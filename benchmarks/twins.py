"""Twenty reported bugs as planted twins: how many are seen by tokens alone, by invariants, and by their condition.

    python benchmarks/twins.py FOLDER [--table] [--python ENGINE_PYTHON]

Each twin is named by its public threads and does what they say the engine did, under the condition that they name.
Those of which the fault lab can plant the like run on the real CPU engine (two starts, kept in FOLDER), and their
tokens are scored by it. The others change the books of a stand-in engine (tests/step_world.py), which has no model:
nothing is said of tokens there.

Columns: completions that were planted in, and how many of these tokens and scores alone find; planted row-steps,
and how many break an invariant at that very step and row, and row-steps accused besides; the condition that `parity
why` puts first, and whether it is the one that was planted (= first, ~ named with the first). docs/corpus.md is
`--table`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from fault_lab import Trial, judged, planted, run_trials
from parity_backends.vllm.cpu import CpuBackend
from step_world import World, changed

from parity.capture.steps import RowSteps, read_steps
from parity.explain.association import Association
from parity.explain.hypotheses import Form
from parity.explain.ledger import RESUMED, Ledger, Mask
from parity.explain.predicates import asked_of
from parity.explain.violations import check
from parity.view.why import explained

MOST = 12
"""Row-steps that a twin of the stand-in engine breaks, each of another request."""


@dataclass(frozen=True)
class Twin:
    """`condition`: the predicates that hold where it strikes; () where the threads name none that could be asked."""

    threads: str
    story: str
    condition: tuple[str, ...]
    fault: str = ""
    """For the fault lab."""
    change: Callable[[Ledger, RowSteps, int], RowSteps] | None = None
    """For the stand-in engine: the steps with the books of one row-step broken."""
    able: Callable[[Ledger], Mask] | None = None
    """Row-steps of the stand-in that it can break; all that decode without it."""


def number(name: str, new: Callable[[Ledger, int], int]) -> Callable[[Ledger, RowSteps, int], RowSteps]:
    return lambda ledger, steps, at: changed(steps, name, at, new(ledger, at))


def plus(name: str, by: int) -> Callable[[Ledger, RowSteps, int], RowSteps]:
    return number(name, lambda ledger, at: int(ledger.numbers(name)[at]) + by)


def other_count(ledger: Ledger, at: int) -> int:
    return int(ledger.numbers("accepted/1")[at]) % 3 + 1


def zeroed(ledger: Ledger, steps: RowSteps, at: int) -> RowSteps:
    return changed(steps, "inputs", at, [0] * len(steps.lists("inputs").row(at)))


def of_neighbour(name: str) -> Callable[[Ledger, RowSteps, int], RowSteps]:
    """What the row beside it has."""

    def change(ledger: Ledger, steps: RowSteps, at: int) -> RowSteps:
        row = int(steps.row[at])
        beside = at - 1 if row else at + 1
        own, other = steps.lists(name).row(at), steps.lists(name).row(beside)
        return changed(steps, name, at, (other + own)[: len(own)])

    return change


def table_off(ledger: Ledger, steps: RowSteps, at: int) -> RowSteps:
    steps = changed(steps, "table_off/0", at, 0)
    return changed(changed(steps, "table_found/0", at, 999), "table_own/0", at, 1)


def drafted(ledger: Ledger) -> Mask:
    found: Mask = (ledger.numbers("path/1") == 0) & ledger.running
    return found


def with_neighbour(ledger: Ledger) -> Mask:
    found: Mask = drafted(ledger) & (ledger.steps.rows[ledger.steps.step_index] > 1)
    return found


TWINS = (
    # ------------------------------------------------ through the fault lab
    Twin("vllm#45100", "a row that moved is taken up at another row's count of accepted tokens", ("moved",),
         "accepted_counts:when=moved"),
    Twin("vllm#53919", "the same where another request's prompt is computed in that step", ("moved", "mixed"),
         "accepted_counts:when=moved+mixed"),
    Twin("vllm#51571, vllm-ascend#13863", "counts of another row under churn, in the step after a rejection",
         ("rejected",), "accepted_counts:rate=0.3:when=rejected"),
    Twin("vllm-ascend#4930, vllm#30631", "speculative and other tokens are put apart by an unstable sort", (),
         "unstable_order:rate=0.3"),
    Twin("vllm#49918, vllm#53051", "a new request starts from the state of the slot's former owner", ("new",),
         "state_not_reset:rate=0.5"),
    Twin("vllm#14645", "tokens of another row where lengths of drafts are mixed", ("all accepted",),
         "row_swap:rate=0.2:when=accepted"),
    Twin("llama.cpp#28286", "another slot's content in a row that moved", ("moved",), "row_leak:when=moved:span=1"),
    Twin("vllm#46669", "garbage in a row beside a prompt", ("mixed",), "garbled_row:rate=0.3:span=1:when=mixed"),
    Twin("vllm#36872, vllm-ascend#17338", "rejected drafts are kept at healthy acceptance, at block boundaries",
         ("position % 16 == 0",), "unverified_drafts:when=boundary"),
    Twin("vllm#41493", "a sampled token becomes the end of the sequence after a step that took all drafts",
         ("all accepted",), "early_eos:rate=0.1:when=accepted"),
    Twin("tenstorrent/vllm#396", "the tokens of the step before are read again by a row that moved", ("moved",),
         "stale_chunk:when=moved"),
    Twin("TensorRT-LLM#3753", "a step's tokens are handed out twice", (), "chunk_twice:rate=0.1"),
    Twin("vllm-ascend#13863", "the bonus token of a fully accepted step is not handed out", (), "bonus_lost:rate=0.1"),
    # ------------------------------------------------ in the books of the stand-in engine
    Twin("vllm#55357, vllm#55375", "a strided view read with unit stride: row 0 right, the rows after it wrong",
         ("row 1",), change=number("accepted/1", other_count),
         able=lambda ledger: drafted(ledger) & (ledger.steps.row == 1)),
    Twin("vllm-ascend#8844", "what is computed again after preemption starts from a state that is not its own",
         ("prefill", "preempted"),
         change=number("initial/1", lambda ledger, at: 1 - int(ledger.numbers("initial/1")[at])),
         able=lambda ledger: ledger.numbers("arrival") == RESUMED),
    Twin("vllm#52071", "input ids and drafts are zeros in the step that follows the prompt", ("first decode",),
         change=zeroed, able=drafted),
    Twin("vllm-ascend#10032, vllm-ascend#12915", "sequence lengths count drafts that were rejected", ("rejected",),
         change=plus("sequence_length/0", 1), able=drafted),
    Twin("vllm#53142, vllm#55600", "a column of the block table is another's when a new block begins", ("new block",),
         change=table_off, able=drafted),
    Twin("sglang#18803, sglang#18744", "a recycled slot index: a row writes into its neighbour's state", ("moved",),
         change=of_neighbour("state_slots/1"), able=with_neighbour),
    Twin("vllm#43820", "positions are one off for a request that has just joined its drafts", ("first decode",),
         change=plus("position", 1), able=drafted),
)  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """Of one twin. `completions`: planted and found by tokens alone; None of the stand-in."""

    completions: tuple[int, int] | None
    row_steps: int
    located: int
    elsewhere: int
    first: Association | None
    sure: bool
    """The corrected p of the first is below 0.001."""
    hit: str
    """"=" the condition alone came first, "~" with others, "-" neither; "" where none is to be found."""


def hit(condition: tuple[str, ...], first: Association | None) -> str:
    if not condition or first is None:
        return "" if not condition else "-"
    if set(first.names) == set(condition):
        return "=" if not first.same else "~"
    return "~" if any(set(names) == set(condition) for names in first.same) else "-"


def in_lab(folder: Path, twin: Twin) -> Seen | None:
    """None where it has not run."""
    trial = trial_of(twin)
    if not (folder / trial.name / "scores.jsonl").exists():
        return None
    result = judged(folder, trial)
    starts = read_steps(folder / trial.name / "mtp.steps")
    found = {(one.step, one.request.engine_id) for steps in starts for one in check(steps).violations}
    due = {(int(one["step"]), str(one["request"])) for one in planted(folder / trial.name)}
    why = explained("cpu/mtp", starts, {}, {}).associated
    first = why.ranked[0] if why.ranked else None
    return Seen(
        (len(result.truths), len(result.caught)), len(due), len(due & found), len(found - due), first, why.sure,
        hit(twin.condition, first),
    )  # fmt: skip


def in_books(twin: Twin, seed: int = 31) -> Seen:
    world = World(seed, rows=6, steps=500, budget=20)
    steps = world.recorded()
    ledger = Ledger(steps)
    masks = asked_of(ledger)
    assert twin.change is not None
    able = drafted(ledger) if twin.able is None else twin.able(ledger)
    for name in twin.condition:
        able = able & masks[name]
    taken: dict[int, int] = {}
    places = np.flatnonzero(able).tolist()
    random.Random(seed).shuffle(places)
    for at in places:
        if len(taken) < MOST:
            taken.setdefault(int(ledger.request[at]), at)
    for at in taken.values():
        steps = twin.change(ledger, steps, at)
    found = {one.index for one in check(steps, world.prompts).violations}
    due = set(taken.values())
    why = explained("cpu/mtp", [steps], world.prompts, {}).associated
    first = why.ranked[0] if why.ranked else None
    return Seen(None, len(due), len(due & found), len(found - due), first, why.sure, hit(twin.condition, first))


def trial_of(twin: Twin) -> Trial:
    name = twin.fault.partition(":")[0]
    return Trial(twin.fault.replace(":", "-"), name, f"{twin.fault}:seed=3")


def line(twin: Twin, seen: Seen | None) -> str:
    where = "engine" if twin.fault else "stand-in"
    condition = " + ".join(twin.condition) or "-"
    if seen is None:
        return f"| {twin.threads} | {twin.story} | {where} | {condition} | not run | not run | not run | - |"
    tokens = "-" if seen.completions is None else f"{seen.completions[1]} of {seen.completions[0]}"
    between = " or " if seen.first is not None and seen.first.form is Form.EITHER else " + "
    first = "-" if seen.first is None else between.join(seen.first.names)
    if seen.first is not None and seen.first.same:
        first += f" (and {len(seen.first.same)})"
    return (
        f"| {twin.threads} | {twin.story} | {where} | {condition} | {tokens} | {seen.located} of {seen.row_steps}, "
        f"{seen.elsewhere} | {first} | {seen.hit or '-'} |"
    )


def summary(found: Mapping[Twin, Seen]) -> str:
    lab = [one for one in found.values() if one.completions is not None]
    planted_in = sum(one.completions[0] for one in lab if one.completions)
    caught = sum(one.completions[1] for one in lab if one.completions)
    steps, located = sum(one.row_steps for one in found.values()), sum(one.located for one in found.values())
    asked = [one for one in found.values() if one.hit]
    named = [one for one in asked if one.hit in "=~"]
    return (
        f"tokens alone: {caught} of {planted_in} completions; invariants: {located} of {steps} row-steps, "
        f"{sum(one.elsewhere for one in found.values())} elsewhere; condition first or named with the first: "
        f"{len(named)} of {len(asked)} ({sum(one.hit == '=' for one in asked)} alone)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--table", action="store_true", help="only the table, from what FOLDER holds")
    parser.add_argument("--python", type=Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    lab = [twin for twin in TWINS if twin.fault]
    missing = [trial_of(twin) for twin in lab if not (args.folder / trial_of(twin).name / "scores.jsonl").exists()]
    if missing and not args.table:
        settings = {"max_num_batched_tokens": 48}
        run_trials(args.python or CpuBackend().interpreter(print), args.folder, missing, settings)
    found = {twin: in_lab(args.folder, twin) if twin.fault else in_books(twin) for twin in TWINS}
    print("| threads | what it does | where | condition | tokens | invariants, elsewhere | first by `parity why` | |")
    print("|---|---|---|---|---|---|---|---|")
    for twin, seen in found.items():
        print(line(twin, seen))
    print()
    ran = {twin: seen for twin, seen in found.items() if seen is not None}
    print(summary(ran))
    summed = {twin.threads: [seen.located, seen.row_steps, seen.hit] for twin, seen in ran.items()}
    (args.folder / "twins.json").write_text(json.dumps(summed), encoding="utf-8")


if __name__ == "__main__":
    main()
