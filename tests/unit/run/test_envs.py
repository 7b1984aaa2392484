"""Engine environments, with one tiny wheel in place of an engine."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from parity_backends.vllm.local import managed

from parity import locks
from parity.errors import BackendError, ParityError
from parity.messages import verbatim
from parity.run import envs
from parity.run.envs import EngineEnv, EnvSpec
from parity.run.installing import run_logged


def make_wheel(directory: Path, name: str, version: str, body: str = "") -> None:
    directory.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", f"version = {version!r}\n{body}")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment to copy, because making one takes seconds (a copy is good enough for a test)."""
    root = tmp_path_factory.mktemp("template") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(root)], check=True)
    return root


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: Path) -> Path:
    """Two wheels, the only ones that pip finds; virtual environments are copies of the template."""
    real = EngineEnv._run

    def run(self: EngineEnv, command: list[str], say: envs.Say, doing: str) -> None:
        if "venv" in command:
            shutil.copytree(template, command[-1], symlinks=True)
        else:
            real(self, command, say, doing)

    monkeypatch.setattr(EngineEnv, "_run", run)
    directory = tmp_path / "wheels"
    make_wheel(directory, "tinyengine", "1.0")
    make_wheel(directory, "tinydep", "2.0")
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.delenv(envs.INDEX_VARIABLE, raising=False)
    return directory


SPEC = EnvSpec("tiny", ("tinyengine", "1.0"), ("tinydep==2.0",), ("tinydep",), None, "import tinyengine, tinydep")


def test_create_list_reuse_remove(tmp_path: Path, wheels: Path) -> None:
    said: list[str] = []
    made = EngineEnv(SPEC, tmp_path / "envs")
    assert str(made.state()) == "not there"
    assert made.create(say=lambda line: said.append(str(line)))
    assert made.ready()
    assert [line[:5] for line in said if line.startswith("[")] == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    version = subprocess.run(
        [made.python, "-c", "import tinyengine; print(tinyengine.version)"], capture_output=True, text=True, check=True
    )
    assert version.stdout.strip() == "1.0"
    assert made.versions()["tinyengine"] == "1.0"
    assert [(root.name, bool(marker)) for root, marker in envs.list_envs(tmp_path / "envs")] == [("tiny", True)]
    assert not made.create(say=lambda line: said.append(str(line)))
    assert made.remove(said.append)
    assert envs.list_envs(tmp_path / "envs") == []
    assert not made.remove(said.append)


def test_other_pins_make_it_stale_and_rebuild_it(tmp_path: Path, wheels: Path) -> None:
    base = tmp_path / "envs"
    EngineEnv(SPEC, base).create(say=lambda line: None)
    make_wheel(wheels, "tinydep", "3.0")
    newer = EngineEnv(replace(SPEC, pins=("tinydep==3.0",)), base)
    assert str(newer.state()) == "made for other versions"
    assert newer.create(say=lambda line: None)
    assert newer.ready()


def test_a_failure_shows_the_end_of_the_log_and_leaves_nothing(tmp_path: Path, wheels: Path) -> None:
    made = EngineEnv(replace(SPEC, engine=("tinyengine", "9.9")), tmp_path / "envs")
    with pytest.raises(BackendError, match=r"No matching distribution found for tinyengine==9\.9") as caught:
        made.create(say=lambda line: None)
    assert caught.value.hint is not None
    assert "--extra-index-url" in str(caught.value.hint)
    assert not made.root.exists()
    assert made.log.exists()


def test_an_engine_that_does_not_import_is_no_environment(tmp_path: Path, wheels: Path) -> None:
    make_wheel(wheels, "tinyengine", "1.1", "raise ImportError('libfoo.so is missing')\n")
    made = EngineEnv(replace(SPEC, engine=("tinyengine", "1.1")), tmp_path / "envs")
    with pytest.raises(BackendError, match=r"libfoo\.so is missing"):
        made.create(say=lambda line: None)
    assert not made.root.exists()


def test_the_special_index_is_tried_once_when_the_package_is_not_found(
    tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[tuple[str, ...], str | None]] = []
    real = EngineEnv._pip

    def pip(self: EngineEnv, pins: list[str], say: envs.Say, index: str | None) -> None:
        calls.append((tuple(pins), index))
        if index:
            make_wheel(wheels, "tinytorch", "1.0")
        real(self, pins, say, None)

    monkeypatch.setattr(EngineEnv, "_pip", pip)
    spec = replace(
        SPEC, pins=("tinydep==2.0", "tinytorch==1.0"), special=("tinytorch",), special_index="https://example.org/cpu"
    )
    said: list[str] = []
    made = EngineEnv(spec, tmp_path / "envs")
    made.create(say=lambda line: said.append(str(line)))
    assert calls == [
        (("tinyengine==1.0",), None),
        (("tinytorch==1.0",), None),
        (("tinytorch==1.0",), "https://example.org/cpu"),
        (("tinydep==2.0",), None),
    ]
    assert any("trying https://example.org/cpu" in line for line in said)


