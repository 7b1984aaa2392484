"""The next experiment: a command that runs, from the one that made the run."""

from __future__ import annotations

import pytest
from report_data import BASE, MTP, arm_case, finding_case, make_case, run_of
from step_world import World

from parity.cli.run import run as run_command
from parity.explain.association import Associated, Association
from parity.explain.experiments import EXPERIMENTS, suspected_settings
from parity.explain.ledger import Ledger
from parity.explain.predicates import PREDICATES, asked_of
from parity.records.control import CONTROL
from parity.records.engine_settings import SPECULATION, engine_settings
from parity.view import RunView
from parity.view.experiments import Proposed, proposed
from parity.view.why import Why

COMMAND = "parity run --backends cpu --max-num-seqs 4 --churn light --kv-blocks 40 --engine seed=3 --out /tmp/x"


def view(command: str = COMMAND) -> RunView:
    return make_case(run=run_of(command=command))


def proposed_of(*names: str, command: str = COMMAND) -> list[Proposed]:
    (found,) = proposed(view(command), [explained(*names)])
    return found


def explained(*names: str) -> Why:
    first = Association((names[0],), 5, 20, 1e-6, 1e-4, 0.2, 100.0, same=tuple((name,) for name in names[1:]))
    return Why("cpu/mtp", Associated(5, 400, 50, (first,)), 0)


def test_every_experiment_is_on_a_condition_that_is_asked() -> None:
    assert set(EXPERIMENTS) <= {one.name for one in PREDICATES}
    known = {row.key for row in engine_settings()} | {"speculation"}
    assert {one.setting for one in EXPERIMENTS.values() if one.setting} <= known
    assert SPECULATION


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_its_commands_are_ones_that_parity_takes(name: str) -> None:
    for one in proposed_of(name):
        assert one.words[0] == "run"
        context = run_command.make_context("run", list(one.words[1:]))
        assert context.params["record"]
        assert "seed=3" in one.text  # what else the run was asked for stays


def test_without_the_condition_and_with_more_of_it() -> None:
    without, more = proposed_of("moved", "another moved")  # the same setting removes both
    assert (without.aim, more.aim) == ("remove", "more")
    assert without.text == (
        "parity run --backends cpu --churn light --kv-blocks 40 --engine seed=3 --max-num-seqs 1 --record"
    )
    assert more.text.endswith("--max-num-seqs 4 --kv-blocks 40 --engine seed=3 --churn heavy --record")
    assert "--kv-blocks" not in proposed_of("preempted")[0].words


def test_what_the_run_has_asked_already_is_not_proposed_again() -> None:
    (more,) = proposed_of("moved", command="parity run --churn heavy --max-num-seqs 1")
    assert (more.aim, more.text) == ("more", "parity run --churn heavy --max-num-seqs 1 --rounds 4 --record")


def test_a_command_is_proposed_once_for_all_that_a_run_has_to_explain() -> None:
    """An arm's corrupt tokens and its numerics, or two arms: other conditions, the same settings."""
    tokens, numerics = proposed(view(), [explained("moved"), explained("mixed")])
    assert [one.options for one in (*tokens, *numerics)] == [
        ("--max-num-seqs", "1"), ("--churn", "heavy"), ("--churn", "heavy", "--arrival", "poisson:2"),
    ]  # fmt: skip
    assert tokens[0].conditions == ("moved", "mixed")
    assert tokens[0].to_json()["condition"] == "moved"
    said = "(its row moved in this step; it decodes while another row computes a prompt): do the faults stay away?"
    assert said in str(tokens[0].what)
    assert proposed(view(), [explained("moved")] * 2)[1] == []


def test_commands_that_differ_in_the_order_of_options_are_one() -> None:
    """Of requests that arrive so already, more rows that move are more prompts beside others too."""
    command = "parity run --backends cpu --max-num-seqs 1 --arrival poisson:2"
    found = proposed_of("moved", "mixed", command=command)
    assert [one.aim for one in found] == ["more"], [one.text for one in found]


def test_of_captures_that_were_compared_only_the_options_are_known() -> None:
    (without, _) = proposed_of("moved", command="parity compare a.jsonl b.jsonl")
    assert (without.words, without.options) == ((), ("--max-num-seqs", "1"))


def test_what_no_setting_changes_has_no_experiment() -> None:
    assert proposed_of("even step") == []
    assert suspected_settings(["even step", "mixed", "moved", "preempted"]) == (
        "max_num_seqs",
        "num_gpu_blocks_override",
    )


@pytest.mark.parametrize("seed", range(4))
def test_what_is_removed_does_not_happen_without(seed: int) -> None:
    """Rows one at a time: of the conditions that `--max-num-seqs 1` is said to remove, none holds."""
    world = World(seed, rows=1, steps=200)
    ledger = Ledger(world.recorded(), world.prompts)
    alone = [name for name, one in EXPERIMENTS.items() if one.remove == ("--max-num-seqs", "1")]
    assert len(alone) > 8
    asked = asked_of(ledger)
    assert [name for name in alone if asked[name].any()] == []
    assert all(asked[name].any() for name in ("new", "first decode", "taken over"))
    assert not {"new", "prefill", "first decode"} & set(EXPERIMENTS)


def test_what_was_planted_in_a_control_is_no_cause_of_the_bug_reported() -> None:
    planted = f"{MTP}{CONTROL}row_swap"
    whys = [Why(arm, Associated(8, 400, 50, ()), 0) for arm in (MTP, planted)]
    arms = [arm_case(BASE), arm_case(MTP), arm_case(planted)]
    assert [one.arm for one in make_case(arms=arms, read_why=lambda: whys).why] == [MTP]
    of_control = finding_case(arm=planted)
    clean = [arm_case(BASE), arm_case(MTP, corrupt=False), arm_case(planted)]
    alone = make_case(arms=clean, finding=of_control, read_why=lambda: whys[1:])
    assert [one.arm for one in alone.why] == [planted], "where there is nothing else"


def test_a_control_points_at_nobody() -> None:
    planted = arm_case(f"{MTP}{CONTROL}row_swap", corrupt=True)
    sound = make_case(arms=(arm_case("cpu/base"), arm_case(MTP, corrupt=False), planted))
    assert (sound.suspect, sound.suspect_of_any) == (None, None)
    found = make_case(arms=(arm_case("cpu/base"), arm_case(MTP, corrupt=True), planted)).suspect_of_any
    assert found is not None
    assert str(found.name) == "speculation on cpu"
