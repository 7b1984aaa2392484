"""One suite for every backend: the same plan, the same capture schema, the same errors.

What a backend cannot do is in gaps.py, strictly: a gap that works fails the suite.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_server import MODEL
from gaps import GAPS, available, mark
from subject import Subject
from subjects import ENGINES, FAST, HARDWARE, MAX_TOKENS, PROMPTS, SERVERS, questions, text_of

from parity.capture import check_capture, read_scores
from parity.errors import BackendError, ExitCode
from parity.pipeline.deployed import deployments
from parity.records import Completion, Key
from parity.run import ScoreItem, backend_names, load_backend, run_arm

KEYS = {Key(f"p{number}", 0, 0) for number in range(len(PROMPTS))}
LONG = 4096


def every_backend(test: Callable[..., None]) -> Any:
    """Ask this of every subject; those with a gap are expected to fail."""
    capability = test.__name__.removeprefix("test_")
    parameters = [mark(name, capability) for name in (*FAST, *HARDWARE)]
    parameters += [mark(name, capability, pytest.mark.engine) for name in ENGINES]
    return pytest.mark.parametrize("subject", parameters, indirect=True, scope="module")(test)


def greedy(completions: list[Completion]) -> dict[Key, list[int]]:
    return {one.key: one.token_ids.tolist() for one in completions}


@every_backend
def test_everything_of_the_plan_is_captured(subject: Subject) -> None:
    capture = subject.capture
    assert check_capture(subject.path) == []
    assert set(capture.completions) == KEYS
    header = capture.header
    assert (header.arm, header.backend, header.variant) == (subject.up.arm, subject.up.backend, "x")
    assert header.model == "tiny-qwen3-next-mtp"
    assert header.vocab_size == 2048
    assert header.eos_token_ids == (0,)
    assert header.sampling == subject.up.plan().sampling.to_json()
    assert header.engine["asked"] == subject.up.engine
    assert isinstance(header.environment["versions"], dict)
    assert capture.counters is not None
    assert capture.counters["tokens"] == sum(len(one.token_ids) for one in capture)
    assert capture.counters["generate_seconds"] >= 0


@every_backend
def test_prompts_are_the_plans(subject: Subject) -> None:
    wanted = {request["id"]: request["prompt_token_ids"] for request in questions()}
    for one in subject.capture:
        assert one.prompt_token_ids.tolist() == wanted[one.key.request]


@every_backend
def test_text_is_what_the_tokens_say(subject: Subject) -> None:
    for one in subject.capture:
        assert one.text is not None
        assert one.text.rstrip("\ufffd") == text_of(one.token_ids).rstrip("\ufffd")


@every_backend
def test_lengths_are_as_asked(subject: Subject) -> None:
    for one in subject.capture:
        if one.finish_reason == "length":
            assert len(one.token_ids) == MAX_TOKENS
        else:
            assert one.finish_reason == "stop"
            assert one.token_ids[-1] == 0


@every_backend
def test_the_same_question_has_the_same_answer(subject: Subject, tmp_path: Path) -> None:
    again = subject.again(tmp_path / "again.jsonl")
    assert greedy(list(again)) == greedy(list(subject.capture))


@every_backend
def test_an_unfinished_capture_is_finished(subject: Subject, tmp_path: Path) -> None:
    whole = subject.path.read_bytes().splitlines(keepends=True)
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(whole[:2]) + whole[2][:40])  # a header, a completion, and where the writer died
    resumed = subject.again(cut)
    assert greedy(list(resumed)) == greedy(list(subject.capture))
    assert resumed.counters is not None
    assert resumed.counters["resumed_completions"] == 1
    assert resumed.counters["replay_differences"] == 0
    assert check_capture(cut) == []


@every_backend
def test_own_questions(subject: Subject) -> None:
    answers, counters = subject.ask(requests=questions()[:2], max_tokens=5)
    assert {one.key for one in answers} == {Key("p0", 0, 0), Key("p1", 0, 0)}
    assert counters["tokens"] == sum(len(one.token_ids) for one in answers)


@every_backend
def test_a_request_has_a_limit_of_its_own(subject: Subject) -> None:
    first, second = questions()[:2]
    answers, _ = subject.ask(requests=[{**first, "max_tokens": 4}, second])
    by_request = {one.key.request: one for one in answers}
    assert len(by_request["p0"].token_ids) == 4
    assert by_request["p0"].max_tokens == 4
    assert len(by_request["p1"].token_ids) == MAX_TOKENS


@every_backend
def test_logprobs_are_of_the_tokens(subject: Subject) -> None:
    answers, _ = subject.ask(logprobs=2)
    for one in answers:
        assert one.logprobs is not None
        assert len(one.logprobs) == len(one.token_ids)
        listed = one.logprobs.ids == one.token_ids[:, None]
        assert listed.any(axis=1).all()
        assert (one.logprobs.values[listed] <= 1e-3).all()
        assert one.logprobs.ids.shape[1] >= 2


@every_backend
def test_samples(subject: Subject) -> None:
    answers, _ = subject.ask(n=3, temperature=1.0, seed=5)
    samples = defaultdict(set)
    for one in answers:
        samples[one.key.request].add((one.key.sample, tuple(one.token_ids.tolist())))
    assert set(samples) == {f"p{number}" for number in range(len(PROMPTS))}
    assert all({sample for sample, _ in drawn} == {0, 1, 2} for drawn in samples.values())
    # Drawn, not three times the same. One prompt's may be by chance: the model is sure of some of its lines.
    assert sum(len({tokens for _, tokens in drawn}) for drawn in samples.values()) > 2 * len(samples)
    again, _ = subject.ask(n=3, temperature=1.0, seed=5)
    assert greedy(again).keys() == greedy(answers).keys()


@every_backend
def test_a_stop_string_ends_it(subject: Subject) -> None:
    spoken = max(subject.ask()[0], key=lambda one: len((one.text or "").strip()))
    assert spoken.text is not None
    middle = len(spoken.text) // 2
    stop = spoken.text[middle : middle + 3]
    request = [one for one in questions() if one["id"] == spoken.key.request]
    (stopped,), _ = subject.ask(requests=request, stop=[stop])
    assert stopped.finish_reason == "stop"
    assert stopped.text == spoken.text[: spoken.text.index(stop)]
    assert len(stopped.token_ids) <= len(spoken.token_ids)


@every_backend
def test_scores_are_of_the_tokens(subject: Subject, tmp_path: Path) -> None:
    capture = subject.capture
    items = [ScoreItem(subject.up.arm, *one.key, one.prompt_token_ids, one.token_ids) for one in capture]
    subject.session.score(items, tmp_path / "scores.jsonl", top=3)
    scores = read_scores(tmp_path / "scores.jsonl")
    assert set(scores) == {item.key for item in items}
    for item in items:
        score = scores[item.key]
        chosen = score.ids == np.asarray(item.token_ids)[:, None]
        assert chosen.any(axis=1).all()
        if subject.name in (*ENGINES, *HARDWARE):  # an engine's own greedy choice is the best token, but for rounding
            own = np.where(chosen, score.values, -np.inf).max(axis=1)
            assert (np.nanmax(score.values, axis=1) - own).max() < 0.5


@every_backend
def test_what_cannot_be_scored_is_said(subject: Subject, tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    one = next(iter(subject.capture))
    good = ScoreItem(subject.up.arm, *one.key, one.prompt_token_ids, one.token_ids)
    other = next(key for key in sorted(KEYS) if key != one.key)  # whichever ended first was taken for the good one
    bad = ScoreItem(subject.up.arm, *other, [1, 2], [7] * LONG)
    subject.session.score([good, bad], path)
    assert set(read_scores(path)) == {good.key}
    footer = json.loads(path.read_text().splitlines()[-1])
    assert footer["counters"]["unscored"] == 1
    assert footer["counters"]["unscored_items"][0][:4] == list(bad.key)


@every_backend
def test_an_input_that_does_not_fit_is_named(subject: Subject) -> None:
    """The last question to a subject: an error ends its worker."""
    request = {**questions()[1], "id": "too-long", "prompt_token_ids": [7] * LONG}
    request["messages"] = [{"role": "user", "content": "word " * LONG}]
    request["prompt"] = "word " * LONG
    with pytest.raises(BackendError, match="too-long") as caught:
        subject.ask(requests=[request])
    assert caught.value.exit_code is ExitCode.BACKEND_FAILED


# --------------------------------------------------------------------------- a server that speculates


@pytest.mark.engine
def test_a_server_that_speculates_says_what_the_engine_says_without(servers: None, tmp_path: Path) -> None:
    """`parity run` of production as it runs, prediction layers in use, against an engine that does not use them."""
    done = subprocess.run(
        [sys.executable, "-m", "parity", "run", "--backends", "cpu", "--variants", "base",
         "--server", f"prod={SERVERS['vllm']}", "--suite", "smoke", "--max-tokens", "32", "--json",
         "--db", str(tmp_path / "db"), "--out", str(tmp_path / "run")],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    stats = json.loads(done.stdout)["arms"]["server/prod"]["stats"]
    assert stats["completions"] == stats["identical"] + stats["near_tie"] == len(PROMPTS)
    assert stats["exercised"]["accepted_tokens"] > 0


@pytest.mark.engine
def test_a_server_tells_how_it_was_started(servers: None) -> None:
    """`--like URL`: what vLLM's own server reports of itself is what it was given (`real_server.SETTINGS`)."""
    (found,) = deployments(SERVERS["vllm"], {"cpu": load_backend("cpu")}).values()
    given = {
        "dtype": "bfloat16",
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 2048,
        "max_model_len": 256,
        "max_logprobs": 20,
    }
    assert {name: found.engine.get(name) for name in given} == given
    speculation = found.engine["speculative_config"]
    assert isinstance(speculation, dict)
    assert (speculation["method"], speculation["num_speculative_tokens"]) == ("mtp", 2)
    assert found.model == str(MODEL)


