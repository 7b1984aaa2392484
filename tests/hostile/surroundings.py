"""What a command stands in: words that are no UTF-8, a directory that is gone, variables, homes, streams."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from asked import Asked
from judging import Ended, Place, place
from stores import ENV, MOVES, base, copied

MIB = 700
SECONDS = 60.0
HALF = os.fsdecode(b"x\xff\xfe")
"""A word that is no UTF-8, as Python gets it."""

CAPTURES = ("run/fake-base.jsonl", "run/fake-mtp.jsonl")
COMMANDS: tuple[tuple[str, ...], ...] = (
    (), ("--help",), ("--version",), ("run", "--backends", "fake", "--suite", "smoke", "--max-tokens", "4", "--out", "other"), ("demo", "--out", "demo"),
    ("compare", *CAPTURES), ("compare", *CAPTURES, "--json"), ("compare", *CAPTURES, "--save"), ("plan", "--backends", "fake", "--suite", "smoke", "-o", "plan.json"), ("plan", "--backends", "fake", "--suite", "smoke"),
    ("worker", "run/plan.json", "--arm", "fake/base", "-o", "w.jsonl"), ("worker", "--write", "worker.py"), ("kit", "-o", "kit.pyz"), ("capture", "check", CAPTURES[0]), ("table",), ("table", CAPTURES[0]), ("why",), ("locate",), ("profile",), ("power",), ("runs", "list"),
    ("runs", "show"), ("runs", "show", "--json"), ("runs", "check"), ("report", "--format", "md"), ("report", "--format", "html", "-o", "x.html"), ("report", "--site", "site"), ("repro",), ("repro", "-o", "x.py"),
    ("watch", "--backends", "fake", "--suite", "smoke", "--max-tokens", "4", "--probes", "1", "--interval", "0"), ("plot", "-o", "plots"), ("tui",), ("reduce", "--plan", "run/plan.json", "--tokens", "0.01"), ("bisect", "settings", "--plan", "run/plan.json"),
    ("bisect", "versions", "0.1.0", "0.2.0", "--plan", "run/plan.json"), ("env", "list"), ("env", "create", "nobody"), ("env", "remove", "nobody"), ("doctor",), ("trust",), ("trust", "."), ("trust", ".", "--forget"), ("model", "path"), ("model", "tiny", "--help"), ("runs", "delete", "1", "--yes"),
)  # fmt: skip
"""Every command of `parity --help`, and every command below one."""
ENGINES = ("run", "demo", "watch", "reduce", "bisect", "worker")
"""Commands that start processes, which tell of most variables what other commands do."""
SEEN_BY_ENGINES = ("OMP_NUM_THREADS", "VLLM_X", "HF_HOME", "TMPDIR", "PATH", "PARITY_HOME")


@dataclass(frozen=True)
class Around:
    """What commands stand in."""

    env: Mapping[str, str | None] = field(default_factory=dict)
    deeds: tuple[str, ...] = ()
    make: Callable[[Place], object] = lambda _: None
    engines: bool = True
    """Whether commands that start processes are tried too."""


def a_file(here: Place) -> None:
    """Where the home should be."""
    shutil.rmtree(here.home)
    here.home.write_text("x")


def modes(*changes: tuple[str, int]) -> Callable[[Place], object]:
    """Of files and directories, by patterns below the place."""

    def make(here: Place) -> None:
        for pattern, mode in changes:
            for path in sorted(here.root.glob(pattern), reverse=True):
                path.chmod(mode)

    return make


def a_directory_for(name: str) -> Callable[[Place], object]:
    def make(here: Place) -> None:
        path = here.home / name
        if path.is_dir():
            shutil.rmtree(path)
            path.write_text("x")
        else:
            path.unlink(missing_ok=True)
            path.mkdir()

    return make


def variable(name: str, *values: str | None) -> dict[str, Around]:
    found = {f"{name}={'unset' if value is None else ascii(value[:20])}": value for value in values}
    return {title: Around({name: value}, engines=name in SEEN_BY_ENGINES) for title, value in found.items()}


def home(name: str, value: str | None, **others: str | None) -> dict[str, Around]:
    """Without PARITY_HOME, so that the platform's own is asked for."""
    return {name: Around({"PARITY_HOME": None, "XDG_DATA_HOME": None, "HOME": value, **others})}


