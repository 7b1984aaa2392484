"""From what is asked to what a version understands: for every release that the table was made from."""

from __future__ import annotations

from typing import Any

import pytest
from parity_backends.vllm.worker import arguments
from parity_backends.vllm.worker.arguments import Table, translate, translate_sampling
from parity_backends.vllm.worker.table import ASCEND_READ, VLLM_NAMES, VLLM_READ
from parity_backends.worker.sentences import WorkerError

from parity.plan import Sampling
from parity.records.sampling import wire
from parity.run import load_backend

RELEASES = VLLM_READ.split()

EVERYTHING: dict[str, Any] = {
    "swap_space": 4,
    "cuda_graph_sizes": [1, 2, 4],
    "task": "generate",
    "attention_backend": "FLASH_ATTN",
    "mamba_cache_mode": "align",
    "per_request_spec_decode_metrics": "detailed",
    "compilation_config": {"level": 3, "cudagraph_mode": "PIECEWISE", "full_cuda_graph": False, "use_cudagraph": True},
    "speculative_config": {
        "method": "qwen3_5_mtp",
        "num_speculative_tokens": 2,
        "rejection_sample_method": "strict",
        "draft_sample_method": "greedy",
    },
}


def test_the_table_reaches_from_0_11_to_0_33() -> None:
    assert RELEASES[0] == "0.11.0"
    assert RELEASES[-1] == "0.33.0"
    assert {"0.13.0", "0.18.0", "0.23.0", "0.27.1", "0.29.0", "0.32.0"} <= set(RELEASES)
    assert ASCEND_READ.split() == ["0.11.0", "0.13.0", "0.18.0", "0.23.0", "0.23.0.post1"]


@pytest.mark.parametrize("version", RELEASES)
@pytest.mark.parametrize("ascend", [None, "0.11.0", "0.23.0.post1"])
def test_nothing_unknown_reaches_an_engine(version: str, ascend: str | None) -> None:
    table = Table(version, ascend)
    variables = {"VLLM_ATTENTION_BACKEND": "FLASH_ATTN", "VLLM_FLOAT32_MATMUL_PRECISION": "ieee", "VLLM_USE_V1": "1"}
    done = translate({**EVERYTHING, "additional_config": {"weight_prefetch_config": {}}}, variables, table)
    assert set(done.engine) <= table.known["LLM"]
    for section in ("speculative_config", "compilation_config"):
        assert set(done.engine[section]) <= table.known[section]
    assert done.engine["speculative_config"]["method"] in table.known["speculative_method"]
    assert done.engine["speculative_config"]["num_speculative_tokens"] == 2
    assert all(name in table.known["variables"] for name in done.variables)
    # Nothing disappears unsaid.
    for name in EVERYTHING:
        assert name in done.engine or name in done.dropped or name in done.translated, name
    assert table.source["text"].startswith(f"release {version}")


@pytest.mark.parametrize("version", RELEASES)
@pytest.mark.parametrize("backend", ["cpu", "cuda", "ascend"])
@pytest.mark.parametrize("variant", ["base", "mtp"])
def test_the_adapters_defaults_work_on_every_release(version: str, backend: str, variant: str) -> None:
    adapter = load_backend(backend)
    engine = adapter.engine_defaults(variant, num_speculative_tokens=2)
    done = translate(engine, adapter.env_defaults(variant), Table(version, "0.23.0" if backend == "ascend" else None))
    assert set(done.dropped) <= {"per_request_spec_decode_metrics", "VLLM_USE_V2_MODEL_RUNNER"}
    assert not done.translated
    assert {name: value for name, value in engine.items() if name not in done.dropped} == done.engine


