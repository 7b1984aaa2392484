"""Faults planted in what an NVIDIA H200 said, judged by vLLM on a CPU: found, named, and who else is accused.

    python benchmarks/other_hardware.py [--seed 0] [--each 8] [--out DIRECTORY] [--logprobs]

The completions are those of tests/data/h200 (vLLM 0.23.0 with two drafts, 64 prompts × 4 copies × 48 tokens). Of each
fault of tests/planting.py that fits, `--each` rows are damaged, one fault a row. What follows is the sound text, since
no engine goes on. The damaged capture is replayed; `cpu/base` (the engine environment `cpu`) answers the same prompts
and scores it. So does another start with the sound capture, as the control. `--logprobs`: sound rows keep their own.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from planting import (
    Plant,
    Row,
    capture_records,
    cut_short,
    duplication,
    garbled,
    invalid_token,
    loop,
    omission,
    row_leak,
    substitution,
)

from parity.capture import read_capture
from parity.capture.sealing import sealed
from parity.records import Capture

DATA = Path(__file__).resolve().parents[1] / "tests" / "data" / "h200"
FAULTS = ("substitution", "garbled", "duplication", "omission", "loop", "cut short", "row leak", "rest of another",
          "invalid token")  # fmt: skip


def rows_of(capture: Capture) -> list[Row]:
    return [
        Row(one.key.request, [*map(int, one.prompt_token_ids)], [*map(int, one.token_ids)], sample=one.key.sample,
            finish_reason=one.finish_reason, stop_reason=one.stop_reason,
            logprobs=one.logprobs and [[[int(i), float(v)] for i, v in zip(ids, values, strict=True)]
                                       for ids, values in zip(one.logprobs.ids, one.logprobs.values, strict=True)])
        for one in capture
    ]  # fmt: skip


def plant(fault: str, rng: random.Random, row: Row, others: list[Row], vocabulary: range) -> Plant:
    limit = len(row.tokens)
    place = rng.randrange(8, limit - 12)
    donor = rng.choice([one for one in others if one.request != row.request and len(one.tokens) >= limit])
    match fault:
        case "substitution":
            return substitution(rng, row, place, vocabulary)
        case "garbled":
            return garbled(rng, row, place, vocabulary, 4)
        case "duplication":
            return duplication(row, place, 3, limit)
        case "omission":
            return omission(row, place, 2)
        case "loop":
            return loop(rng, row, place, 3, None)
        case "cut short":
            return cut_short(row, place, "length")
        case "row leak":
            return row_leak(row, place, donor, place, 6)
        case "rest of another":
            return row_leak(row, place, donor, place, limit - place)
        case _:
            return invalid_token(row, place, 1 << 20)


def plants(rng: random.Random, rows: list[Row], each: int) -> Iterator[Plant]:
    """One of each fault in turn, each in a row of its own that is long enough."""
    free = [row for row in rows if len(row.tokens) >= 32]
    rng.shuffle(free)
    for _ in range(each):
        for fault in FAULTS:
            while free:
                made = plant(fault, rng, free.pop(), rows, range(3, 2000))
                if made.visible:
                    yield replace(made, fault=fault)
                    break


def write(path: Path, header: dict[str, Any], rows: list[Row]) -> Path:
    lines = (json.dumps(record, separators=(",", ":")).encode() + b"\n" for record in capture_records(rows, header))
    path.write_bytes(b"".join(map(sealed, lines)))
    return path


def judged(capture: Path, out: Path) -> dict[str, Any]:
    """The run's result; raises CalledProcessError where it has none."""
    command = [sys.executable, "-m", "parity", "run", "--backends", "cpu", "--variants", "base"]
    command += ["--replay", f"h200={capture}", "--out", str(out), "--db", str(out) + ".db"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1, 4):
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    arms = json.loads((out / "result.json").read_text(encoding="utf-8"))["arms"]
    return next(iter(arms.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", type=int, default=8)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--logprobs", action="store_true", help="sound rows keep their own logprobs")
    args = parser.parse_args()
    out = args.out or Path(tempfile.mkdtemp(prefix="parity-h200-"))
    out.mkdir(parents=True, exist_ok=True)
    capture = read_capture(DATA / "cuda-mtp.jsonl.gz")
    with gzip.open(DATA / "cuda-mtp.jsonl.gz") as file:
        header = json.loads(file.readline())
    for name in ("record", "schema", "crc32", "steps"):
        header.pop(name, None)
    rows = rows_of(capture)
    if not args.logprobs:
        rows = [replace(row, logprobs=None) for row in rows]
    planted = list(plants(random.Random(args.seed), rows, args.each))
    damaged = {(one.row.request, one.row.sample): one for one in planted}
    faulty = [damaged[row.request, row.sample].row if (row.request, row.sample) in damaged else row for row in rows]
    sound = judged(write(out / "sound.jsonl", header, rows), out / "sound")
    print(f"sound: {sound['verdict']}, {sum(one['severity'] == 'corrupt' for one in sound['findings'])} accused")
    found = judged(write(out / "faulty.jsonl", header, faulty), out / "faulty")
    print(f"faulty: {found['verdict']}")
    accused: dict[tuple[str, int], set[str]] = defaultdict(set)
    for one in found["findings"]:
        if one["severity"] == "corrupt":
            accused[one["request"], one["sample"]].add(one["kind"])
    print("| fault | rows | found | a right kind |\n|---|---|---|---|")
    for fault in FAULTS:
        ours = [one for one in planted if one.fault == fault]
        kinds = [accused.get((one.row.request, one.row.sample), set()) for one in ours]
        right = sum(bool(said & set(one.kinds)) for one, said in zip(ours, kinds, strict=True))
        print(f"| {fault} | {len(ours)} | {sum(map(bool, kinds))} | {right} |")
    print(f"rows accused without a fault: {len(set(accused) - set(damaged))} of {len(rows) - len(damaged)}")


if __name__ == "__main__":
    main()