AROUND: dict[str, Around] = {
    **variable("LANG", "", "xx_YY.nothing", "tr_TR.UTF-8", HALF, "x" * 100_000, "zh_CN.GBK"), **variable("LC_ALL", "C", "POSIX", "zh_CN.UTF-8", MOVES.replace("\x00", ""), "ja_JP.eucJP"), **variable("PYTHONIOENCODING", "ascii", "utf-16", "latin-1:strict"), **variable("PYTHONUTF8", "0"),
    **variable("COLUMNS", "0", "-1", "1", "99999999999999999999", "", "x", "1000000"), **variable("LINES", "0", "-1", "1000000"), **variable("TERM", None, "", "dumb", "nothing-like-it", "x" * 100_000, HALF), **variable("NO_COLOR", ""), **variable("FORCE_COLOR", HALF), **variable("COLORTERM", HALF),
    **variable("PARITY_LANG", "", "xx", HALF, "zh"), **variable("TZ", "Nowhere/Nothing", HALF, "x" * 5000), **variable("TMPDIR", "/nowhere", "/dev/null"), **variable("PATH", "", None, HALF), **variable("EDITOR", HALF), **variable("PARITY_DEBUG", HALF), **variable("SOURCE_DATE_EPOCH", "x", "9" * 400), **variable("OMP_NUM_THREADS", HALF), **variable("VLLM_X", HALF), **variable("HF_HOME", HALF),
    **home("HOME unset", None), **home("HOME empty", ""), **home("HOME nowhere", "/nowhere/at/all"), **home("HOME a device", "/dev/null"), **home("HOME in /proc", "/proc/x"), **home("HOME no UTF-8", f"/tmp/{HALF}/no"), **home("HOME relative", "x"), **home("HOME of 100 KB", "/" + "x" * 100_000),
    **home("XDG_DATA_HOME a device", "/nowhere", XDG_DATA_HOME="/dev/null"), **home("XDG_DATA_HOME a file", "/nowhere", XDG_DATA_HOME="/etc/hostname"), **home("XDG dirs files", "/nowhere", **dict.fromkeys(("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"), "/etc/hostname")),
    **variable("PARITY_HOME", "/dev/null", "/proc/x", "", "~nobody-at-all/x", "~", f"/dev/null/{HALF}", "/" + "x" * 100_000),
    "the home is a file": Around(make=a_file), "the database is a directory": Around(make=a_directory_for("parity.db")), "trusted is a file": Around(make=a_directory_for("trusted")), "runs is a file": Around(make=a_directory_for("runs")),
    "a database of noise": Around(make=lambda here: (here.home / "parity.db").write_bytes(b"\xff" * 5000)), "a log of a directory": Around(make=a_directory_for("parity.db-wal")),
    "the database read-only": Around(deeds=("anybody",), make=modes(("home/parity.db*", 0o444))), "the home read-only": Around(deeds=("anybody",), make=modes(("home/parity.db*", 0o444), ("home", 0o555))), "the database unreadable": Around(deeds=("anybody",), make=modes(("home/parity.db*", 0))),
    "the home unreadable": Around(deeds=("anybody",), make=modes(("home", 0))), "the directory read-only": Around(deeds=("anybody",), make=modes(("work", 0o555), ("work/run", 0o555))), "captures unreadable": Around(deeds=("anybody",), make=modes(("work/run/*.jsonl", 0))), "the run unreadable": Around(deeds=("anybody",), make=modes(("work/run", 0))),
    **{one: Around(deeds=(one,)) for one in ("stdin closed", "stdin a directory", "stdout closed", "stdout full", "stderr closed", "stderr full", "all closed", "no directory", "a directory of no text", "few files")},
}  # fmt: skip

