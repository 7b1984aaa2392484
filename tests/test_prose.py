"""Words that were here once and said less than the field's own: they do not come back."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

sys.path.insert(0, str(ROOT / "tools"))
words = importlib.import_module("words")

INSTEAD = {
    r"\bbehind\b(?! (`?ssh|`docker|--host|a (command|container|firewall|prefix)|the plots))": "after, following",
    r"\btold\b": "reported, said, known",
    r"\bheld against\b": "compared with",
    r"\bconvict": "prove, find",
    r"\bno rounding\b": "not explained by rounding",
    r"\b(taken|takes?|took) back\b": "aborted, undone",
    r"\bsurprise\b": "surprisal",
    r"\breference's opinions?\b": "scores, gap",
    r"\bwhom it supports\b": "which arm it supports",
    r"\bis no part of\b": "is not in",
}
"""What is looked for, whatever its case, and what to write."""

MEANT = re.compile(r"(left|stays?|remains?|lags?) behind", re.IGNORECASE)


def prose() -> Iterator[tuple[str, int, str]]:
    """(file, line number, line) of the pages and of all source that ships."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    sources = [path for folder in ("parity", "backends") for path in (ROOT / folder).rglob("*.py")]
    for path in sorted(pages + sources):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield path.relative_to(ROOT).as_posix(), number, MEANT.sub("", line)


@pytest.mark.parametrize("worn", INSTEAD)
def test_no_line_has(worn: str) -> None:
    pattern = re.compile(worn, re.IGNORECASE)
    found = [f"{name}:{number}: {line.strip()}" for name, number, line in prose() if pattern.search(line)]
    assert not found, f"write {INSTEAD[worn]!r} instead:\n" + "\n".join(found)


def test_such_a_line_would_be_noticed() -> None:
    lines = [line for _, _, line in prose()]
    assert len(lines) > 10_000
    assert re.search(next(iter(INSTEAD)), "the tokens behind it")
    assert not re.search(next(iter(INSTEAD)), "an interpreter behind a command")


def test_no_page_has_long_sentences() -> None:
    """By the mean of each; `make words` lists them."""
    english = [page for page in words.pages() if not page.name.endswith(".zh.md")]
    means = {page.relative_to(ROOT).as_posix(): words.mean(page.read_text(encoding="utf-8")) for page in english}
    assert len(means) > 30
    long = {name: round(mean, 1) for name, mean in means.items() if mean > words.LONG}
    assert not long, "shorter sentences, one idea each"


def test_a_long_sentence_would_be_noticed() -> None:
    assert words.mean("One two three four. " + "Word " * 40 + "end.") > words.LONG
    assert words.mean("# A heading of words\n\n| a table | of words |\n\n- One two three.\n- Four five six.") == 3
    assert words.mean("```\n" + "code " * 60 + "\n```\n\nShort it is.") == 3


CHINESE = re.compile(r"[\u4e00-\u9fff]")


def not_to_be_used() -> list[tuple[str, str]]:
    """(word, what to write) of the last column of the glossary's table."""
    rows = (
        line.split("|")[1:-1] for line in (ROOT / "docs" / "glossary.md").read_text("utf-8").splitlines() if "|" in line
    )
    return [(row[3].strip(), row[1].strip()) for row in rows if len(row) == 4 and CHINESE.search(row[3])]


def chinese() -> Iterator[tuple[str, int, str]]:
    catalogue = ROOT / "parity" / "locale" / "zh" / "LC_MESSAGES" / "parity.po"
    for path in [catalogue, ROOT / "README.zh.md", *(ROOT / "docs").glob("*.zh.md")]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield path.relative_to(ROOT).as_posix(), number, line


def test_chinese_keeps_to_the_glossary() -> None:
    words = not_to_be_used()
    assert len(words) >= 5
    found = [
        f"{name}:{number}: {word}, not {instead}: {line}"
        for name, number, line in chinese()
        for word, instead in words
        if word in line
    ]
    assert not found, "\n".join(found)


def test_chinese_paragraphs_are_one_line() -> None:
    """A browser shows a line break between two characters as a blank."""
    wide = r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]"
    broken, before, code = [], "", False
    for name, number, line in chinese():
        if not name.endswith(".md"):
            continue
        code ^= line.startswith("```")
        if not code and number > 1 and re.search(wide + "$", before) and re.match(r"\s*" + wide, line):
            broken.append(f"{name}:{number}: {line}")
        before = line
    assert not broken, "\n".join(broken)
