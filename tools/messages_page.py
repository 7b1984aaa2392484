"""Errors that have a remedy, by the id of their message: a page of the site, made from the source.

    python tools/messages_page.py > messages.md

An error is a call with a `message(id, English)` and a `hint=` of such calls; nothing is imported.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("parity", "backends/parity_backends")


def _message(node: ast.expr | None) -> tuple[str, str] | None:
    """(id, English) of a call of `message` with literals."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "message":
        words = [one.value for one in node.args[:2] if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if len(words) == 2:
            return words[0], words[1]
    return None


def remedies() -> Iterator[tuple[str, str, str]]:
    """(id, what is said, what to do) of every error that names both."""
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call) or not node.args:
                    continue
                said = _message(node.args[0])
                hint = next((_message(one.value) for one in node.keywords if one.arg == "hint"), None)
                if said and hint:
                    yield (*said, hint[1])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def page() -> str:
    rows = sorted(set(remedies()))
    table = "\n".join(f"| `{id}` | {_cell(said)} | {_cell(hint)} |" for id, said, hint in rows)
    return (
        "# Messages A–Z\n\nErrors by the id of their message, with the hint that parity prints. "
        "Words in braces are filled in.\n\n| id | what is said | what to do |\n|---|---|---|\n" + table + "\n"
    )


if __name__ == "__main__":
    sys.stdout.write(page())
