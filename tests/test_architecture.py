"""Lines that must hold over the whole tree: who imports what, how fast the command answers, what ships."""

from __future__ import annotations

import ast
import json
import os
import pkgutil
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from parity_backends.vllm.local import worker_source

import parity

ROOT = Path(__file__).parents[1]
ENGINES = {"torch", "torch_npu", "vllm", "vllm_ascend", "transformers", "parity_backends"}


def _python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120, check=False, cwd=ROOT
    )


def _modules() -> list[str]:
    """Every module of parity but `__main__`, which runs the command when it is imported."""
    found = ["parity"]
    for module in pkgutil.walk_packages(parity.__path__, "parity."):
        if not module.name.endswith(".__main__"):
            found.append(module.name)
    return found


def test_every_module_imports_without_adapters_and_engines() -> None:
    modules = _modules()
    assert {"parity.records", "parity.cli.main", "parity.store.read"} <= set(modules)
    code = (
        "import importlib, json, sys\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    done = _python(code, *modules)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    assert "parity" in loaded
    assert not loaded & ENGINES


def test_every_module_imports_where_there_is_no_posix() -> None:
    """As on Windows: `parity.locks` takes the other branch, and nothing else imports what is not there."""
    code = (
        "import importlib, sys, types\n"
        "here, sys.platform, sys.modules['msvcrt'] = sys.platform, 'win32', types.ModuleType('msvcrt')\n"
        "importlib.import_module('parity.locks')\n"
        "sys.platform = here\n"
        "del sys.modules['msvcrt']\n"
        "import os, signal\n"
        "for name in ('fcntl', 'grp', 'pwd', 'resource', 'termios', 'tty', 'pty'): sys.modules[name] = None\n"
        "names = {signal: ('SIGKILL', 'SIGHUP', 'SIGSTOP', 'SIGCONT', 'SIGUSR1', 'SIGPIPE', 'SIGALRM'),\n"
        "         os: ('fork', 'setsid', 'killpg', 'mkfifo', 'sched_getaffinity', 'wait4')}\n"
        "for module in names: [delattr(module, name) for name in names[module] if hasattr(module, name)]\n"
        "for name in sys.argv[1:]: importlib.import_module(name)"
    )
    posix = {"parity.tui.driver"}  # of a POSIX terminal: parity.tui.app asks for it there alone
    done = _python(code, *sorted({*_modules()} - posix))
    assert done.returncode == 0, done.stderr


POSIX = {
    "": {"fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "curses"},
    "os": {"fork", "setsid", "killpg", "getuid", "geteuid", "mkfifo", "sched_getaffinity", "wait4"},
    "signal": {"SIGKILL", "SIGHUP", "SIGSTOP", "SIGCONT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGPIPE", "SIGCHLD"},
}
"""Modules and names of modules that Windows lacks; macOS has no affinity either."""


def test_every_test_module_imports_where_there_is_no_posix() -> None:
    """One that does not ends the whole suite there, before the first test."""
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path.parent.name not in {"hostile", "fuzz"}:  # its conftest collects nothing there
            found += [f"{path.relative_to(ROOT)}: {name}" for name in _posix(ast.parse(path.read_text("utf-8")))]
    assert found == []


def test_what_posix_alone_has_is_noticed_where_it_is_asked_for_at_once() -> None:
    tree = ast.parse(
        "import os, signal\n"
        "import pty as terminal\n"
        "@mark(os.fork, [signal.SIGHUP])\n"
        "def f(a=signal.SIGALRM):\n"
        "    import fcntl\n"
        "    return os.wait4\n"
        "class C:\n"
        "    a = os.setsid\n"
    )
    assert sorted(_posix(tree)) == ["os.fork", "os.setsid", "pty", "signal.SIGALRM", "signal.SIGHUP"]


def _posix(tree: ast.Module) -> Iterator[str]:
    """What an import of this module would ask for and not find."""
    yield from sorted(set(_top_level_imports(tree)) & POSIX[""])
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
        elif not isinstance(node, ast.Lambda):
            waiting += ast.iter_child_nodes(node)
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if name in POSIX.get(module, ()):
                yield f"{module}.{name}"


def test_imports_keep_to_the_contracts() -> None:
    config = str(ROOT / "pyproject.toml")
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(config_filename=sys.argv[1]))"
    done = _python(code, config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def _top_level_imports(tree: ast.Module) -> Iterator[str]:
    """Top-level packages imported when the module is: bodies of functions do not count, branches do."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." if node.level else (node.module or "").split(".")[0]
        waiting.extend(ast.iter_child_nodes(node))


def test_the_worker_needs_python_3_9_the_standard_library_and_numpy_only() -> None:
    tree = ast.parse(worker_source(), filename="worker.py", feature_version=(3, 9))
    imported = set(_top_level_imports(tree))
    assert "json" in imported
    assert imported <= {*sys.stdlib_module_names, "numpy"}  # torch and vLLM have it


def test_grammar_newer_than_3_9_would_be_noticed() -> None:
    with pytest.raises(SyntaxError):
        ast.parse("match a:\n    case 1:\n        pass\n", feature_version=(3, 9))
    nested = ast.parse("import json\nif json:\n    import torch\ndef f():\n    import vllm\n")
    assert set(_top_level_imports(nested)) == {"json", "torch"}


def test_help_is_quick() -> None:
    """Under 0.3 s of processor time, so that a busy machine does not decide; the best of several."""
    command = [sys.executable, "-m", "parity", "--help"]
    best = float("inf")
    for _ in range(12):
        began, spent = time.perf_counter(), _children_seconds()
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        # Windows does not say what a child has used.
        best = min(best, _children_seconds() - spent or time.perf_counter() - began)
        assert "Commands" in done.stdout
        if best < 0.3:
            return
    pytest.fail(f"`parity --help` took {best:.2f} s at best")


def _children_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system


def test_help_loads_none_of_the_heavy_libraries() -> None:
    code = (
        "import json, sys\n"
        "from parity.cli.main import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit as end: assert not end.code\n"
        "print('\\n' + json.dumps(sorted(sys.modules)))"
    )
    done = _python(code)
    assert done.returncode == 0, done.stderr
    loaded = {name.split(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}
    assert not loaded & {"numpy", "rich", "textual", "sqlite_utils", "tokenizers", "jinja2", *ENGINES}


def _files() -> list[Path]:
    """What the repository holds: git's list, or every file where there is no git (an unpacked sdist)."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]
    top = ("parity", "backends", "tests", "docs", "tools", "benchmarks", "reports")
    return [path for name in top for path in (ROOT / name).rglob("*") if path.is_file()]


# Somebody's home or a workplace's mount. Assembled, so as not to find itself.
_MACHINE_PATH = re.compile(r"(?<![\w.:/~<$}*-])/(?:" + "|".join(("home", "root", "work", "Users")) + r")/\w+")
_EXAMPLES = re.compile(r"/(?:home|Users)/(?:user|you|me)\b")


def _machine_paths(text: str) -> list[str]:
    return [found for found in _MACHINE_PATH.findall(text) if not _EXAMPLES.match(found)]


def test_no_file_names_a_path_of_one_machine() -> None:
    looked = 0
    found = []
    for path in _files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # weights, pictures
            continue
        looked += 1
        found += [f"{path.relative_to(ROOT)}: {place}" for place in _machine_paths(text)]
    assert looked > 50
    assert not found


def test_a_machine_path_would_be_noticed() -> None:
    for start in ("home/ada", "root/models", "work/place"):
        assert _machine_paths(f'open("/{start}/x")')
    assert not _machine_paths("https://example.org/work/place a/root/models ./home/ada")


def test_what_is_declared_is_locked() -> None:
    """Each dependency of the project and of its tests has a pin in constraints.txt."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    canonical = [
        re.sub(r"[-_.]+", "-", re.split(r"[\s\[<>=!~;]", wanted, maxsplit=1)[0]).lower()
        for wanted in [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    ]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in lines if "==" in line}
    assert len(canonical) > 10
    assert set(canonical) <= pinned


def test_the_wheel_has_the_model_the_worker_and_the_entry_points(tmp_path: Path) -> None:
    """Built by the installed backend, offline, unpacked, and run from there."""
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    unpacked = _python(
        "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])", str(wheel), str(site)
    )
    assert unpacked.returncode == 0, unpacked.stderr
    here = {path.relative_to(ROOT) for path in _files()}
    shipped = {path.relative_to(site) for path in site.rglob("*") if path.is_file()}
    for package, inside in (
        (Path("parity"), Path("parity")),
        (Path("backends/parity_backends"), Path("parity_backends")),
        (Path("backends/parity_faults"), Path("parity_faults")),
    ):
        wanted = {inside / path.relative_to(package) for path in here if path.is_relative_to(package)}
        wanted -= {Path("parity_faults/pyproject.toml")}  # for an installation of its own
        wanted = {path for path in wanted if "__pycache__" not in path.parts}  # of an unpacked sdist, without git
        assert inside / "py.typed" in wanted
        assert wanted <= shipped
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); import parity; from parity.run import load_backend\n"
        "assert parity.__file__.startswith(sys.argv[1]), parity.__file__\n"
        "cpu = load_backend('cpu')\n"
        "assert type(cpu).__module__ == 'parity_backends.vllm.cpu'\n"
        "model = cpu.default_model()\n"
        "assert str(model).startswith(sys.argv[1]) and (model / 'model.safetensors').stat().st_size > 1e6, model\n"
        "assert b'__main__' in cpu.worker_source()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(site)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert done.returncode == 0, done.stderr
