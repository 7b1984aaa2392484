"""What a command costs before it has anything to do, beside an earlier version, in turns.

    python benchmarks/start_speed.py [--before 854910b] [--runs 15]

Both versions are taken from git (`HEAD`, and the commit given), with their bytecode compiled, and run by this
interpreter. In turns, so that other work on the machine meets both: `import parity`, `parity --help`, `parity compare`
of 16 completions of 64 tokens. Seconds of a processor (user and system): the least and the median of the runs.
"""

from __future__ import annotations

import argparse
import compileall
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from io import BytesIO
from pathlib import Path

import compare_speed

ROOT = Path(__file__).parents[1]
ENTRY = ["-m", "parity"]


def tree(commit: str, folder: Path, *more: str) -> Path:
    """The packages of a commit, with bytecode, so that what is measured is what an installed version does; and `more`
    directories."""
    command = ["git", "archive", commit, "parity", "backends", *more]
    packed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    compileall.compile_dir(folder, quiet=2, workers=1)
    return folder


def seconds(version: Path, arguments: list[str]) -> float:
    path = os.pathsep.join((str(version), str(version / "backends")))
    environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if (code := os.waitstatus_to_exitcode(status)) not in (0, 1, 4):
        raise SystemExit(f"{arguments} with {version.name}: exit code {code}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default="854910b", metavar="COMMIT")
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        versions = [tree(commit, folder / commit) for commit in (options.before, "HEAD")]
        (folder / "files").mkdir()
        baseline, candidate, scores = compare_speed.write(folder / "files", *compare_speed.captures(16, 64, 0.25))
        cases = {
            "import parity": ["-c", "import parity"],
            "parity --help": [*ENTRY, "--help"],
            "parity compare, 16 completions": [*ENTRY, "compare", baseline, candidate, "--scores", scores],
        }
        found: dict[tuple[str, str], list[float]] = defaultdict(list)
        for _ in range(options.runs):
            for case, arguments in cases.items():
                for version in versions:
                    found[case, version.name].append(seconds(version, arguments))
    for (case, version), measured in found.items():
        print(f"{case:32s} {version:8s} least {min(measured):.3f} s, median {statistics.median(measured):.3f} s")


if __name__ == "__main__":
    main()
