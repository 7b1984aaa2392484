"""What releases cannot do: refused in a sentence before an engine starts, and said by the doctor."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from parity_backends.vllm.doctor import judge as judging
from parity_backends.vllm.worker import arm as arm_module
from parity_backends.vllm.worker import limits
from parity_backends.vllm.worker.arguments import Table, no_logprobs, release
from parity_backends.vllm.worker.limits import ASCEND_LIMITS, REMEDY, limits_met, refusal
from parity_backends.vllm.worker.table import ASCEND_READ
from parity_backends.worker.sentences import WorkerError

from parity.run.checks import Check, State

MTP = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}
CACHING = {"enable_prefix_caching": True}
DEEPSEEK, QWEN, MIMO = {"model_type": "deepseek_v3"}, {"model_type": "qwen3_next"}, {"model_type": "mimo"}
HYBRID = {"model_type": "qwen3_5", "text_config": {"layer_types": ["linear_attention", "full_attention"]}}


@pytest.mark.parametrize(
    ("ascend", "engine", "config", "names"),
    [
        ("0.11.0", MTP, DEEPSEEK, []),
        ("0.11.0", MTP, MIMO, ["deepseek_only"]),
        ("0.11.0", {"speculative_config": {"method": "qwen3_next_mtp"}}, QWEN, ["deepseek_only"]),
        ("0.11.0", {"speculative_config": {"method": "ngram"}}, QWEN, []),
        ("0.11.0", {}, QWEN, []),
        ("0.11.0", CACHING, QWEN, ["hybrid_prefix_caching"]),
        ("0.12.0rc1", MTP, DEEPSEEK, []),
        ("0.12.0rc1", MTP, MIMO, ["listed_mtp"]),
        ("0.12.0rc1", MTP, HYBRID, ["hybrid_mtp"]),
        ("0.12.0rc1", MTP, QWEN, []),
        ("0.16.0rc1", {**MTP, **CACHING}, HYBRID, ["hybrid_prefix_caching"]),
        ("0.17.0rc1", {**MTP, **CACHING}, HYBRID, []),
        ("0.13.0", MTP, MIMO, []),
        ("0.13.0", MTP, HYBRID, ["hybrid_mtp"]),
        ("0.13.0", MTP, QWEN, ["untested_mtp"]),
        ("0.13.0", {**MTP, **CACHING}, HYBRID, ["hybrid_mtp", "hybrid_prefix_caching"]),
        ("0.13.0", CACHING, QWEN, ["hybrid_prefix_caching"]),
        ("0.13.0", CACHING, DEEPSEEK, []),
        ("0.18.0", {**MTP, **CACHING}, HYBRID, []),
        ("0.23.0.post1", {**MTP, **CACHING}, QWEN, []),
    ],
)
def test_limits_of_releases(ascend: str, engine: dict[str, Any], config: dict[str, Any], names: list[str]) -> None:
    assert [limit.name for limit in limits_met(release(ascend), engine, config)] == names
    ends = [limit for limit in ASCEND_LIMITS if limit.name in names and limit.ends]
    said = refusal(Table(re.split("rc|.post", ascend)[0], ascend), engine, config)
    assert (said is not None) == bool(ends)
    assert said is None or said["parameters"]["why"] == [limit.why for limit in ends]
    assert said is None or said["text"].endswith(f"take {REMEDY} or newer")


def test_the_remedy_works() -> None:
    """It, and every later release, has none of these limits."""
    later = [ascend for ascend in ASCEND_READ.split() if release(ascend) >= release(REMEDY)]
    assert REMEDY in later
    for ascend in later:
        for config in (DEEPSEEK, QWEN, MIMO, HYBRID):
            assert limits_met(release(ascend), {**MTP, **CACHING}, config) == []
    assert limits_met((), {**MTP, **CACHING}, HYBRID) == []  # another platform


@pytest.mark.parametrize(
    ("version", "config", "capability", "refused"),
    [
        ("0.17.1", {"linear_key_head_dim": 64}, "9.0", True),
        ("0.17.0", {"text_config": {"linear_value_head_dim": 64, "linear_key_head_dim": 128}}, "9.0", True),
        ("0.17.1", {"linear_key_head_dim": 128}, "9.0", False),
        ("0.17.1", {"linear_key_head_dim": 64}, "8.0", False),
        ("0.17.1", {"linear_key_head_dim": 64}, None, False),
        ("0.16.0", {"linear_key_head_dim": 64}, "9.0", False),  # Triton's is the only one
        ("0.18.0", {"linear_key_head_dim": 64}, "9.0", False),  # asked for by the adapter
    ],
)
def test_a_kernel_that_cannot_be_turned_off(
    version: str, config: dict[str, Any], capability: str | None, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "said_by", lambda *command: capability)
    said = refusal(Table(version), {}, config)
    assert (said is not None) == refused
    if refused:
        assert "made for heads of 128, and this checkpoint has 64; take 0.18.0" in str(said)


# ------------------------------------------------------------------ before the engine starts


def arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: Table, engine: dict[str, Any], **sampling: Any) -> Any:
    """A worker's arm, whose engine must not be started."""
    (tmp_path / "config.json").write_text(json.dumps(HYBRID))
    monkeypatch.setattr(arm_module, "installed_table", lambda: table)
    monkeypatch.setattr(arm_module.Arm, "_open", lambda self, settings: pytest.fail("the engine was started"))
    plan = {
        "arms": [{"name": "ascend/mtp", "engine": engine, "env": {}}],
        "requests": [],
        "model": {"path": str(tmp_path), "name": "m"},
        "sampling": {"temperature": 0.0, **sampling},
    }
    return arm_module.Arm(plan, "ascend/mtp", SimpleNamespace(event=lambda *_, **__: None), threading.Event())


