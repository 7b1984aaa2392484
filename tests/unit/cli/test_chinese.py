"""Commands answer in Chinese; what an engine or a file says stays as it is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RECORDINGS = ROOT / "parity" / "demo"

WORD = r"[A-Za-z][a-z']*[.;:]?"
SENTENCE = re.compile(rf"(?<!\S){WORD}(?:\s+{WORD}){{3,}}(?!\S)")
QUOTED = re.compile(r'`[^`]*`|"[^"\n]*"')
OF_THE_MODEL = re.compile(r".*>>.*<<.*|\s+(提示词|参考|replay/\S+) .*|.* 个 token：.*")
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


def shown(home: Path, *command: str, language: str = "zh") -> str:
    """Both streams of a command, on a machine without tools of accelerators."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PARITY_")}
    env |= {"PARITY_HOME": str(home), "PATH": str(home), "COLUMNS": "300"}
    done = subprocess.run(
        [sys.executable, "-m", "parity", "--lang", language, *command],
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
    assert "嫌疑：" in demo
    assert english_in(demo) == []


@pytest.mark.usefixtures("demo")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("run", "--help"), "后端，例如 cpu 或 cuda,ascend。"),
        (("runs", "show"), "最严重的发现"),
        (("runs", "list"), "结论"),
        (("table",), "每个实验组 32 条补全"),
        (("report", "--format", "md"), "本次运行的结论"),
        (("power", "--requests", "64", "--overdispersion", "4"), "条干净的补全可排除"),
        (("doctor", "cpu"), "数据目录"),
        (("runs", "show", "nothing"), "错误："),
        (("capture", "check", "nothing.jsonl"), "没有这个采集文件"),
        (("compare", "one.jsonl"), "没有这个采集文件"),
        (("compare", "one.jsonl", "two.jsonl"), "提示："),
        (("run", "--backends", "nothing"), "未知后端"),
        (("run", "--no-such-option"), "错误："),
        (("run", "--score", "nothing"), "不在可选值"),
        (("reduce", "1", "--plan", "x.json"), "错误："),
    ],
)
def test_commands_answer_in_chinese(home: Path, command: tuple[str, ...], expected: str) -> None:
    text = shown(home, *command)
    assert expected in text
    if command[0] != "report":  # names of upstream's form
        assert english_in(text) == []


def test_json_is_the_same_in_every_language(home: Path) -> None:
    command = ("compare", str(RECORDINGS / "base.jsonl.gz"), str(RECORDINGS / "mtp.jsonl.gz"), "--json")
    said = {language: json.loads(shown(home, *command, language=language)) for language in ("en", "zh")}
    assert said["en"]["reasons"] == said["zh"]["reasons"]
