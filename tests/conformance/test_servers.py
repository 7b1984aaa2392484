"""`parity run` with servers and recordings as arms: what differs is found, and what could not be checked is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fake_server import MODEL, FakeServer, fake_server

PIXEL = "data:image/png;base64,iVBORw0KGgo="


class Parity:
    """`parity` with a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __call__(self, *args: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "parity", *args],
            env={**os.environ, "PARITY_HOME": str(self.home)},
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def compare(self, one: FakeServer, two: FakeServer, *args: str) -> dict[str, Any]:
        """The result of a run of two servers."""
        urls = ["--server", f"one={one.url}", "--server", f"two={two.url}"]
        options = list(args) if "--prompts" in args else [*args, "--suite", "smoke"]
        done = self("run", *urls, "--model", str(MODEL), "--max-tokens", "16", "--json", *options)
        assert done.stdout, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        codes = {"PASS": 0, "DIVERGED": 1, "INCONCLUSIVE": 4}
        assert done.returncode == codes[result["verdict"]]
        return result


@pytest.fixture
def parity(tmp_path: Path) -> Parity:
    return Parity(tmp_path)


def pair(stack: ExitStack, one: dict[str, Any], two: dict[str, Any]) -> tuple[FakeServer, FakeServer]:
    return stack.enter_context(fake_server(**one)), stack.enter_context(fake_server(**two))


def counts(result: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = result["arms"]["server/two"]["counts"]
    return found


def test_two_servers_that_say_the_same_pass(parity: Parity) -> None:
    with ExitStack() as stack:
        result = parity.compare(*pair(stack, {}, {}), "--logprobs", "2")
    assert result["verdict"] == "PASS"
    notes = result["arms"]["server/two"]["notes"]
    assert any("its weights cannot be seen" in note for note in notes)


def test_a_rehearsal_asks_no_server(parity: Parity) -> None:
    with ExitStack() as stack:
        one, two = pair(stack, {}, {})
        servers = ["--server", f"one={one.url}", "--server", f"two={two.url}", "--model", str(MODEL)]
        done = parity("run", *servers, "--suite", "smoke", "--rehearse")
        assert [path for server in (one, two) for path, _ in server.behaviour.requests if "completions" in path] == []
    assert done.returncode == 2
    assert "no arm of the run starts an engine" in done.stderr
    assert not (parity.home / "rehearsals").exists()


def test_the_weights_need_not_be_here(parity: Parity, tmp_path: Path) -> None:
    slim = tmp_path / MODEL.name
    slim.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (slim / name).write_bytes((MODEL / name).read_bytes())
    with ExitStack() as stack:
        one, two = pair(stack, {}, {})
        servers = ["--server", f"one={one.url}", "--server", f"two={two.url}", "--model", str(slim)]
        done = parity("run", *servers, "--suite", "smoke", "--max-tokens", "8")
        assert done.returncode == 0, done.stderr
        refused = parity("plan", *servers, "--suite", "smoke", "--arbiter", "transformers")
    assert refused.returncode == 2
    assert "holds no weights" in refused.stderr


def test_eight_asked_and_one_returned(parity: Parity, tmp_path: Path) -> None:
    """The chat endpoint with n=8 that gives one choice, as vLLM 0.7.3 did for a vision model."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"id": "q", "messages": [{"role": "user", "content": "Who are you?"}]}\n')
    chat = ["--server-option", "endpoint=chat", "--prompts", str(prompts), "--n", "8", "--temperature", "0.7"]
    with ExitStack() as stack:
        result = parity.compare(*pair(stack, {}, {"mode": "one of n"}), *chat)
    assert result["verdict"] == "DIVERGED"
    assert counts(result) == {"missing_completion": 7}


def test_a_choice_given_twice(parity: Parity) -> None:
    with ExitStack() as stack:
        one, two = pair(stack, {}, {"mode": "twice"})
        servers = ["--server", f"one={one.url}", "--server", f"two={two.url}", "--model", str(MODEL)]
        done = parity("run", *servers, "--suite", "smoke", "--max-tokens", "16")
    assert done.returncode == 3
    assert "the choice 0 is given twice" in done.stderr


@pytest.mark.parametrize("mode", ["loses a chunk", "repeats a chunk"])
def test_chunks_that_do_not_add_up(parity: Parity, mode: str) -> None:
    with ExitStack() as stack:
        result = parity.compare(*pair(stack, {}, {"mode": mode}), "--server-option", "stream=true")
    assert result["verdict"] == "DIVERGED"
    findings = [one for one in result["arms"]["server/two"]["findings"] if one["kind"] == "text_mismatch"]
    assert any("the chunks have" in one["evidence"]["why"]["text"] for one in findings)


def test_text_alone_is_compared_as_text_and_that_is_said(parity: Parity) -> None:
    for other in ({}, {"vllm": False}):
        with ExitStack() as stack:
            result = parity.compare(*pair(stack, other, {"vllm": False}))
        assert result["verdict"] == "PASS", result["reasons"]
        assert "server/two: text alone was compared, not token ids" in result["reasons"]
        notes = " ".join(result["arms"]["server/two"]["notes"])
        assert "so they were made again from the text with the plan's tokenizer" in notes


def test_texts_that_differ_and_nothing_to_judge_them_by(parity: Parity) -> None:
    with ExitStack() as stack:
        result = parity.compare(*pair(stack, {"vllm": False}, {"vllm": False, "salt": "x"}))
    assert result["verdict"] == "INCONCLUSIVE"


def test_other_prompts_are_an_input_mismatch(parity: Parity, tmp_path: Path) -> None:
    """Chat templates that differ: each server gives back the prompt that it made."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"id": "q", "messages": [{"role": "user", "content": "Who are you?"}]}\n')
    with ExitStack() as stack:
        one, two = pair(stack, {}, {"template": "other"})
        result = parity.compare(one, two, "--server-option", "endpoint=chat", "--prompts", str(prompts))
    assert "input_mismatch" in counts(result)


def test_image_parts_reach_a_chat_server_and_no_other_backend(parity: Parity, tmp_path: Path) -> None:
    content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": PIXEL}}]
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"id": "picture", "messages": [{"role": "user", "content": content}]}) + "\n")
    with ExitStack() as stack:
        one, two = pair(stack, {}, {})
        result = parity.compare(one, two, "--server-option", "endpoint=chat", "--prompts", str(prompts))
        assert one.behaviour.requests[-1][1]["messages"][0]["content"] == content
        done = parity("run", "--server", one.url, "--server", two.url + "/", "--model", str(MODEL), "--prompts", "p")
    assert result["verdict"] == "PASS"
    assert done.returncode == 2
    refused = parity("plan", "--backends", "cpu", "--prompts", str(prompts))
    assert refused.returncode == 2
    assert "request 'picture' has image parts, and backend 'cpu' takes token ids only" in refused.stderr
    with fake_server() as server:  # the completions endpoint takes no messages either
        servers = ["--server", f"a={server.url}", "--server", f"b={server.url}"]
        done = parity("run", *servers, "--model", str(MODEL), "--prompts", str(prompts))
    assert done.returncode == 3
    assert "it has image parts, which only the chat endpoint takes" in done.stderr