@pytest.mark.parametrize(
    ("ascend", "engine", "sampling", "words"),
    [
        ("0.13.0", MTP, {}, "of hybrid models it has MTP for Qwen3-Next alone; take 0.18.0 or newer"),
        ("0.18.0", {**MTP, "async_scheduling": False}, {"logprobs": 3}, "logprobs=3: this vllm-ascend ends at"),
        ("0.18.0", {"additional_config": {"layer_shardin": []}}, {}, "did you mean layer_sharding?"),
        ("0.18.0", {"max_num_seq": 4}, {}, "did you mean max_num_seqs?"),
    ],
)
def test_what_cannot_run_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ascend: str, engine: Any, sampling: Any, words: str
) -> None:
    """A WorkerError: its message is all there is to say, and no traceback stands in the log."""
    made = arm(tmp_path, monkeypatch, Table(ascend, ascend), engine, **sampling)
    with pytest.raises(WorkerError) as caught:
        made.start()
    assert words in str(caught.value)


# ------------------------------------------------------------------ the doctor


def checked(ascend: str, config: dict[str, Any]) -> dict[str, Check]:
    facts = {
        "versions": {"vllm": ascend, "vllm-ascend": ascend},
        "methods": ["mtp", "qwen3_next_mtp"],
        "model": {"config": config, "tensors": 1, "mtp_layers": 1, "mtp_tensors": 1},
    }
    return {str(check.name): check for check in judging.judge("ascend", facts)}


@pytest.mark.parametrize(
    ("ascend", "config", "state", "words"),
    [
        ("0.11.0", QWEN, State.PROBLEM, "DeepSeek's alone"),
        ("0.11.0", DEEPSEEK, State.OK, "mtp"),
        ("0.13.0", HYBRID, State.PROBLEM, "Qwen3-Next alone"),
        ("0.18.0", HYBRID, State.OK, "mtp"),
    ],
)
def test_the_doctor_says_them(ascend: str, config: dict[str, Any], state: State, words: str) -> None:
    check = checked(ascend, config)["speculative method"]
    assert (check.state, words in str(check.found)) == (state, True)
    if state is State.PROBLEM:
        assert str(check.remedy) == "take 0.18.0 or newer"


def test_what_only_limits_a_setting_is_a_note() -> None:
    assert checked("0.13.0", HYBRID)["prefix caching"].state is State.NOTE


@pytest.mark.parametrize(
    ("ascend", "ends"),
    [("0.13.0", False), ("0.14.0rc1", True), ("0.18.0", True), ("0.19.1rc1", False), ("0.23.0", False)],
)
def test_logprobs_with_speculation_end_some_releases_of_vllm_ascend(ascend: str, ends: bool) -> None:
    engine = {**MTP, "async_scheduling": False}
    said = no_logprobs(engine, Table("0.23.0", ascend), [{"logprobs": 0}])
    assert (said is not None) == ends
