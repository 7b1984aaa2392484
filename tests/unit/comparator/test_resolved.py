"""Settings that the engine overruled, did not know or knew by another name."""

from __future__ import annotations

from typing import Any

import pytest
from captures import header, texts
from parity_backends.worker.sentences import message as said_by_worker

from parity.comparator.inputs.resolved import overruled, remarks
from parity.comparator.types import Remarks
from parity.language import render

MODES = {0: "NONE", 1: "STOCK_TORCH_COMPILE", 2: "DYNAMO_TRACE_ONCE", 3: "VLLM_COMPILE"}
"""`vllm.config.CompilationMode`, 0.33.0."""


@pytest.mark.parametrize(
    ("wanted", "resolved"),
    [
        ({"dtype": "bfloat16"}, {"dtype": "torch.bfloat16"}),
        ({"dtype": "half"}, {"dtype": "torch.float16"}),
        ({"dtype": "auto"}, {"dtype": "torch.bfloat16"}),
        ({"async_scheduling": False}, {"async_scheduling": False}),
        ({"async_scheduling": None}, {"async_scheduling": True}),
        ({"speculative_config": {"method": "qwen3_next_mtp"}}, {"speculative_method": "mtp"}),
        ({"compilation_config": {"cudagraph_mode": "piecewise"}}, {"cudagraph_mode": "PIECEWISE"}),
        ({"speculative_config": {"method": "mtp"}}, {"speculative_method": "deepseek_mtp"}),
        ({"speculative_config": {"method": "deepseek_mtp"}}, {"speculative_method": "deepseek_mtp"}),
        *(({"compilation_config": {"mode": number}}, {"compilation_mode": name}) for number, name in MODES.items()),
        *(({"compilation_config": {"mode": name}}, {"compilation_mode": number}) for number, name in MODES.items()),
        *(({"compilation_config": {"mode": name.lower()}}, {"compilation_mode": name}) for name in MODES.values()),
        ({"max_num_seqs": 64}, {}),
        ({"gpu_memory_utilization": 0.5}, {"gpu_memory_utilization": 0.9}),
    ],
)
def test_as_asked(wanted: dict[str, Any], resolved: dict[str, Any]) -> None:
    assert overruled(header("cpu/mtp", engine={"asked": wanted, **resolved})) == {}
    assert remarks(header("cpu/mtp", engine={"asked": wanted, **resolved})) == Remarks()


@pytest.mark.parametrize(
    ("wanted", "resolved", "name"),
    [
        ({"async_scheduling": True}, {"async_scheduling": False}, "async_scheduling"),
        ({"enforce_eager": False}, {"enforce_eager": True}, "enforce_eager"),
        ({"dtype": "bfloat16"}, {"dtype": "torch.float32"}, "dtype"),
        ({"max_num_seqs": 64}, {"max_num_seqs": 32}, "max_num_seqs"),
        ({"max_num_seqs": 1}, {"max_num_seqs": True}, None),
        (
            {"speculative_config": {"num_speculative_tokens": 3}},
            {"num_speculative_tokens": 1},
            "speculative_config.num_speculative_tokens",
        ),
        ({"speculative_config": {"method": "mtp"}}, {"speculative_method": "eagle"}, "speculative_config.method"),
        ({"speculative_config": {"method": "ngram"}}, {"speculative_method": "mtp"}, "speculative_config.method"),
        (
            {"speculative_config": {"method": "deepseek_mtp"}},
            {"speculative_method": "qwen3_next_mtp"},
            "speculative_config.method",
        ),
        *(
            ({"compilation_config": {"mode": asked}}, {"compilation_mode": "NONE"}, "compilation_config.mode")
            for asked in (1, 2, 3, "VLLM_COMPILE")
        ),
        ({"compilation_config": {"mode": 4}}, {"compilation_mode": "VLLM_COMPILE"}, "compilation_config.mode"),
        (
            {"compilation_config": {"cudagraph_mode": "FULL"}},
            {"cudagraph_mode": "NONE"},
            "compilation_config.cudagraph_mode",
        ),
    ],
)
def test_overruled(wanted: dict[str, Any], resolved: dict[str, Any], name: str | None) -> None:
    found = overruled(header("cpu/mtp", engine={"asked": wanted, **resolved}))
    assert list(found) == ([name] if name else [])
    if name:
        (reason,) = texts(remarks(header("cpu/mtp", engine={"asked": wanted, **resolved})).reasons)
        assert reason.startswith("cpu/mtp was not run as asked: ")
        assert name in reason


@pytest.mark.parametrize(
    ("why", "chinese"),
    [
        ("vLLM 0.14.1 has no such argument", "vLLM 0.14.1 has no such argument"),  # from before it had an id
        (said_by_worker("vllm.no_argument", "vLLM {version} has no such argument", version="0.14.1"), "没有该参数"),
    ],
)
def test_what_a_version_does_not_know_is_reported_unless_it_is_harmless(why: Any, chinese: str) -> None:
    said = header(
        "cpu/mtp",
        engine={
            "dropped": {"mamba_cache_mode": why, "swap_space": "no such argument"},
            "translated": {"compilation_config.mode": "compilation_config.level=3"},
        },
    )
    assert texts(remarks(said).notes) == [
        "cpu/mtp ran without mamba_cache_mode (vLLM 0.14.1 has no such argument)",
        "cpu/mtp: settings by this version's names: compilation_config.mode as compilation_config.level=3",
    ]
    assert chinese in render(remarks(said).notes[0], "zh")
    assert remarks(header("cpu/mtp", engine={})) == Remarks()
    assert remarks(header("cpu/mtp", engine={"dropped": "garbage", "asked": 3})) == Remarks()
