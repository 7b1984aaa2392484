"""Processes of this machine, read from /proc: who is below whom, and which of them are still there."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """One process; `began` tells it from a later one with its number."""

    pid: int
    began: int

    @property
    def words(self) -> list[str]:
        try:
            return Path(f"/proc/{self.pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return [""]

    @property
    def is_python(self) -> bool:
        try:
            return os.path.basename(os.readlink(f"/proc/{self.pid}/exe")).startswith("python")
        except OSError:
            return False

    @property
    def is_ssh(self) -> bool:
        return os.path.basename(self.words[0]) == "ssh"

    @property
    def lives(self) -> bool:
        found = _state(self.pid)
        return found is not None and found[0] not in "ZX" and found[2] == self.began


def _state(pid: int) -> tuple[str, int, int] | None:
    """Its state, its parent and when it began; None where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[1]), int(fields[19])


def below(pid: int) -> list[Process]:
    """Its children, theirs and so on, parents first; the dead that nobody has waited for are not among them."""
    children: dict[int, list[Process]] = {}
    for name in os.listdir("/proc"):
        found = _state(int(name)) if name.isdigit() else None
        if found is not None and found[0] not in "ZX":
            children.setdefault(found[1], []).append(Process(int(name), found[2]))
    every, queue = [], [pid]
    while queue:
        mine = children.get(queue.pop(0), [])
        every += mine
        queue += [one.pid for one in mine]
    return every


def outliving(processes: Iterable[Process], patience: float) -> list[Process]:
    """Those that are still there after so many seconds."""
    until, left = time.monotonic() + patience, list(processes)
    while left and time.monotonic() < until:
        left = [one for one in left if one.lives]
        time.sleep(0.05)
    return [one for one in left if one.lives]
