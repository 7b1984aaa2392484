"""Large captures: the memory that comparing them takes, and what several processes that read them change.

    python benchmarks/large_captures.py [--completions 1000000] [--length 32] [--jobs 1,2] [--ray] [--text]
        [--logprobs] [--lists] [--scored] [--rounds N] [--folder DIR] [--code DIR,DIR] [--cgroup DIR]

Makes up two captures with one pair in ten different, and runs `parity compare A B --json` with each number of jobs;
with --ray on the cluster $RAY_ADDRESS too. --logprobs: each completion has the logprobs of its own tokens, as a worker
records them by default. --lists: of five tokens in each place. --scored: all completions of both arms are scored, five
tokens listed, as a run does by default. --rounds: each request is asked so many times, and says the same. --code: with
parity's code in each of these directories, in turns.

Says of each: seconds by the clock, seconds of a processor (of all processes), and the most memory at once (looked at
ten times a second): `anonymous`, of all processes and of the command's own, which is what they keep from others; and
`with files`, with the parts of mapped files that happen to be in memory, which the system takes back when it needs
them. With --cgroup DIR the commands run in that memory cgroup, whose limit somebody has set: one that needs more is
killed. Answers that are not the same to the letter end it with exit code 1. Linux only. On a machine with other work
the clock says little.
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
from compare_speed import ARMS, TOP, VOCABULARY, damaged, header

from parity.capture import header_record
from parity.capture.sealing import sealed

NOISE = 0.014
"""Nats, on average, between an own logprob and its score."""


def make(
    folder: Path,
    count: int,
    length: int,
    *,
    text: bool,
    logprobs: bool,
    scored: bool,
    lists: bool = False,
    rounds: int = 1,
) -> tuple[list[str], str]:
    """Both captures and the scores ("" without), completion by completion: none is held."""
    rng = np.random.default_rng(0)
    paths = [folder / "base.jsonl", folder / "mtp.jsonl"]
    scores = folder / "scores.jsonl"
    files = [path.open("wb") for path in (*paths, scores)[: 3 if scored else 2]]
    for file, arm in zip(files, (*ARMS, ARMS[0]), strict=False):
        file.write(orjson.dumps(header_record(header(arm, length))) + b"\n")
    for index in range(count):
        number, request = divmod(index, count // rounds)
        says = np.random.default_rng((1, request)) if rounds > 1 else rng  # what is said in each round
        prompt, tokens = says.integers(3, VOCABULARY, 16), says.integers(3, VOCABULARY, length)
        other, place, wrong = damaged(rng, tokens, (index // 10) % 10) if index % 10 == 0 else (tokens, 0, 0)
        # A token has one score after one text: both arms' are alike up to where they part.
        likely = -says.exponential(0.5, length) if logprobs or scored or lists else None
        for arm, file, stream in zip(ARMS, files, (tokens, other), strict=False):
            key = {"request": f"p{request}", "round": number, "sample": 0}
            row = {"record": "completion", **key}
            row |= {"prompt_token_ids": prompt.tolist(), "token_ids": stream.tolist()}
            row |= {"text": " ".join(map(str, stream)) if text else None, "finish_reason": "length"}
            if lists:
                own = np.minimum(likely + rng.normal(0, NOISE, length), 0.0)
                row["logprobs"] = listed(rng, stream, own, tokens if stream is not tokens else None, place, wrong)
            elif logprobs:
                own = np.minimum(likely + rng.normal(0, NOISE, length), 0.0)
                row["logprobs"] = [[list(one)] for one in zip(stream.tolist(), _rounded(own), strict=True)]
            file.write(json.dumps(row).encode() + b"\n")  # as others write it: with a space after each comma
            if scored:
                found = listed(rng, stream, likely, tokens if stream is not tokens else None, place, wrong)
                score = {"record": "score", "arm": arm, **key, "logprobs": found}
                files[2].write(sealed(orjson.dumps(score, option=orjson.OPT_APPEND_NEWLINE)))
    counters = ({}, {"num_drafts": 1000, "num_draft_tokens": 2000, "num_accepted_tokens": 1500}, {"top": TOP})
    for number, (file, counted) in enumerate(zip(files, counters, strict=False)):
        both = {"completions": count, "scores": 0} if number < 2 else {"completions": 0, "scores": 2 * count}
        footer = orjson.dumps({"record": "footer", **both, "counters": counted}, option=orjson.OPT_APPEND_NEWLINE)
        file.write(sealed(footer) if number == 2 else footer)
        file.close()
    return [str(path) for path in paths], str(scores) if scored else ""


def _rounded(values: np.ndarray) -> list[float]:
    return [round(value, 6) for value in values.tolist()]


def listed(
    rng: np.random.Generator, tokens: np.ndarray, likely: np.ndarray, usual: np.ndarray | None, place: int, wrong: int
) -> list[list[list[float]]]:
    """The best tokens of each position, the best first, with the one that was chosen. One chosen token in 200 lies a
    little below the best, as rounding has it. At `place` `usual[place]` does, and of `wrong` tokens from there on the
    `usual` ones are the best by far."""
    length = len(tokens)
    ids, values = rng.integers(3, VOCABULARY, (length, TOP)), np.empty((length, TOP))
    values[:, 0], ids[:, 0] = likely, tokens
    values[:, 1:] = likely[:, None] - np.cumsum(rng.uniform(0.3, 2.0, (length, TOP - 1)), axis=1)
    ties = rng.random(length) < 0.005
    if usual is not None:
        ties[place] = False
        ids[place, 1], values[place, 1] = usual[place], likely[place] - 0.0625
    ids[ties, 0], ids[ties, 1] = ids[ties, 1], tokens[ties]
    values[ties, 1] = values[ties, 0] - 0.0625
    lists = map(_rounded, values)
    rows = [[[i, v] for i, v in zip(*both, strict=True)] for both in zip(ids.tolist(), lists, strict=True)]
    for at in range(place, min(place + wrong, length)) if usual is not None else ():
        best = [int(usual[at]), round(float(likely[at]), 6)]
        rows[at] = [best, *rows[at][1:], [int(tokens[at]), round(float(likely[at]) - 20.0, 6)]]
    return rows


def memory(pid: int | str) -> np.ndarray:
    """(anonymous, with files) in KiB, what several processes share divided among them; 0 where the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return np.zeros(2)
    said = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
    return np.array([said["Pss_Anon"], said["Pss"]])


