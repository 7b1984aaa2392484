"""What is written down of a command line and of hosts, and what becomes of it when a run goes on."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from parity_backends.server.worker.keys import Key, is_readable_on_the_way

from parity.errors import ParityError
from parity.plan.hosts import read_host, restored
from parity.run.launch import place_in_words
from parity.secrecy import HIDDEN, blanked, command_words, hidden_parts, secret_settings, without_secrets

KEY = "sk-Secret/0123+45"


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--host", "y=env HF_TOKEN=hf_CLIsecret0 ssh x"],
        ["watch", "--webhook", "https://hooks.slack.com/services/T0/B0/hf_CLIsecret0"],
        ["watch", "--webhook=https://u:hf_CLIsecret0@hooks.slack.com/x?token=hf_CLIsecret0"],
        ["run", "--server", "http://u:hf_CLIsecret0@h:1"],
        ["run", "--host", "y=nothing ssh me:Zugang7Geheim@gpu1"],
        ["run", "--host", "y=sshpass -p Zugang7Geheim ssh gpu1"],
        ["run", "--host", "y=sshpass -p 'Zugang7Geheim' ssh gpu1"],
        ["sshpass", "-p", "Zugang7Geheim", "ssh", "gpu1"],
        ["run", "--like", "vllm serve m --api-key Zugang7Geheim"],
        ["run", "--server", "me:Zugang7Geheim@127.0.0.1:8000"],
        ["run", "--engine", "hf_token=Zugang7Geheim"],
        ["x", "--api-key", "Zugang7Geheim"],
    ],
)
def test_a_command_is_kept_without_its_secrets(words: list[str]) -> None:
    said = command_words(words)
    assert "hf_CLIsecret0" not in " ".join(said)
    assert "Zugang7Geheim" not in " ".join(said)
    assert said[0] == words[0]
    if "hooks" in words[-1]:
        assert "https://hooks.slack.com/***" in said[-1]


def test_an_ordinary_command_is_kept_as_it_is() -> None:
    words = ["run", "--backends", "cpu,cuda", "--max-tokens", "256", "--host", "cuda=ssh -J jump gpu1", "--out", "/a/b"]
    words += ["--host", "npu=docker exec -u 1000:1000 -i vllm", "--model", "vllm/vllm:v1@sha256:abc", "--n=8"]
    assert command_words(words) == words
    assert hidden_parts(words) == []


def test_what_a_command_hides_is_hidden_wherever_it_is_said() -> None:
    words = [
        "watch",
        "--webhook",
        "https://h/services/T0Zugang",
        "--engine=hf_token=Zugang7Geheim",
        "--host",
        "y=ssh x",
    ]
    said = blanked("posting to https://h/services/T0Zugang failed: Zugang7Geheim, ssh x", hidden_parts(words))
    assert said == "posting to https://h/*** failed: ***, ssh x"
    assert hidden_parts(["--like", "vllm serve " + "long " * 1000]) == []


def test_what_a_host_says_of_its_secrets_is_blanked() -> None:
    table = {"command": ["sshpass", "-p", "Zugang7Geheim", "ssh", "x"], "env": {"HF_TOKEN": "Zugang8Geheim"}}
    host = read_host("far", {**table, "setup": "export API_KEY=Zugang9Geheim"}, "here")
    said = blanked("Zugang7Geheim Zugang8Geheim Zugang9Geheim ssh", host.secrets)
    assert said == "*** *** *** ssh"
    assert "Geheim" not in json.dumps(host.to_json())
    assert "Geheim" not in str(place_in_words(host))


@pytest.mark.parametrize(
    ("settings", "secret"),
    [
        ({"hf_token": "Zugang7"}, ["hf_token"]),
        ({"hf_overrides": {"aws_secret_access_key": "Zugang7"}}, ["hf_overrides.aws_secret_access_key"]),
        ({"env": {"HF_TOKEN": "Zugang7", "OMP_NUM_THREADS": "4"}}, ["env.HF_TOKEN"]),
        ({"url": "http://u:Zugang7@h:1", "name": ["hf_AbCdEfGhIjKl"]}, ["url", "name"]),
        ({"api_key_env": "MY_KEY", "key_over_http": True, "url": "http://h:1", "max_num_batched_tokens": 8192}, []),
        ({"hf_overrides": {"eos_token": "<s>", "pad_token_id": 5}, "tokenizer": "a/b", "hf_token": None}, []),
    ],
)  # fmt: skip
def test_settings_that_are_secrets_are_named(settings: dict[str, object], secret: list[str]) -> None:
    assert secret_settings(settings) == secret


def test_a_host_is_written_down_without_its_secrets_and_asks_for_them() -> None:
    table = {"command": ["env", "HF_TOKEN=hf_CLIsecret0", "ssh", "x"], "env": {"OPENAI_API_KEY": "k-1", "X": "1"}}
    host = read_host("far", table, "here")
    kept = host.to_json()
    assert "hf_CLIsecret0" not in json.dumps(kept)
    assert "k-1" not in json.dumps(kept)
    again = read_host("far", kept, "run.json")
    assert restored(again, host) == host
    with pytest.raises(ParityError, match="its command, env held a secret"):
        restored(again, None)
    plain = read_host("far", {"command": "ssh x"}, "here")
    assert restored(read_host("far", plain.to_json(), "run.json"), None) == plain


@pytest.mark.parametrize("before", ["", "x", "xy", "Bearer "])
def test_a_key_is_blanked_however_it_is_spelled(before: str) -> None:
    data = (before + KEY).encode()
    ways = [
        KEY, KEY.upper(), json.dumps(KEY)[1:-1], quote(KEY, safe=""), data.hex(), KEY[::-1],
        base64.b64encode(data + b" and more").decode(), base64.urlsafe_b64encode(data).decode(),
    ]  # fmt: skip
    for said in ways:
        shown = Key(KEY).hide(f"401: {said}, no")
        assert "***" in shown, said
        assert Key(KEY).hide_in(said.encode()) != said.encode()
    assert Key(None).hide(KEY) == KEY
    assert Key("EMPTY").hide_in(b"an EMPTY text") == b"an EMPTY text"


@pytest.mark.parametrize(
    ("url", "readable"),
    [
        ("https://h", False), ("http://127.0.0.1:8", False), ("http://localhost:8", False), ("http://[::1]:8", False),
        ("http://gpu1:8000", True), ("http://127.0.0.1.evil.com", True),
    ],
)  # fmt: skip
def test_a_key_goes_nowhere_in_plain_text(url: str, readable: bool) -> None:
    assert is_readable_on_the_way(url) is readable


@pytest.mark.parametrize(
    "line",
    [
        "parity run --engine num_speculative_tokens=0,2 --max-tokens 64 -e max_num_batched_tokens=48",
        '{"max_tokens": 64, "allowed_token_ids": [1, 2], "bad_tokens": [-1]}',
    ],
)
def test_how_many_tokens_and_which_is_no_secret(line: str) -> None:
    """A command that cannot be copied is of no use."""
    assert without_secrets(line) == line


@pytest.mark.parametrize("line", ["tokens=12ab34", "api_tokens: 12-34-56", "--hf-token abc", "eos_tokens=4.x"])
def test_what_is_no_number_of_tokens_stays_hidden(line: str) -> None:
    assert without_secrets(line).endswith("***")


def test_a_number_is_no_secret_whatever_its_name() -> None:
    """`long_prefill_token_threshold` is a setting of vLLM, `stop_token_ids` a parameter of sampling."""
    plain = {"long_prefill_token_threshold": 4, "stop_token_ids": [1, 2], "num_speculative_tokens": "0,2", "seed": 1}
    assert without_secrets(plain) == plain
    hidden = without_secrets({"hf_token": "abc", "api_keys": ["a"], "tokens": "1a"})
    assert set(hidden.values()) == {HIDDEN}


@pytest.mark.parametrize("word", ["up:api_key_env=NO_SUCH_KEY", "--api-key-env=NO_SUCH_KEY"])
def test_the_variable_that_holds_a_key_is_named(word: str) -> None:
    assert command_words(["run", word]) == ["run", word]
    assert hidden_parts(["run", "--server-option", "api_key_env=sk-abcdef123"]) == ["sk-abcdef123"]
