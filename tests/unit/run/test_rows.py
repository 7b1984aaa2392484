"""The rows of a batch, counted where the model runner is: here, in a rank, or in vLLM's second model runner.

That the functions travel into a real rank shows tests/engine/test_ranks.py.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from parity_backends.vllm.worker.resolved import resolved_engine
from parity_backends.vllm.worker.rounds import Watch
from parity_backends.vllm.worker.rows import about_runner, ask_runner, count_rows, counted_rows

STEPS = [["a", "b", "c"], ["a", "b", "c"], ["a", "c"], ["a", "c", "d"], ["d", "c"]]


class FirstModelRunner:
    """Keeps one batch; `execute_model` brings it up to date first."""

    def __init__(self) -> None:
        self.input_batch = SimpleNamespace(req_ids=[])

    def execute_model(self, rows: list[str]) -> str:
        self.input_batch.req_ids = [*rows, None]
        return "done"


class SecondModelRunner:
    """Makes the batch anew in each step."""

    req_states = object()

    def prepare_inputs(self, rows: list[str]) -> Any:
        return SimpleNamespace(req_ids=rows)

    def execute_model(self, rows: list[str]) -> str:
        self.prepare_inputs(rows)
        return "done"


class Ranks:
    """An executor of several processes: what it has of a worker is what `collective_rpc` says."""

    def __init__(self, runner: Any) -> None:
        self.workers = [SimpleNamespace(worker=SimpleNamespace(model_runner=runner)), SimpleNamespace()]

    def ask(self, function: Any) -> list[Any]:
        return [function(self.workers[0]), "another rank"]


def alone(runner: Any) -> Any:
    worker = SimpleNamespace(worker=SimpleNamespace(model_runner=runner))
    executor = SimpleNamespace(driver_worker=worker)
    return SimpleNamespace(llm_engine=SimpleNamespace(model_executor=executor))


def apart(runner: Any) -> Any:
    ranks = Ranks(runner)
    return SimpleNamespace(llm_engine=SimpleNamespace(model_executor=ranks, collective_rpc=ranks.ask))


@pytest.mark.parametrize("place", [alone, apart])
@pytest.mark.parametrize("kind", [FirstModelRunner, SecondModelRunner])
def test_rows_are_counted_wherever_they_are(place: Any, kind: Any) -> None:
    runner = kind()
    llm = place(runner)
    for _ in range(2):  # each round anew
        assert ask_runner(llm, count_rows) is True
        for rows in STEPS:
            assert runner.execute_model(rows) == "done"
        sizes, counters = ask_runner(llm, counted_rows)
        assert sizes == {3: 3, 2: 2}
        assert counters == {"rows_joined": 1, "rows_left": 2, "rows_moved": 2}
    watch = Watch()
    for _ in STEPS:
        watch.step(None, 3)
    watch.take((sizes, counters))
    found = watch.counters()
    assert (found["rows_moved"], found["batch_sizes"], found["steps"]) == (2, {"2": 2, "3": 3}, 5)


def test_what_cannot_be_seen_is_not_made_up() -> None:
    """The comparison then says that churn is not proven."""

    def refuse(function: Any) -> Any:
        raise TypeError("this executor takes names of methods only")

    for engine in (SimpleNamespace(), SimpleNamespace(model_executor=object(), collective_rpc=refuse)):
        llm = SimpleNamespace(llm_engine=engine)
        assert ask_runner(llm, count_rows) is None
        assert ask_runner(llm, counted_rows) is None
    assert not ask_runner(alone(type("ThirdModelRunner", (), {})()), count_rows)
    watch = Watch()
    watch.step(None, 4)
    watch.take(None)
    assert "rows_moved" not in watch.counters()
    assert watch.counters()["batch_sizes"] == {"4": 1}


# ------------------------------------------------------------------ the header


def gated(kernel: Any, device: str = "cuda") -> Any:
    runner = FirstModelRunner()
    runner.device = SimpleNamespace(type=device)  # type: ignore[attr-defined]
    layers = {"attention": object(), "linear": SimpleNamespace(chunk_gated_delta_rule=kernel)}
    runner.compilation_config = SimpleNamespace(static_forward_context=layers)  # type: ignore[attr-defined]
    return runner


def forward_native() -> None: ...


@pytest.mark.parametrize(
    ("kernel", "device", "expected"),
    [
        (SimpleNamespace(gdn_prefill_backend="triton"), "cuda", "triton"),
        (SimpleNamespace(gdn_prefill_backend="flashinfer"), "cuda", "flashinfer"),
        (SimpleNamespace(_forward_method=forward_native), "cuda", "triton"),  # 0.18.0
        (SimpleNamespace(gdn_prefill_backend="triton"), "cpu", None),
    ],
)
def test_the_prefill_that_was_taken_is_named(kernel: Any, device: str, expected: str | None) -> None:
    for place in (alone, apart):
        found = ask_runner(place(gated(kernel, device)), about_runner)
        assert found.get("gdn_prefill_backend") == expected
        assert found["model_runner"].endswith("FirstModelRunner")


class AscendConfig:
    def __init__(self) -> None:
        self.weight_nz_mode, self.vllm_config, self._secret = 1, SimpleNamespace(a=1), 2
        self.compilation = type("C", (), {"__module__": "vllm_ascend.ascend_config"})()
        self.compilation.enable_npugraph_ex = True


def llm_of(**config: Any) -> Any:
    engine = SimpleNamespace(vllm_config=SimpleNamespace(**config))
    return SimpleNamespace(llm_engine=engine)


def test_what_additional_config_came_to(monkeypatch: pytest.MonkeyPatch) -> None:
    AscendConfig.__module__ = "vllm_ascend.ascend_config"
    monkeypatch.delitem(sys.modules, "vllm_ascend.ascend_config", raising=False)
    held = {"gdn_prefill_backend": "triton", "odd": object()}
    assert resolved_engine(llm_of(additional_config=held), {})["additional_config"] == {"gdn_prefill_backend": "triton"}
    assert "additional_config" not in resolved_engine(llm_of(additional_config={}), {})
    module = SimpleNamespace(_ASCEND_CONFIG=AscendConfig())
    monkeypatch.setitem(sys.modules, "vllm_ascend.ascend_config", module)  # type: ignore[arg-type]
    resolved = resolved_engine(llm_of(additional_config={}), {})["additional_config"]
    assert resolved == {"weight_nz_mode": 1, "compilation": {"enable_npugraph_ex": True}}


@pytest.mark.parametrize(("inner_state", "there"), [(True, True), (False, False), (None, True)])
def test_a_model_without_mamba_layers_has_no_settings_of_theirs(inner_state: bool | None, there: bool) -> None:
    cache = SimpleNamespace(mamba_ssm_cache_dtype="float32", mamba_cache_mode="none", cache_dtype="auto")
    model = SimpleNamespace(has_inner_state=inner_state)
    resolved = resolved_engine(llm_of(cache_config=cache, model_config=model), {})
    assert ("mamba_ssm_cache_dtype" in resolved) == there
    assert ("mamba_cache_mode" in resolved) == there
    assert resolved["kv_cache_dtype"] == "auto"
