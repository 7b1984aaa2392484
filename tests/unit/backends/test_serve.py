"""A `vllm serve` command line, a recipe and a server's own report, as what they ask of the engine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity_backends.vllm.serve import deployment, flags
from parity_backends.vllm.worker.arguments import Table, translate
from parity_backends.vllm.worker.table import VLLM_READ

from parity.errors import BackendError, ParityError
from parity.run import load_backend
from parity.trust import trust

MTP = {"method": "qwen3_next_mtp", "num_speculative_tokens": 2}


def test_a_command_as_a_person_has_it_in_a_script() -> None:
    found = deployment(
        "VLLM_USE_V2_MODEL_RUNNER=1 HF_TOKEN=hf_abcdefgh \\\n nohup vllm serve Qwen/Qwen3-Next-80B-A3B-Instruct \\\n"
        "  -tp 4 --max_model_len=32k --no-enable-prefix-caching --gpu-memory-utilization 0.8 --host 0.0.0.0 \\\n"
        "  --api-key secret --chat-template chat.jinja --served-model-name a b --enable-auto-tool-choice \\\n"
        f"  --speculative-config '{json.dumps(MTP)}' -O3 --compilation-config.cudagraph_mode FULL > serve.log 2>&1 &"
    )
    assert found.model == "Qwen/Qwen3-Next-80B-A3B-Instruct"
    assert found.engine == {
        "tensor_parallel_size": 4,
        "max_model_len": 32_000,
        "enable_prefix_caching": False,
        "gpu_memory_utilization": 0.8,
        "speculative_config": MTP,
        "optimization_level": 3,
        "compilation_config": {"cudagraph_mode": "FULL"},
    }
    assert found.env == {"VLLM_USE_V2_MODEL_RUNNER": "1"}
    assert set(found.aside) == {
        "nohup", "HF_TOKEN", "--host", "--api-key", "--chat-template", "--served-model-name",
        "--enable-auto-tool-choice",
    }  # fmt: skip
    assert "secret" not in repr(found)
    assert "hf_abc" not in repr(found)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--tensor-parallel-size=4", {"tensor_parallel_size": 4}),
        ("--tensor_parallel_size 4", {"tensor_parallel_size": 4}),
        ("--max-num-batched-tokens 8K", {"max_num_batched_tokens": 8192}),
        ("--max-model-len auto", {"max_model_len": -1}),
        ("--async-scheduling", {"async_scheduling": True}),
        ("--no-async-scheduling", {"async_scheduling": False}),
        ("--quantization None", {"quantization": None}),
        ("--revision 123456", {"revision": "123456"}),
        ("--cudagraph-capture-sizes 3 6 12", {"cudagraph_capture_sizes": [3, 6, 12]}),
        ("--hf-overrides '{\"a\": 1}'", {"hf_overrides": {"a": 1}}),
        (
            "-cc.pass_config.fuse_allreduce_rms true",
            {"compilation_config": {"pass_config": {"fuse_allreduce_rms": True}}},
        ),
        ("--spec-method mtp --spec-tokens 3", {"speculative_config": {"method": "mtp", "num_speculative_tokens": 3}}),
        ("--swap-space 4", {"swap_space": 4}),  # of releases up to 0.17
        ("--generation-config auto --disable-log-stats", {}),  # an arm cannot be compared with these
    ],
)
def test_flags_as_vllm_spells_and_reads_them(words: str, expected: dict[str, Any]) -> None:
    assert deployment(f"vllm serve model {words}").engine == expected
    assert deployment(f"python3 -m vllm.entrypoints.openai.api_server --model model {words}").engine == expected


@pytest.mark.parametrize(
    ("command", "said", "hint"),
    [
        ("vllm serve m --enable-prefix-cache", "did you mean --enable-prefix-caching?", "correct it"),
        ("vllm serve m --tensor-paralel-size 4", "did you mean --tensor-parallel-size?", "correct it"),
        ("vllm serve m --max-num-seqs many", "invalid whole number value: 'many'", "pair of quotation marks"),
        ("vllm serve m other", "'other' belongs to no flag", "pair of quotation marks"),
        ("vllm serve m --compilation-config {", "invalid json value", "pair of quotation marks"),
        ("vllm serve m -dp 2", "data_parallel_size=2: an arm is one engine", "--server URL"),
        ("docker run image", "there is no `vllm serve`", "the whole command"),
        ("vllm serve 'm", "No closing quotation", "close every quotation mark"),
        ("nowhere.yaml", "cannot read the recipe nowhere.yaml", "vllm serve --config"),
    ],
)
def test_what_vllm_would_not_take_is_refused_before_anything_starts(command: str, said: str, hint: str) -> None:
    with pytest.raises(ParityError) as refused:
        deployment(command)
    assert said in str(refused.value)
    assert hint in str(refused.value.hint)


@given(st.text(max_size=60))
def test_no_text_ends_in_a_traceback(text: str) -> None:
    for command in (text, f"vllm serve {text}"):
        if command.strip().startswith("http"):
            continue
        with suppress(ParityError):
            deployment(command)


@pytest.mark.parametrize("version", VLLM_READ.split())
def test_every_flag_of_the_engine_is_an_argument_of_some_release(version: str) -> None:
    """What the parser lets through, the worker of each release translates, drops with a word, or has."""
    table = Table(version)
    names = set(flags.kinds("engine")) - {"spec_method", "spec_model", "spec_tokens"}
    done = translate({name: None for name in names if name in table.ever["LLM"]}, {}, table)
    assert set(done.engine) <= table.known["LLM"]
    assert names <= table.ever["LLM"]


def test_a_recipe_file_gives_what_its_flags_would(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "model: some/model\nport: 8000\ntensor-parallel-size: 4\nenable_prefix_caching: false\nenforce-eager: true\n"
        "speculative-config:\n  method: mtp\n  num_speculative_tokens: 2\nmiddleware: [a, b]\nmax-model-len: 32k\n"
    )
    found = deployment(str(recipe))
    assert (found.model, found.aside) == ("some/model", ("--port", "--middleware"))
    assert found.engine == {
        "tensor_parallel_size": 4,
        "enable_prefix_caching": False,
        "enforce_eager": True,
        "speculative_config": {"method": "mtp", "num_speculative_tokens": 2},
        "max_model_len": 32_000,
    }
    both = deployment(f"vllm serve other/model --config {recipe} --tensor-parallel-size 2")
    assert (both.model, both.engine["tensor_parallel_size"]) == ("other/model", 2)
    assert both.engine["enforce_eager"] is True


@pytest.mark.parametrize("text", ["- a list", "{", "1: 2"])
def test_a_file_that_is_no_recipe_is_refused(tmp_path: Path, text: str) -> None:
    recipe = tmp_path / "recipe.yml"
    recipe.write_text(text)
    with pytest.raises(ParityError, match="holds no settings"):
        deployment(str(recipe))


REPORTED = {  # as vLLM 0.32 dumps it: enums by value, configurations as objects
    "model_config": {"model": "/models/m", "dtype": "torch.bfloat16", "enforce_eager": False, "max_model_len": 4096},
    "scheduler_config": {"async_scheduling": True, "max_num_seqs": 256, "max_num_batched_tokens": 8192},
    "cache_config": {"enable_prefix_caching": True, "cache_dtype": "auto", "block_size": 16},
    "parallel_config": {"tensor_parallel_size": 4, "worker_cls": "auto"},
    "speculative_config": {"method": "mtp", "num_speculative_tokens": 2, "draft_model_config": {"model": "x"}},
    "compilation_config": {"cudagraph_mode": [2, 1], "mode": 3, "cudagraph_capture_sizes": [3, 6]},
}


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    status, body = request.param

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/server_info?config_format=json"
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    httpd = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}"
    httpd.shutdown()
    thread.join()
    httpd.server_close()


@pytest.mark.parametrize("server", [(200, json.dumps({"vllm_config": REPORTED}).encode())], indirect=True)
def test_a_running_server_is_taken_at_its_word(server: str) -> None:
    found = deployment(f"{server}/v1/")
    assert found.model == "/models/m"
    assert found.engine["speculative_config"] == {"method": "mtp", "num_speculative_tokens": 2}
    assert found.engine["compilation_config"]["cudagraph_mode"] == "FULL_AND_PIECEWISE"
    assert (found.engine["dtype"], found.engine["async_scheduling"]) == ("bfloat16", True)
    assert "worker_cls" not in found.engine  # any two hosts differ in it


@pytest.mark.parametrize("server", [(404, b"{}"), (200, b"<html>"), (200, b"[]"), (200, b"{}")], indirect=True)
def test_a_server_that_does_not_report_is_said_to_be_silent(server: str) -> None:
    with pytest.raises(BackendError, match="does not report its arguments") as silent:
        deployment(server)
    assert "VLLM_SERVER_DEV_MODE=1" in str(silent.value.hint)


@pytest.mark.parametrize("name", ["cuda", "ascend"])
def test_deployed_pins_nothing_that_can_be_done_without(name: str) -> None:
    backend = load_backend(name)
    arguments = backend.engine_defaults("deployed", num_speculative_tokens=3)
    assert arguments == {
        "generation_config": "vllm",
        "disable_log_stats": False,
        "speculative_config": {"method": "mtp", "num_speculative_tokens": 3},
    }
    assert set(backend.env_defaults("base")) - set(backend.env_defaults("deployed")) == {
        "VLLM_ENABLE_V1_MULTIPROCESSING",
        "VLLM_USE_V2_MODEL_RUNNER",
    }


LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "text",
    [LAUGHS, "a: " + "[" * 20_000, "speculative-config: &a {b: *a}", "max-model-len: 2024-01-01",
     "max-model-len: 2024-99-99", "model: !!binary aGFsbG8=", "stop: !!set {a, b}", "max-model-len: 1" + "0" * 400,
     "a: " + "x" * (2 << 20)],
)  # fmt: skip
def test_a_recipe_of_somebody_else_is_refused_in_words(tmp_path: Path, text: str) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(text)
    with pytest.raises(ParityError):
        deployment(str(recipe))


@pytest.mark.parametrize("how", ["{recipe}", "vllm serve m --config {recipe}"])
@pytest.mark.parametrize(
    "text",
    ["worker-cls: evil.Worker", "trust-remote-code: true",
     "kv-transfer-config: '{\"kv_connector_module_path\": \"evil\"}'"],
)  # fmt: skip
def test_a_recipe_has_code_imported_only_where_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, text: str
) -> None:
    monkeypatch.setenv("PARITY_HOME", str(tmp_path / "home"))
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(text)
    source = how.format(recipe=recipe)
    with pytest.raises(ParityError, match="is not trusted, and would have set"):
        deployment(source)
    trust(tmp_path)
    assert deployment(source).engine


@pytest.mark.parametrize(
    "line",
    ["--max-model-len " + "9" * 400 + "k", "--speculative-config.a 1 --speculative-config.a.b 2",
     "--speculative-config '{\"a\":" + "[" * 500 + "]" * 500 + "}'",
     "--speculative-config." + ".".join("a" * 5000) + " 1"],
)  # fmt: skip
def test_a_line_with_odd_values_is_refused_in_words(line: str) -> None:
    with pytest.raises(ParityError):
        deployment(f"vllm serve m {line}")


@pytest.mark.parametrize(
    "server",
    [
        (
            200,
            json.dumps({"vllm_config": {"model_config": {"dtype": "evil.module"}}}).encode(),
        )
    ],
    indirect=True,
)
def test_a_server_has_no_code_imported_here(server: str) -> None:
    with pytest.raises(BackendError, match="reports settings that name code"):
        deployment(server)


@pytest.mark.parametrize("server", [(200, b"[" * 100_000 + b"]" * 100_000)], indirect=True)
def test_a_server_that_answers_in_lists_is_silent(server: str) -> None:
    with pytest.raises(BackendError, match="does not report its arguments"):
        deployment(server)
