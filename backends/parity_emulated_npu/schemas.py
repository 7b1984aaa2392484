"""Schemas of vllm-ascend's custom operators: those of the release itself, from its binary or from its source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path("csrc", "torch_binding.cpp")
"""In a checkout of vllm-ascend."""

_DEFINITION = re.compile(r'ops\.def\(\s*((?:"[^"]*"\s*)+)')
_IN_BINARY = re.compile(rb"[a-z_][a-z_0-9]*\([^\0]*\)\s*->[^\0]*(?=\0)")


def name_of(schema: str) -> str:
    return schema.partition("(")[0].strip()


def of_source(path: Path) -> dict[str, str]:
    """Schemas by name, from `torch_binding.cpp`: the literals of each `ops.def(…)`; of two of a name the first."""
    text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
    literals = ("".join(re.findall(r'"([^"]*)"', found.group(1))) for found in _DEFINITION.finditer(text))
    return _first(literals)


def of_binary(path: Path) -> dict[str, str]:
    """The same from the compiled module: the compiler joined each definition into one string."""
    found = (match.group().decode("utf-8", "replace") for match in _IN_BINARY.finditer(path.read_bytes()))
    return _first(found)


def of_package(folder: Path) -> dict[str, str]:
    """Of the vllm-ascend that lies in this folder (`vllm_ascend`): a checkout's source, else the release's binary.

    Raises FileNotFoundError where it has neither.
    """
    source = folder.parent / SOURCE
    if source.is_file():
        return of_source(source)
    for binary in sorted(folder.glob("vllm_ascend_C*.so")):
        return of_binary(binary)
    raise FileNotFoundError(f"neither {source} nor {folder}/vllm_ascend_C*.so: no schemas of vllm-ascend's operators")


def _first(schemas: Iterator[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for schema in schemas:
        found.setdefault(name_of(schema), re.sub(r"\s+", " ", schema).strip())
    return found