def children(pid: int) -> list[str]:
    try:
        return [one for path in Path(f"/proc/{pid}/task").glob("*/children") for one in path.read_text().split()]
    except OSError:
        return []


def measured(command: list[str], out: Path, code: str = "", cgroup: Path | None = None) -> dict[str, Any]:
    """`code`: the directory of parity's code; "" for the one that is installed."""
    if cgroup is not None:
        command = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(cgroup / "cgroup.procs"), *command]
    began = time.perf_counter()
    with out.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL, cwd=code or None)
    all_of, own = np.zeros(2), np.zeros(2)
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        mine = memory(process.pid)
        own = np.maximum(own, mine)
        all_of = np.maximum(all_of, mine + sum(map(memory, children(process.pid))))
        time.sleep(0.1)
    return {
        "wall_s": time.perf_counter() - began,
        "processor_s": usage.ru_utime + usage.ru_stime,
        "anonymous_mib": all_of[0] / 1024,
        "own_anonymous_mib": own[0] / 1024,
        "with_files_mib": all_of[1] / 1024,
        "exit_code": os.waitstatus_to_exitcode(status),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--completions", type=int, default=1_000_000)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--jobs", default="1,2")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--text", action="store_true")
    parser.add_argument("--logprobs", action="store_true")
    parser.add_argument("--lists", action="store_true")
    parser.add_argument("--scored", action="store_true")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--code", default="", help="directories of parity's code")
    parser.add_argument("--cgroup", type=Path, help="a directory of a memory cgroup")
    parser.add_argument("--folder", type=Path, help="keep the captures here")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = (asked.folder or Path(name)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        of = {"text": asked.text, "logprobs": asked.logprobs, "scored": asked.scored, "lists": asked.lists}
        files, scores = make(folder, asked.completions, asked.length, rounds=asked.rounds, **of)
        sizes = ", ".join(f"{os.path.getsize(path) / 1e6:.0f}" for path in (*files, scores) if path)
        print(f"{asked.completions} x {asked.length}, files of {sizes} MB", flush=True)
        ways = [["--jobs", jobs] for jobs in asked.jobs.split(",")] + ([["--ray"]] if asked.ray else [])
        answers = set()
        command = [sys.executable, "-m", "parity", "compare", *files, "--json"]
        command += ["--scores", scores] if scores else []
        for way in ways:
            for code in asked.code.split(","):
                out = Path(name) / "out.json"
                said = measured([*command, *way], out, code, asked.cgroup)
                answers.add(out.read_bytes())
                numbers = {key: round(float(value), 1) for key, value in said.items()}
                print(code, " ".join(way), numbers, os.getloadavg()[0], flush=True)
    return int(len(answers) > 1)


if __name__ == "__main__":
    sys.exit(main())
