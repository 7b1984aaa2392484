"""Large captures that are not scored: what several processes that read them change.

    python benchmarks/large_captures.py [--completions 1000000] [--length 32] [--jobs 1,2] [--ray] [--text]
        [--folder DIR]

Makes up two captures with one pair in ten different, and runs `parity compare A B --json` with each number of jobs;
with --ray on the cluster $RAY_ADDRESS too. Says of each: seconds by the clock, seconds of a processor (of all
processes), and the most memory at once (PSS, looked at ten times a second: of all, and of the command's own process).
Answers that are not the same to the letter end it with exit code 1. Linux only. On a machine with other work the clock
says little.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from compare_speed import ARMS, VOCABULARY, damaged, header

from parity.capture import header_record


def make(folder: Path, count: int, length: int, *, text: bool) -> list[str]:
    """Both captures, completion by completion: none is held."""
    rng = np.random.default_rng(0)
    paths = [folder / "base.jsonl", folder / "mtp.jsonl"]
    files = [path.open("wb") for path in paths]
    for file, arm in zip(files, ARMS, strict=True):
        file.write(orjson.dumps(header_record(header(arm, length))) + b"\n")
    for index in range(count):
        prompt, tokens = rng.integers(3, VOCABULARY, 16), rng.integers(3, VOCABULARY, length)
        other = damaged(rng, tokens, (index // 10) % 10)[0] if index % 10 == 0 else tokens
        for file, stream in zip(files, (tokens, other), strict=True):
            row = {"record": "completion", "request": f"p{index}", "round": 0, "sample": 0}
            row |= {"prompt_token_ids": prompt.tolist(), "token_ids": stream.tolist()}
            row |= {"text": " ".join(map(str, stream)) if text else None, "finish_reason": "length"}
            file.write(json.dumps(row).encode() + b"\n")  # as others write it: with a space after each comma
    counters = ({}, {"num_drafts": 1000, "num_draft_tokens": 2000, "num_accepted_tokens": 1500})
    for file, counted in zip(files, counters, strict=True):
        footer = {"record": "footer", "completions": count, "scores": 0, "counters": counted}
        file.write(orjson.dumps(footer) + b"\n")
        file.close()
    return [str(path) for path in paths]


def pss(pid: int | str) -> int:
    """KiB; 0 where the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def children(pid: int) -> list[str]:
    try:
        return [one for path in Path(f"/proc/{pid}/task").glob("*/children") for one in path.read_text().split()]
    except OSError:
        return []


def measured(command: list[str], out: Path) -> dict[str, Any]:
    began = time.perf_counter()
    with out.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)
    all_of, own = 0, 0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        mine = pss(process.pid)
        own, all_of = max(own, mine), max(all_of, mine + sum(map(pss, children(process.pid))))
        time.sleep(0.1)
    return {
        "wall_s": time.perf_counter() - began,
        "processor_s": usage.ru_utime + usage.ru_stime,
        "peak_of_all_mib": all_of / 1024,
        "peak_of_own_mib": own / 1024,
        "exit_code": os.waitstatus_to_exitcode(status),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--completions", type=int, default=1_000_000)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--jobs", default="1,2")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--text", action="store_true")
    parser.add_argument("--folder", type=Path, help="keep the captures here")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = asked.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        files = make(folder, asked.completions, asked.length, text=asked.text)
        print(f"{asked.completions} x {asked.length}, {os.path.getsize(files[0]) / 1e6:.0f} MB a file", flush=True)
        ways = [["--jobs", jobs] for jobs in asked.jobs.split(",")] + ([["--ray"]] if asked.ray else [])
        answers = set()
        for way in ways:
            out = Path(name) / "out.json"
            said = measured([sys.executable, "-m", "parity", "compare", *files, "--json", *way], out)
            answers.add(out.read_bytes())
            print(" ".join(way), {key: round(value, 1) for key, value in said.items()}, os.getloadavg()[0], flush=True)
    return int(len(answers) > 1)


if __name__ == "__main__":
    sys.exit(main())
