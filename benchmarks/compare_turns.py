"""The compare stage of this commit and of another one, in turns: processor milliseconds a comparison.

    python benchmarks/compare_turns.py [--before COMMIT] [--turns 2] [--seconds 4]

What is compared is what each commit's own compare_speed.py makes up: 2,048 mixed pairs, 2,048 equal pairs whose tokens
are still to be gathered, and four loops of 8,192 tokens of which one is lost. The median of three in compare_speed.py
hangs on what the memory is like; here each case repeats for some seconds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from start_speed import tree

CASES = ("mixed", "equal, first time", "loops")

REPEATED = """
import sys, time
sys.path.insert(0, sys.argv[1] + "/benchmarks")
import compare_speed as made
case = sys.argv[2]
if case == "loops":
    left, right, scores = list(made.hard_cases(8192))[1][1:]
else:
    left, right, scores = made.captures(2048, 512, 0.1 if case == "mixed" else 0.0)
first, options, count = case.startswith("equal"), made.CompareOptions(), 0
began = time.process_time()
while time.process_time() < began + float(sys.argv[3]):
    made.compare(*(made.anew(left, right) if first else (left, right)), scores, options)
    count += 1
print((time.process_time() - began) / count * 1e3)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default="854910b", metavar="COMMIT")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        versions = [tree(commit, Path(scratch) / commit, "benchmarks") for commit in (options.before, "HEAD")]
        for case in CASES:
            for version in versions * options.turns:
                path = os.pathsep.join((str(version), str(version / "backends")))
                environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
                command = [sys.executable, "-c", REPEATED, str(version), case, str(options.seconds)]
                told = subprocess.run(command, env=environment, cwd=scratch, stdout=subprocess.PIPE, check=True)
                print(f"{case:18s} {version.name:8s} {float(told.stdout):7.1f} ms", flush=True)


if __name__ == "__main__":
    main()
