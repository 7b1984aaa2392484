"""One arm from its engine's start to the last record, against a worker that is real but for the engine."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from backend import FaultyBackend
from plans import fake_plan

from parity.capture import check_capture, read_capture, read_scores
from parity.errors import BackendError, ExitCode, ParityError
from parity.plan import Plan
from parity.records import Capture, Key
from parity.run import ArmEvent, Interrupted, Phase, ScoreItem, Timeouts, run_arm
from parity.run import process as process_module


class Runner:
    """Runs arms of a fake plan in one directory."""

    def __init__(self, directory: Path, backend: FaultyBackend, timeouts: Timeouts) -> None:
        self.capture = directory / "a.jsonl"
        self.scores = directory / "scores.jsonl"
        self.log = directory / "logs" / "a.log"
        self.backend = backend
        self.timeouts = timeouts
        self.events: list[ArmEvent] = []
        self.said: list[str] = []

    def session(self, plan: Plan, *, resume: bool = False, arm: str = "fake/base", **extra: Any) -> Any:
        return run_arm(
            plan,
            arm,
            self.capture,
            self.log,
            on_event=self.events.append,
            say=self.said.append,
            resume=resume,
            backend=self.backend,
            **{"timeouts": self.timeouts, **extra},
        )

    def generate(self, plan: Plan, *, resume: bool = False, **extra: Any) -> Capture:
        with self.session(plan, resume=resume, **extra) as session:
            session.generate()
        return read_capture(self.capture)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.capture.read_text().splitlines()]


@pytest.fixture
def runner(tmp_path: Path, backend: FaultyBackend, quick: Timeouts) -> Runner:
    return Runner(tmp_path, backend, quick)


def tokens(capture: Capture) -> dict[Key, list[int]]:
    return {completion.key: completion.token_ids.tolist() for completion in capture}


def test_everything_of_the_plan_is_captured(runner: Runner) -> None:
    capture = runner.generate(fake_plan(rounds=2, n=2))
    assert set(capture.completions) == {Key(f"p{i}", r, s) for i in range(4) for r in range(2) for s in range(2)}
    assert check_capture(runner.capture) == []
    assert capture.counters is not None
    assert capture.counters["tokens"] == 16 * 6
    assert capture.counters["tokens_per_second"] == 192.0
    assert "surplus" not in runner.capture.read_text()


def test_the_watcher_sees_every_phase_and_the_counts(runner: Runner) -> None:
    runner.generate(fake_plan())
    phases = list(dict.fromkeys(event.phase for event in runner.events))
    assert phases == [Phase.STARTING, Phase.READY, Phase.GENERATING, Phase.DONE]
    assert (runner.events[-1].done, runner.events[-1].total, runner.events[-1].tokens) == (4, 4, 24)


def test_what_the_engine_prints_stays_out_of_the_protocol(runner: Runner) -> None:
    capture = runner.generate(fake_plan("noisy"))
    assert len(capture.completions) == 4
    log = runner.log.read_text()
    assert "garbage on stdout" in log
    assert "a child's garbage" in log


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("die at start", "ended while starting the engine (killed by SIGKILL)"),
        ("error at start", "failed while starting the engine: RuntimeError: no such checkpoint"),
        ("wrong arm", "a header of arm 'another'"),
    ],
)
def test_a_failure_at_the_start_leaves_no_capture(runner: Runner, mode: str, words: str) -> None:
    with pytest.raises(BackendError, match="fake/base") as caught:
        runner.generate(fake_plan(mode))
    assert words in str(caught.value)
    assert caught.value.exit_code is ExitCode.BACKEND_FAILED
    assert "red line with  bell" in str(caught.value)  # the log's end, without its escape sequences
    assert "\x1b" not in str(caught.value)
    assert not runner.capture.exists()
    assert runner.events[-1].phase is Phase.FAILED


def test_what_resuming_cannot_mend_is_not_promised(runner: Runner) -> None:
    with pytest.raises(BackendError) as caught:
        runner.generate(fake_plan("die"))
    assert "where something beside the plan is mended" in str(caught.value.hint)
    assert str(caught.value.hint).endswith("what the plan asks takes a new run")


def test_the_adapter_explains_a_failure(runner: Runner) -> None:
    with pytest.raises(BackendError) as caught:
        runner.generate(fake_plan("die at start"))
    assert str(caught.value.hint) == "the remedy"


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("die", "ended while generating (killed by SIGKILL), after 3 of 4, which are kept"),
        ("error", "the prompt is too long"),
        ("garbage", "not JSON: 'Traceback:  nonsense"),
        ("not an object", "not a JSON object"),
        ("truncated", "cut off"),
        ("oversized", "longer than"),
        ("stranger", "a completion that the plan does not have"),
        ("wrong type", "completion: Expected 'array', got 'str' - at 'token_ids'"),
    ],
)
def test_a_failure_in_the_middle_keeps_what_was_captured(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, mode: str, words: str
) -> None:
    monkeypatch.setattr(process_module, "MAX_LINE_BYTES", 200_000)
    with pytest.raises(BackendError) as caught:
        runner.generate(fake_plan(mode))
    assert words in str(caught.value)
    assert [record["record"] for record in runner.lines()] == ["header"] + ["completion"] * 3


def test_a_hanging_worker_is_given_up(runner: Runner) -> None:
    with pytest.raises(BackendError, match="nothing from the worker for too long while generating"):
        runner.generate(fake_plan("hang"), timeouts=Timeouts(start=20, stall=1.0, grace=0.2))
    assert len(runner.lines()) == 4


def test_an_engine_that_never_starts_is_given_up(runner: Runner) -> None:
    with pytest.raises(BackendError, match="too long while starting"):
        runner.generate(fake_plan("hang at start"), timeouts=Timeouts(start=1.0, stall=20, grace=0.2))


def test_an_engine_that_does_not_shut_down_is_killed(runner: Runner) -> None:
    capture = runner.generate(fake_plan("hang at end"), timeouts=Timeouts(start=20, stall=20, grace=0.5))
    assert len(capture.completions) == 4


def test_an_interpreter_that_is_not_there(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner.backend, "interpreter", lambda say: Path("/nowhere/python"))
    with pytest.raises(BackendError, match="cannot run /nowhere/python"):
        runner.generate(fake_plan())


@pytest.mark.parametrize("mode", ["die", "truncated", "hang", "die before footer"])
def test_resumed_is_the_same_as_uninterrupted(runner: Runner, tmp_path: Path, mode: str) -> None:
    whole = Runner(tmp_path / "whole", runner.backend, runner.timeouts).generate(fake_plan(rounds=3))
    with pytest.raises(BackendError):
        runner.generate(fake_plan(mode, rounds=3), timeouts=Timeouts(start=20, stall=1.0, grace=0.2))
    resumed = runner.generate(fake_plan(rounds=3), resume=True)
    assert tokens(resumed) == tokens(whole)
    assert list(resumed.completions) == list(whole.completions)
    assert resumed.counters is not None
    assert whole.counters is not None
    for name in ("drafts", "tokens"):
        assert resumed.counters[name] == whole.counters[name]
    assert resumed.counters["replay_differences"] == 0
    assert check_capture(runner.capture) == []


def test_a_cut_off_last_line_is_cut_away(runner: Runner) -> None:
    whole = tokens(runner.generate(fake_plan()))
    for size in range(0, runner.capture.stat().st_size - 1, 97):
        data = runner.capture.read_bytes()
        runner.capture.write_bytes(data[:size])
        assert tokens(runner.generate(fake_plan(), resume=True)) == whole


def test_a_replay_that_differs_is_counted_and_does_not_replace(runner: Runner) -> None:
    with pytest.raises(BackendError):
        runner.generate(fake_plan("die"))
    before = runner.lines()
    capture = runner.generate(fake_plan("different"), resume=True)
    assert runner.lines()[:4] == before
    assert capture.counters is not None
    assert capture.counters["replay_differences"] == 3


def test_a_finished_arm_starts_no_engine(runner: Runner) -> None:
    runner.generate(fake_plan())
    before = runner.capture.read_bytes()
    runner.generate(fake_plan("die at start"), resume=True)
    assert runner.backend.starts == 1
    assert runner.capture.read_bytes() == before


def test_an_existing_capture_is_not_overwritten(runner: Runner) -> None:
    runner.generate(fake_plan())
    with pytest.raises(ParityError, match="exists already"):
        runner.generate(fake_plan())


def test_resume_refuses_the_capture_of_another_plan(runner: Runner) -> None:
    with pytest.raises(BackendError):
        runner.generate(fake_plan("die"))
    other = fake_plan()
    other = replace(other, sampling=replace(other.sampling, max_tokens=7))
    with pytest.raises(ParityError, match="another plan: sampling differ"):
        runner.generate(other, resume=True)


def test_resume_refuses_another_engine(runner: Runner) -> None:
    with pytest.raises(BackendError):
        runner.generate(fake_plan("die"))
    size = runner.capture.stat().st_size
    with pytest.raises(ParityError, match=r"another engine: engine\.fake differ"):
        runner.generate(fake_plan(FAKE_ENGINE="2"), resume=True)
    assert runner.capture.stat().st_size == size


def test_resume_refuses_a_damaged_capture(runner: Runner) -> None:
    with pytest.raises(BackendError):
        runner.generate(fake_plan("die"))
    lines = runner.capture.read_bytes().splitlines(keepends=True)
    runner.capture.write_bytes(lines[0] + b"###\n" + lines[1])
    with pytest.raises(ParityError, match="line 2: damaged"):
        runner.generate(fake_plan(), resume=True)


def test_two_at_once_do_not_mix(runner: Runner, tmp_path: Path) -> None:
    stop = threading.Event()
    with runner.session(fake_plan("slow", requests=60)) as first:
        thread = threading.Thread(target=first.generate)
        thread.start()
        while not runner.capture.exists() or runner.capture.stat().st_size == 0:
            stop.wait(0.02)
        with pytest.raises(ParityError, match="another parity is writing"):
            runner.generate(fake_plan("slow", requests=60), resume=True)
        thread.join()
    assert len(read_capture(runner.capture).completions) == 60


def test_a_stop_ends_the_worker_and_can_be_resumed(runner: Runner) -> None:
    stop = threading.Event()

    def watch(event: ArmEvent) -> None:
        if event.phase is Phase.GENERATING and event.done == 5:
            stop.set()

    plan = fake_plan("slow", requests=40)
    with (
        pytest.raises(Interrupted, match="interrupted after 5 of 40"),
        run_arm(
            plan, "fake/base", runner.capture, runner.log,
            on_event=watch, backend=runner.backend, stop=stop, timeouts=runner.timeouts,
        ) as session,
    ):  # fmt: skip
        session.generate()
    assert len(runner.lines()) == 6
    assert len(runner.generate(fake_plan("slow", requests=40), resume=True).completions) == 40


def test_an_unknown_arm_is_named_with_those_there_are(runner: Runner) -> None:
    with pytest.raises(ParityError, match="no arm 'fake/nope'") as caught, runner.session(fake_plan(), arm="fake/nope"):
        pass
    assert str(caught.value.hint) == "it has fake/base, fake/mtp"


def test_a_full_disk_keeps_whole_records_and_can_be_resumed(runner: Runner) -> None:
    resource = pytest.importorskip("resource", reason="the size of files cannot be limited here")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))  # a write beyond fails, as on a full disk
    try:
        with pytest.raises(ParityError, match="cannot write") as caught:
            runner.generate(fake_plan(requests=200))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "--resume" in str(caught.value.hint)
    assert runner.capture.read_bytes().endswith(b"}\n")
    assert 10 < len(runner.lines()) < 200
    assert len(runner.generate(fake_plan(requests=200), resume=True).completions) == 200


# --------------------------------------------------------------------------- scoring


def items(count: int, *, token: int = 5) -> list[ScoreItem]:
    return [ScoreItem("fake/mtp", f"p{i}", 0, 0, [1, 2, i], [token, i, i + 1]) for i in range(count)]


def test_scores_go_into_a_file_of_their_own(runner: Runner) -> None:
    with runner.session(fake_plan()) as session:
        session.generate()
        session.score(items(4), runner.scores)
    assert runner.backend.starts == 1
    phases = [event.phase for event in runner.events]
    assert phases.count(Phase.READY) == 1
    assert Phase.STARTING not in phases[phases.index(Phase.DONE) :]  # the engine is up already, nobody waits for it
    scores = read_scores(runner.scores)
    assert {key.request for key in scores} == {"p0", "p1", "p2", "p3"}
    assert all(len(score) == 3 for score in scores.values())
    assert check_capture(runner.scores) == []


def test_scoring_resumes(runner: Runner) -> None:
    with pytest.raises(BackendError, match="while scoring"), runner.session(fake_plan("die")) as session:
        session.score(items(4), runner.scores)
    assert len(runner.scores.read_text().splitlines()) == 3
    with runner.session(fake_plan(), resume=True) as session:
        session.score(items(4), runner.scores)
    assert len(read_scores(runner.scores)) == 4
    starts = runner.backend.starts
    with runner.session(fake_plan(), resume=True) as session:
        session.score(items(4), runner.scores)
    assert runner.backend.starts == starts


def test_what_cannot_be_scored_is_named_and_not_tried_again(runner: Runner) -> None:
    with runner.session(fake_plan()) as session:
        session.score([*items(2), ScoreItem("fake/mtp", "p9", 0, 0, [1], [70_000])], runner.scores)
    footer = json.loads(runner.scores.read_text().splitlines()[-1])
    assert footer["counters"]["unscored"] == 1
    assert footer["counters"]["unscored_items"][0][:2] == ["fake/mtp", "p9"]
    assert any("not scored: fake/mtp p9" in str(line) for line in runner.said)
    with runner.session(fake_plan(), resume=True) as session:
        session.score([*items(2), ScoreItem("fake/mtp", "p9", 0, 0, [1], [70_000])], runner.scores)
    assert runner.backend.starts == 1


def test_a_score_of_the_wrong_length_is_refused(runner: Runner) -> None:
    with pytest.raises(BackendError, match="2 entries for 3 tokens"), runner.session(fake_plan("short")) as session:
        session.score(items(2), runner.scores)


def test_an_arm_with_speculation_does_not_score(runner: Runner) -> None:
    with pytest.raises(ParityError, match="cannot score"), runner.session(fake_plan(), arm="fake/mtp") as session:
        session.score(items(2), runner.scores)
    assert runner.backend.starts == 0
