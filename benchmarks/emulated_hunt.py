"""A long hunt on the emulated NPU, in pieces: heavy churn over settings that do not cancel each other.

    .venv/bin/python benchmarks/emulated_hunt.py mimo|mla|hybrid [--rounds N] [--minutes 6] [--at build/emulated-hunt]

64 requests a round, of which half begin with more than two blocks of tokens that others have, and most end near the
end of a block, so that their completions need one more; 4 to 16 tokens each; requests arrive between steps and are
aborted; so few blocks that requests are preempted, so small a token budget that prompts come in pieces. Arms: without
speculation and with it, with prefix caching and (mimo, mla) without. Each piece ends after `--minutes` (0: when the
run is over) by an interruption, and the same command goes on; then the verdict is in its log beside it.
`--rounds` of the first piece counts. The last line says how many completions there are.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "backends"), str(ROOT), str(ROOT / "benchmarks")]

from warm import warm  # noqa: E402

BACKEND = "ascend-emulated"
REQUESTS, BLOCK, OUTPUT = 64, 128, 16
STARTS = 4
"""Beginnings of two blocks and a little that prompts share: with MTP vLLM gives the last block of a hit away."""
SAFE_IDS = (260, 1390)
"""Of a tiny checkpoint's 2,048: no special ones, and none that is a part of a character. After a prompt that ends in
such a part the text that vLLM 0.23.0 gives begins with the prompt's."""


@dataclass(frozen=True)
class Hunt:
    options: Sequence[str]
    rounds: int
    family: str | None
    """A tiny family; None: the embedded trained Qwen3-Next."""


CHURN = ("--churn", "heavy", "--max-num-seqs", "16", "--max-num-batched-tokens")
"""With the token budget: of a hybrid model at least a block, where prefixes are cached."""

DRAFTS = ("--vary", "num_speculative_tokens=0,2")

CACHED = ("--vary", "enable_prefix_caching=true,false", "--kv-blocks", "10")

HUNTS: Mapping[str, Hunt] = {
    "mimo": Hunt((*CHURN, "96", *DRAFTS, *CACHED), 313, "mimo"),
    "mla": Hunt((*CHURN, "96", *DRAFTS, *CACHED, "--engine", "dtype=float32", "--record"), 16, "deepseek_v3"),
    "hybrid": Hunt(
        (*CHURN, "224", *DRAFTS, "--engine", "enable_prefix_caching=true", "--kv-blocks", "48", "--record"), 16, None
    ),
}
"""Rounds of mimo: 20,032 completions an arm."""


def prompts(file: Path) -> Path:
    """Token ids: a quarter are short, a quarter end near the end of a block, half share two blocks with others."""
    draw = random.Random(15)
    starts = [[draw.randrange(*SAFE_IDS) for _ in range(2 * BLOCK + 8)] for _ in range(STARTS)]
    lines = []
    for number in range(REQUESTS):
        shared: list[int] = []
        if number % 4 == 0:
            own = draw.randint(8, 40)
        elif number % 4 == 1:
            own = draw.randint(BLOCK - OUTPUT, BLOCK - 1)
        else:
            shared = starts[number // 4 % STARTS]
            own = draw.randint(8, 40) if number % 4 == 2 else 3 * BLOCK - len(shared) - draw.randint(1, OUTPUT)
        ids = shared + [draw.randrange(*SAFE_IDS) for _ in range(own)]
        lines.append(json.dumps({"id": f"prompt-{number}", "prompt_token_ids": ids}) + "\n")
    file.write_text("".join(lines), encoding="utf-8")
    return file


def first(name: str, hunt: Hunt, rounds: int, at: Path) -> list[str]:
    """Options of `parity run` for the first piece."""
    model = []
    if hunt.family:
        folder = at / f"tiny-{hunt.family}"
        if not folder.exists():
            made = [sys.executable, "-m", "parity", "model", "tiny", "--arch", hunt.family, "-o", str(folder)]
            subprocess.run(made, check=True)
        model = ["--model", str(folder)]
    return [
        *("--backends", BACKEND, *model, "--prompts", str(prompts(at / f"{name}.jsonl"))),
        *("--rounds", str(rounds), "--max-tokens", str(OUTPUT), "--output-lengths", f"4:{OUTPUT}"),
        *("--score", "differing", "--engine", "max_model_len=448", *hunt.options, "--out", str(at / name)),
    ]


def completions(run: Path) -> dict[str, int]:
    """Of each arm, in its capture."""
    files = sorted(run.glob(f"{BACKEND}-*.jsonl"))
    return {file.stem: file.read_bytes().count(b'"record":"completion"') for file in files}


def piece(name: str, hunt: Hunt, rounds: int, minutes: float, at: Path) -> int | None:
    """One stretch of the run; its exit code, None where the time was over first."""
    out = at / name
    words = [sys.executable, "-m", "parity", "run", "--db", str(at / "parity.db"), "--no-rehearse"]
    words += ["--resume", "--out", str(out)] if (out / "plan.json").exists() else first(name, hunt, rounds, at)
    ends = time.monotonic() + minutes * 60 if minutes else None
    with warm(BACKEND, at / f"warm-{os.getpid()}") as python, (at / f"{name}.log").open("ab") as log:
        process = subprocess.Popen([*words, "--python", f"{BACKEND}={python}"], stdout=log, stderr=log)
        try:
            return process.wait(None if ends is None else max(1.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait()
            return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hunt", choices=tuple(HUNTS))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--at", type=Path, default=ROOT / "build" / "emulated-hunt")
    args = parser.parse_args()
    at: Path = args.at.absolute()
    at.mkdir(parents=True, exist_ok=True)
    hunt = HUNTS[args.hunt]
    before, began = sum(completions(at / args.hunt).values()), time.monotonic()
    code = piece(args.hunt, hunt, args.rounds or hunt.rounds, args.minutes, at)
    made, seconds = completions(at / args.hunt), time.monotonic() - began
    said = ", ".join(f"{arm} {count:,}" for arm, count in made.items())
    rate = (sum(made.values()) - before) / seconds * 60
    ended = "interrupted" if code is None else f"exit code {code}"
    print(f"{ended} after {seconds:.0f} s, {rate:.0f} a minute: {said}")


if __name__ == "__main__":
    main()
