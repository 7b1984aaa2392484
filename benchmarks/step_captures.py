"""Recorded steps of the real CPU engine in several batch shapes: what `benchmarks/association.py` draws faults from.

    python benchmarks/step_captures.py FOLDER [--shape NAME…] [--fault TEXT…] [--captures 4] [--python ENGINE_PYTHON]

One engine start a shape. Every capture asks the short prompts of the suite in an order and with lengths of its own
(by its seed). Without --fault nothing is planted. FOLDER/SHAPE/NAME has mtp.jsonl, mtp.steps and planted.jsonl.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from typing import Any

from parity_backends.vllm.cpu import CpuBackend
from parity_backends.vllm.local import worker_source

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from fault_lab import ENGINE, run_job, short_requests

SHAPES: dict[str, dict[str, Any]] = {
    "four": {"max_num_seqs": 4, "max_num_batched_tokens": 512},
    "eight": {"max_num_seqs": 8, "max_num_batched_tokens": 96, "k": 3},
    "three": {"max_num_seqs": 3, "max_num_batched_tokens": 64, "k": 1},
    "chunks": {"max_num_seqs": 6, "max_num_batched_tokens": 24, "k": 2},
    # Few blocks: seven rows at a time, none of which needs more.
    "tight": {
        "max_num_seqs": 12, "max_num_batched_tokens": 160, "k": 2, "block_size": 128, "num_gpu_blocks_override": 50,
        "tokens": 128,
    },
    # So few that rows which grow past 256 tokens preempt each other (the engine makes its blocks as large as its
    # recurrent states, and gives each row 7 of them at first).
    "preempting": {
        "max_num_seqs": 12, "max_num_batched_tokens": 160, "k": 2, "max_model_len": 512, "num_gpu_blocks_override": 50,
        "tokens": 240,
    },
}  # fmt: skip


def requests_of(model: Path, seed: int, drawn: float = 0.0, copies: int = 1) -> list[dict[str, Any]]:
    """The prompts in another order, each from another token on, so that lengths differ from capture to capture."""
    draw = random.Random(seed)
    found = []
    for number, request in enumerate(short_requests(model) * copies):
        ids = list(request["prompt_token_ids"])
        begin = draw.randrange(max(1, len(ids) // 2))
        found.append({"id": f"{request['id']}-{number}", "prompt_token_ids": ids[begin:][-48:]})
    draw.shuffle(found)
    found = [one for one in found if len(one["prompt_token_ids"]) > 1]
    for one in found:
        if drawn and draw.random() < drawn:
            one["sampling"] = {"temperature": 0.8, "seed": seed}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", nargs="+", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--fault", nargs="+", default=[])
    parser.add_argument("--captures", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--copies", type=int, default=1, help="how often the prompts are asked")
    parser.add_argument("--drawn", type=float, default=0.0, help="share of the requests that are drawn")
    parser.add_argument("--python", type=Path)
    args = parser.parse_args()
    backend = CpuBackend()
    model = backend.default_model()
    assert model is not None
    python = args.python or backend.interpreter(print)
    for name in args.shape:
        settings = dict(SHAPES[name])
        k, tokens = settings.pop("k", 2), settings.pop("tokens", 24)
        folder = args.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / "worker.py"
        source.write_bytes(worker_source())
        faults = args.fault or ["none"] * args.captures
        captures = []
        for number, fault in enumerate(faults):
            seed = args.first_seed + number
            # A capture in which tokens have no end of their own: what ends requests is their limit, one of several.
            captures.append(
                {
                    "name": f"{fault.replace(':', '-')}-{seed}",
                    "fault": fault,
                    "requests": requests_of(model, seed, args.drawn, args.copies),
                    "sampling": {"max_tokens": tokens + 8 * (seed % 3)},
                }
            )
        job = {
            "model": str(model),
            "engine": {
                **ENGINE,
                **settings,
                "speculative_config": {"method": "mtp", "num_speculative_tokens": k},
                "per_request_spec_decode_metrics": "detailed",
            },
            "sampling": {"temperature": 0.0},
            "requests": [],
            "vocab_size": 2048,
            "eos_token_ids": [0],
            "captures": captures,
            "recorder": str(source),
        }
        run_job(python, folder, "mtp", job)
        print(name, *(one["name"] for one in captures), flush=True)


if __name__ == "__main__":
    main()
