"""How long the documentation is, page by page, and which pages have long sentences: `make words`.

    python tools/words.py

Words are counted as `wc -w` counts them. Generated pages, and tables that a tool writes into a page, are counted
apart. A sentence is what stands between two full stops of a paragraph or a list item; tables, code and headings have
none.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GENERATED = {"docs/command-line.md", "docs/engine-contract.md"}
MADE = re.compile(r"<!-- (?:(catalogue|table): .*?<!-- end of \1|make bench -->.*?<!-- /make bench) -->", re.DOTALL)
"""What a tool writes into a page."""
NOT_KEPT = {"docs/messages.md", "docs/thresholds.md"}
LONG = 20
"""Words of a page's mean sentence, from which on it is named."""


def pages() -> list[Path]:
    return sorted(
        page
        for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
        if page.relative_to(ROOT).as_posix() not in NOT_KEPT
    )


def sentences(text: str) -> list[str]:
    """Of the prose of a page, without markup."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"^(\s*)(?:[-*]|\d+\.) ", r"\n\1", text, flags=re.MULTILINE)
    kept = [line for line in text.splitlines() if not line.lstrip().startswith(("|", "#", "<", "$"))]
    blocks = re.split(r"\n\s*\n", "\n".join(kept))
    found = (one.strip() for block in blocks for one in re.split(r"(?<=[.!?。])\s+", block.replace("\n", " ")))
    return [one for one in found if len(one.split()) > 2]


def mean(text: str) -> float:
    found = sentences(text)
    return sum(len(one.split()) for one in found) / len(found) if found else 0.0


def main() -> None:
    written = made = translated = 0
    rows = []
    for page in pages():
        name, text = page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8")
        count = len(text.split())
        by_tools = count if name in GENERATED else sum(len(one.group(0).split()) for one in MADE.finditer(text))
        made += by_tools
        if name.endswith(".zh.md"):
            translated += count
        else:
            written += count - by_tools
        rows.append((count, name, 0.0 if name.endswith(".zh.md") else mean(text)))
    for count, name, words in sorted(rows):
        note = " (generated)" if name in GENERATED else f"  long sentences: {words:.1f} words" if words > LONG else ""
        sys.stdout.write(f"{count:7,}  {name}{note}\n")
    sys.stdout.write(f"{written:7,}  written by hand\n{made:7,}  generated\n")
    sys.stdout.write(f"{translated:7,}  between blanks in Chinese pages, where a word has none\n")


if __name__ == "__main__":
    main()
