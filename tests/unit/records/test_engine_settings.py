"""A setting that is added at run time is seen wherever settings are: plan, worker, comparison, tables, reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from captures import header

import parity
from parity.comparator.inputs.resolved import overruled
from parity.comparator.inputs.settings import differences
from parity.errors import ParityError
from parity.plan import Arm, Prompt, build_plan, read_checkpoint
from parity.plan.matrix import parse_axis
from parity.records import Header
from parity.records.engine_settings import (
    Setting,
    asked_of,
    default_settings,
    draft_tokens,
    engine_settings,
    forget,
    pinned_settings,
    register,
    setting_called,
    speculates,
    speculative_settings,
    without_speculation,
)
from parity.view.settings import told_apart

MODEL = Path(parity.__file__).parent / "models" / "tiny-qwen3-next-mtp"


@pytest.fixture
def dummy() -> Iterator[Setting]:
    row = register(
        Setting(
            "odd_kernel",
            "kernel_config.odd",
            "odd",
            short="odd",
            default="even",
            pinned=True,
            precision=True,
            decides=True,
        )
    )
    yield row
    forget(row)


def _header(arm: str, asked: str, resolved: str) -> Header:
    return header(arm, engine={"odd": resolved, "asked": {"odd_kernel": asked}})


def test_a_plan_must_pin_it_and_adapters_ask_for_it(dummy: Setting) -> None:
    engine = {**default_settings(), "odd_kernel": "even"}
    assert default_settings()["odd_kernel"] == "even"
    checkpoint, prompts = read_checkpoint(MODEL), [Prompt("a", text="In the beginning")]
    plan = build_plan(
        checkpoint, prompts, [Arm("cpu/base", "cpu", "base", engine), Arm("cpu/mtp", "cpu", "mtp", engine)]
    )
    assert plan.arms[0].engine["odd_kernel"] == "even"
    del engine["odd_kernel"]
    with pytest.raises(ParityError, match="odd_kernel"):
        build_plan(checkpoint, prompts, [Arm("cpu/base", "cpu", "base", engine)])


def test_it_is_an_axis_with_a_short_name(dummy: Setting) -> None:
    assert parse_axis("odd=x").name == "odd_kernel"
    assert parse_axis("odd_kernel=x").label("x") == "odd=x"


def test_the_worker_reads_it_back(dummy: Setting) -> None:
    from parity_backends.vllm.worker.resolved import resolved_engine

    config = SimpleNamespace(kernel_config=SimpleNamespace(odd="odder"))
    engine = SimpleNamespace(llm_engine=SimpleNamespace(vllm_config=config))
    assert resolved_engine(engine, {})["odd"] == "odder"


def test_a_comparison_of_headers_sees_it(dummy: Setting) -> None:
    one, other = _header("a", "even", "even"), _header("b", "even", "odder")
    assert overruled(one) == {}
    assert overruled(other) == {"odd_kernel": ("even", "odder")}
    assert differences(one, other)["precision"]["odd"] == ("even", "odder")


def test_tables_tell_arms_apart_by_it(dummy: Setting) -> None:
    engines = {"a": {"odd": 1, "asked": {}}, "b": {"odd": 2, "asked": {}}}
    assert told_apart(engines) == {"a": "k=0, odd=1", "b": "k=0, odd=2"}


def test_a_name_is_taken_once(dummy: Setting) -> None:
    with pytest.raises(ValueError, match="odd_kernel"):
        register(Setting("odd_kernel"))


def test_rows_do_not_share_a_name() -> None:
    for row in engine_settings():
        for name in {row.name, row.key, row.asked, row.short, *row.aliases} - {""}:
            assert setting_called(name) is row
    assert set(pinned_settings()) <= default_settings().keys()


@pytest.mark.parametrize(
    ("engine", "tokens", "on"),
    [
        ({}, 0, False),
        ({"num_speculative_tokens": 0}, 0, False),
        ({"speculative_config": {"method": "mtp", "num_speculative_tokens": 3}}, 3, True),
        ({"num_speculative_tokens": 2, "speculative_method": "mtp", "asked": {}}, 2, True),
        ({"asked": {"speculative_config": {"method": "mtp", "num_speculative_tokens": 4}}}, 4, True),
        # What it resolved to, not what was asked.
        ({"num_speculative_tokens": 1, "asked": {"speculative_config": {"num_speculative_tokens": 4}}}, 1, True),
        ({"speculative_config": "mtp"}, 0, True),
        ({"speculative_config": {"method": "ngram"}}, 0, True),
        ({"num_speculative_tokens": True}, 0, True),
    ],
)
def test_draft_tokens_in_every_shape_that_is_about(engine: dict[str, object], tokens: int, on: bool) -> None:
    assert draft_tokens(engine) == tokens
    assert speculates(engine) is on
    assert without_speculation({**engine, "seed": 0, "speculative_config": {}}).get("speculative_config") is None


def test_the_method_is_read_from_both_shapes() -> None:
    assert speculative_settings({"speculative_method": "mtp"})["method"] == "mtp"
    assert speculative_settings({"asked": {"speculative_config": {"method": "eagle"}}})["method"] == "eagle"


def test_what_was_asked_of_an_engine_is_read_in_one_place() -> None:
    assert asked_of({"asked": {"seed": 0}, "seed": 1}) == {"seed": 0}
    assert asked_of({"asked": "nothing"}) == asked_of({}) == {}
