"""The command line: fast to start, quiet on stdout, one message for a mistake."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from captures import capture, completion
from click.testing import CliRunner, Result

import parity
from parity.capture import write_capture
from parity.cli.main import COMMANDS, cli
from parity.records import Capture, ScoreKey, TopLogprobs
from parity.store import Store

TOKENS = {"p0": [5, 6, 7, 8], "p1": [9, 10, 11, 12], "p2": [20, 21, 22, 23]}


def make(arm: str, changes: dict[str, list[int]] | None = None) -> Capture:
    streams = {**TOKENS, **(changes or {})}
    return capture(arm, *(completion(tokens, name) for name, tokens in streams.items()), vocab_size=2048)


def scores(capture: Capture, bad: set[int]) -> dict[ScoreKey, TopLogprobs]:
    found = {}
    for one in capture:
        rows = [[[3, -0.1], [t, -9.0]] if t in bad else [[t, -0.3]] for t in one.token_ids.tolist()]
        found[ScoreKey(capture.header.arm, *one.key)] = TopLogprobs.from_json(rows)
    return found


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    captures = {
        "base": make("cpu/base"),
        "same": make("cpu/mtp"),
        "tie": make("cpu/mtp", {"p1": [9, 10, 30, 31]}),
        "bad": make("cpu/mtp", {"p1": [9, 10, 30, 31]}),
    }
    paths = {}
    for name, one in captures.items():
        path = tmp_path / f"{name}.jsonl"
        bad = {30} if name == "bad" else set()
        write_capture(path, Capture(one.header, one.completions, scores(one, bad), one.counters))
        paths[name] = str(path)
    return paths


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PARITY_HOME", str(tmp_path / "home"))

    def call(*args: str) -> Result:
        result = CliRunner().invoke(cli, args)
        assert "Traceback" not in result.stderr
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return call


# --------------------------------------------------------------------------- starting


@pytest.mark.parametrize(
    "args",
    [
        ["runs", "list", "--db", "~nobody-is-called-so/parity.db"],
        ["run", "--resume", "--out", "~nobody-is-called-so/run"],
        ["plan", "--suite", "smoke", "--model", "~nobody-is-called-so/model"],
    ],
)
def test_the_home_of_nobody_is_no_fault_of_parity(invoke: Any, args: list[str]) -> None:
    result = invoke(*args)
    assert result.exit_code == 2
    assert "there is no user 'nobody-is-called-so' on this machine" in " ".join(result.stderr.split())


def test_help_answers_at_once() -> None:
    """In seconds of the processor, where the system counts those of children: the machine may do other work as well."""
    times = []
    for _ in range(5):
        began = os.times()
        subprocess.run([sys.executable, "-m", "parity", "--help"], check=True, capture_output=True)
        ended = os.times()
        times.append(ended.children_user + ended.children_system - began.children_user - began.children_system)
    assert min(times) < 0.3, times


HEAVY = ("numpy", "rich", "textual", "sqlite_utils", "tokenizers", "jinja2", "rapidfuzz", "orjson", "parity_backends")


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["nonsense"]])
def test_help_imports_nothing_heavy(args: list[str]) -> None:
    code = (
        "import sys\nfrom parity.cli.main import cli\n"
        f"try:\n cli.main({args!r})\nexcept SystemExit: pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


UNASKED = ("numpy.ma", "http.client", "ssl", "sqlite_utils", "rapidfuzz", "jinja2", "textual")


def test_a_small_comparison_loads_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    arms = [str(tmp_path / arm) for arm in ("base", "mtp")]
    for path in arms:
        write_capture(Path(path), make("cpu/" + Path(path).name))
    code = (
        "import gc, sys\ncollected = []\ngc.callbacks.append(lambda phase, _: collected.append(phase))\n"
        f"sys.argv = ['parity', 'compare', *{arms!r}]\nfrom parity.__main__ import entry\n"
        "collected.clear()\ntry:\n entry()\nexcept SystemExit: pass\n"
        f"print([*collected, *(m for m in {UNASKED!r} if m in sys.modules)], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]", done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_short_help_is_the_commands_own(name: str) -> None:
    module, attribute = COMMANDS[name][0].split(":")
    command = getattr(import_module(module), attribute)
    assert isinstance(command, click.Command)
    assert command.get_short_help_str(200) == COMMANDS[name][1]


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        return [path]
    ctx = click.Context(command)
    found = []
    for name in command.list_commands(ctx):
        sub = command.get_command(ctx, name)
        assert sub is not None
        found += _commands(sub, (*path, name))
    return found


@pytest.mark.parametrize("path", _commands(cli), ids=" ".join)
def test_every_command_and_option_is_described(path: tuple[str, ...], invoke: Any) -> None:
    result = invoke(*path, "--help")
    assert result.exit_code == 0
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{' '.join(path)} {parameter.opts[0]} has no help"
    if path[0] in ("run", "compare", "runs"):
        assert "--db" in result.stdout
    if path[0] in ("run", "compare", "doctor") or path[-1] in ("list", "show", "check"):
        assert "--json" in result.stdout


def test_version_and_unknown_command(invoke: Any) -> None:
    assert parity.__version__ in invoke("--version").stdout
    unknown = invoke("nonsense")
    assert unknown.exit_code == 2
    assert unknown.stdout == ""
    assert "nonsense" in unknown.stderr


# --------------------------------------------------------------------------- compare


@pytest.mark.parametrize(("typed", "meant"), [("rnu", "run"), ("comapre", "compare"), ("docter", "doctor")])
def test_a_misspelt_command_is_answered_with_the_one_meant(invoke: Any, typed: str, meant: str) -> None:
    result = invoke(typed)
    assert result.exit_code == 2
    assert f"No such command '{typed}'." in result.stderr
    assert "Did you mean" in result.stderr
    assert meant in result.stderr.split("Did you mean")[1]


def test_compare_says_pass_or_diverged(invoke: Any, files: dict[str, str]) -> None:
    for name, code, verdict in (("same", 0, "PASS"), ("tie", 0, "PASS"), ("bad", 1, "DIVERGED")):
        shown = invoke("compare", files["base"], files[name])
        assert (shown.exit_code, shown.stdout.split()[0]) == (code, verdict)
        assert all(len(line) <= 80 for line in shown.stdout.splitlines())
        as_json = json.loads(invoke("compare", files["base"], files[name], "--json").stdout)
        assert as_json["verdict"] == verdict
    (finding,) = as_json["findings"]
    expected = {"request": "p1", "round": 0, "sample": 0, "severity": "corrupt", "position": 2}
    assert {name: finding[name] for name in expected} == expected
    assert {"kind", "length", "evidence"} <= set(finding)
    assert as_json["counts"] == {finding["kind"]: 1}


def test_scores_in_a_file_of_their_own(invoke: Any, files: dict[str, str], tmp_path: Path) -> None:
    edited = re.sub(r',"crc32":"[0-9a-f]{8}"\}', "}", Path(files["bad"]).read_text())
    lines = edited.splitlines(keepends=True)
    bare, apart = tmp_path / "bare.jsonl", tmp_path / "scores.jsonl"
    apart.write_text("".join(line for line in lines if '"record":"score"' in line))
    bare.write_text(
        "".join(line for line in lines if '"record":"score"' not in line).replace('"scores":3', '"scores":0')
    )
    without = invoke("compare", files["base"], str(bare), "--json")
    assert json.loads(without.stdout)["verdict"] != "DIVERGED"
    done = invoke("compare", files["base"], str(bare), "--scores", str(apart), "--json")
    assert done.exit_code == 1
    loose = invoke("compare", files["base"], str(bare), "--scores", str(apart), "--tolerance", "20", "--json")
    assert loose.exit_code == 4  # nothing is corrupt by that, and any token would pass
    auto = invoke("compare", files["base"], str(bare), "--scores", str(apart), "--tolerance", "auto", "--json")
    assert auto.exit_code in (1, 4)


def test_a_saved_comparison_is_a_run(invoke: Any, files: dict[str, str], tmp_path: Path) -> None:
    db = str(tmp_path / "mine.db")
    saved = json.loads(invoke("compare", files["base"], files["bad"], "--db", db, "--json").stdout)
    (listed,) = json.loads(invoke("runs", "list", "--db", db, "--json").stdout)
    assert (listed["run"], listed["source"], listed["verdict"]) == (saved["run"], "compare", "DIVERGED")
    with Store.open(Path(db)) as store:
        assert all(reason.id for reason in store.run(saved["run"]).reasons), "told again in any language"
    shown = json.loads(invoke("runs", "show", saved["run"][:10], "--db", db, "--json").stdout)
    assert shown["findings"][0]["position"] == 2
    assert shown["findings"][0]["state"] == "new"
    assert "DIVERGED" in invoke("runs", "show", "--db", db).stdout
    kept = CliRunner().invoke(cli, ["runs", "delete", saved["run"], "--db", db], input="n\n")
    assert kept.exit_code == 0
    assert "Delete run" in kept.stderr
    assert invoke("runs", "delete", saved["run"], "--db", db, "--yes").stdout.startswith("deleted")
    assert json.loads(invoke("runs", "list", "--db", db, "--json").stdout) == []


def test_comparing_does_not_store_unless_asked(invoke: Any, files: dict[str, str], tmp_path: Path) -> None:
    invoke("compare", files["base"], files["same"])
    assert not (tmp_path / "home").exists()


def test_an_arm_compared_with_itself_cannot_be_saved_twice(invoke: Any, files: dict[str, str]) -> None:
    assert invoke("compare", files["base"], files["base"]).exit_code == 0
    saved = invoke("compare", files["base"], files["base"], "--save")
    assert saved.exit_code == 2
    assert "same arm" in saved.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["compare", "nope.jsonl", "nope.jsonl"], "no such capture"),
        (["compare", "{base}"], "name two captures, or one and --against RUN"),
        (["compare", "sent/parity-kit-result.tar.gz"], "no such capture: sent/parity-kit-result.tar.gz"),
        (["compare", "{base}", "{same}", "--tolerance", "much"], "--tolerance"),
        (["compare", "{base}", "{same}", "--tolerance", "-1"], "--tolerance"),
        (["compare", "{base}", "{same}", "--scores", "nope"], "nope"),
        (["compare", "{base}", "{same}", "--model", "/no/such"], "no tokenizer.json"),
        (["compare", "{cut}", "{same}"], "line"),
        (["compare", "{empty}", "{same}"], "no header"),
        (["capture", "check", "nope.jsonl"], "no such capture"),
        (["runs", "show", "--db", "/no/such/x.db"], "no database"),
        (["plan", "--engine", "novalue"], "KEY=VALUE"),
        (["plan", "--backends", ","], "names nothing"),
        (["plan", "--prompts", "x", "--suite", "smoke"], "both --prompts and --suite"),
        (["plan", "--max-num-seqs", "3", "--engine", "max_num_seqs=4"], "given twice"),
        (["plan", "--suite", "smoke", "-o", "/dev/null/x"], "cannot write"),
    ],
)
def test_mistakes(invoke: Any, files: dict[str, str], tmp_path: Path, args: list[str], message: str) -> None:
    text = Path(files["base"]).read_text()
    (tmp_path / "cut.jsonl").write_text(text[: len(text) // 2])
    (tmp_path / "empty.jsonl").write_text("")
    paths = {**files, "cut": str(tmp_path / "cut.jsonl"), "empty": str(tmp_path / "empty.jsonl")}
    result = invoke(*(arg.format(**paths) for arg in args))
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert "hint:" in result.stderr or "Usage:" in result.stderr


# --------------------------------------------------------------------------- the rest


def test_capture_check(invoke: Any, files: dict[str, str], tmp_path: Path) -> None:
    good = invoke("capture", "check", files["base"])
    assert (good.exit_code, "valid" in good.stdout) == (0, True)
    broken = tmp_path / "broken\x1b[2J.jsonl"
    broken.write_text(Path(files["base"]).read_text().replace('"round":0', '"round":"\\u001b[31m"', 1))
    result = invoke("capture", "check", str(broken))
    assert result.exit_code == 2
    assert "line 2" in result.stdout
    assert "\x1b" not in result.stdout
    problems = json.loads(invoke("capture", "check", str(broken), "--json").stdout)
    assert problems["valid"] is False
    assert problems["problems"][0]["line"] == 2


def test_plan_goes_to_stdout_or_a_file(invoke: Any, tmp_path: Path) -> None:
    printed = json.loads(invoke("plan", "--suite", "smoke", "-k", "3", "--engine", "kv_cache_dtype=auto").stdout)
    assert printed["arms"][1]["engine"]["speculative_config"]["num_speculative_tokens"] == 3
    assert {arm["engine"]["kv_cache_dtype"] for arm in printed["arms"]} == {"auto"}
    written = invoke("plan", "--suite", "smoke", "-o", str(tmp_path / "p.json"))
    assert (written.exit_code, written.stdout) == (0, "")
    assert "4 prompts" in written.stderr


def test_names_from_a_far_host_cannot_drive_the_terminal(invoke: Any, tmp_path: Path) -> None:
    hostile = "x\x1b[2J\x1b]0;owned\x07\u202ey"
    baseline, candidate = make("cpu/base", {hostile: [5, 7]}), make("cpu/mtp", {hostile: [5, 30]})
    scored = Capture(candidate.header, candidate.completions, scores(candidate, {30}), candidate.counters)
    write_capture(tmp_path / "a.jsonl", baseline)
    write_capture(tmp_path / "b.jsonl", scored)
    result = invoke("compare", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl"))
    assert result.exit_code == 1
    assert not set(result.stdout) & {"\x1b", "\x07", "\u202e"}
    assert "x\\x1b[2J\\x1b]0;owned\\x07\\u202ey" in result.stdout


def test_an_unexpected_error_is_one_line_and_a_file(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import parity.capture

    def broken(path: object) -> None:
        raise ZeroDivisionError("secret cause")

    monkeypatch.setattr(parity.capture, "check_capture", broken)
    result = invoke("capture", "check", "x")
    assert result.exit_code == 70
    assert "ZeroDivisionError: secret cause" in result.stderr
    (saved,) = (Path(os.environ["PARITY_HOME"])).glob("crash-*.txt")
    assert "Traceback" in saved.read_text()
    assert str(saved) in result.stderr
    shown = CliRunner().invoke(cli, ["--debug", "capture", "check", "x"], env={"PARITY_DEBUG": None})
    assert "Traceback" in shown.stderr
    os.environ.pop("PARITY_DEBUG", None)


@pytest.mark.parametrize("what", ["compare '{base}' '{bad}' --json", "compare '{base}' '{bad}'", "--help", "run -h"])
def test_a_reader_that_goes_away_is_no_error_and_no_verdict(files: dict[str, str], what: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # gone before the first word: a shell's `| true` is at times still there for the last one
    try:
        command = [sys.executable, "-m", "parity", *shlex.split(what.format_map(files))]
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 141  # not 1, which would say DIVERGED of whatever it was


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_locale_without_utf8_ends_nothing(files: dict[str, str], encoding: str) -> None:
    """Text is spelled out, JSON stays JSON."""
    command = [sys.executable, "-m", "parity", "--lang", "zh", "compare", files["base"], files["bad"]]
    env = {**os.environ, "PYTHONIOENCODING": f"{encoding}:strict"}
    said = subprocess.run(command, env=env, capture_output=True)
    assert said.returncode == 1
    assert "\\u635f\\u574f" in said.stdout.decode(encoding)  # "corrupt"
    data = subprocess.run([*command, "--json"], env=env, capture_output=True)
    assert json.loads(data.stdout.decode("utf-8"))["verdict"] == "DIVERGED"
