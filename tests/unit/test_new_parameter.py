"""A sampling parameter that is registered at run time goes all the way, as one of the table's own does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from captures import capture, completion, written
from parity_backends.server.worker.asking import COMPLETIONS, OPENAI, VLLM, not_sent, sampling_body
from parity_backends.vllm.worker.arguments import Table, translate_sampling
from parity_backends.worker.sampling import rows_of, sampling_of
from rich.style import Style

import parity
from parity.capture import read_capture
from parity.comparator import compare
from parity.errors import ParityError
from parity.pipeline.planning import PlanRequest, make_plan
from parity.plan import Plan, read_plan
from parity.plan.variants import Variant
from parity.records import Capture
from parity.records.sampling import Effect, Form, Parameter, Sampling, forget, register, wire
from parity.report.formats.json import json_report
from parity.run import load_backend
from parity.store import NewRun, Store
from parity.tui.screens import panels
from parity.tui.widgets.paneltext import Palette
from parity.view.stored import of_store

MODEL = Path(parity.__file__).parent / "models" / "tiny-qwen3-next-mtp"
TOP_A = Parameter(
    name="top_a", form=Form.NUMBER, default=0.0, effect=Effect.SHAPES, help="Top-a.", least=0, vllm=False,
    openai="vllm", speculates=False,
)  # fmt: skip


@pytest.fixture(autouse=True)
def top_a() -> Iterator[None]:
    register(TOP_A)
    yield
    forget(TOP_A)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """From a prompts file in which one request has its own value, through a file and back."""
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"id": "own", "prompt": "a", "sampling": {"top_a": 0.75}}\n{"id": "b", "prompt": "b"}\n')
    request = PlanRequest(
        variants=("base", "again"), prompts=prompts, model=MODEL, sampling=Sampling().having({"top_a": 0.5}),
        named_variants={"again": Variant("again")},
    )  # fmt: skip
    made = make_plan(request, {"cpu": load_backend("cpu")})
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(made.to_json()))
    assert read_plan(file) == made
    return made


def captured(arm: str, sampling: dict[str, Any], path: Path, *, own: float) -> Capture:
    made = capture(arm, completion([5, 6, 7], "own", top_a=own), **{**sampling, "max_tokens": 3})
    return read_capture(written(path, made))


def test_plans_carry_it_and_workers_send_it_where_their_engine_takes_it(plan: Plan) -> None:
    asked = {**plan.to_json(), "parameters": wire()}
    own, other = (sampling_of(asked, request) for request in asked["requests"])
    assert (own["top_a"], other["top_a"]) == (0.75, 0.5)
    rows = rows_of(asked)
    given, dropped = translate_sampling(own, Table("0.32.0"), rows)
    assert "top_a" not in given
    assert "sampling.top_a" in dropped
    assert sampling_body(own, rows, VLLM, COMPLETIONS, None)["top_a"] == 0.75
    assert "top_a" not in sampling_body(own, rows, OPENAI, COMPLETIONS, None)
    assert not_sent(own, rows, OPENAI) == {"top_a": 0.75}


def test_it_is_refused_with_speculation_and_out_of_range_like_the_others(plan: Plan) -> None:
    speculating = replace(plan.arms[1], engine={**plan.arms[1].engine, "speculative_config": {"method": "mtp"}})
    with pytest.raises(ParityError, match="takes no top_a together with speculative decoding"):
        replace(plan, arms=(plan.arms[0], speculating)).check()
    with pytest.raises(ParityError, match="top_a is -1"):
        replace(plan, sampling=plan.sampling.having({"top_a": -1.0})).check()


def test_arms_that_differ_in_it_are_not_compared(plan: Plan, tmp_path: Path) -> None:
    asked = plan.sampling.to_json()
    base = captured("cpu/base", asked, tmp_path / "a.jsonl", own=0.75)
    assert base.sampling_of(next(iter(base)))["top_a"] == 0.75
    other = captured("cpu/again", {**asked, "top_a": 0.0}, tmp_path / "b.jsonl", own=0.75)
    reasons = [str(reason) for reason in compare(base, other).reasons]
    assert any(one.startswith("sampling differs: top_a is 0.5 and 0.0") for one in reasons), reasons
    asked_otherwise = captured("cpu/again", asked, tmp_path / "c.jsonl", own=0.25)
    assert [str(one.kind) for one in compare(base, asked_otherwise).findings] == ["input_mismatch"]


def test_the_store_reports_and_the_screen_show_it(plan: Plan, tmp_path: Path) -> None:
    with Store.open(tmp_path / "parity.db") as store:
        store.create_run(NewRun("r1", plan, "parity run"))
        assert json.loads(json_report(of_store(store, "r1")))["run"]["sampling"]["top_a"] == 0.5
        stored = store.run("r1").plan
    subject = SimpleNamespace(
        request=SimpleNamespace(name="own", prompt="a", prompt_token_ids=[5]), run=SimpleNamespace(plan=stored),
        baseline=None, candidate=None, arms={}, arm="cpu/again", extras=SimpleNamespace(spec=None),
    )  # fmt: skip
    palette = Palette(*(Style() for _ in Palette._fields))
    drawing = SimpleNamespace(view=subject)
    assert "top_a 0.5" in panels.prompt(drawing, palette).plain  # type: ignore[arg-type]