@pytest.mark.parametrize(
    ("version", "engine", "variables", "expected", "expected_variables"),
    [
        ("0.11.0", {"compilation_config": {"mode": "VLLM_COMPILE"}}, {}, {"compilation_config": {"level": 3}}, {}),
        ("0.11.0", {"compilation_config": {"mode": 0}}, {}, {"compilation_config": {"level": 0}}, {}),
        ("0.33.0", {"compilation_config": {"level": 3}}, {}, {"compilation_config": {"mode": 3}}, {}),
        ("0.13.0", {"compilation_config": {"level": 3}}, {}, {"compilation_config": {"level": 3}}, {}),
        ("0.33.0", {"compilation_config": 3}, {}, {"compilation_config": 3}, {}),
        ("0.32.0", {"cuda_graph_sizes": [512]}, {}, {"max_cudagraph_capture_size": 512}, {}),
        ("0.32.0", {"cuda_graph_sizes": [1, 2]}, {}, {"cudagraph_capture_sizes": [1, 2]}, {}),
        (
            "0.11.0",
            {"cudagraph_capture_sizes": [1, 2]},
            {},
            {"compilation_config": {"cudagraph_capture_sizes": [1, 2]}},
            {},
        ),
        ("0.11.0", {"attention_backend": "TRITON_ATTN"}, {}, {}, {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"}),
        ("0.13.0", {"attention_backend": "TRITON_ATTN"}, {}, {"attention_backend": "TRITON_ATTN"}, {}),
        ("0.23.0", {}, {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"}, {"attention_backend": "TRITON_ATTN"}, {}),
        ("0.13.0", {}, {"VLLM_FLOAT32_MATMUL_PRECISION": "highest"}, {}, {"VLLM_FLOAT32_MATMUL_PRECISION": "ieee"}),
        ("0.18.0", {}, {"VLLM_FLOAT32_MATMUL_PRECISION": "ieee"}, {}, {"VLLM_FLOAT32_MATMUL_PRECISION": "highest"}),
        (
            "0.18.0",
            {"spec_method": "mtp", "spec_tokens": 3},
            {},
            {"speculative_config": {"method": "mtp", "num_speculative_tokens": 3}},
            {},
        ),
        (
            "0.11.0",
            {"speculative_config": {"method": "glm4_moe_mtp", "num_speculative_tokens": 1}},
            {},
            {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}},
            {},
        ),
        (
            "0.23.0",
            {"speculative_config": {"method": "mtp", "rejection_sample_method": "strict"}},
            {},
            {"speculative_config": {"method": "mtp", "rejection_sample_method": "standard"}},
            {},
        ),
        ("0.28.0", {"per_request_spec_decode_metrics": "detailed"}, {}, {}, {}),
        ("0.29.0", {"per_request_spec_decode_metrics": "x"}, {}, {"per_request_spec_decode_metrics": "x"}, {}),
        ("0.14.1", {"mamba_cache_mode": "align"}, {}, {}, {}),
    ],
)
def test_counterparts(
    version: str,
    engine: dict[str, Any],
    variables: dict[str, str],
    expected: dict[str, Any],
    expected_variables: dict[str, str],
) -> None:
    done = translate(engine, variables, Table(version))
    assert done.engine == expected
    assert done.variables == expected_variables
    assert bool(done.dropped or done.translated) == ((engine, variables) != (expected, expected_variables))


def test_what_is_asked_is_left_alone() -> None:
    asked = {"compilation_config": {"level": 3}, "speculative_config": {"method": "mimo_mtp"}}
    translate(asked, {}, Table("0.33.0"))
    assert asked == {"compilation_config": {"level": 3}, "speculative_config": {"method": "mimo_mtp"}}


@pytest.mark.parametrize("engine", [{"max_num_seq": 4}, {"speculative_config": {"num_speculative_token": 4}}])
def test_a_name_that_no_release_has_is_refused_with_the_nearest(engine: dict[str, Any]) -> None:
    with pytest.raises(
        WorkerError, match=r"nor has any release from 0\.11\.0 on; did you mean (max_num_seqs|num_spec)"
    ):
        translate(engine, {}, Table("0.32.0"))


def test_a_build_that_is_no_release_is_asked_itself() -> None:
    seen = {section: set(VLLM_NAMES) for section in ("LLM", "SamplingParams")}
    seen["LLM"] = {"model", "an_argument_of_tomorrow"}
    table = Table("0.34.0.dev7+g1234", None, seen)
    done = translate({"an_argument_of_tomorrow": 1, "swap_space": 4}, {}, table)
    assert done.engine == {"an_argument_of_tomorrow": 1}
    assert done.dropped["swap_space"]["text"] == "vLLM 0.34.0.dev7+g1234 has no such argument"
    assert "own signatures" in table.source["text"]


@pytest.mark.parametrize("ascend", ASCEND_READ.split())
def test_a_misspelt_key_of_additional_config_is_refused_by_what_the_release_knows(ascend: str) -> None:
    vllm = ascend.removesuffix(".post1")
    with pytest.raises(WorkerError, match="weight_nzmode.*did you mean weight_nz_mode" if ascend > "0.2" else "nzmode"):
        translate({"additional_config": {"weight_nzmode": 0}}, {}, Table(vllm, ascend))
    known = translate({"additional_config": {"weight_nz_mode": 0, "refresh": True}}, {}, Table(vllm, ascend))
    has = ascend.startswith("0.23")
    assert known.engine["additional_config"] == ({"weight_nz_mode": 0, "refresh": True} if has else {"refresh": True})
    assert ("additional_config.weight_nz_mode" in known.dropped) == (not has)
    # Not on another platform, whose plugins read what they like; nor of a release that is not in the table.
    anything = {"additional_config": {"weight_nzmode": 0}}
    assert translate(anything, {}, Table(vllm)).engine == anything
    assert translate(anything, {}, Table("0.33.0", "0.33.0rc1")).engine == anything


@pytest.mark.parametrize("version", ["0.23.0+cu129", "0.23.0"])
def test_a_local_version_is_the_release(version: str) -> None:
    assert Table(version).read


@pytest.mark.parametrize(
    ("version", "number"),
    [("0.23.0.post1", (0, 23, 0, 1)), ("0.32.0+cpu", (0, 32, 0)), ("0.14.0rc1", (0, 14, 0)), ("0.9.2.dev3", (0, 9, 2))],
)
def test_version_numbers(version: str, number: tuple[int, ...]) -> None:
    assert arguments.release(version) == number


@pytest.mark.parametrize("version", RELEASES)
def test_the_plans_sampling_parameters_are_known_everywhere(version: str) -> None:
    given, dropped = translate_sampling(Sampling().to_json(), Table(version), wire())
    assert dropped == {}
    assert "temperature" in given


def test_a_sampling_parameter_that_went_away_is_told() -> None:
    given, dropped = translate_sampling({"n": 1, "best_of": 4, "truncate_prompt_tokens": None}, Table("0.23.0"), {})
    assert given == {"n": 1}
    assert {name: why["text"] for name, why in dropped.items()} == {
        "sampling.best_of": "vLLM 0.23.0 has no such parameter"
    }
