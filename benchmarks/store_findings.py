"""How fast a page of a million findings comes out of the store, for any order and filter.

    python benchmarks/store_findings.py [--findings 1000000] [--json FILE]

Fills a database with made-up findings (nine in ten near-ties, the rest of all kinds) and measures, as the
median of three with the database just opened before the first: the first page, a page in the middle and the
last one, for every order and both directions; counting; pages under filters; setting and undoing triage.
The terminal interface needs each of them under 0.3 s. Then how long it takes to open a copy that somebody else made:
for the first time, again, and after parity has written into it. Needs only parity itself.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from parity.messages import verbatim
from parity.plan import Arm, Model, Plan, Request, Sampling
from parity.records import Finding, Kind, Severity
from parity.records.evidence import Evidence, Numbers
from parity.records.kinds import kinds
from parity.store import ArmComparison, FindingFilter, FindingSort, NewRun, Store, Triage, TriageState

RUN, ARM = "benchmark", "cpu/mtp"
LIMIT_SECONDS = 0.3


WHY = verbatim("both tokens are nearly as likely to the reference " * 3)


def findings(count: int) -> Iterator[Finding]:
    draw = random.Random(0)
    corrupt = [kind for kind in kinds() if kind is not Kind.NEAR_TIE]
    for i in range(count):
        benign = i % 10 != 0
        yield Finding(
            ARM,
            "cpu/base",
            f"p{i % 20_000}",
            i // 20_000,
            0,
            Kind.NEAR_TIE if benign else corrupt[i // 10 % len(corrupt)],
            Severity.BENIGN if benign else Severity.CORRUPT,
            draw.randrange(512) if i % 7 else None,
            1,
            Evidence(why=WHY, numbers=Numbers(gap=draw.random())),
        )


def fill(path: Path, count: int) -> float:
    """Seconds for storing the findings (one transaction)."""
    arms = tuple(Arm(name, "cpu", name[4:]) for name in ("cpu/base", ARM))
    requests = tuple(Request(f"p{i}", f"prompt {i}", (i,)) for i in range(20_000))
    plan = Plan(Model("m", "", {}, None, ()), requests, arms, "cpu/base", Sampling())
    made = list(findings(count))
    with Store.open(path) as store:
        store.create_run(NewRun(RUN, plan, "benchmark"))
        began = time.perf_counter()
        store.save_comparison(RUN, ARM, ArmComparison("DIVERGED", [], {}, {}, {}, {}, made))
        return time.perf_counter() - began


def operations(store: Store, count: int) -> Iterator[tuple[str, Callable[[], object]]]:
    def page(**options: Any) -> Callable[[], object]:
        return lambda: store.page_findings(RUN, limit=100, **options)

    for name, offset in (("first", 0), ("middle", count // 2), ("last", max(0, count - 100))):
        for sort in FindingSort:
            for down in (False, True):
                what = f"{name} page by {sort.name.lower()}{' descending' if down else ''}"
                yield what, page(sort=sort, descending=down, offset=offset)
    filters = {
        "one kind": FindingFilter(kinds=frozenset({"duplication"})),
        "corrupt ones": FindingFilter(severities=frozenset({"corrupt"})),
        "a text": FindingFilter(text="prompt 77"),
        "three filters": FindingFilter(frozenset({ARM}), frozenset({"near_tie"}), frozenset(), frozenset({"new"})),
    }
    yield "count all", lambda: store.count_findings(RUN)
    yield "counts by kind", lambda: store.counts_by_kind(RUN)
    for name, where in filters.items():
        yield f"count {name}", lambda where=where: store.count_findings(RUN, where)  # type: ignore[misc]
        for sort in FindingSort:
            yield f"page of {name} by {sort.name.lower()}", page(where=where, sort=sort, offset=1000)
    middle = store.page_findings(RUN, sort=FindingSort.GAP, offset=count // 2, limit=1)[0]
    yield "where a finding stands", lambda: store.index_of_finding(RUN, middle.id, sort=FindingSort.GAP)
    some = [row.fingerprint for row in store.page_findings(RUN, limit=100)]
    yield "triage 100", lambda: store.set_triage(some, Triage(TriageState.BENIGN))
    yield "undo", store.undo_triage


def openings(path: Path) -> Iterator[tuple[str, float]]:
    """Seconds for opening a database from elsewhere."""
    theirs = path.with_name("theirs.db")
    shutil.copyfile(path, theirs)
    for what in ("the first time", "again", "after a write of our own"):
        began = time.perf_counter()
        with Store.open(theirs) as store:
            yield what, time.perf_counter() - began
            if what == "again":
                store.set_triage([store.page_findings(RUN, limit=1)[0].fingerprint], Triage(TriageState.BENIGN))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--findings", type=int, default=1_000_000)
    parser.add_argument("--json", dest="json_file", help="also write the numbers here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "parity.db"
        stored = fill(path, options.findings)
        print(f"{options.findings:,} findings stored in {stored:.1f} s, {path.stat().st_size / 1e6:,.0f} MB")
        seconds: dict[str, float] = {}
        with Store.open(path) as store:
            for name, work in operations(store, options.findings):
                times = []
                for _ in range(3):
                    began = time.perf_counter()
                    work()
                    times.append(time.perf_counter() - began)
                seconds[name] = statistics.median(times)
        opened = dict(openings(path))
    for name, value in sorted(seconds.items(), key=lambda item: -item[1])[:12]:
        print(f"{value * 1e3:8.1f} ms  {name}")
    for name, value in opened.items():
        print(f"{value * 1e3:8.1f} ms  opening one from elsewhere, {name}")
    over = [name for name, value in seconds.items() if value > LIMIT_SECONDS]
    print(f"{len(seconds)} operations, {len(over)} over {LIMIT_SECONDS} s")
    if options.json_file:
        Path(options.json_file).write_text(
            json.dumps({"store_seconds": stored, "seconds": seconds, "opened": opened}, indent=1)
        )


if __name__ == "__main__":
    main()
