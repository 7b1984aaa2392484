"""What `parity compare` finds of faults planted one at a time in real completions.

    python benchmarks/planted.py [--world A|B] [--no-scores] [--rows N] [--misses]

The set is tests/data/planted.json.gz (tests/planted_set.py says what it holds). Columns: share of faulty
rows found, of right kinds (any finding of the row, the first finding of the row), of exactly right first
tokens, and in how many captures another row was accused. Plants that leave no trace at all (a whole period
taken out of a loop) are counted apart. `--rows`: each capture is cut to so many rows, and of these the candidate's that
differ are all that is scored.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from planted_set import Answer, ask, cases, clean, data

from parity.comparator import CompareOptions, compare
from parity.records import Severity


def share(answers: Sequence[Answer], name: str) -> str:
    return f"{100 * sum(bool(getattr(a, name)) for a in answers) / max(1, len(answers)):7.1f}"


def line(name: str, answers: Sequence[Answer]) -> str:
    columns = " ".join(share(answers, column) for column in ("found", "kind", "first_kind", "position"))
    return f"  {name:34s} {len(answers):4d} {columns} {sum(a.accused > 0 for a in answers):8d}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", choices=sorted(data()["worlds"]), action="append")
    parser.add_argument("--no-scores", action="store_true")
    parser.add_argument("--rows", type=int, help="so many rows of each capture, the candidate's that differ scored")
    parser.add_argument("--misses", action="store_true", help="list what was not found or wrongly named")
    options = parser.parse_args()
    for world in options.world or sorted(data()["worlds"]):
        baseline, candidate, scores = clean(world)
        result = compare(baseline, candidate, {} if options.no_scores else scores, CompareOptions())
        wrong = [f for f in result.findings if f.severity is Severity.CORRUPT]
        tokens = sum(len(c.token_ids) for c in candidate)
        print(f"world {world}: undamaged, {tokens} tokens: {result.verdict}, {len(wrong)} corrupt findings")
        answers = [ask(case, with_scores=not options.no_scores, rows=options.rows) for case in cases(world)]
        seen = [a for a in answers if not a.case.traceless]
        print(f"  {'fault':34s}    n   found    kind   first   place  accused")
        for name in sorted({a.case.fault for a in seen}):
            print(line(name, [a for a in seen if a.case.fault == name]))
        print(line("all", seen))
        for flag, text in ((False, "before any near-tie"), (True, "after a near-tie")):
            print(line(text, [a for a in seen if a.case.after_near_tie is flag]))
        print(line("in a loop", [a for a in seen if a.case.in_loop]))
        print(line("without a trace", [a for a in answers if a.case.traceless]))
        for answer in seen if options.misses else ():
            if not (answer.found and answer.kind and answer.position and not answer.accused):
                case = answer.case
                print(
                    f"  {case.fault} {case.key.request} at {sorted(case.positions)}: right {case.kinds}, "
                    f"said {answer.said}, accused {answer.accused}"
                )


if __name__ == "__main__":
    main()
