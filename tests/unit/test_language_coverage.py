"""Everything that people are shown has a Chinese translation, and commands show it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
WHAT_TO_DO = (
    "sentences without a Chinese translation: `python tools/messages.py` prints them, put them into "
    "parity/locale/zh.json (docs/language.md); what nobody is shown goes into MATCHED of that tool"
)


@pytest.fixture(scope="module")
def messages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("parity_messages", ROOT / "tools" / "messages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_help_of_every_command_is_translated(messages: ModuleType) -> None:
    texts = list(dict.fromkeys(messages.all_help()))
    assert len(texts) > 100
    assert [text for text in texts if not messages.known(text)] == [], WHAT_TO_DO


def test_every_sentence_of_the_source_is_translated(messages: ModuleType) -> None:
    found = messages.everything()
    assert len(found) > 1000
    assert [text for text in found if not messages.known(text)] == [], WHAT_TO_DO


def test_what_is_left_out_is_still_in_the_source(messages: ModuleType) -> None:
    """The list of what nobody is shown holds nothing that is gone."""
    source = "".join(
        path.read_text(encoding="utf-8")
        for place in messages.SHOWN
        for path in ([ROOT / place] if (ROOT / place).is_file() else (ROOT / place).rglob("*.py"))
    )
    plain = [one for one in messages.MATCHED if "{" not in one]
    assert len(plain) > 30
    assert [one for one in plain if one not in source] == []


# --------------------------------------------------------------------------- what commands show

WORD = r"[A-Za-z][a-z']*[.;:]?"
SENTENCE = re.compile(rf"(?<!\S){WORD}(?:\s+{WORD}){{3,}}(?!\S)")
QUOTED = re.compile(r'`[^`]*`|"[^"\n]*"')
OF_THE_MODEL = re.compile(r".*>>.*<<.*|\s+(提示词|参考|replay/\S+) .*|.* 个 token:.*")
"""Lines that show prompts and completions."""


def english_in(text: str) -> list[str]:
    """Runs of four English words and more, outside of commands, quotes and what the model said."""
    lines = [QUOTED.sub("", line) for line in text.splitlines() if not OF_THE_MODEL.fullmatch(line)]
    return [found[0] for line in lines for found in SENTENCE.finditer(line)]


def test_english_is_seen() -> None:
    assert english_in("错误: the engine does not start") == ["the engine does not start"]
    assert english_in("运行 `parity runs show the newest one please`,结论 DIVERGED") == []


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def shown(home: Path, *command: str) -> str:
    """Both streams of a command in Chinese, on a machine without tools of accelerators."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PARITY_")}
    env |= {"PARITY_HOME": str(home), "PATH": str(home), "COLUMNS": "300"}
    done = subprocess.run(
        [sys.executable, "-m", "parity", "--lang", "zh", *command],
        env=env, capture_output=True, text=True, timeout=120, cwd=home, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def demo(home: Path) -> str:
    """The output of a run; its store is there afterwards."""
    return shown(home, "demo")


def test_a_run_is_told_in_chinese(demo: str) -> None:
    assert "条补全中有 6 条损坏" in demo
    assert "嫌疑:" in demo
    assert english_in(demo) == []


@pytest.mark.usefixtures("demo")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("runs", "show"), "最严重的发现"),
        (("runs", "list"), "结论"),
        (("table",), "每个臂 32 条补全"),
        (("power", "--requests", "64", "--overdispersion", "4"), "条干净的补全可排除"),
        (("doctor", "cpu", "cuda", "ascend"), "数据目录"),
        (("runs", "show", "nothing"), "错误:"),
        (("capture", "check", "nothing.jsonl"), "没有这个捕获"),
        (("compare", "one.jsonl"), "请给出两个捕获"),
        (("compare", "one.jsonl", "two.jsonl"), "提示:"),
        (("run", "--backends", "nothing"), "未知后端"),
        (("run", "--no-such-option"), "错误:"),
        (("reduce", "1", "--plan", "x.json"), "错误:"),
        (("table", "nothing", "more"), "错误:"),
    ],
)
def test_commands_answer_in_chinese(home: Path, command: tuple[str, ...], expected: str) -> None:
    text = shown(home, *command)
    assert expected in text
    assert english_in(text) == []


def test_a_comparison_of_captures_is_told_in_chinese(home: Path) -> None:
    recordings = ROOT / "parity" / "demo"
    text = shown(home, "compare", str(recordings / "base.jsonl.gz"), str(recordings / "mtp.jsonl.gz"))
    assert "INCONCLUSIVE" in text
    assert english_in(text) == []
