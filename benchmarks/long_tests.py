"""The tests that `make test` leaves out for their length: real engines for a minute and more (marked `long`).

    python benchmarks/long_tests.py

Prints pytest's own lines, and at the end how many passed and failed; ends as pytest does.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    command = [sys.executable, "-m", "pytest", "-m", "long"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        assert process.stdout is not None
        last = ""
        for last in process.stdout:
            print(last, end="", flush=True)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", last)}
    print(f"{counts.get('passed', 0)} long tests passed, {counts.get('failed', 0) + counts.get('error', 0)} failed")
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
