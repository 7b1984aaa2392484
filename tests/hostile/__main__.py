"""The long form: `python -m tests.hostile [CAMPAIGN …]`: a table of what was tried; exit code 3 where anything failed."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from asked import Asked
from judging import Ended

CAMPAIGNS = (
    "bombs", "far", "models", "servers", "stores", "likes", "sites", "notebooks", "insides", "kits", "projects", "deletions",
    "watching", "surroundings", "carried", "kills",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("campaigns", nargs="*", default=list(CAMPAIGNS), metavar="CAMPAIGN", help=", ".join(CAMPAIGNS))
    parser.add_argument("--short", action="store_true", help="what CI runs")
    parser.add_argument("--quiet", action="store_true", help="only what did not do well")
    parser.add_argument("--seconds", type=float, default=0.0, help="begin nothing new after so many, in each campaign")
    parser.add_argument(
        "--first-seed", type=int, default=0, metavar="N", help="go on from here: of the cases, or of the seeds of kills"
    )
    parser.add_argument("--count", type=int, default=0, metavar="N", help="so many cases, or kills that hit")
    parser.add_argument(
        "--engine",
        default="fake",
        choices=("fake", "far", "cpu", "cpu-far"),
        help="whose processes are killed; far: through a real sshd",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="keeps what the run that is left alone came to, for further kills"
    )
    args = parser.parse_args()
    asked = Asked(args.short, args.first_seed, args.count, args.engine, args.keep)
    os.nice(10)
    rows, failed = [], 0
    for name in args.campaigns:
        campaign: Callable[[Asked], Iterator[Ended]] = import_module(name).campaign
        began, tried, bad, slowest, largest = time.monotonic(), 0, 0, 0.0, 0
        for ended in campaign(asked):
            tried += 1
            slowest, largest = max(slowest, ended.seconds), max(largest, ended.peak_mib)
            if not args.quiet and not ended.problems:
                print(ended.line(), flush=True)
            if ended.problems:
                bad += 1
                print(ended.line(), flush=True)
                print("    " + "\n    ".join(ended.err.strip().splitlines()[-6:]), flush=True)
            if args.seconds and time.monotonic() - began > args.seconds:
                break
        failed += bad
        rows.append((name, tried, tried - bad, bad, f"{slowest:.0f}", largest, f"{time.monotonic() - began:.0f}"))
        print("| {} | {} | {} | {} | {} s | {} MiB | {} s |".format(*rows[-1]), flush=True)
    print("\n| campaign | tried | good | not good | slowest | most memory | took |\n|---|---|---|---|---|---|---|")
    for row in rows:
        print("| {} | {} | {} | {} | {} s | {} MiB | {} s |".format(*row))
    return 3 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