def test_an_index_that_was_asked_for_is_used_from_the_start(
    tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    real = EngineEnv._run

    def run(self: EngineEnv, command: list[str], say: envs.Say, doing: str) -> None:
        commands.append(list(command))
        real(self, [part for part in command if part not in ("--extra-index-url", "https://x.example")], say, doing)

    monkeypatch.setattr(EngineEnv, "_run", run)
    monkeypatch.setenv(envs.INDEX_VARIABLE, "https://x.example")
    EngineEnv(SPEC, tmp_path / "envs").create(say=lambda line: None)
    pips = [command for command in commands if "install" in command]
    assert len(pips) == 2
    assert all(command[command.index("--extra-index-url") + 1] == "https://x.example" for command in pips)


def test_an_unfinished_one_is_not_ready_and_is_cleaned(tmp_path: Path, wheels: Path) -> None:
    made = EngineEnv(SPEC, tmp_path / "envs")
    (made.root / "bin").mkdir(parents=True)
    (made.root / "leftover").touch()
    made.python.symlink_to(sys.executable)
    assert not made.ready()
    assert str(made.state()) == "unfinished (an interrupted creation)"
    said: list[str] = []
    made.create(say=lambda line: said.append(str(line)))
    assert made.ready()
    assert not (made.root / "leftover").exists()
    assert any("unfinished" in line for line in said)


def _create(base: str, delay: str) -> None:
    spec = replace(SPEC, verify=f"import time; time.sleep({delay}); " + SPEC.verify)
    said: list[str] = []
    built = EngineEnv(spec, Path(base)).create(say=lambda line: said.append(str(line)))
    Path(base, f"out-{os.getpid()}").write_text(json.dumps([built, said]))


def test_kill_9_in_the_middle_leaves_nothing_that_looks_finished(tmp_path: Path, wheels: Path) -> None:
    base = tmp_path / "envs"
    process = multiprocessing.get_context("fork").Process(target=_create, args=(str(base), "5"))
    process.start()
    made = EngineEnv(SPEC, base)
    until = time.monotonic() + 60
    while not made.python.exists() and time.monotonic() < until:
        time.sleep(0.02)
    process.kill()
    process.join()
    assert made.root.exists()
    assert not made.ready()
    assert made.create(say=lambda line: None)
    assert made.ready()


@pytest.mark.skipif(sys.platform == "win32", reason="a lock of Windows is a process's own")
def test_a_command_that_outlives_its_creator_keeps_the_lock(tmp_path: Path) -> None:
    begun, ended, lock_file = tmp_path / "begun", tmp_path / "ended", tmp_path / "lock"
    command = "import pathlib, sys, time\npathlib.Path(sys.argv[1]).touch()\n"
    command += "while not pathlib.Path(sys.argv[2]).exists(): time.sleep(0.01)"

    def creator() -> None:
        with envs._locked(lock_file, lambda _: None):
            words = [sys.executable, "-c", command, str(begun), str(ended)]
            run_logged(words, tmp_path / "log", lambda _: None, verbatim("waiting"), None)

    process = multiprocessing.get_context("fork").Process(target=creator)
    process.start()
    until = time.monotonic() + 60
    while not begun.exists() and time.monotonic() < until:
        time.sleep(0.02)
    process.kill()
    process.join()
    with lock_file.open("w") as file:
        try:
            assert not locks.lock_now(file.fileno())
        finally:
            ended.touch()
        locks.lock(file.fileno())


def test_two_creators_do_not_collide(tmp_path: Path, wheels: Path) -> None:
    base = tmp_path / "envs"
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_create, args=(str(base), "1")) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    outcomes = [json.loads(path.read_text()) for path in base.glob("out-*")]
    assert sorted(built for built, _ in outcomes) == [False, True]
    assert any("waiting" in line for _, said in outcomes for line in said)


def test_no_such_python(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="cannot run /nowhere/python") as caught:
        EngineEnv(SPEC, tmp_path / "envs").create(say=lambda line: None, python=Path("/nowhere/python"))
    assert str(caught.value.hint) == "name another with --python"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ParityError, match="cannot write") as caught:
        EngineEnv(SPEC, tmp_path / "file" / "envs").create(say=lambda line: None)
    assert "PARITY_HOME" in str(caught.value.hint)


def test_what_is_imported_at_the_end_stays_compiled(
    tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a container that forbids it to all: the first engine's start would compile it all again."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    spec = replace(SPEC, overlay=(("brought/__init__.py", ""),), verify="import brought")
    made = EngineEnv(spec, tmp_path / "envs")
    assert made.create(say=lambda line: None)
    assert list(made.root.glob("lib/python*/site-packages/brought/__pycache__/*.pyc"))


def test_files_that_parity_brings_along_are_written_anew_alone(tmp_path: Path, wheels: Path) -> None:
    base = tmp_path / "envs"
    first = replace(SPEC, overlay=(("brought/__init__.py", "word = 'first'\n"),), verify="import brought")
    made = EngineEnv(first, base)
    assert made.create(say=lambda line: None)
    assert made.ready()
    installed = made.python.stat().st_ino
    second = EngineEnv(replace(first, overlay=(("brought/__init__.py", "word = 'second'\n"),)), base)
    assert not second.ready()
    assert str(second.state()) == "its files are those of another parity"
    said: list[str] = []
    assert managed(second, "tiny", lambda line: said.append(str(line))) == second.python
    assert said == [f"{second.root}: writing parity's own files anew"]
    assert second.ready()
    assert second.python.stat().st_ino == installed
    shown = subprocess.run([second.python, "-c", "import brought; print(brought.word)"], capture_output=True, text=True)
    assert shown.stdout.strip() == "second"
    assert not second.create(say=lambda line: None)