WORDS: dict[str, tuple[str, ...]] = {
    "a command": (HALF,), "an option": (f"--{HALF}",), "a language": ("--lang", HALF, "runs", "list"), "out": ("run", "--backends", "fake", "--suite", "smoke", "--max-tokens", "4", "--out", HALF), "a database": ("runs", "list", "--db", HALF), "a new database": ("compare", *CAPTURES, "--save", "--db", HALF),
    "a backend": ("plan", "--backends", HALF), "a variant": ("plan", "--backends", "fake", "--variants", HALF), "a baseline": ("plan", "--backends", "fake", "--baseline", HALF), "prompts": ("plan", "--backends", "fake", "--prompts", HALF), "a suite": ("plan", "--backends", "fake", "--suite", HALF), "a model": ("plan", "--backends", "fake", "--model", HALF),
    "prompts that are there": ("run", "--backends", "fake", "--max-tokens", "4", "--out", "p", "--prompts", f"{HALF}.txt"), "like": ("plan", "--backends", "fake", "--like", f"vllm serve {HALF}"), "like a file": ("plan", "--backends", "fake", "--like", f"{HALF}.yaml"), "like an address": ("plan", "--backends", "fake", "--like", f"http://{HALF}/"), "engine": ("run", "--backends", "fake", "--suite", "smoke", "--max-tokens", "4", "--out", "e", "--engine", f"tokenizer={HALF}"),
    "engine's name": ("plan", "--backends", "fake", "--suite", "smoke", "--engine", f"{HALF}=1"), "vary": ("plan", "--backends", "fake", "--suite", "smoke", "--vary", f"env.OMP_NUM_THREADS={HALF}"), "vary's name": ("plan", "--backends", "fake", "--suite", "smoke", "--vary", f"{HALF}=1,2"), "stop": ("run", "--backends", "fake", "--suite", "smoke", "--max-tokens", "4", "--out", "s", "--stop", HALF),
    "bad words": ("run", "--backends", "fake", "--suite", "smoke", "--max-tokens", "4", "--out", "b", "--bad-words", HALF), "structured outputs": ("plan", "--backends", "fake", "--suite", "smoke", "--structured-outputs", f"regex={HALF}"), "a choice": ("plan", "--backends", "fake", "--suite", "smoke", "--structured-outputs", f"choice={HALF}"), "a fault": ("plan", "--backends", "fake", "--positive-control", HALF), "a server": ("run", "--server", f"http://{HALF}:1/", "--suite", "smoke", "--out", "v"),
    "a server's name": ("run", "--server", f"{HALF}=http://127.0.0.1:1", "--suite", "smoke", "--out", "v"), "a server's option": ("run", "--server", "http://127.0.0.1:1", "--server-option", f"model={HALF}", "--suite", "smoke", "--out", "v"), "a key's name": ("run", "--server", "http://127.0.0.1:1", "--server-option", f"api_key_env={HALF}", "--suite", "smoke", "--out", "v"),
    "a recording": ("run", "--replay", HALF, "--out", "r"), "a recording that is there": ("run", "--replay", f"{HALF}.jsonl", "--backends", "fake", "--out", "r"), "a host": ("run", "--backends", "fake", "--suite", "smoke", "--max-tokens", "4", "--out", "h", "--host", f"fake=env X={HALF}"), "a program": ("run", "--backends", "fake", "--suite", "smoke", "--out", "y", "--python", f"fake={HALF}"),
    "a model's path": ("plan", "--backends", "fake", "--suite", "smoke", "--model-path", f"fake={HALF}"), "a configuration": ("plan", "--backends", "fake", "--config", HALF), "a policy": ("run", "--backends", "fake", "--policy", HALF), "a plan": ("run", "--plan", HALF), "a plan that is there": ("run", "--plan", f"{HALF}.json", "--out", "q"), "resume": ("run", "--resume", HALF),
    "a capture": ("capture", "check", HALF), "a capture that is there": ("capture", "check", f"{HALF}.jsonl"), "captures": ("compare", HALF, HALF), "captures that are there": ("compare", f"{HALF}.jsonl", CAPTURES[1]), "captures kept": ("compare", f"{HALF}.jsonl", CAPTURES[1], "--save"), "what was kept": ("runs", "show"), "what was kept, as JSON": ("runs", "list", "--json"), "its report": ("report", "--format", "md"),
    "its page": ("report", "--format", "html", "-o", f"{HALF}.html"), "its reproduction": ("repro", "-o", f"{HALF}.py"), "against": ("compare", CAPTURES[1], "--against", HALF), "a table of": ("table", f"{HALF}.jsonl"), "a finding": ("why", HALF), "a finding's report": ("report", HALF), "a run": ("runs", "show", HALF), "a run to delete": ("runs", "delete", HALF, "--yes"), "a format": ("report", "--format", HALF), "a site": ("report", "--site", HALF),
    "plots": ("plot", "-o", HALF), "trusted": ("trust", HALF), "trusted, and there": ("trust", f"{HALF}.json"), "what is trusted": ("trust",), "trusted, as JSON": ("trust", "--json"), "trusted no more": ("trust", f"{HALF}.json", "--forget"), "an environment": ("env", "create", HALF), "an environment to remove": ("env", "remove", HALF), "a doctor of": ("doctor", HALF), "a tiny model": ("model", "tiny", HALF),
    "an arm": ("worker", "run/plan.json", "--arm", HALF), "a worker's file": ("worker", "--write", f"{HALF}.py"), "a worker's capture": ("worker", "run/plan.json", "--arm", "fake/base", "-o", f"w{HALF}.jsonl"), "a kit": ("kit", "-o", f"{HALF}.pyz"), "a recorder": ("worker", "--write-recorder", f"{HALF}.zip"), "versions": ("bisect", "versions", HALF, HALF, "--plan", "run/plan.json"), "settings": ("bisect", "settings", "--plan", HALF),
    "reduced": ("reduce", "--plan", f"{HALF}.json"), "a webhook": ("watch", "--backends", "fake", "--suite", "smoke", "--max-tokens", "4", "--probes", "1", "--interval", "0", "--webhook", f"http://127.0.0.1:1/{HALF}"), "the interface": ("tui", HALF), "located": ("locate", HALF), "profiled": ("profile", HALF), "power": ("power", "--rate", HALF), "out of the demonstration": ("demo", "--out", f"d{HALF}"),
}  # fmt: skip
"""Every place of a command in which a word can stand."""

