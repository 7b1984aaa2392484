"""Plans, run directories and databases of somebody else."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from asked import Asked
from judging import KEY, Ended, Place, place

MIB = 700
SECONDS = 60.0
ENV = {"FAKE": "corrupt"}
RUN = ("run", "--backends", "fake", "--suite", "smoke", "--max-tokens", "24", "--out", "run")
MOVES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e[red]x[/red]"

Edit = Callable[[dict[str, Any]], Any]


def deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def top(**fields: Any) -> Edit:
    return lambda plan: plan.update(fields)


def arm(**fields: Any) -> Edit:
    return lambda plan: plan["arms"][1].update(fields)


def engine(**fields: Any) -> Edit:
    return lambda plan: plan["arms"][1]["engine"].update(fields)


def request(**fields: Any) -> Edit:
    return lambda plan: plan["requests"][0].update(fields)


def sampling(**fields: Any) -> Edit:
    return lambda plan: plan["sampling"].update(fields)


SERVER = {"url": "http://127.0.0.1:1", "api_key_env": "HOSTILE_KEY"}
PLANS: dict[str, Edit] = {
    "PYTHONPATH": arm(env={"PYTHONPATH": "given/evil"}), "LD_PRELOAD": arm(env={"LD_PRELOAD": "given/evil.so"}), "a key": arm(env={"X": "$HOSTILE_KEY"}),
    "env of numbers": arm(env={"A": 5}), "env of NUL": arm(env={"OMP_NUM_THREADS": "1\x00"}), "a server and a key": arm(backend="server", engine=SERVER),
    "worker class": engine(worker_cls="evil.Worker"), "remote code": engine(trust_remote_code=True), "engine nested": engine(a=deep(300)),
    "10^12 rounds": top(rounds=10**12), "rounds negative": top(rounds=-1), "rounds of text": top(rounds="x"), "2^40 samples": sampling(n=2**40),
    "max_tokens of 2^62": sampling(max_tokens=2**62), "temperature of text": sampling(temperature="hot"), "temperature nested": sampling(temperature=deep(200)),
    "a million stops": sampling(stop=["x"] * 1_000_000), "regex that explodes": sampling(structured_outputs={"regex": "(a+)+$"}),
    "id outside": request(id="../../x"), "id that moves": request(id=MOVES), "id of half a character": request(id="\ud800"), "id twice": lambda plan: plan["requests"].append(plan["requests"][0]),
    "ids of 2^62": request(prompt_token_ids=[2**62]), "ids negative": request(prompt_token_ids=[-1]), "ids of text": request(prompt_token_ids=["x"]), "no ids": request(prompt_token_ids=[]),
    "three million ids": request(prompt_token_ids=[5] * 3_000_000), "arm outside": arm(name="../../x"), "arm of three": arm(name="a/b/c"), "arm that moves": arm(name=MOVES),
    "arm twice": lambda plan: plan["arms"].append(plan["arms"][0]), "no arms": top(arms=[]), "baseline of nobody": top(baseline="x/y"), "backend of nobody": arm(backend="x"),
    "backend with a path": arm(backend="../x"), "version of a path": arm(backend="cpu@../../x"), "tolerance of NaN": top(tolerance=float("nan")), "top of 2^31": top(score={"mode": "all", "top": 2**31}),
    "model of a device": lambda plan: plan["model"].update(path="/dev/zero"), "model of a pipe": lambda plan: plan["model"].update(path="given/pipe"), "model of text": top(model="x"),
    "vocabulary of 2^62": lambda plan: plan["model"].update(vocab_size=2**62), "skipped that moves": top(skipped=[{"arm": MOVES, "reason": {"text": MOVES, "id": "x", "parameters": {"a": {"text": MOVES}}}}]),
    "skipped nested": top(skipped=[{"arm": "x", "reason": deep(200)}]), "churn odd": top(churn={"arrival": deep(50)}), "a list": lambda plan: [plan], "nested": lambda plan: deep(900),
}  # fmt: skip


def written(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content) and None


def link(target: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    return make


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


PLAN_FILES: dict[str, Callable[[Path], None]] = {
    "pipe": pipe, "device": link("/dev/zero"), "nothing": written(b""), "not UTF-8": written(b"\xff\xfe{}"),
    "2 GB": lambda path: os.truncate(path, 2 << 30), "brackets": written(b"[" * 1_000_000), "BOM": written(b"\xef\xbb\xbf{}"),
}  # fmt: skip

OUTSIDE = "../../canary"
"""From a run's directory; what is written there is seen by `judging.before`."""


def about(**fields: Any) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        path = run / "run.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return change


