"""Every numeric constant of parity/comparator with its value and reason: a page of the site, made from the source.

    python tools/thresholds_page.py > thresholds.md

A docstring holds for the constants directly before it; nothing is imported.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
COMPARATOR = ROOT / "parity" / "comparator"
NOT_THRESHOLDS = {"inputs.text.INT32_MAX", "reference.gaps.BATCH"}


class Constant(NamedTuple):
    name: str
    value: str
    reason: str | None
    """Of its docstring; None where it has none."""


def _named(node: ast.stmt) -> list[tuple[str, ast.expr]]:
    """The public names in capitals that a statement binds, with what they are bound to."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        targets: list[tuple[ast.expr, ast.expr]] = [(node.target, node.value)]
    elif isinstance(node, ast.Assign):
        target = node.targets[0]
        pair = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
        targets = list(zip(target.elts, node.value.elts, strict=True)) if pair else [(target, node.value)]  # type: ignore[attr-defined]
    else:
        return []
    return [(one.id, to) for one, to in targets if isinstance(one, ast.Name) and one.id.isupper() and one.id[0] != "_"]


def _is_number(node: ast.expr) -> bool:
    """Whether an expression is made of numbers alone: written, of other constants, or by a function of such."""
    if isinstance(node, ast.Tuple):
        return bool(node.elts) and all(map(_is_number, node.elts))
    if isinstance(node, ast.Call):
        return (
            bool(node.args)
            and ast.unparse(node.func).startswith(("math.", "np.", "float"))
            and all(map(_is_number, node.args))
        )
    if isinstance(node, ast.UnaryOp | ast.BinOp):
        return all(_is_number(one) for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr))
    if isinstance(node, ast.Name):
        return node.id.isupper()
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _docstring(after: list[ast.stmt], lines: list[str]) -> str | None:
    """The first string after these statements, if nothing but constants without a blank line stands before it."""
    last = None
    for node in after:
        if last is not None and any(not line.strip() for line in lines[last : node.lineno - 1]):
            return None
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return " ".join(node.value.value.split())
        if not _named(node):
            return None
        last = node.end_lineno
    return None


def constants() -> Iterator[Constant]:
    """In the order of modules and lines."""
    for path in sorted(COMPARATOR.rglob("*.py")):
        module = ".".join(path.relative_to(COMPARATOR).with_suffix("").parts).removesuffix(".__init__")
        source = path.read_text(encoding="utf-8")
        body = ast.parse(source).body
        for at, node in enumerate(body):
            for name, value in _named(node):
                if _is_number(value) and f"{module}.{name}" not in NOT_THRESHOLDS:
                    reason = _docstring(body[at:], source.splitlines())
                    yield Constant(f"{module}.{name}", ast.unparse(value), reason)


def page() -> str:
    rows = "\n".join(
        f"| `{one.name}` | {one.value} | {(one.reason or '').replace('|', chr(92) + '|').replace('<', '&lt;')} |"
        for one in constants()
    )
    return (
        "# Thresholds\n\nEvery number that decides something in a comparison ([kinds](kinds.md)), with its reason, "
        f"as it stands in the source.\n\n| constant | value | reason |\n|---|---|---|\n{rows}\n"
    )


if __name__ == "__main__":
    sys.stdout.write(page())