def test_a_recording_is_judged_again_without_an_engine(parity: Parity, tmp_path: Path) -> None:
    """A run's directory replayed: the same verdict, by its own recorded scores."""
    with ExitStack() as stack:
        first = parity.compare(*pair(stack, {}, {"mode": "loses a chunk"}), "--server-option", "stream=true")
    done = parity("run", "--replay", first["directory"], "--model", str(MODEL), "--json")
    assert done.returncode == 1, done.stderr
    again = json.loads(done.stdout)["arms"]["replay/server-two"]
    assert again["counts"] == counts(first)
    asked_otherwise = parity(
        "run", "--replay", first["directory"], "--model", str(MODEL), "--max-tokens", "5", "--suite", "smoke"
    )
    assert asked_otherwise.returncode == 3
    assert "was recorded with max_tokens=16, the plan has 5" in asked_otherwise.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--server", "http://h"], "no model was named"),
        (["--server", "http://h", "--model", str(MODEL)], "there is only one arm"),
        (["--server", "http://h", "--model", str(MODEL)], "a second server (--server)"),
        (["--server", "http://h", "--server", "http://h", "--model", str(MODEL)], "two arms are called server/h"),
        (["--server-option", "stream=true"], "--server-option without --server"),
        (["--server", "a=http://h", "--server", "b=http://u:p@h", "--model", str(MODEL)], "a user name or a password"),
        (["--server", "a=http://h", "--server-option", "b:model=x"], "no --server is called 'b'"),
        (["--server", "old=http://h", "--server-option", "odl:model=x"], "did you mean old?"),
        (
            [
                "--server",
                "a=http://h",
                "--server",
                "b=http://i",
                "--model",
                str(MODEL),
                "--positive-control",
                "row_swap",
            ],
            "needs an engine to plant it in, and server/a, server/b start none",
        ),
        (["--replay", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--backends", "server"], "needs the URL"),
        (["--backends", "replay"], "needs a recorded capture"),
        (["--backends", "cpu", "--arbiter", "server"], "'server' cannot be the arbiter"),
    ],
)
def test_mistakes_on_the_command_line(parity: Parity, args: list[str], words: str) -> None:
    done = parity("plan", *args)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert done.stdout == ""


