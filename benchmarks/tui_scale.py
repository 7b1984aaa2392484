"""How fast the terminal interface is on a database with 1,000,000 findings and 20,480 completions.

    python benchmarks/tui_scale.py                # makes the database in a temporary directory, then measures
    python benchmarks/tui_scale.py --keep big.db  # makes it once, measures it again next time

Measured in processes of their own, without a terminal, from the key to the drawn screen: the median of three, the
least, and the CPU time of all threads, which is what it would take on a machine that is not busy. The limits are
those the interface was made for: first paint 1 s, a page 100 ms, filter and sort 300 ms, 150 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ARMS, REQUESTS, LONG = 4, 4096, 32_768
"""Candidate arms; requests per arm (times five arms: 20,480 completions); tokens of the longest completion."""

LIMITS = {"first paint": 1000.0, "page": 100.0, "filter or sort": 300.0}
MEMORY_LIMIT = 150.0
PATIENCE = 20
"""Seconds."""


def make(path: Path, findings: int) -> None:
    """Write the database through the store, one arm at a time."""
    import numpy as np

    from parity.messages import verbatim
    from parity.plan import Arm, Model, Plan, Request, Sampling
    from parity.records import Capture, Completion, Finding, Header, Key, Kind, Severity
    from parity.records.evidence import Evidence, Numbers
    from parity.records.kinds import kinds
    from parity.store import ArmComparison, ArmResult, NewRun, RunStatus, Store

    rng = np.random.default_rng(0)
    names = ["cpu/base", *(f"cpu/mtp{k}" for k in range(1, ARMS + 1))]
    keys = [Key(f"p{i}", 0, 0) for i in range(REQUESTS)]
    prompt = np.arange(16, dtype=np.int64)
    base = {key: rng.integers(0, 2048, LONG if i == 0 else 128) for i, key in enumerate(keys)}
    plan = Plan(
        model=Model("made up", "", {}, None, ()),
        requests=tuple(
            Request(key.request, f"prompt number {i} about topic {i % 97}", tuple(prompt.tolist()))
            for i, key in enumerate(keys)
        ),
        arms=tuple(Arm(name, "cpu", name[4:]) for name in names),
        baseline="cpu/base",
        sampling=Sampling(),
    )
    corrupt = [kind for kind in kinds() if kind is not Kind.NEAR_TIE]
    with Store.open(path) as store:
        store.create_run(NewRun("big", plan, "benchmarks/tui_scale.py"))
        for number, name in enumerate(names):
            completions = {}
            for key, tokens in base.items():
                ours = tokens.copy()
                if number:
                    ours[len(ours) // 2 :: 7] = rng.integers(0, 2048, len(ours[len(ours) // 2 :: 7]))
                completions[key] = Completion(key, prompt, ours, None, "length", None)
            capture = Capture(Header(name, "cpu", name[4:], "made up"), completions, {}, {})
            store.save_arm("big", name, capture, f"{name}.jsonl", ArmResult())
            if not number:
                continue
            found = []
            for i in range(findings // ARMS):
                bad = i % 50 == 0  # two in a hundred: near-ties are what there is most of
                kind = corrupt[i // 50 % len(corrupt)] if bad else Kind.NEAR_TIE
                found.append(
                    Finding(
                        name,
                        "cpu/base",
                        keys[i % REQUESTS].request,
                        0,
                        0,
                        kind,
                        Severity.CORRUPT if bad else Severity.BENIGN,
                        (i * 37) % (LONG if i % REQUESTS == 0 else 128),
                        1 + i % 5,
                        Evidence(
                            why=verbatim("made up"),
                            numbers=Numbers(gap=round((i * 7919 % 1000) / (100 if bad else 5000), 4)),
                            tolerance=0.25,
                        ),
                    )
                )
            counts: dict[str, int] = {}
            for finding in found:
                counts[str(finding.kind)] = counts.get(str(finding.kind), 0) + 1
            store.save_comparison(
                "big",
                name,
                ArmComparison(
                    "DIVERGED", [], counts, {}, dict.fromkeys(keys, "corrupt"), dict.fromkeys(keys, 64), found
                ),
            )
        store.finish_run("big", RunStatus.FINISHED, verdict="DIVERGED", reasons=["made up"], duration=1.0)


async def measure(path: Path) -> dict[str, Any]:
    """Milliseconds per task, of a person who opens the interface and looks around."""
    started = time.perf_counter()
    from parity.tui.app import ParityApp
    from parity.tui.screens.finding import FindingScreen
    from parity.tui.screens.findings import FindingsScreen
    from parity.tui.screens.runs import RunsScreen

    times: dict[str, float] = {}
    cpu: dict[str, float] = {}
    app = ParityApp(path)
    async with app.run_test(size=(80, 24)) as pilot:

        async def until(ready: Any) -> None:
            deadline = time.perf_counter() + PATIENCE
            while not ready():
                if time.perf_counter() > deadline:
                    raise SystemExit(f"nothing happened for {PATIENCE} s after {list(times)[-1:]}")
                await asyncio.sleep(0.002)

        def state() -> object:
            screen = app.screen
            if not screen.is_mounted:
                return None
            if isinstance(screen, FindingsScreen):
                return screen, screen.view, screen.table.cursor
            if isinstance(screen, FindingScreen):
                return screen, screen.tokens.cursor, screen.tokens.flowing
            return screen

        async def painted() -> None:
            done = asyncio.Event()
            app.screen.call_after_refresh(done.set)
            app.screen.refresh()
            await asyncio.wait_for(done.wait(), PATIENCE)

        async def timed(name: str, key: str) -> None:
            """From the key to the screen drawn after it. What runs in the background may still be running."""
            await painted()
            old, before, spent = state(), time.perf_counter(), time.process_time()
            app.simulate_key(key)
            await until(lambda: state() not in (None, old))
            await painted()
            times[name] = 1000 * (time.perf_counter() - before)
            cpu[name] = 1000 * (time.process_time() - spent)

        await until(lambda: isinstance(app.screen, RunsScreen) and app.screen.table.total)
        await painted()
        times["first paint: runs, imports included"] = 1000 * (time.perf_counter() - started)
        cpu["first paint: runs, imports included"] = 1000 * time.process_time()
        await timed("first paint: findings", "enter")
        screen = app.screen
        assert isinstance(screen, FindingsScreen)
        before = time.perf_counter()
        await until(lambda: screen.facets is not None)
        times["(in the background) counts by kind, arm and state"] = 1000 * (time.perf_counter() - before)
        await timed("page: down", "pagedown")
        await timed("filter or sort: show near-ties, 1,000,000 rows", "z")
        await timed("page: down among all", "pagedown")
        await timed("page: the last of all", "G")
        await timed("page: up from the last", "pageup")
        screen.table.go(500_000)
        await pilot.pause()
        await timed("page: in the middle", "pagedown")
        await timed("page: cursor down", "j")
        for order in ("kind", "request", "position", "gap", "state", "arm", "severity"):
            await timed(f"filter or sort: by {order}", "s")
        await timed("filter or sort: reversed", "S")
        await timed("filter or sort: hide near-ties", "z")
        await pilot.press("slash")
        await timed("filter or sort: text, one key", "7")
        await timed("filter or sort: without the text", "backspace")
        await timed("filter or sort: text, a letter", "p")
        await timed("filter or sort: text, the request with 32,768 tokens", "0")
        await pilot.press("enter")
        before, spent = time.perf_counter(), time.process_time()
        await timed("first paint: a finding in 32,768 tokens", "enter")
        finding = app.screen
        assert isinstance(finding, FindingScreen)
        await until(lambda: finding.drawing is not None)
        await painted()
        times["first paint: its tokens, aligned with the baseline's"] = 1000 * (time.perf_counter() - before)
        cpu["first paint: its tokens, aligned with the baseline's"] = 1000 * (time.process_time() - spent)
        times["(tokens of that completion)"] = float(len(finding.drawing.right) if finding.drawing else 0)
        await timed("page: tokens down", "pagedown")
        await timed("page: the last tokens", "G")
        await timed("page: switch to plain text", "m")
        await timed("page: text up", "pageup")
    return {"times": times, "cpu": cpu, "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="database to make once and use again")
    parser.add_argument("--findings", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3, help="measure so often and take the median (default 3)")
    parser.add_argument("--only", choices=("make", "measure"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only == "make":
        make(options.keep, options.findings)
        return 0
    if options.only == "measure":
        print(json.dumps(asyncio.run(measure(options.keep))))
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        path = options.keep or Path(temporary) / "big.db"
        itself = [sys.executable, __file__, "--keep", str(path), "--findings", str(options.findings), "--only"]
        if not path.exists():
            before = time.perf_counter()
            subprocess.run([*itself, "make"], check=True)
            print(f"made {path} ({path.stat().st_size / 1e6:,.0f} MB) in {time.perf_counter() - before:.0f} s")
        results = [
            json.loads(subprocess.run([*itself, "measure"], check=True, stdout=subprocess.PIPE).stdout)
            for _ in range(options.repeat)
        ]
    result = {
        "times": {name: median(one["times"][name] for one in results) for name in results[0]["times"]},
        "least": {name: min(one["times"][name] for one in results) for name in results[0]["times"]},
        "cpu": {name: median(one["cpu"][name] for one in results) for name in results[0]["cpu"]},
        "rss": max(one["rss"] for one in results),
    }
    missed = 0
    print("   median     least       CPU")
    for name, value in result["times"].items():
        limit = LIMITS.get(name.partition(":")[0])
        over = limit is not None and value > limit
        missed += over
        spent = f"{result['cpu'][name]:9.0f}" if name in result["cpu"] else " " * 9
        figures = f"{value:9.0f} {result['least'][name]:9.0f} {spent}"
        print(f"{figures}{'    ' if limit is None else ' ms '}{name}{f'  OVER {limit:.0f}' if over else ''}")
    over = result["rss"] > MEMORY_LIMIT
    missed += over
    print(f"{result['rss']:29.0f} MB peak memory{f'  OVER {MEMORY_LIMIT:.0f}' if over else ''}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
