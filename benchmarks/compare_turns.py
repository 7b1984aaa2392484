"""The compare stage of this commit and of another one, in turns: processor milliseconds a comparison.

    python benchmarks/compare_turns.py [--before COMMIT] [--turns 2] [--seconds 4]
    python benchmarks/compare_turns.py --alternately 60 [--completions 20480] [--before COMMIT]
    python benchmarks/compare_turns.py --files 20480x512 [--own-logprobs] [--before COMMIT] [--turns 2]

What is compared is what each commit's own compare_speed.py makes up: 2,048 mixed pairs, 2,048 equal pairs whose tokens
are still to be gathered, and four loops of 8,192 tokens of which one is lost. The median of three in compare_speed.py
hangs on what the memory is like; here each case repeats for some seconds. With `--alternately` it is the mixed pairs
alone, one comparison of each commit after the other, so many times: what else the machine does then hits both, and the
ratio of two that follow each other says most. With `--files` it is the whole command
(`parity compare --json`) on files of so many completions of so many tokens, one in ten different and scored: its
processor seconds and its peak memory, and how often both commits said the same to the letter.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from compare_speed import APART, keeping_modules
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


ALTERNATELY = """
import sys, time
sys.path.insert(0, sys.argv[1] + "/benchmarks")
import compare_speed as made
left, right, scores = made.captures(int(sys.argv[2]), 512, 0.1)
options = made.CompareOptions()
made.compare(left, right, scores, options)
print("ready", flush=True)
for _ in sys.stdin:
    began = time.process_time()
    made.compare(left, right, scores, options)
    print(time.process_time() - began, flush=True)
"""


WRITTEN = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1] + "/benchmarks")
import compare_speed as made
made.own_logprobs[0] = sys.argv[5] == "True"
made.write(Path(sys.argv[2]), *made.captures(int(sys.argv[3]), int(sys.argv[4]), 0.1))
"""


def environment(version: Path) -> dict[str, str]:
    path = os.pathsep.join((str(version), str(version / "backends")))
    return {**keeping_modules(), "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}


def commands(versions: list[Path], options: argparse.Namespace, scratch: Path) -> None:
    """The command on the same files, in turns."""
    count, length = options.files.split("x")
    make = [sys.executable, "-c", WRITTEN, str(versions[0]), str(scratch), count, length, str(options.own_logprobs)]
    subprocess.run(make, env=environment(versions[0]), cwd=scratch, check=True)
    files = ["base.jsonl", "mtp.jsonl", "--scores", "scores.jsonl"]
    said = set()
    for version in versions * options.turns:
        command = [sys.executable, "-c", APART, "out.json", sys.executable, "-m", "parity", "compare", *files, "--json"]
        run = subprocess.run(command, env=environment(version), cwd=scratch, stdout=subprocess.PIPE, check=True)
        _, seconds, peak = json.loads(run.stdout)
        said.add((scratch / "out.json").read_bytes())
        print(f"{options.files:18s} {version.name:8s} {seconds:7.2f} s, peak {peak * 1024 / 1e6:6.0f} MB", flush=True)
    print("all said the same" if len(said) == 1 else f"{len(said)} different answers")


class Stage:
    """The compare stage of one version, in a process that waits to be asked."""

    def __init__(self, version: Path, completions: int, scratch: Path) -> None:
        command = [sys.executable, "-c", ALTERNATELY, str(version), str(completions)]
        self._process = subprocess.Popen(
            command, env=environment(version), cwd=scratch, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._asked, self._said = self._process.stdin, self._process.stdout
        if self._said.readline() != "ready\n":
            raise SystemExit(f"{version.name}: does not compare")

    def milliseconds(self) -> float:
        """Of the processor, for one comparison."""
        print(file=self._asked, flush=True)
        return float(self._said.readline()) * 1e3

    def end(self) -> None:
        self._asked.close()
        self._process.wait()


def alternately(versions: list[Path], times: int, completions: int, scratch: Path) -> None:
    """Mixed pairs: the quickest twentieth and the median of each version, and of the ratios."""
    before, after = stages = [Stage(version, completions, scratch) for version in versions]
    found = []
    for turn in range(times):
        first, second = (before, after) if turn % 2 else (after, before)
        taken = {first: first.milliseconds(), second: second.milliseconds()}
        found.append((taken[before], taken[after]))
    for version, column in zip(versions, zip(*found, strict=True), strict=True):
        quick = sorted(column)[times // 20]
        print(f"{version.name:8s} {quick:7.1f} ms in the quickest twentieth, {statistics.median(column):7.1f} median")
    ratios = sorted(new / old for old, new in found)
    quarter, half, most = (ratios[int(share * (times - 1))] for share in (0.25, 0.5, 0.75))
    print(f"after / before: {half:.3f} in the median, {quarter:.3f} to {most:.3f} in half of {times}")
    for stage in stages:
        stage.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default="854910b", metavar="COMMIT")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--files", metavar="COUNTxLENGTH", help="the command on files of that size instead")
    parser.add_argument("--own-logprobs", action="store_true", help="files with the chosen tokens' own logprobs")
    parser.add_argument("--alternately", type=int, metavar="TIMES", help="mixed pairs, one commit after the other")
    parser.add_argument("--completions", type=int, default=20_480, help="for --alternately")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        versions = [tree(commit, Path(scratch) / commit, "benchmarks") for commit in (options.before, "HEAD")]
        if options.alternately:
            alternately(versions, options.alternately, options.completions, Path(scratch))
            return
        if options.files:
            commands(versions, options, Path(scratch))
        for case in CASES if not options.files else ():
            for version in versions * options.turns:
                command = [sys.executable, "-c", REPEATED, str(version), case, str(options.seconds)]
                told = subprocess.run(
                    command, env=environment(version), cwd=scratch, stdout=subprocess.PIPE, check=True
                )
                print(f"{case:18s} {version.name:8s} {float(told.stdout):7.1f} ms", flush=True)


if __name__ == "__main__":
    main()
