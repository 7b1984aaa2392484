"""What the fault tests say on machines that round otherwise: every fault under noise and in other batch shapes.

    python benchmarks/other_rounding.py FOLDER [--noise 0 1 2 3 4 5] [--seqs 4] [--python ENGINE_PYTHON]

A fault in the recurrent state shows in a token or not as the processor rounds. Here each fault of the lab is planted
while every logit of every step moves by up to one unit in the last place of bf16 (`noise`, a seed; 0 for none), and
in batches of another size (`max_num_seqs`), as in tests/engine/test_faults.py. Exit code 1 where one of that test's
claims would not hold. Every FOLDER/seqsN keeps captures and logs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from parity_backends.vllm.cpu import CpuBackend

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from fault_lab import OF_STATE, RATES, Case, Outcome, run_until_damaged

CONTROLS = ("none", "logits_noise")
HEADS = ("fault", "seqs", "noise", "attempts", "planted", "damaged", "caught", "accused", "kind", "token", "verdicts")


def row(outcome: Outcome, seqs: int) -> tuple[str, ...]:
    judged = outcome.judgements
    caught = sum(len(one.caught) for one in judged)
    numbers = (len(judged), sum(len(one.truths) for one in judged), outcome.damaged, caught)
    accused = sum(len(one.accused) for one in judged)
    kind, token = (sum(len(getattr(one, name)) for one in judged) for name in ("right_kind", "right_token"))
    verdicts = " ".join(one.verdict for one in judged)
    return (outcome.case.fault, *map(str, (seqs, outcome.case.noise, *numbers, accused, kind, token)), verdicts)


def wrong(outcome: Outcome) -> str | None:
    """Which claim of the test does not hold."""
    for one in outcome.judgements:
        if outcome.case.fault in CONTROLS:
            if one.verdict != "PASS" or one.found:
                return f"{one.verdict}: {one.found}"
        elif len(one.caught) != len(one.damaged):
            return f"caught {len(one.caught)} of {len(one.damaged)}"
        elif one.accused:
            return f"accused {one.accused}"
        elif not one.truths:
            return "nothing was planted"
    return None if outcome.case.fault in CONTROLS or outcome.damaged else "no planted row came out damaged"


def shares(outcomes: list[Outcome]) -> tuple[float, float]:
    """Of the rows that were caught: right kind and right token, without the faults of a state."""
    judged = [one for outcome in outcomes if outcome.case.fault in RATES for one in outcome.judgements]
    judged = [one for one in judged if one.fault not in OF_STATE]
    caught = sum(len(one.caught) for one in judged) or 1
    return (
        sum(len(one.right_kind) for one in judged) / caught,
        sum(len(one.right_token) for one in judged) / caught,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--noise", type=int, nargs="+", default=[0, 1, 2, 3, 4, 5])
    parser.add_argument("--seqs", type=int, nargs="+", default=[4], help="max_num_seqs of the speculating engine")
    parser.add_argument("--python", type=Path, help="interpreter with vLLM (default: the environment of `parity env`)")
    options = parser.parse_args()
    python = options.python or CpuBackend().interpreter(lambda text: print(text, file=sys.stderr))
    failures = 0
    print("| " + " | ".join(HEADS) + " |\n|" + "---|" * len(HEADS))
    for seqs in options.seqs:
        folder = (options.folder / f"seqs{seqs}").resolve()
        folder.mkdir(parents=True, exist_ok=True)
        cases = [Case(fault, noise) for noise in options.noise for fault in (*RATES, *CONTROLS)]
        outcomes = run_until_damaged(python, folder, cases, {"max_num_seqs": seqs})
        for outcome in outcomes:
            print("| " + " | ".join(row(outcome, seqs)) + " |", flush=True)
        for noise in options.noise:
            kind, token = shares([one for one in outcomes if one.case.noise == noise])
            print(f"seqs {seqs}, noise {noise}: right kind {kind:.1%}, right token {token:.1%}")
            failures += kind < 0.75 or token < 0.9
        for outcome in outcomes:
            if why := wrong(outcome):
                failures += 1
                print(f"FAILED {outcome.case.fault}, noise {outcome.case.noise}, seqs {seqs}: {why}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
