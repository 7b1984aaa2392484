"""The step timeline under a finding: rows as lanes, what moved, what was accepted, what broke, and where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from driving import Person, drive
from lxml import html as lxml_html
from step_world import World, changed, steps_lines

from parity import language
from parity.capture import write_capture
from parity.capture.steps import steps_path
from parity.cli.main import cli
from parity.explain.ledger import Ledger
from parity.explain.violations import check
from parity.records import Key
from parity.store.browse import Browser
from parity.view.lanes import MOST_ROWS, NAMELESS, lanes_of
from parity.view.timeline import timeline_beside, timeline_of
from parity.view.two_runs import Change, two_runs

WORLD = World(21, rows=5, steps=120)
WHOLE = WORLD.recorded()
LEDGER = Ledger(WHOLE)
BROKEN = int(
    np.flatnonzero(
        (WHOLE.numbers("path/1") == 0) & (LEDGER.emitted_before > 3) & (LEDGER.earlier(WHOLE.row) != WHOLE.row)
    )[0]
)
"""A row-step that moved and decodes."""
STEPS = changed(WHOLE, "accepted/1", BROKEN, int(WHOLE.numbers("accepted/1")[BROKEN]) % 3 + 1)
KEY = LEDGER.request_of(BROKEN).key
STEP, ROW = int(WHOLE.step[BROKEN]), int(WHOLE.row[BROKEN])


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    for name in ("base", "mtp"):
        write_capture(folder / f"{name}.jsonl", WORLD.capture(f"cpu/{name}", WHOLE))
    steps_path(folder / "mtp.jsonl").write_bytes(b"".join(steps_lines(STEPS)))
    words = ["compare", str(folder / "base.jsonl"), str(folder / "mtp.jsonl"), "--save", "--db", str(folder / "p.db")]
    assert CliRunner().invoke(cli, words).exit_code == 1
    return folder / "p.db"


def test_what_broke_of_the_completion_itself_stands_first() -> None:
    other = next(
        int(index) for index in np.flatnonzero(STEPS.step < STEP)[::-1]
        if LEDGER.request[index] != LEDGER.request[BROKEN] and STEPS.numbers("path/1")[index] == 0
        and STEPS.step[index] >= STEP - 2
    )  # fmt: skip
    both = changed(STEPS, "accepted/1", other, int(STEPS.numbers("accepted/1")[other]) % 3 + 1)
    timeline = timeline_of(both, KEY)
    assert timeline is not None
    first, *rest = lanes_of(timeline, int(LEDGER.emitted_before[BROKEN]), 80).broken
    assert f"step {STEP}, row {ROW}" in str(first)
    assert [f"step {int(STEPS.step[other])}, row" in str(one) for one in rest] == [True]


def test_the_timeline_is_what_the_steps_say() -> None:
    assert KEY is not None
    timeline = timeline_of(STEPS, KEY)
    assert timeline is not None
    assert timeline_of(STEPS, type(KEY)("stranger", 0, 0)) is None
    (violation,) = check(STEPS).violations
    place = timeline.place_of(int(LEDGER.emitted_before[BROKEN]))
    assert int(timeline.steps[place]) == STEP
    assert timeline.row(place)[ROW].violations == (violation,)
    for at in range(len(timeline)):
        index = np.flatnonzero(STEPS.step == timeline.steps[at])
        assert [one.number for one in timeline.row(at)] == LEDGER.request[index].tolist()
        assert [one.emitted for one in timeline.row(at)] == LEDGER.emitted[index].tolist()
    assert sum(len(cell.violations) for cell in timeline.cells) == 1
    window = timeline.window(place, 9)
    assert len(window) == 9
    assert place in window
    assert len(timeline.window(0, 10_000)) == len(timeline)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
@pytest.mark.parametrize("light", [False, True])
def test_a_violation_opens_with_its_step_in_the_middle(database: Path, size: tuple[int, int], light: bool) -> None:
    (violation,) = check(STEPS).violations

    async def task(person: Person) -> None:
        if light:
            await person.press("ctrl+t")
        await person.press("enter", "enter")
        screen = await person.sees(f"step {STEP}, row {ROW}", "6 steps")
        lines = screen.splitlines()
        lane = next(
            line for line in lines if line.rstrip().rfind("!") > 0 and line.split("│")[-1].split()[:1] == [str(ROW)]
        )
        mark = next(line for line in lines if line.split("│")[-1].strip() == "v")
        column = mark.rindex("v")
        # The completion's own letter stands under the mark, and its cell says that something broke.
        assert lane[column] == "A"
        assert lane[column + 2] == "!"
        assert f"{violation.invariant} is {violation.found}, should be {violation.expected}" in " ".join(screen.split())

    drive(database, task, size=size)


def test_the_window_goes_with_the_cursor_and_the_panel_can_be_left(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("enter", "enter")
        before = await person.sees("6 steps", f"step {STEP}, row {ROW}")
        await person.press("g")
        after = await person.until(lambda: person.screen != before and person.screen, "another window")
        assert after.splitlines()[0] == before.splitlines()[0]
        await person.press("3")
        await person.no_longer_sees("[6 steps]")
        await person.press("6", "J", "J")
        await person.sees("[6 steps]", "this completion;")

    drive(database, task)


@pytest.mark.parametrize("format", ["md", "html"])
def test_a_report_draws_the_steps_of_its_finding(database: Path, format: str) -> None:
    done = CliRunner().invoke(cli, ["report", "--format", format, "--db", str(database)])
    assert done.exit_code == 0, done.output
    text = done.output if format == "md" else lxml_html.document_fromstring(done.output).text_content()
    lines = text.split("What the recorded steps show", 1)[1].splitlines()
    marked = next(at for at, line in enumerate(lines) if line.strip() == "v")
    column = lines[marked].index("v")
    lanes = [line for line in lines[marked + 1 : marked + 6] if line[:1].isdigit()]
    assert (lanes[ROW][column], lanes[ROW][column + 2]) == ("A", "!")
    assert sum(line[:96].split("A this", 1)[0].count("!") for line in lanes) == 1


def test_in_chinese(database: Path, request: pytest.FixtureRequest) -> None:
    language.use("zh")
    request.addfinalizer(lambda: language.use(None))

    async def task(person: Person) -> None:
        await person.press("enter", "enter")
        screen = await person.sees("步骤")
        assert "should be" not in screen

    drive(database, task, size=(120, 40))


def test_a_violation_is_gone_only_where_the_later_run_recorded_its_steps(tmp_path: Path) -> None:
    folder, database = tmp_path, tmp_path / "p.db"
    for name in ("base", "mtp"):
        write_capture(folder / f"{name}.jsonl", WORLD.capture(f"cpu/{name}", WHOLE))
    ids = []
    for steps in (STEPS, None, WHOLE):
        steps_path(folder / "mtp.jsonl").unlink(missing_ok=True)
        if steps is not None:
            steps_path(folder / "mtp.jsonl").write_bytes(b"".join(steps_lines(steps)))
        words = ["compare", str(folder / "base.jsonl"), str(folder / "mtp.jsonl"), "--db", str(database)]
        CliRunner().invoke(cli, words)
        with Browser.open(database) as store:
            ids = [*ids, next(run.id for run in store.runs(limit=3) if run.id not in ids)]
    with Browser.open(database) as store:
        runs = [store.run(one) for one in ids]
        later = [two_runs(store, runs[0], one) for one in runs[1:]]
        before = len(store.fault_lines(ids[0]))
    assert before
    assert [(one.count(Change.UNASKED), one.count(Change.GONE)) for one in later] == [(before, 0), (0, before)]


def test_of_a_large_batch_the_rows_around_what_broke_are_drawn() -> None:
    """64 rows on a GPU: the two neighbours that broke, who had these rows before, and a name for each letter."""
    capture = Path(__file__).parents[2] / "reports" / "h200-async-race" / "captures" / "replay-h200.jsonl.gz"
    timeline = timeline_beside(capture, Key("long-season#6", 0, 0))
    assert timeline is not None
    drawn = lanes_of(timeline, 1, 96)
    assert len(drawn.rows) == len(drawn.numbers) == MOST_ROWS
    assert {31, 32} <= set(drawn.numbers)
    lanes = dict(zip(drawn.numbers, drawn.rows, strict=True))
    assert [signs for signs, role in lanes[31] if role == "broken"] == ["A1!"]
    assert len([role for _, role in lanes[32] if role == "broken"]) == 1
    letters = {signs[0] for cells in drawn.rows for signs, _ in cells if signs.strip()}
    assert letters - {NAMELESS} <= {letter for letter, _ in drawn.names}
    assert NAMELESS not in {letter for letter, _ in drawn.names}
    assert len(drawn.lines) == 2 + MOST_ROWS