def in_place(name: str, make: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda run: make(run / name)


def cut(name: str, size: int) -> Callable[[Path], None]:
    return lambda run: os.truncate(run / name, size)


def logs_elsewhere(run: Path) -> None:
    shutil.rmtree(run / "logs")
    (run / "logs").symlink_to("../../canary-logs")
    (run.parents[1] / "canary-logs").mkdir()


COMMAND = {"fake": {"command": ["sh", "-c", "touch PWNED"], "python": "sh", "adapter": "fake"}}
DIRECTORIES: dict[str, Callable[[Path], None]] = {
    "a command": about(hosts=COMMAND), "a database elsewhere": about(db="../../canary.db"), "an id outside": about(run="../../x"), "an id that moves": about(run=MOVES),
    "hosts of text": about(hosts="x"), "hosts nested": about(hosts=deep(500)), "about of a pipe": in_place("run.json", pipe), "about of a device": in_place("run.json", link("/dev/zero")),
    "about of a list": in_place("run.json", written(b"[1]")), "capture elsewhere": in_place("fake-mtp.jsonl", link(OUTSIDE)), "scores elsewhere": in_place("scores.jsonl", link(OUTSIDE)),
    "result elsewhere": in_place("result.json", link(OUTSIDE)), "log elsewhere": in_place("logs/fake-mtp.log", link("../" + OUTSIDE)), "logs elsewhere": logs_elsewhere,
    "steps elsewhere": in_place("fake-mtp.steps", link(OUTSIDE)), "lock elsewhere": in_place("lock", link(OUTSIDE)), "crossings elsewhere": in_place("crossings.json", link(OUTSIDE)),
    "capture of a pipe": in_place("fake-mtp.jsonl", pipe), "capture of a device": in_place("fake-mtp.jsonl", link("/dev/zero")), "capture cut": cut("fake-mtp.jsonl", 900), "capture of nothing": cut("fake-mtp.jsonl", 0),
    "capture not JSON": in_place("fake-mtp.jsonl", written(b"\x00" * 5000)), "capture of brackets": in_place("fake-mtp.jsonl", written(b"[" * 1_000_000 + b"\n")), "capture of one line": in_place("fake-mtp.jsonl", written(b"x" * (100 << 20))),
    "scores not JSON": in_place("scores.jsonl", written(b"{}\n")), "scores of a pipe": in_place("scores.jsonl", pipe), "scores cut": cut("scores.jsonl", 700), "crossings odd": in_place("crossings.json", written(b'{"x":[[[[5]]]]}')),
    "capture a directory": in_place("fake-mtp.jsonl", folder), "lock a pipe": in_place("lock", pipe),
}  # fmt: skip


def sql(*statements: str, **values: Any) -> Callable[[sqlite3.Connection], None]:
    def change(database: sqlite3.Connection) -> None:
        for statement in statements:
            database.execute(statement, values if ":" in statement else {})

    return change


def column(table: str, name: str, value: Any) -> Callable[[sqlite3.Connection], None]:
    return sql(f"UPDATE {table} SET {name} = :value", value=value)


def evidence(**fields: Any) -> Callable[[sqlite3.Connection], None]:
    def change(database: sqlite3.Connection) -> None:
        for number, text in database.execute("SELECT id, evidence FROM findings").fetchall():
            database.execute(
                "UPDATE findings SET evidence = ? WHERE id = ?", (json.dumps({**json.loads(text), **fields}), number)
            )

    return change


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c"
STORES: dict[str, Callable[[sqlite3.Connection], None]] = {
    "view": sql("ALTER TABLE runs RENAME TO r2", f"CREATE VIEW runs AS {ENDLESS}"), "trigger": sql("CREATE TRIGGER t AFTER DELETE ON runs BEGIN DELETE FROM findings; END"),
    "virtual table": sql("CREATE VIRTUAL TABLE v USING fts5(x)"), "generated column": sql("ALTER TABLE runs ADD COLUMN g AS (randomblob(100000000))"),
    "index of a function": sql("CREATE INDEX i ON runs (abs(number))"), "another table": sql("CREATE TABLE other (x)"), "no table": sql("DROP TABLE gaps"), "no index": sql("DROP INDEX findings_by_weight"),
    "newer": sql("INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('parity', 'm999_x', 'x')"),
    "a directory of others": column("runs", "directory", "../given/victim"), "a directory of a device": column("runs", "directory", "/dev"), "a directory that moves": column("runs", "directory", MOVES), "a directory of NUL": column("runs", "directory", "x\x00y"),
    "id that moves": column("runs", "id", MOVES), "id of a command": column("runs", "id", "$(touch PWNED);`touch PWNED`"), "model that moves": column("runs", "model", MOVES), "reasons odd": column("runs", "reasons", json.dumps([5, {"text": MOVES, "parameters": deep(100)}])),
    "reasons nested": column("runs", "reasons", "[" * 100_000 + "]" * 100_000), "reasons not JSON": column("runs", "reasons", "{"), "plan not JSON": column("runs", "plan", "{"), "plan of another": column("runs", "plan", '{"baseline": 5}'),
    "plan nested": column("runs", "plan", "[" * 500 + "]" * 500), "plan with a device": lambda db: [db.execute("UPDATE runs SET plan = ?", (json.dumps({**json.loads(text), "model": {"path": "/dev"}}),)) for (text,) in db.execute("SELECT plan FROM runs").fetchall()] and None,
    "versions nested": column("runs", "versions", json.dumps({"vllm": deep(50)})), "created odd": column("runs", "created", MOVES), "duration infinite": column("runs", "duration", float("inf")), "100 MB of model": column("runs", "model", "x" * (100 << 20)),
    "capture of a device": column("arms", "capture", "/dev/zero"), "capture of a secret": column("arms", "capture", "/etc/passwd"), "stats a list": column("arms", "stats", "[1]"), "stats nested": column("arms", "stats", json.dumps({"gaps": deep(100), "notes": deep(20), "next_steps": [deep(9)]})),
    "counters odd": column("arms", "counters", json.dumps({"rows_moved": 5, "batch_sizes": {"x": []}, "accepted_per_pos": {"a": 1}, "tokens": "x", "drafts": 1e308})), "environment odd": column("arms", "environment", json.dumps({"versions": 5, "devices": [deep(50), MOVES], "threads": MOVES})),
    "engine odd": column("arms", "engine", json.dumps({"speculative_config": 5, "asked": [MOVES], "max_model_len": "x"})), "arm that moves": sql("UPDATE arms SET name = :name || id", name=MOVES), "acceptance odd": column("arms", "acceptance_rate", -1e308), "message nested": column("arms", "message", json.dumps({"text": MOVES, "id": "x", "parameters": {"x": [{"text": MOVES}]}})),
    "tokens of half an id": column("completions", "tokens", b"\x01\x02\x03"), "tokens of 50 MB": column("completions", "tokens", b"\x05\x00\x00\x00" * (12 << 18)), "tokens of noise": column("completions", "tokens", bytes(range(256)) * 16), "text that moves": column("completions", "text", MOVES),
    "length of 2^62": column("completions", "n_tokens", 2**62), "length negative": column("completions", "n_tokens", -5), "divergence of 2^62": column("completions", "first_divergence", 2**62), "reason that moves": column("completions", "finish_reason", MOVES), "class odd": column("completions", "class", MOVES), "stop reason not JSON": column("completions", "stop_reason", "{"),
    "kind of nobody": column("findings", "kind", "x"), "kind that moves": column("findings", "kind", MOVES), "position of 2^62": column("findings", "position", 2**62), "position negative": column("findings", "position", -(2**62)), "length of findings": column("findings", "length", 2**62), "gap infinite": column("findings", "gap", float("inf")),
    "evidence not JSON": column("findings", "evidence", "{"), "evidence a list": column("findings", "evidence", "[]"), "evidence nested": column("findings", "evidence", json.dumps({"why": "x", "donor": deep(200)})), "evidence that moves": evidence(why=MOVES, donor=MOVES, donor_part=MOVES), "evidence of numbers": evidence(gap="x", tokens=[2**70], donor_start=-5, damage=1e400),
    "logprobs odd": evidence(logprobs={"reference": [[MOVES, "x"]], "candidate": 5}), "a request of nobody": column("findings", "request", MOVES), "a round of 2^62": column("findings", "round", 2**62), "ordinal odd": column("findings", "ordinal", -1), "fingerprint that moves": column("findings", "fingerprint", MOVES), "state odd": column("findings", "state", MOVES), "weight odd": column("findings", "weight", float("-inf")),
    "gaps of noise": column("gaps", "tokens", b"\xff" * 1001), "prompt that moves": column("requests", "prompt", MOVES + f"<script>{KEY[:4]}</script>"), "prompt of 50 MB": column("requests", "prompt", "x" * (50 << 20)), "prompt tokens of noise": column("requests", "prompt_tokens", b"\xff" * 1001),
    "triage that moves": sql("INSERT INTO triage SELECT fingerprint, 'benign', :t, :t, :t, :t, :t FROM findings GROUP BY fingerprint", t=MOVES), "a million findings": sql("INSERT INTO findings (run, arm, ordinal, request, round, sample, kind, severity, evidence, fingerprint) WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 300000) SELECT 1, 2, 0, 'x', x, 0, 'garbled', 'corrupt', '{}', x FROM c"),
}  # fmt: skip

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("runs", "list"), ("runs", "list", "--json"), ("runs", "show"), ("runs", "show", "--json", "--limit", "50"), ("runs", "check"), ("table",), ("table", "--format", "md"),
    ("report", "--format", "md"), ("report", "--format", "html"), ("report", "--format", "junit"), ("report", "--format", "sarif"), ("report", "--format", "github"), ("report", "--format", "json"),
    ("repro",), ("why",), ("plot", "-o", "plots"),
)  # fmt: skip


