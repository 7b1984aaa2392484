"""The command that would decide a run, or say more of it, stands whole on the screen of its findings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from captures import TEXT, capture, completion, score, scores, written
from driving import Person, drive

from parity.comparator import compare
from parity.comparator.conclude.ruled import decided
from parity.comparator.reference.arbiter import rulings, with_rulings
from parity.pipeline.analyse import arm_result, for_store, plan_of_captures
from parity.store import NewRun, RunStatus, Store

MODEL = "tiny-qwen3-next-mtp"


def stored(tmp_path: Path, *, at_fault: bool = False) -> tuple[Path, str]:
    """A database with a run of two arms that part, and where the candidate's capture lies. `at_fault`: an arbiter has
    found the baseline so."""
    streams = {"cpu/base": TEXT, "cpu/mtp": (*TEXT[:20], *range(500, 540))}
    base, other = (
        replace(made, source=str(written(tmp_path / f"{made.header.variant}.jsonl", made)))
        for made in (capture(arm, completion(tokens), model=MODEL) for arm, tokens in streams.items())
    )
    result = compare(base, other)
    if at_fault:
        known = scores("cpu/base", p0=score(TEXT, {30: 9.0})) | scores("cpu/mtp", p0=score(streams["cpu/mtp"]))
        ruled = rulings(base, other, known, 0.25)
        result = decided(with_rulings(result, ruled, "transformers", 0.25), ruled, "transformers")
    with Store.open(tmp_path / "parity.db") as store:
        store.create_run(NewRun("20261122-000000-aaaa", plan_of_captures(base, [other]), "parity compare", "compare"))
        for one in (base, other):
            store.save_arm("20261122-000000-aaaa", one.header.arm, one, one.source, arm_result(one))
        store.save_comparison("20261122-000000-aaaa", "cpu/mtp", for_store(result))
        store.finish_run(
            "20261122-000000-aaaa", RunStatus.FINISHED, verdict=str(result.verdict), reasons=result.reasons
        )
    return tmp_path / "parity.db", other.source


def test_an_open_run_shows_its_next_command(tmp_path: Path) -> None:
    database, source = stored(tmp_path)

    async def task(person: Person) -> None:
        await person.sees("INCONCLUSIVE")
        await person.press("enter")
        screen = await person.sees("ask transformers, which is no arm", "--arbiter")
        words = "".join(screen.split())
        assert f"--replaycpu-mtp={source}" in words

    drive(database, task, size=(120, 40))


def test_a_baseline_at_fault_shows_the_command_that_swaps_the_sides(tmp_path: Path) -> None:
    database, source = stored(tmp_path, at_fault=True)

    async def task(person: Person) -> None:
        await person.sees("DIVERGED")
        await person.press("enter")
        screen = await person.sees("it is the baseline that is at fault", "see what is wrong in cpu/base")
        words = "".join(screen.split())
        assert f"run--replaycpu-mtp={source}" in words  # the candidate first

    drive(database, task, size=(120, 40))
