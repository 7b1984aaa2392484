"""The interface under a Chinese locale: every screen and window, and no English sentence of ours on any of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import Person, drive

from parity import language
from parity.cli.tui import _follow_ups, _report
from parity.tui.outside import Outside

ENGLISH = re.compile(r"(?<![\w/.\-`])[A-Za-z][a-z']+(?:[,;:]? [a-z']{2,}\b(?!/))+")
"""Two words and more, a blank between them: columns stand further apart."""

NAMES = re.compile(
    r"PgUp|PgDn|ctrl\+\w|parity (run|reduce|bisect) [^│]*"  # keys, commands
    r"|made for the tests|tokens before it are emitted again"  # a reason and a why that the fixture holds as they are
)


def english_in(screen: str) -> list[str]:
    return ENGLISH.findall(NAMES.sub("#", screen))


@pytest.fixture(autouse=True)
def chinese() -> Iterator[None]:
    language.use("zh")
    yield
    language.use(None)


def test_english_is_seen() -> None:
    assert english_in("运行 No finding passes the filter.")
    assert not english_in("parity  ~/parity.db 中的运行 26 near_tie cpu/base cpu/mtp")


def test_no_screen_speaks_english(database: Path) -> None:
    seen: dict[str, str] = {}

    async def task(person: Person) -> None:
        async def look(name: str, *wanted: str) -> None:
            seen[name] = await person.sees(*wanted)

        await look("runs", "已完成", "结论", "个实验组")
        await person.press("question_mark")
        await look("help", "按键", "运行列表")
        await person.press("escape", "D")
        await look("delete", "个发现", "y 是")
        await person.press("n", "r")
        await look("go on", "再跑一次", "Esc 取消")
        await person.press("escape", "enter")
        await look("findings", "1/1", "已隐藏 26 个近似并列", "按严重性排序")
        await person.press("question_mark")
        await look("help of findings", "按键", "发现列表")
        await person.press("escape", "f")
        await look("filter", "只显示", "空格")
        await person.press("escape", "t")
        await look("triage", "研判", "与其重复")
        await person.press("escape", "e")
        await look("export", "导出到")
        await person.press("escape", "slash", "x", "x", "x")
        await look("nothing passes", "没有发现通过筛选")
        await person.press("backspace", "backspace", "backspace", "enter", "c")
        await person.told("已将 1 个发现标记为已确认")
        await look("marked", "已确认")
        await person.press("enter")
        await look("finding", "差距 9.85 nats，容差 0.25")
        await person.press("4")
        await look("history", "指纹", "新 → 已确认")
        await person.press("r")
        await look("go on from a finding", "缩减", "二分设置")

    drive(database, task, outside=Outside(_report, _follow_ups))
    assert not {name: found for name, screen in seen.items() if (found := english_in(without_tokens(screen)))}


def without_tokens(screen: str) -> str:
    """Without lines of tokens and logprobs: what models and prompts say is in whatever language it is."""
    return "\n".join(line for line in screen.splitlines() if "│" not in line.strip("│ ") and "%" not in line)