SHORT = ("COLUMNS='-1'", "HOME unset", "the database read-only", "stdout full", "no directory")
SHORT_COMMANDS = (("--help",), ("runs", "list"), ("report", "--format", "md"), ("compare", *CAPTURES))
SHORT_WORDS = ("a command", "a recording that is there", "captures kept", "its report", "a webhook", "engine")


def around(first: Place, name: str, commands: Sequence[Sequence[str]]) -> Iterator[Ended]:
    """Each command in it."""
    with place() as here:
        copied(first, here)
        found = AROUND[name]
        found.make(here)
        commands = [one for one in commands if found.engines or one[:1] not in {(name,) for name in ENGINES}]
        # no verdict is said where nothing can be said
        fine = (
            (0, 1, 2, 3, 4)
            if {"stdout full", "stdout closed", "all closed", "stderr closed", "stderr full"} & {*found.deeds}
            else (0, 2, 3, 4)
        )
        try:
            for ended in here.run_several(name, commands, seconds=SECONDS, mib=MIB, env={**ENV, **found.env}, deeds=found.deeds, fine=fine):  # fmt: skip
                yield judged_again(ended, unheard=1 in fine)
        finally:
            for path in (here.home, here.work, here.work / "run"):
                with contextlib.suppress(OSError):
                    path.chmod(0o700)


def judged_again(ended: Ended, *, unheard: bool = False) -> Ended:
    """What watches says its verdict on stderr; nobody hears it where that is lost."""
    if ended.code == 1 and (unheard or "DIVERGED" in ended.err):
        ended.problems = [one for one in ended.problems if one != "exit 1 without DIVERGED"]
    return ended


def words(first: Place, names: Sequence[str]) -> Iterator[Ended]:
    """Words that are no UTF-8, and files of such names."""
    with place() as here:
        copied(first, here)
        for path, name in ((CAPTURES[0], ".jsonl"), ("run/plan.json", ".json")):
            shutil.copy(here.work / path, here.work / f"{HALF}{name}")
        (here.work / f"{HALF}.txt").write_bytes(b"one prompt\nand another, \xff\xfe\n")
        asked = [WORDS[name] for name in names]
        for name, ended in zip(names, here.run_several("words", asked, seconds=SECONDS, mib=MIB, env=ENV), strict=True):
            ended.name = f"words: {name}: {ended.name.encode(errors='backslashreplace').decode()}"
            yield judged_again(ended)


def campaign(asked: Asked) -> Iterator[Ended]:
    with place() as first:
        yield base(first)
        for name in SHORT if asked.short else asked.piece(list(AROUND)):
            yield from around(first, name, SHORT_COMMANDS if asked.short else COMMANDS)
        if asked.short or not asked.count or asked.first + asked.count >= len(AROUND):
            yield from words(first, SHORT_WORDS if asked.short else list(WORDS))
