"""The command line that reaches a host: every word comes out on the other side as it went in."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.errors import BackendError
from parity.plan.hosts import Host
from parity.run.launch import command_line, run_python

SAY = "import json,os,sys; print(json.dumps([sys.argv[1:], os.environ.get('PARITY_T', None)]))"

FAKE_SSH = """#!/bin/sh
# Like ssh: options and the host away, the rest joined with spaces and split again by a login shell.
while [ $# -gt 0 ]; do case "$1" in -o|-p) shift 2;; -*) shift;; *) break;; esac; done
shift
exec sh -c "$*"
"""

FAKE_DOCKER = """#!/bin/sh
# Like docker exec -i: words go on as they are, into another directory and an environment of its own.
shift 3
cd / && exec env -i PATH="$PATH" "$@"
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("ssh", FAKE_SSH), ("docker", FAKE_DOCKER)):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{Path('/usr/bin')}:/bin")
    return tmp_path / "bin"


def ask(host: Host, word: str, value: str) -> list[object]:
    launch = command_line(host, [sys.executable, "-c", SAY, word], {"PARITY_T": value})
    done = subprocess.run(launch.argv, env=launch.env, capture_output=True, text=True, check=True)
    answer: list[object] = json.loads(done.stdout)
    return answer


AWKWARD = 'it\'s "$HOME" `id` $(id) \\ * ? ; | & < > ( ) { } ! ~ # %  \t é 漢'
PREFIXES = [
    (),
    ("env",),
    ("ssh", "gpu1"),
    ("ssh", "-p", "22", "gpu1"),
    ("ssh", "a", "ssh", "b"),
    ("docker", "exec", "-i", "vllm"),
    ("ssh", "gpu1", "docker", "exec", "-i", "vllm"),
    ("docker", "exec", "-i", "jump", "ssh", "gpu1"),
]


@pytest.mark.parametrize("prefix", PREFIXES, ids=" ".join)
@pytest.mark.parametrize("setup", [None, "echo noise; X='a b'; export OTHER=1"], ids=["plain", "setup"])
def test_words_and_environment_arrive_unchanged(tools: Path, prefix: tuple[str, ...], setup: str | None) -> None:
    host = Host("h", "cpu", command=prefix, setup=setup)
    assert ask(host, AWKWARD, AWKWARD) == [[AWKWARD], AWKWARD]


@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20))
def test_any_text_survives_two_shells(text: str) -> None:
    words = command_line(Host("h", "cpu", command=("ssh", "a", "ssh", "b")), ["python", text], {}).argv
    once = shlex.split(" ".join(words[words.index("a") :]))
    assert shlex.split(" ".join(once[once.index("b") + 1 :]))[-1] == text


def test_what_a_setup_script_does_reaches_the_program(tools: Path) -> None:
    host = Host("h", "cpu", command=("ssh", "gpu1"), setup="export PARITY_SET='from it'; echo loud; read x || true")
    said = run_python(host, "import os; print(os.environ['PARITY_SET'])", python=sys.executable)
    assert said == "from it\n"


@pytest.mark.parametrize("prefix", PREFIXES, ids=" ".join)
def test_the_environment_goes_over_what_a_setup_script_exports(tools: Path, prefix: tuple[str, ...]) -> None:
    """ATB's set_env.sh exports LCCL_DETERMINISTIC=0, whoever has set it to 1 before."""
    host = Host("h", "cpu", command=prefix, setup="export PARITY_T=0")
    assert ask(host, AWKWARD, AWKWARD + "\nmore") == [[AWKWARD], AWKWARD + "\nmore"]


def test_values_of_this_machine_s_environment_stand_in_no_argument() -> None:
    argv = command_line(Host("h", "cpu", setup="true"), ["python"], {"A": "secret", "not a name": "secret"}).argv
    assert argv[-2:] == ["A", "python"]
    assert "secret" not in " ".join(argv)


def test_a_setup_script_that_fails_is_told(tools: Path) -> None:
    host = Host("h", "cpu", command=("ssh", "gpu1"), setup="source /no/such/set_env.sh")
    with pytest.raises(BackendError, match="ended with status"):
        run_python(host, "print(1)", python=sys.executable)


def test_ssh_neither_asks_nor_hangs_unless_told_to() -> None:
    argv = command_line(Host("h", "cpu", command=("/usr/bin/ssh", "gpu1")), ["python3"], {}).argv
    assert argv == shlex.split(
        "/usr/bin/ssh -o BatchMode=yes -o ServerAliveInterval=15 -o ServerAliveCountMax=4 gpu1 python3"
    )
    own = ("ssh", "-oserveraliveinterval=3", "gpu1")
    assert "ServerAliveInterval=15" not in command_line(Host("h", "cpu", command=own), ["python3"], {}).argv


def test_the_number_of_shells_can_be_said() -> None:
    host = Host("h", "cpu", command=("my-wrapper",), shells=1)
    assert command_line(host, ["a b"], {}).argv == ["my-wrapper", "'a b'"]


def test_environment_of_this_machine_is_passed_directly() -> None:
    launch = command_line(Host("h", "cpu"), ["python"], {"A": "1"})
    assert launch.argv == ["python"]
    assert launch.env["A"] == "1"
    assert "A" not in command_line(Host("h", "cpu", command=("env",)), ["python"], {"A": "1"}).env


def test_a_program_runs_there_with_its_arguments() -> None:
    host = Host("h", "cpu", command=("env", "-i"), python=sys.executable, env={"A": "b c"})
    assert run_python(host, "import os,sys\nprint(sys.argv[1:], os.environ['A'])", ["x y"]) == "['x y'] b c\n"


def test_a_program_that_fails_shows_its_last_words() -> None:
    source = "import sys\nsys.stderr.write('\\x1b[31mred\\x1b[0m words\\n')\nsys.exit(5)"
    with pytest.raises(BackendError, match="exit code 5\n  red words"):
        run_python(Host("h", "cpu"), source)


def test_a_program_that_hangs_is_ended() -> None:
    began = time.monotonic()
    with pytest.raises(BackendError, match="did not answer within 1 s"):
        run_python(Host("h", "cpu", command=("env",), python=sys.executable), "import time; time.sleep(60)", timeout=1)
    assert time.monotonic() - began < 10


def test_a_program_that_prints_without_end_is_ended() -> None:
    with pytest.raises(BackendError, match="more than 8 MiB"):
        run_python(Host("h", "cpu"), "while True: print('x' * 65536)")


@pytest.mark.parametrize(
    ("command", "message", "hint"),
    [
        (("/no/such/ssh", "h"), "cannot run /no/such/ssh", "spelled right"),
        (("sh", "-c", "echo 'u@h: Permission denied (publickey).' >&2; exit 255"), "exit code 255", "set up a key"),
        (("sh", "-c", "echo 'sh: 1: python3: command not found' >&2; exit 127"), "exit code 127", "--python npu=PATH"),
        (("sh", "-c", "echo 'Error: No such container: vllm' >&2; exit 1"), "exit code 1", "docker ps"),
    ],
)
def test_a_host_that_is_not_reached_says_what_to_do(command: tuple[str, ...], message: str, hint: str) -> None:
    with pytest.raises(BackendError) as caught:
        run_python(Host("npu", "ascend", command=command), "print(1)")
    assert message in str(caught.value)
    assert hint in str(caught.value.hint)
