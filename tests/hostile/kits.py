"""Archives that a kit sends back, from somebody else."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from asked import Asked
from judging import Ended, Place, place
from stores import MOVES, base, copied, deep

Files = dict[str, bytes]
Edit = Callable[[Files], Any]


def about(**fields: Any) -> Edit:
    return lambda files: files.update(
        {"about.json": json.dumps({**json.loads(files["about.json"]), **fields}).encode()}
    )


def plan(change: Callable[[dict[str, Any]], Any]) -> Edit:
    def edit(files: Files) -> None:
        value = json.loads(files["plan.json"])
        change(value)
        files["plan.json"] = json.dumps(value).encode()

    return edit


def put(name: str, content: bytes) -> Edit:
    return lambda files: files.update({name: content})


EDITS: dict[str, Edit] = {
    "honest": lambda files: None, "about nested": put("about.json", b'{"rehearsal":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "about of text": put("about.json", b"x"), "rehearsal odd": about(rehearsal={"arms": deep(150), MOVES: MOVES}),
    "versions that move": about(versions={MOVES: MOVES}, tools={MOVES: MOVES}, platform=MOVES, backend=MOVES), "arms that failed": about(arms={"fake/mtp": {"failed": MOVES * 50, "seconds": -1e308}}), "the baseline failed": about(arms={"fake/base": {"failed": MOVES}}),
    "scoring failed": about(scoring_failed=MOVES), "minutes infinite": put("about.json", b'{"minutes": 1e999}'), "a plan that sets code": plan(lambda p: p["arms"][1].update(env={"PYTHONPATH": "x"})), "a plan of a server": plan(lambda p: p["arms"][1].update(backend="server", engine={"url": "http://127.0.0.1:1"})),
    "arms outside": plan(lambda p: p["arms"][1].update(name="../../x")), "arms of a name": plan(lambda p: p["arms"][1].update(name="plan")), "a million rounds": plan(lambda p: p.update(rounds=10**6)), "no arms": plan(lambda p: p.update(arms=[])), "plan nested": put("plan.json", b"[" * 100_000),
    "a capture of zeros": put("fake-mtp.jsonl", bytes(5000)), "no capture": lambda files: files.pop("fake-mtp.jsonl"), "no baseline": lambda files: files.pop("fake-base.jsonl"), "a log that moves": put("fake-mtp.log", (MOVES * 5000).encode()), "steps of brackets": put("fake-mtp.steps", b"[" * 100_000),
    "scores of brackets": put("scores.jsonl", b"[" * 100_000), "no plan": lambda files: files.pop("plan.json"),
}  # fmt: skip


def members(kind: bytes, name: str, target: str = "", size: int = 0) -> Callable[[tarfile.TarFile, Files], None]:
    def add(archive: tarfile.TarFile, files: Files) -> None:
        one = tarfile.TarInfo(name)
        one.type, one.linkname, one.size = kind, target, size
        archive.addfile(one, io.BytesIO(bytes(size)))

    return add


def again(archive: tarfile.TarFile, files: Files) -> None:
    for _ in range(20):
        add(archive, "fake-mtp.jsonl", files["fake-mtp.jsonl"])


EXTRA: dict[str, Callable[[tarfile.TarFile, Files], None]] = {
    "a link out": members(tarfile.SYMTYPE, "fake-mtp.jsonl", "../../PWNED"), "a hard link": members(tarfile.LNKTYPE, "fake-mtp.jsonl", "/etc/passwd"), "a name outside": members(tarfile.REGTYPE, "../../../PWNED", size=9),
    "an absolute name": members(tarfile.REGTYPE, "/tmp/PWNED", size=9), "a device": members(tarfile.CHRTYPE, "fake-mtp.jsonl"), "a pipe": members(tarfile.FIFOTYPE, "scores.jsonl"), "a folder": members(tarfile.DIRTYPE, "scores.jsonl"),
    "a name that moves": members(tarfile.REGTYPE, MOVES, size=9), "200 MB of zeros": members(tarfile.REGTYPE, "x", size=200 << 20), "files again and again": again,
}  # fmt: skip


def bomb(data: bytes) -> bytes:
    return data + gzip.compress(bytes(300 << 20), 9)


BYTES: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda data: data[: len(data) // 2], "nothing": lambda data: b"", "text": lambda data: b"x" * 5000, "noise in it": lambda data: data[:900] + bytes(range(256)) + data[1156:],
    "300 MB of zeros after it": bomb, "one bit": lambda data: data[:-30] + bytes([data[-30] ^ 4]) + data[-29:], "no gzip": lambda data: gzip.decompress(data), "gzip of gzip": lambda data: gzip.compress(data),
}  # fmt: skip
CASES = [
    *(f"file: {name}" for name in EDITS),
    *(f"member: {name}" for name in EXTRA),
    *(f"bytes: {name}" for name in BYTES),
]
SHORT = ("file: honest", "member: a link out")


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    one = tarfile.TarInfo(name)
    one.size = len(content)
    archive.addfile(one, io.BytesIO(content))


def archive_of(run: Path, case: str) -> bytes:
    what, _, name = case.partition(": ")
    files = {one.name: one.read_bytes() for one in run.iterdir() if one.is_file() and one.suffix == ".jsonl"}
    state = {"schema": "parity.kit/1", "backend": "fake", "arms": {"fake/mtp": {}, "fake/base": {}}}
    files = {"about.json": json.dumps(state).encode(), "plan.json": (run / "plan.json").read_bytes(), **files}
    if what == "file":
        EDITS[name](files)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for each, content in files.items():
            if what == "member" and each == "plan.json":
                add(archive, each, content)
                EXTRA[name](archive, files)
                continue
            add(archive, each, content)
    return BYTES[name](made.getvalue()) if what == "bytes" else made.getvalue()


def campaign(asked: Asked) -> Iterator[Ended]:
    """Each archive compared."""
    with place() as first:
        yield base(first)
        for case in SHORT if asked.short else asked.piece(CASES):
            with place() as here:
                yield tried(first, here, case)


def tried(first: Place, here: Place, case: str) -> Ended:
    run = copied(first, here)
    (here.root / "given").mkdir(exist_ok=True)
    path = here.root / "given" / "parity-kit-result.tar.gz"
    path.write_bytes(archive_of(run, case))
    return here.run(f"kit: {case}", "compare", str(path), "--tolerance", "0.1")
