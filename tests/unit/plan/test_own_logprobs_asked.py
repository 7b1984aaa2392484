"""Who is asked for the logprobs of the chosen tokens, where nobody said anything of logprobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from parity_backends.vllm.worker.arguments import Table, no_logprobs
from parity_backends.worker.sentences import WorkerError
from support.captures import capture, completion, written

from parity.cli.main import cli
from parity.pipeline.arms import OwnArm
from parity.pipeline.planning import PlanRequest, load_backends, make_plan
from parity.plan import Plan, Sampling
from parity.plan.digest import plan_hash


@pytest.mark.parametrize(
    ("options", "asked"), [((), 0), (("--logprobs", "none"), None), (("--logprobs", "0"), 0), (("--logprobs", "5"), 5)]
)
def test_a_new_plan_asks_for_them(options: tuple[str, ...], asked: int | None, tmp_path: Path) -> None:
    made = CliRunner().invoke(cli, ["plan", "--suite", "smoke", "--output", str(tmp_path / "plan.json"), *options])
    assert made.exit_code == 0, made.output
    assert json.loads((tmp_path / "plan.json").read_text())["sampling"]["logprobs"] == asked


def test_the_configuration_switches_them_off(tmp_path: Path) -> None:
    (tmp_path / "parity.toml").write_text('[plan]\nlogprobs = "none"\n')
    command = ["plan", "--suite", "smoke", "--config", str(tmp_path / "parity.toml")]
    made = CliRunner().invoke(cli, [*command, "--output", str(tmp_path / "p.json")])
    assert made.exit_code == 0, made.output
    assert json.loads((tmp_path / "p.json").read_text())["sampling"]["logprobs"] is None


def test_a_wrong_number_is_refused() -> None:
    made = CliRunner().invoke(cli, ["plan", "--suite", "smoke", "--logprobs", "many"])
    assert made.exit_code == 2
    assert "many" in made.output


def planned(*backends: str, own: tuple[OwnArm, ...] = (), logprobs: int | None = None) -> Plan:
    adapters = load_backends([*backends, *(one.backend for one in own)])
    model = load_backends(["cpu"])["cpu"].default_model()
    request = PlanRequest(
        backends=backends, suite="smoke", model=model, own=own, usual=["logprobs"], sampling=Sampling(logprobs=logprobs)
    )
    return make_plan(request, adapters)


SERVER = OwnArm("server", "here", {"url": "http://127.0.0.1:1/"})


def test_a_server_is_not_asked_nor_are_engines_beside_it() -> None:
    assert planned("cpu", own=(SERVER,)).sampling.logprobs is None
    assert planned("cpu", own=(SERVER,), logprobs=3).sampling.logprobs == 3
    assert planned("cpu").sampling.logprobs == 0
    assert planned("cpu", "transformers").sampling.logprobs == 0


def test_a_recording_beside_an_engine_leaves_it_asked(tmp_path: Path) -> None:
    recording = written(tmp_path / "a.jsonl", capture("cpu/base", completion([1, 2])))
    replayed = OwnArm("replay", "one", {"capture": str(recording)})
    assert planned("cpu", own=(replayed,)).sampling.logprobs == 0
    assert planned(own=(replayed, OwnArm("replay", "two", {"capture": str(recording)}))).sampling.logprobs is None


def test_a_plan_that_says_nothing_keeps_its_meaning() -> None:
    plan = planned("cpu", logprobs=1)
    silent = plan.to_json()
    del silent["sampling"]["logprobs"]
    null = plan.to_json()
    null["sampling"]["logprobs"] = None
    read = [Plan.from_json(one) for one in (silent, null)]
    assert [one.sampling.logprobs for one in read] == [None, None]
    assert plan_hash(read[0]) == plan_hash(read[1])


# ------------------------------------------------------------------ engines that cannot give them

SPECULATES = {"speculative_config": {"method": "mtp"}, "async_scheduling": False}


@pytest.mark.parametrize(
    ("vllm", "ascend", "engine", "ends", "asked"),
    [
        ("0.18.0", "0.18.0", SPECULATES, True, False),
        ("0.13.0", "0.13.0", SPECULATES, False, False),
        ("0.11.0", "0.11.0", SPECULATES, False, False),
        ("0.23.0", "0.23.0", SPECULATES, False, True),
        ("0.18.0", "0.18.0", {**SPECULATES, "async_scheduling": True}, False, True),
        ("0.18.0", "0.18.0", {"async_scheduling": False}, False, True),
        ("0.13.0", None, SPECULATES, False, False),
        ("0.13.0", None, {}, False, True),
        ("0.14.0", None, SPECULATES, False, True),
        ("0.32.0", None, SPECULATES, False, True),
    ],
)
def test_engines_that_cannot_be_asked(
    vllm: str, ascend: str | None, engine: dict[str, object], ends: bool, asked: bool
) -> None:
    table = Table(vllm, ascend)
    assert (no_logprobs(engine, table, [{"logprobs": 0}, {}]) is None) == asked
    if ends:
        with pytest.raises(WorkerError, match="logprobs=5: this vllm-ascend ends at logprobs"):
            no_logprobs(engine, table, [{"logprobs": 0}, {"logprobs": 5}])
    else:
        assert (no_logprobs(engine, table, [{"logprobs": 5}]) is None) == asked