def base(here: Place) -> Ended:
    """A run with findings, at home and in the working directory."""
    return here.run("left alone", *RUN, seconds=120, env=ENV)


def copied(of: Place, here: Place) -> Path:
    for name in ("work", "home"):
        shutil.rmtree(here.root / name)
        shutil.copytree(of.root / name, here.root / name)
    shutil.rmtree(here.home / "trusted", ignore_errors=True)  # it comes from somebody else
    return here.work / "run"


def plans(first: Place, names: list[str]) -> Iterator[Ended]:
    plan = json.loads((first.work / "run" / "plan.json").read_text())
    for name in names:
        with place() as here:
            (here.root / "given" / "evil").mkdir()
            (here.root / "given" / "evil" / "sitecustomize.py").write_text(f"open({str(here.root / 'PWNED')!r}, 'w')")
            os.mkfifo(here.root / "given" / "pipe")
            path = here.root / "given" / "plan.json"
            changed = json.loads(json.dumps(plan))
            if name in PLANS:
                other = PLANS[name](changed)
                path.write_text(json.dumps(changed if not isinstance(other, list) else other))
            else:
                path.write_text(json.dumps(changed))
                PLAN_FILES[name](path)
            yield here.run(
                f"plan: {name}", "run", "--plan", str(path), "--out", "run", seconds=SECONDS, mib=MIB, env=ENV
            )


