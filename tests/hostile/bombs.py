"""Capture files that are small and ask for much, or that are no files."""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from asked import Asked
from judging import Ended, place

MIB = 700
"""Budget of memory; the command itself takes some 100."""
SECONDS = 40.0

HEADER = {"record": "header", "schema": "parity.capture/1", "arm": "a/base", "backend": "a", "variant": "base",
          "model": "m", "vocab_size": 1000, "eos_token_ids": [2], "engine": {}, "sampling": {"max_tokens": 8},
          "environment": {}}  # fmt: skip


def completion(**fields: Any) -> dict[str, Any]:
    base = {"record": "completion", "request": "p0", "round": 0, "sample": 0, "prompt_token_ids": [1],
            "token_ids": [5, 6, 7, 8], "text": "t", "finish_reason": "length", "stop_reason": None, "logprobs": None}  # fmt: skip
    return {**base, **fields}


def capture(*records: dict[str, Any], header: dict[str, Any] | None = None, **footer: Any) -> bytes:
    lines = [{**HEADER, **(header or {})}, *records, {"record": "footer", **footer}]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def line(text: bytes) -> bytes:
    """A capture with this in the place of a completion."""
    whole = capture()
    cut = whole.index(b"\n") + 1
    return whole[:cut] + text + whole[cut:]


def of_bytes(data: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / "bomb.jsonl"
        path.write_bytes(data)
        return path

    return write


def packed(*pieces: tuple[bytes, int]) -> Callable[[Path], Path]:
    """Each piece so many times, compressed."""

    def write(folder: Path) -> Path:
        path = folder / "bomb.jsonl.gz"
        with gzip.open(path, "wb") as file:
            for piece, times in pieces:
                block = piece * max(1, min(times, (1 << 20) // max(1, len(piece))))
                for _ in range(max(1, times * len(piece) // len(block))):
                    file.write(block)
        return path

    return write


def fifo(folder: Path) -> Path:
    path = folder / "pipe.jsonl"
    os.mkfifo(path)
    return path


def device(name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / "device.jsonl"
        path.symlink_to(name)
        return path

    return write


def spec(accepted: list[int], drafted: list[int] | None = None) -> bytes:
    return capture(completion(spec={"accepted": accepted, "drafted": drafted or [2] * len(accepted)}))


WIDE = [[[5, -1.0]] * 20_000, *[[[5, -1.0]]] * 20_000]
BEGIN = json.dumps(HEADER).encode() + b"\n"
ZEROS = base64.b64encode(bytes(3 << 20)).rstrip(b"=")

BOMBS: dict[str, Callable[[Path], Path]] = {
    "accepted 2e8": of_bytes(spec([1, 200_000_000])),
    "accepted 2^31": of_bytes(spec([2**31 - 1, 2**31 - 1])),
    "accepted 2^62": of_bytes(spec([2**62, 2**62])),
    "accepted negative": of_bytes(spec([-(2**62), 1])),
    "wide logprobs": of_bytes(capture(completion(token_ids=[5] * 20_001, logprobs=WIDE))),
    "wide scores": of_bytes(capture(completion(), {"record": "score", "arm": "a/base", "request": "p0", "logprobs": WIDE})),
    "blank lines": packed((BEGIN, 1), (b"\n", 400_000_000)),
    "lists in a line": packed((BEGIN + b'{"record":"completion","x":[', 1), (b"[],", 60_000_000), (b"0]}\n", 1)),
    "numbers in a line": packed((BEGIN + b'{"record":"completion","x":[', 1), (b"1.5,", 40_000_000), (b"0]}\n", 1)),
    "base64 tokens": packed((BEGIN + b'{"record":"completion","request":"p","token_ids":{"int32":"', 1), (ZEROS, 40),
                            (b'"},"prompt_token_ids":[1]}\n', 1)),
    "many base64 lines": packed((BEGIN, 1), (b'{"record":"completion","request":"p","token_ids":{"int32":"' + ZEROS + b'"}}\n', 30)),
    "one endless line": packed((BEGIN, 1), (b"x", 300_000_000)),
    "objects in a line": packed((BEGIN + b'{"record":"completion","x":[', 1), (b'{"a":1},', 8_000_000), (b"0]}\n", 1)),
    "deep": of_bytes(line(b"[" * 100_000 + b"]" * 100_000 + b"\n")),
    "deep header": of_bytes(capture(completion(), header={"engine": {"a": json.loads("[" * 300 + "]" * 300)}})),
    "huge vocabulary": of_bytes(capture(completion(), header={"vocab_size": 2**62})),
    "large vocabulary": of_bytes(capture(completion(), header={"vocab_size": 2**31 - 1})),
    "huge ids": of_bytes(capture(completion(token_ids=[2**62, -(2**62), 5, 6]))),
    "huge round": of_bytes(capture(completion(round=2**70))),
    "huge max_tokens": of_bytes(capture(completion(max_tokens=2**31 - 1))),
    "odd numbers": of_bytes(line(json.dumps(completion()).replace("[5, 6, 7, 8]", "[1e308, -1e999, NaN]").encode() + b"\n")),
    "counters": of_bytes(capture(completion(), counters={"rows_moved": "x", "steps": -1, "batch_sizes": {"x": []},
                                                        "accepted_per_pos": ["x"], "drafts": 1e400, "tokens": 2**80})),
    "n of 2^31": of_bytes(capture(completion(), header={"sampling": {"n": 2**31, "max_tokens": 2**31, "logprobs": 2**31}})),
    "pipe": fifo,
    "device": device("/dev/zero"),
    "random device": device("/dev/urandom"),
}  # fmt: skip


def campaign(asked: Asked) -> Iterator[Ended]:
    """Each bomb checked, and compared with a good capture where the check took it."""
    names = ["accepted 2e8", "wide logprobs", "blank lines", "pipe"] if asked.short else asked.piece(list(BOMBS))
    for name in names:
        with place() as here:
            bomb = BOMBS[name](here.root / "given")
            good = here.root / "given" / "good.jsonl"
            good.write_bytes(capture(completion()))
            if not asked.short:
                yield here.run(f"{name}: check", "capture", "check", str(bomb), seconds=SECONDS, mib=MIB)
            yield here.run(f"{name}: compare", "compare", str(good), str(bomb), "--json", seconds=SECONDS, mib=MIB)
