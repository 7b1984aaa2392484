"""How the custom operators of releases of vllm-ascend differ, and which of them have a stand-in.

    python tools/emulated_schemas.py OLD.whl NEW.whl          # pip download --no-deps vllm-ascend==…

Schemas are read from the compiled module in each wheel. Written down in docs/emulated.md.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

BACKENDS = Path(__file__).resolve().parent.parent / "backends"
sys.path.insert(0, str(BACKENDS))

from parity_emulated_npu import schemas  # noqa: E402


def of_wheel(path: Path) -> dict[str, str]:
    """Schemas by name."""
    with zipfile.ZipFile(path) as wheel, tempfile.TemporaryDirectory() as folder:
        for name in wheel.namelist():
            if name.startswith("vllm_ascend/vllm_ascend_C") and name.endswith(".so"):
                return schemas.of_binary(Path(wheel.extract(name, folder)))
    sys.exit(f"{path}: no compiled module in it")


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    old, new = (of_wheel(Path(name)) for name in sys.argv[1:])
    text = "".join(path.read_text("utf-8") for path in (BACKENDS / "parity_emulated_npu" / "operators").glob("*.py"))

    def marked(name: str) -> str:
        return f"{name}*" if f"\ndef {name}(" in text else name

    print(f"{len(old)} and {len(new)} operators (*: has a stand-in)")
    print("gone:", ", ".join(map(marked, sorted(old.keys() - new.keys()))))
    print("new:", ", ".join(map(marked, sorted(new.keys() - old.keys()))))
    for name in sorted(old.keys() & new.keys()):
        if old[name] != new[name]:
            print(f"changed: {marked(name)}\n  {old[name]}\n  {new[name]}")


if __name__ == "__main__":
    main()
