"""The command that would decide an INCONCLUSIVE run stands whole on the screen of its findings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from captures import TEXT, capture, completion, written
from driving import Person, drive

from parity.comparator import compare
from parity.pipeline.analyse import arm_result, for_store, plan_of_captures
from parity.store import NewRun, RunStatus, Store

MODEL = "tiny-qwen3-next-mtp"


def test_an_open_run_shows_its_next_command(tmp_path: Path) -> None:
    streams = {"cpu/base": TEXT, "cpu/mtp": (*TEXT[:20], *range(500, 540))}
    base, other = (
        replace(made, source=str(written(tmp_path / f"{made.header.variant}.jsonl", made)))
        for made in (capture(arm, completion(tokens), model=MODEL) for arm, tokens in streams.items())
    )
    result = compare(base, other)
    with Store.open(tmp_path / "parity.db") as store:
        store.create_run(NewRun("20261122-000000-aaaa", plan_of_captures(base, [other]), "parity compare", "compare"))
        for one in (base, other):
            store.save_arm("20261122-000000-aaaa", one.header.arm, one, one.source, arm_result(one))
        store.save_comparison("20261122-000000-aaaa", "cpu/mtp", for_store(result))
        store.finish_run(
            "20261122-000000-aaaa", RunStatus.FINISHED, verdict=str(result.verdict), reasons=result.reasons
        )

    async def task(person: Person) -> None:
        await person.sees("INCONCLUSIVE")
        await person.press("enter")
        screen = await person.sees("ask transformers, which is no arm", "--arbiter")
        words = "".join(screen.split())
        assert f"--replaycpu-mtp={other.source}" in words

    drive(tmp_path / "parity.db", task, size=(120, 40))
