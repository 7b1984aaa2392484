"""Whose token is whose: the rows of both model runners, without an engine."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from parity_backends.vllm.worker.sketching import Sketcher, Unsketchable
from parity_backends.worker.sketch_modules import sketched_modules


class Tensor:
    """Numbers on the host, as the worker asks torch for them."""

    device = SimpleNamespace(type="cpu")
    is_cpu = True

    def __init__(self, values: Sequence[int]) -> None:
        self.values = np.array(values)

    def numpy(self) -> Any:
        return self.values

    def dim(self) -> int:
        return 1


class Module:
    """A model with one decoder layer that has one part."""

    def __init__(self, **children: Any) -> None:
        self.children = children

    def named_children(self) -> Any:
        return self.children.items()

    def named_modules(self, prefix: str = "") -> Any:
        yield prefix, self
        for name, child in self.children.items():
            yield from child.named_modules(prefix + "." * bool(prefix) + name)

    def register_forward_hook(self, *args: Any, **kwargs: Any) -> None:
        pass

    register_forward_pre_hook = register_forward_hook

    def compute_logits(self, hidden: Any) -> None:
        pass


def runner(**more: Any) -> Any:
    model = Module(layers=Module(**{"0": Module(mlp=Module())}))
    return SimpleNamespace(
        device=Tensor.device,
        model_config=SimpleNamespace(dtype="bfloat16"),
        get_model=lambda: model,
        execute_model=lambda output, **kwargs: None,
        **more,
    )


SCHEDULED = SimpleNamespace(
    total_num_scheduled_tokens=5,
    num_scheduled_tokens={"a": 3, "b": 2},
    finished_req_ids=set(),
    scheduled_new_reqs=[
        SimpleNamespace(req_id=name, prompt_token_ids=[1, 2], sampling_params=SimpleNamespace(temperature=0.0))
        for name in ("a", "b")
    ],
)


def rows_of(engine: Any, prepare: Any = None) -> tuple[list[int], list[int]]:
    """Row and request of each token of a step."""
    sketcher = Sketcher(engine, lambda record: None, "cpu/mtp", lambda name: None, "parts")
    sketcher.on = True
    engine.execute_model(SCHEDULED)
    if prepare is not None:
        engine.prepare_inputs(SCHEDULED)
    sketcher._start((), {"input_ids": Tensor([5, 6, 7, 8, 9, 0]), "positions": Tensor([0, 1, 2, 0, 1, 0])})
    assert not sketcher.stopped
    assert sketcher.live is not None
    assert sketcher.live.numbers["token"].tolist() == [5, 6, 7, 8, 9]
    return sketcher.live.numbers["row"].tolist(), sketcher.live.numbers["request"].tolist()


def test_the_first_runner_has_a_batch_that_stays() -> None:
    batch = SimpleNamespace(req_ids=["a", "b", "gone"], num_reqs=2)
    assert rows_of(runner(input_batch=batch)) == ([0, 0, 0, 1, 1], [0, 0, 0, 1, 1])


def test_the_second_runner_makes_its_batch_in_each_step() -> None:
    """In an order of its own."""
    given = SimpleNamespace(req_ids=["b", "a"])
    engine = runner(req_states=object(), prepare_inputs=lambda output: given)
    assert rows_of(engine, prepare=True) == ([0, 0, 1, 1, 1], [1, 1, 0, 0, 0])
    assert engine.prepare_inputs(SCHEDULED) is given


class Drafting(Module):
    """A drafter that is a model."""

    def forward(self, **kwargs: Any) -> None:
        pass

    def modules(self) -> Any:
        return [one for _, one in self.named_modules()]


@pytest.mark.parametrize(("second", "name"), [(False, "drafter"), (True, "speculator")])
def test_each_runner_has_its_drafter_under_a_name_of_its_own(second: bool, name: str) -> None:
    drafting = SimpleNamespace(model=Drafting(layers=Module(**{"0": Module(attn=Module())}), fc=Module()))
    more: dict[str, Any] = {"input_batch": SimpleNamespace(req_ids=[], num_reqs=0)}
    if second:
        more = {"req_states": object(), "prepare_inputs": lambda output: None}

    def names(**drafter: Any) -> list[str]:
        sketcher = Sketcher(runner(**more, **drafter), lambda record: None, "cpu/mtp", lambda name: None, "parts")
        return [one.name for one in sketcher.modules if one.name.startswith("drafter.")]

    assert "drafter.layers.0.attn" in names(**{name: drafting})
    assert "drafter.fc" in names(**{name: drafting})
    assert not names(**{name: SimpleNamespace()})  # ngrams, suffixes: no model


def test_routers_are_sketched_with_layers_alone_too() -> None:
    """Another choice of experts at a near-tie is no fault, and the layer alone would be accused of it."""
    gate = Module()
    block = Module(gate=gate)
    block.gate, block.experts = gate, SimpleNamespace(top_k=2)  # type: ignore[attr-defined]
    model = Module(layers=Module(**{"0": Module(norm=Module(), mlp=block), "1": Module(norm=Module(), mlp=Module())}))
    found = [(one.name, one.role, one.experts) for one in sketched_modules(model, "layers")]
    assert found == [
        ("layers.0.mlp.gate", "router", 2), ("layers.0", "layer", 0), ("layers.1", "layer", 0), ("output", "output", 0),
    ]  # fmt: skip
    parts = [one.name for one in sketched_modules(model, "parts")]
    assert parts == ["layers.0.norm", "layers.0.mlp.gate", "layers.0.mlp", "layers.0", "layers.1.norm", "layers.1.mlp",
                     "layers.1", "output"]  # fmt: skip


def test_after_as_many_tokens_as_were_asked_for_it_ends_until_another_phase_begins() -> None:
    written: list[Any] = []
    engine = runner(input_batch=SimpleNamespace(req_ids=["a", "b"], num_reqs=2))
    sketcher = Sketcher(engine, written.append, "cpu/mtp", lambda name: None, "parts", 8)
    steps = 0
    for phase in ("generate", "generate", "score"):
        sketcher.begin(phase)
        for _ in range(4):
            engine.execute_model(SCHEDULED)
            if sketcher.on:
                sketcher._start((), {"input_ids": Tensor([5, 6, 7, 8, 9]), "positions": Tensor([0, 1, 2, 0, 1])})
                sketcher.done, sketcher.live = sketcher.live, None
                steps += 1
        sketcher.end()
    assert steps == 4
    assert [one["record"] for one in written] == ["sketches_header", "sketches", "sketches_stopped"] * 2
    assert [one["tokens"] for one in written if one["record"] == "sketches"] == [10, 10]  # whole steps
    assert all(one["enough"] and "10 tokens" in one["why"] for one in written[2::3])


def test_a_runner_without_its_doors_is_not_sketched() -> None:
    with pytest.raises(Unsketchable, match="input_batch"):
        Sketcher(runner(), lambda record: None, "cpu/mtp", lambda name: None, "parts")
    with pytest.raises(Unsketchable, match="prepare_inputs"):
        Sketcher(runner(req_states=object()), lambda record: None, "cpu/mtp", lambda name: None, "parts")