def directories(first: Place, names: list[str]) -> Iterator[Ended]:
    for name in names:
        with place() as here:
            run = copied(first, here)
            (run / "result.json").unlink()
            DIRECTORIES[name](run)
            before = sorted(here.root.glob("canary*"))
            ended = here.run(f"directory: {name}", "run", "--resume", "--out", "run", seconds=SECONDS, mib=MIB, env=ENV)
            made = [
                path
                for path in here.root.glob("canary*")
                if path not in before or (path.is_dir() and any(path.iterdir()))
            ]
            ended.problems += [f"wrote {path.name}" for path in made]
            yield ended


def databases(first: Place, names: list[str], commands: tuple[tuple[str, ...], ...]) -> Iterator[Ended]:
    for name in names:
        with place() as here:
            copied(first, here)
            victim = here.root / "given" / "victim"
            victim.mkdir()
            (victim / "plan.json").write_text("{}")
            path = here.root / "given" / "evil.db"
            (here.home / "parity.db").replace(path)
            database = sqlite3.connect(path)
            database.execute("PRAGMA ignore_check_constraints = ON")
            with contextlib.suppress(sqlite3.DatabaseError):
                STORES[name](database)
                database.commit()
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            database.close()
            deleted = ("runs", "delete", "2", "--files", "--yes")
            asked = [
                (*one, "--db", str(path))
                for one in (*commands, deleted)
                if "a million" not in name or one[-1] != "check"
            ]
            for ended in here.run_several(f"store: {name}", asked, seconds=SECONDS, mib=MIB):
                if " runs delete" in ended.name and not (victim / "plan.json").exists():
                    ended.problems.append("deleted what is not its own")
                yield ended


def campaign(asked: Asked) -> Iterator[Ended]:
    """Each plan run, each directory resumed, each database shown by every command."""
    with place() as first:
        yield base(first)
        some: tuple[tuple[str, ...], ...] = (("runs", "show"), ("report", "--format", "md"))
        if asked.short:
            yield from plans(first, ["PYTHONPATH", "10^12 rounds"])
            yield from directories(first, ["a command", "log elsewhere"])
            yield from databases(first, ["arm that moves"], some)
            return
        every = [(plans, name) for name in (*PLANS, *PLAN_FILES)]
        every += [(directories, name) for name in DIRECTORIES]
        every += [(partial(databases, commands=COMMANDS), name) for name in STORES]
        for tried, name in asked.piece(every):
            yield from tried(first, [name])