def test_each_server_has_its_own_name_of_the_model_and_its_own_key(
    parity: Parity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The normal case of old and new."""
    monkeypatch.setenv("NEW_KEY", "secret-of-the-new-one")
    with ExitStack() as stack:
        old, new = pair(stack, {"models": ("prod-v1",)}, {"models": ("prod-v2", "x"), "key": "secret-of-the-new-one"})
        named = ["--server-option", "two:model=prod-v2", "--server-option", "two:api_key_env=NEW_KEY"]
        result = parity.compare(old, new, *named, "--server-option", "concurrency=4")
        assert result["verdict"] == "PASS", result["reasons"]
        assert {body["model"] for _, body in old.behaviour.requests} == {"prod-v1"}
        assert {body["model"] for _, body in new.behaviour.requests} == {"prod-v2"}
        assert old.behaviour.keys == {None}, "a key is sent to its own server alone"
    plan = json.loads((Path(result["directory"]) / "plan.json").read_text())
    engines = {arm["name"]: arm["engine"] for arm in plan["arms"]}
    assert (engines["server/one"]["api_key_env"], engines["server/two"]["api_key_env"]) == (None, "NEW_KEY")
    assert {engine["concurrency"] for engine in engines.values()} == {4}


def test_all_servers_answer_before_the_first_generates(parity: Parity) -> None:
    with fake_server() as server:
        servers = ["--server", f"up={server.url}", "--server", "down=http://127.0.0.1:9", "--model", str(MODEL)]
        done = parity("run", *servers, "--suite", "smoke", "--server-option", "retries=0")
        assert done.returncode == 3
        assert "http://127.0.0.1:9: connection refused" in done.stderr
        assert "engine" not in done.stderr.replace("PARITY", "")
        assert server.behaviour.requests == []
        unset = parity("run", *servers, "--suite", "smoke", "--server-option", "up:api_key_env=NO_SUCH_KEY")
        assert unset.returncode == 2, "a mistake made here"
        assert "NO_SUCH_KEY" in unset.stderr
        assert not (parity.home / "runs").exists()


def test_a_gateway_that_answers_null_to_what_it_does_not_know(parity: Parity) -> None:
    """LiteLLM: HTTP 200 and `null` where it is asked for return_token_ids. Then it is asked as OpenAI's protocol is."""
    with ExitStack() as stack:
        result = parity.compare(*pair(stack, {"vllm": False, "mode": "null"}, {"vllm": False, "mode": "null"}))
        assert result["verdict"] == "PASS", result["reasons"]


def test_a_gateway_that_answers_500_to_token_ids(parity: Parity) -> None:
    """LiteLLM 1.106.2 does ("Unmapped prompt format"). Then the text is sent."""
    with ExitStack() as stack:
        lied = {"vllm": False, "mode": "text alone"}
        result = parity.compare(*pair(stack, lied, lied))
        assert result["verdict"] == "PASS", result["reasons"]


@pytest.mark.parametrize("stream", ["false", "true"])
def test_sglang_gives_ids_and_passes_over_the_rest(parity: Parity, stream: str) -> None:
    """As its serving_completions.py does: ids and prompt ids, logprobs of texts, `matched_stop`, no prompt_logprobs."""
    with ExitStack() as stack:
        one, two = pair(stack, {}, {"sglang": True})
        given = ["--server-option", f"stream={stream}", "--logprobs", "1", "--score", "none", "--stop", "e"]
        result = parity.compare(one, two, *given)
        assert result["verdict"] == "PASS", result["reasons"]
        assert not counts(result)
    header, *rows = map(json.loads, (Path(result["directory"]) / "server-two.jsonl").read_text().splitlines())
    said = header["served"]
    assert (said["token_source"], said["prompt_source"]) == ("server", "server")
    completions = [row for row in rows if row["record"] == "completion"]
    assert {row["stop_reason"] for row in completions if row["finish_reason"] == "stop"} == {"e"}
    for row in completions:
        assert [one[0][0] for one in row["logprobs"]] == row["token_ids"]
    assert any(len(one) == 2 and one[1][0] == 7 for row in completions for one in row["logprobs"])


def test_a_gateway_that_leaves_out_prompt_logprobs_ends_no_run(parity: Parity) -> None:
    """Token ids as vLLM gives them, and no scores: known only when they are asked for."""
    with ExitStack() as stack:
        hides = {"mode": "no prompt_logprobs"}
        one, two = pair(stack, hides, {**hides, "salt": "another model"})
        result = parity.compare(one, two, "--score", "all")
    assert result["verdict"] == "INCONCLUSIVE", result
    assert "--arbiter transformers" in result["next"][0]["command"]
    assert result["arms"]["server/two"]["stats"]["unjudged"]


def test_sglang_is_not_said_to_take_what_it_may_pass_over(parity: Parity) -> None:
    with ExitStack() as stack:
        one, two = pair(stack, {"sglang": True}, {})
        result = parity.compare(one, two, "--min-p", "0.1", "--temperature", "0.7", "--score", "all")
    said = json.dumps(result)
    assert "min_p=0.1: it was sent, and nothing shows that this server takes it" in said
    assert result["verdict"] == "PASS", "equal draws; that nothing could be scored ends no run"
