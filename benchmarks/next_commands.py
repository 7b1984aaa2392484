"""Do the commands that an INCONCLUSIVE run offers decide it? Runs them.

    python benchmarks/next_commands.py [--backend cpu] [--only WORD] [--most 3]

Each case is a run, or a comparison of its captures, that ends INCONCLUSIVE on a real engine. The first command that it
offers is run as it stands, up to --most times in a row, until the verdict is another or nothing is offered. Prints one
row a case: what was open, the command, and what came of it.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SHORT = ["--suite", "smoke", "--max-tokens", "24", "--no-rehearse", "--variants", "base,mtp"]
DRAWN = [*SHORT, "--temperature", "0.8", "--n", "4"]

CASES: dict[str, list[str]] = {
    "greedy, not scored": [*SHORT, "--max-tokens", "48", "--suite", "mixed", "--score", "none"],
    "drawn, not scored": [*DRAWN, "--score", "none"],
    "drawn, only differing ones scored": [*DRAWN, "--score", "differing"],
    "tolerance of nothing": [*SHORT, "--tolerance", "0"],
}
"""Options of `parity run`; those that are none of a release are reported, not left out."""

FILES = {"two files, not scored": "greedy, not scored"}
"""Comparisons of the captures of another case, without its plan."""


def parity(words: Sequence[str], limit: float) -> tuple[int, dict[str, Any], str]:
    """(exit code, what `--json` says, stderr)."""
    done = subprocess.run(
        [sys.executable, "-m", "parity", *words], capture_output=True, text=True, timeout=limit, check=False
    )
    try:
        found = json.loads(done.stdout)
    except json.JSONDecodeError:
        found = {}
    return done.returncode, found, done.stderr


def open_reasons(found: dict[str, Any]) -> list[str]:
    return [str(one) for one in found.get("reasons") or ()]


def follow(name: str, words: list[str], most: int, limit: float) -> None:
    for turn in range(most + 1):
        begun = time.monotonic()
        code, found, said = parity(words, limit)
        verdict = found.get("verdict")
        print(f"{name}: {shlex.join(words)}")
        print(f"    exit {code}, {verdict}, {time.monotonic() - begun:.0f} s: {'; '.join(open_reasons(found))[:300]}")
        if verdict is None:
            print(f"    {said.strip()[-400:]}")
        offered = [one for one in found.get("next") or () if one.get("command")]
        if verdict != "INCONCLUSIVE" or not offered or turn == most:
            if verdict == "INCONCLUSIVE":
                print("    OPEN: nothing is offered" if not offered else "    OPEN")
            return
        words = [*shlex.split(offered[0]["command"])[1:]]
        words += [] if "--json" in words else ["--json"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--only", default="")
    parser.add_argument("--most", type=int, default=2)
    parser.add_argument("--limit", type=float, default=600, help="seconds a command")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as where:
        root = Path(where)
        for number, (name, options) in enumerate(CASES.items()):
            if asked.only in name or any(asked.only in one for one, of in FILES.items() if of == name):
                out, db = str(root / f"{number}"), str(root / "parity.db")
                words = ["run", "--backends", asked.backend, *options, "--out", out, "--db", db, "--json"]
                follow(name, words, asked.most, asked.limit)
                for other in (one for one, of in FILES.items() if of == name):
                    files = [str(Path(out) / f"{asked.backend}-{arm}.jsonl") for arm in ("base", "mtp")]
                    follow(other, ["compare", *files, "--json"], asked.most, asked.limit)


if __name__ == "__main__":
    main()
