"""A hook of MkDocs (mkdocs.yml): what lies outside docs/ is linked to the repository.

The pages are read in the repository as well, where `../ARCHITECTURE.md` is a link. A site of docs/ alone lacks it.
A link to `page.zh.md` is one to `page.md`, which the site shows in the reader's language.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = os.environ.get("DOCS_REPOSITORY", "https://github.com/parity-mtp/parity")
"""Set by the workflow to the repository that it runs in."""

LINK = re.compile(r"\]\((\.\./[^)\s]+|notebook\.ipynb|(?:[\w-]+)\.zh\.md(?:#[^)\s]*)?)\)")


def _rewritten(found: re.Match[str]) -> str:
    link = found.group(1)
    if link.startswith("../"):
        return f"]({REPOSITORY}/blob/main/{link.removeprefix('../')})"
    if link == "notebook.ipynb":
        return f"]({REPOSITORY}/blob/main/docs/{link})"
    return f"]({link.replace('.zh.md', '.md')})"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs with the source of each page."""
    return LINK.sub(_rewritten, markdown)


MADE = {"messages.md": "messages_page.py", "thresholds.md": "thresholds_page.py"}
"""Pages that are made when the site is built, and not kept in the repository, by the tool that prints them."""


def on_pre_build(**_: Any) -> None:
    """Called by MkDocs before it lists the pages."""
    root = Path(__file__).resolve().parent.parent
    for page, tool in MADE.items():
        made = subprocess.run([sys.executable, str(root / "tools" / tool)], capture_output=True, check=True)
        (root / "docs" / page).write_bytes(made.stdout)
