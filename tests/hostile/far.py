"""A candidate's far side that lies, behind a command prefix: it may end its own arm, and nothing else.

After each lie an honest far side finishes the run (`--resume`), so no lie may leave a file that resuming cannot pass.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import beside
from asked import Asked
from judging import Ended, Place, place

MIB = 700
SECONDS = 60.0

_ODD = ("None", "'abc'", "-5", "2**70", "1.5", "[]", "{}", "nested(300)", "True", "'x' * (1 << 22)", "...")
FIELDS = {
    "header": {
        "vocab_size": ("'abc'", "-5", "2**70", "2**31 - 1", "[1]"),
        "eos_token_ids": ("{}", "['x']", "[2**70]", "[[1]]", "nested(300)"),
        "backend": ("[1]", "5"), "arm": ("'x/y'", "None", "5"), "variant": ("[]",), "model": ("{}",),
        "engine": ("nested(300)", "{'a': nested(300)}", "[]", "...", "{str(i): i for i in range(300000)}"),
        "sampling": ("{'n': 2**40}", "[]", "{'max_tokens': 'x', 'temperature': [], 'stop': 5}"),
        "environment": ("{'a': nested(260)}", "'x'"),
        "replicas": ("5", "'x'", "[5]"), "model_fingerprint": ("5", "{'a': nested(260)}", "{'config.json': 'x'}"),
        "plan_digest": ("'x'", "[1]", "5"), "schema": ("'x'", "None"), "churn": ("5", "{'arrival': []}"),
        "x": ("nested(300)", "'x' * (8 << 20)"), "record": ("'y'",),
    },
    "completion": {
        "request": ("'stranger'", "5", "'../../x'"), "round": ("-1", "7", "2**70", "'x'"),
        "sample": ("-1", "10**6", "2**70", "1.5"),
        "token_ids": ("['x']", "[1.5]", "[2**70]", "[-5]", "None", "list(range(3000000))", "[[1]]", "[]"),
        "prompt_token_ids": ("[]", "None", "[2**40]"), "text": ("5", "'x' * (30 << 20)", "'\\x1b[2J\\u202e'"),
        "finish_reason": ("[]", "5", "'x' * 100000"), "stop_reason": ("{}", "1.5"),
        "logprobs": ("[[[1, 'x']]]", "[[[1.5, -1]]]", "[[[5, -1.0]] * 20000] + [[[5, -1.0]]] * 20000", "5", "[[5]]"),
        "spec": ("{'accepted': [2**31 - 1], 'drafted': [1]}", "{'accepted': 'x', 'drafted': []}", "5", "{}"),
        "sampling": ("{'a': nested(200)}", "{'n': 'x', 'temperature': 'y', 'seed': []}"),
        "server": ("{'a': nested(300)}", "{'a': 'x' * 100000}", "5"), "max_tokens": ("-1", "'x'", "2**31 - 1"),
        "replica": ("99", "'x'"), "aborted": ("5",),
    },
    "round": {"round": ("-1", "9", "'x'"), "counters": ("5", "{'tokens': 2**70}", "{'x': nested(300)}", "...")},
    "footer": {
        "counters": ("{'steps': 'x', 'rows_moved': 5, 'batch_sizes': {'x': 1}}", "{'tokens': 2**70}", "{'x': nested(300)}",
                     "[]", "{'generate_seconds': 1e-320, 'tokens': 5}", "{'accepted_per_pos': ['x']}", "{str(i): i for i in range(200000)}"),
        "completions": ("'x'", "10**9"),
    },
    "progress": {"running": ("nested(300)", "2**70", "'x'")},
    "scored": {"sequences": ("'x'", "-1", "2**70"), "tokens": ("[]",)},
}  # fmt: skip
DEEDS = (
    "nothing", "end", "fail", "garbage", "floods", "long_line", "long_event", "long_events", "progress", "chatter", "unknown",
    "unknown_records", "nested_list", "nested_record", "second_header", "cut", "drip", "stderr_flood", "holds_pipes",
    "closes", "steps", "early_footer", "score_unasked", "bad_utf8", "surrogate", "error_object", "error_text", "bom",
    "blank", "brackets",
)  # fmt: skip

CASES = [
    "again", "samples", "rounds",
    *(f"do {deed}" for deed in DEEDS),
    *(f"start {deed}" for deed in ("garbage", "floods", "progress", "unknown", "early_footer", "end", "error_object", "nothing")),
    *(f"after {deed}" for deed in ("garbage", "floods", "progress", "end")),
    *(f"{kind} {name}={value}" for kind, fields in FIELDS.items() for name, values in fields.items() for value in values),
    *beside.CASES,
]  # fmt: skip
READ: tuple[tuple[str, ...], ...] = (("why",), ("locate",), ("runs", "check"), ("report", "--format", "md"))

CONFIG = """
[plan]
suite = "smoke"
max-tokens = 8
{setting}
[backends.far]
adapter = "fake"
command = ["{python}", "{liar}", "{case}", "{beside}"]
python = "{python}"
place = "far"
stall_timeout = 2
start_timeout = 15
"""


def configure(here: Place, case: str) -> Path:
    path = here.root / "given" / "parity.toml"
    liar = Path(__file__).with_name("liar.py")
    named = case.replace("\\", "\\\\").replace('"', '\\"')
    setting = beside.SETTINGS.get(case.partition(":")[0], "")
    text = CONFIG.format(
        python=sys.executable, liar=liar, case=named, setting=setting, beside=here.root / "given" / "beside"
    )
    path.write_text(text)
    return path


def campaign(asked: Asked) -> Iterator[Ended]:
    some = ("header engine=nested(300)", "samples", "completion token_ids=[2**70]", "do progress", *beside.SHORT)
    for case in some if asked.short else asked.piece(CASES):
        with place() as here:
            config, out = configure(here, case), here.work / "run"
            if case in beside.CASES:
                beside.write(case, here.root / "given" / "beside")
            where = ("--config", str(config), "--out", str(out))
            lied = here.run(
                case, "run", "--backends", "fake,far", "--variants", "base", *where, seconds=SECONDS, mib=MIB
            )
            size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) if out.exists() else 0
            if size > 80 << 20:
                lied.problems.append(f"{size >> 20} MiB on the disk")
            yield lied
            if lied.code in (0, 1, 4) and case in beside.CASES:
                yield from here.run_several(case, READ[:1] if asked.short else READ, seconds=SECONDS, mib=MIB)
            if asked.short or lied.code in (0, 1, 4):
                continue
            honest = here.run(f"{case}, then honest", "run", "--resume", "--config", str(configure(here, "honest")), "--out", str(out),
                              seconds=SECONDS, mib=MIB, fine=(0, 4), env={"LIAR": "honest"})  # fmt: skip
            yield honest