# --------------------------------------------------------------------------- hardware that is not here


@pytest.mark.parametrize("name", HARDWARE)
def test_where_hardware_was_looked_for_is_said(name: str) -> None:
    adapter = load_backend(name)
    assert adapter.detect().looked_for
    if available(name):
        assert adapter.interpreter(print).exists()


@pytest.mark.parametrize("name", HARDWARE)
def test_hardware_that_is_not_here_is_explained(name: str, tmp_path: Path) -> None:
    if available(name):
        pytest.skip(f"this machine has what {name} needs")
    found = load_backend(name).detect()
    with HARDWARE[name](tmp_path) as up:
        arm = run_arm(up.plan(), up.arm, tmp_path / "capture.jsonl", tmp_path / "engine.log")
        with pytest.raises(BackendError) as caught, arm as session:
            session.generate()
    assert caught.value.exit_code is ExitCode.BACKEND_FAILED
    assert caught.value.hint
    for line in found.looked_for:
        assert str(line) in str(caught.value)
    assert not (tmp_path / "capture.jsonl").exists()


# --------------------------------------------------------------------------- the gaps themselves


def test_every_backend_that_is_installed_is_asked() -> None:
    asked = {name.split("-")[0] if "server" in name else name for name in (*FAST, *HARDWARE, *ENGINES)}
    assert set(backend_names()) - asked == set(), "a line in HARDWARE of gaps.py, or in subjects.py"


def test_every_gap_is_of_a_subject_and_a_test_and_has_a_reason() -> None:
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    for gap in GAPS:
        assert gap.subject in {*FAST, *ENGINES}
        assert gap.capability in tests
        assert gap.owner
        assert gap.reason
        assert gap.kind in {"notimpl", "notyet", "never"}
    assert len({(gap.subject, gap.capability) for gap in GAPS}) == len(GAPS)
