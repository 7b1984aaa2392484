"""20,480 generations an arm on the real engine, as one command, killed in the middle and resumed.

    python benchmarks/experiment.py [--rounds 40] [--kills 2] [--whole] [--out DIRECTORY]

64 prompts × 8 samples × `--rounds` rounds of up to 64 tokens for two arms that differ in `max_num_seqs`. The prompts
are the first 16 tokens of those of the suite `mixed`, and outputs have 8 to 64 tokens, so that two cores need minutes,
not hours. parity is killed with SIGKILL `--kills` times, at equal shares of the completions, and resumed; then the
table is printed, and the peak of parity's own memory (`VmHWM`). With `--whole` the same is run once more without
interruption and the two tables are compared.

Uses the `cpu` backend as `parity run` would ($PARITY_CPU_PYTHON, or the managed environment). The exit code is 1 when
the tables differ, or when a killed parity left a process behind.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SAMPLES, PROMPTS, MAX_TOKENS, PROMPT_TOKENS = 8, 64, 64, 16
ARMS = ("cpu-k=0+seqs=128.jsonl", "cpu-k=0+seqs=256.jsonl")


def parity(home: Path, *args: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "parity", *args], env=environment(home), text=True, capture_output=True, **more
    )


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "PARITY_HOME": str(home), "PARITY_LANG": "en"}


def short_prompts(home: Path) -> Path:
    """A prompt file with the beginnings of the suite's prompts, made from a plan of it."""
    plan, prompts = home / "mixed.json", home / "prompts.jsonl"
    done = parity(home, "plan", "--backends", "cpu", "--max-tokens", "1", "-o", str(plan))
    if done.returncode:
        raise SystemExit(done.stderr)
    requests = json.loads(plan.read_text(encoding="utf-8"))["requests"][:PROMPTS]
    lines = [{"id": r["id"], "prompt_token_ids": r["prompt_token_ids"][:PROMPT_TOKENS]} for r in requests]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return prompts


def completions(run: Path) -> int:
    return sum(path.read_bytes().count(b'"record":"completion"') for name in ARMS if (path := run / name).is_file())


def peak_mib(pid: int) -> int:
    """VmHWM: the most memory that the process has ever had. 0 where there is no such process any more."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)


def workers_of(mark: str) -> list[int]:
    """Processes whose environment names this home: what a killed parity may have left behind."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes() and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def play(home: Path, prompts: Path, rounds: int, kills: int) -> tuple[dict[str, Any], str, list[int], int]:
    """(table as JSON, as text, peaks in MiB of each process of parity, how many were left running)."""
    run = home / "run"
    total = PROMPTS * SAMPLES * rounds * len(ARMS)
    marks = [total * (number + 1) // (kills + 1) for number in range(kills)]
    first = ["run", "--prompts", str(prompts), "--vary", "num_speculative_tokens=0", "--vary", "max_num_seqs=256,128"]
    first += ["--samples", str(SAMPLES), "--rounds", str(rounds), "--max-tokens", str(MAX_TOKENS)]
    first += ["--output-lengths", f"8:{MAX_TOKENS}", "--score", "differing", "--out", str(run)]
    peaks, left = [], 0
    for number in range(kills + 1):
        command = [sys.executable, "-m", "parity", *(["run", "--resume", str(run)] if number else first)]
        with (home / f"parity-{number}.log").open("wb") as log:
            process = subprocess.Popen(command, env=environment(home), stdout=log, stderr=log)
            peak = 0
            while process.poll() is None:
                peak = max(peak, peak_mib(process.pid))
                if number < kills and completions(run) >= marks[number]:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    time.sleep(10)
                    left += len(workers_of(f"PARITY_HOME={home}\0"))
                    say(f"killed after {completions(run):,} of {total:,} completions")
                    break
                time.sleep(0.5)
        peaks.append(peak)
        if number < kills and process.returncode != -signal.SIGKILL:
            raise SystemExit(f"parity ended before it could be killed: see {log.name}")
    if process.returncode not in (0, 1, 4):
        raise SystemExit(f"parity run: exit code {process.returncode}: see {log.name}")
    made = json.loads(parity(home, "table", "--format", "json").stdout)
    return comparable(made), parity(home, "table").stdout, peaks, left


def comparable(table: dict[str, Any]) -> dict[str, Any]:
    """The table without what no two runs have in common: the run's name, how fast it was."""
    table.pop("run")
    for row in table["rows"]:
        for name in ("tokens_per_second", "tokens_per_second_with_start"):
            row.pop(name)
        row["notes"] = [note for note in row["notes"] if "tokens/s" not in note]
    return table


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--whole", action="store_true", help="Run it again without interruption and compare.")
    parser.add_argument("--out", type=Path, help="Where everything goes. [default: a temporary directory]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = (options.out or Path(temporary)).absolute()
        (home / "killed").mkdir(parents=True)
        prompts = short_prompts(home / "killed")
        began = time.monotonic()
        table, shown, peaks, left = play(home / "killed", prompts, options.rounds, options.kills)
        print(shown)
        print(f"{options.kills} kills, {time.monotonic() - began:.0f} s; peak of parity's own memory {peaks} MiB")
        print(f"processes left behind ten seconds after a kill: {left}")
        bad = left > 0
        if options.whole:
            (home / "whole").mkdir()
            again, _, peaks, _ = play(home / "whole", prompts, options.rounds, 0)
            bad = bad or again != table
            print(f"without interruption: the table is {'the same' if again == table else 'ANOTHER'}, {peaks} MiB")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
