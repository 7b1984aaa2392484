"""Whom several arms together accuse: what their verdicts alone do not say is not said of anybody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from captures import TEXT, capture, completion
from worlds import Fault, catalogue
from worlds.engine import Arm
from worlds.rounding import Orders
from worlds.seen_as import VIEWS
from worlds.trials import Trial, judge
from worlds.world import BASE, Truth, World, speculating

from parity.comparator import CompareOptions, Comparison, compare, triangulate
from parity.comparator.stats import FirstFault
from parity.pipeline.compared import Compared
from parity.pipeline.outcome import conclude
from parity.records import Capture, Verdict
from parity.view import of_captures

PASS, DIVERGED, OPEN = Verdict.PASS, Verdict.DIVERGED, Verdict.INCONCLUSIVE

ARMS = {
    "cuda/mtp": speculating(2),
    "npu/base": Arm("", Orders(splits=(4, 2))),
    "npu/mtp": replace(speculating(1), orders=Orders(splits=(2, 1), window=2)),
    "cpu/base": Arm("", Orders(splits=(4, 4))),
}


def fault(name: str) -> Fault:
    return next(one for one in catalogue() if one.name == name).at(0.1)


def arms_of(wrong: tuple[str, ...], name: str, view: str) -> tuple[list[Capture], dict[str, Comparison]]:
    """Captures, and each arm compared with the baseline. wrong: the arms that have the fault, the same rows in each."""
    world = World(1)
    asked = world.requests(32)
    planted = {arm: fault(name) if arm in wrong else None for arm in ("cuda/base", *ARMS)}
    made = {
        arm: world.run(asked, replace(one, name=arm), fault=planted[arm], fault_seed=3, logprobs=5).capture
        for arm, one in {"cuda/base": BASE, **ARMS}.items()
    }
    compared = {}
    for arm in ARMS:
        scores = world.score(made["cuda/base"], made[arm])
        trial = Trial("", 1, made["cuda/base"], made[arm], scores, Truth(), CompareOptions())
        compared[arm] = judge(VIEWS[view](trial)).result
    return list(made.values()), compared


def said_by_all(captures: list[Capture], compared: Mapping[str, Comparison], tmp_path: Path) -> str:
    """The suspect, which the run, its JSON and the view must name alike; "" where there is none."""
    kept = Compared(tmp_path)
    for arm, one in compared.items():
        kept.add(arm, one)
    outcome = conclude("r", tmp_path, "cuda/base", kept, (), {})
    found, seen = outcome.suspect, of_captures(captures, dict(compared)).suspect
    assert (found and str(found.name)) == (seen and str(seen.name))
    assert found is None or any(str(found.name) in str(one) for one in outcome.reasons)
    return "" if found is None else str(found.name)


@pytest.mark.parametrize("wrong", [("cuda/base",), ("cuda/base", "cuda/mtp")], ids=["the baseline", "its backend"])
@pytest.mark.parametrize("name", ["completions swapped", "state of another row"])
def test_a_baseline_that_all_others_contradict_alike_accuses_no_backend(
    name: str, wrong: tuple[str, ...], tmp_path: Path
) -> None:
    captures, compared = arms_of(wrong, name, "lists, unscored")
    assert compared["npu/base"].verdict is compared["cpu/base"].verdict is DIVERGED
    found = said_by_all(captures, compared, tmp_path)
    assert found.startswith("the baseline cuda/base, or what "), found
    assert "npu/base" in found and "cpu/base" in found  # noqa: PT018
    assert ("cuda/mtp" in found) == ("cuda/mtp" not in wrong)


@pytest.mark.parametrize("name", ["tokens lost", "completion missing", "rest of another row"])
def test_lost_and_foreign_tokens_are_no_numerics(name: str, tmp_path: Path) -> None:
    captures, compared = arms_of(("npu/base", "npu/mtp"), name, "scored")
    assert said_by_all(captures, compared, tmp_path) == "the engine on npu"


def test_all_speculation_is_named_where_another_backend_agrees_without(tmp_path: Path) -> None:
    captures, compared = arms_of(("cuda/mtp", "npu/mtp"), "tokens lost", "scored")
    assert said_by_all(captures, compared, tmp_path) == "speculation everywhere"


def at(*places: int) -> tuple[FirstFault, ...]:
    return tuple(FirstFault(request=f"p{one}", round=0, sample=0, position=one, token=7) for one in places)


@pytest.mark.parametrize(
    ("verdicts", "faults", "suspect"),
    [
        ({"cpu/base": DIVERGED, "npu/base": DIVERGED}, {"cpu/base": at(1, 2), "npu/base": at(3)}, "the engine on"),
        ({"cpu/base": DIVERGED, "npu/base": DIVERGED}, {"cpu/base": at(1, 2), "npu/base": at(2, 1, 3)}, "the baseline"),
        ({"cpu/base": DIVERGED, "npu/base": DIVERGED}, {}, "the engine on cpu, npu"),
        ({"npu/base": DIVERGED, "npu/mtp": DIVERGED}, {"npu/base": at(1), "npu/mtp": at(1)}, "the engine on npu"),
        ({"cuda/mtp": DIVERGED, "npu/mtp": DIVERGED}, {"cuda/mtp": at(1), "npu/mtp": at(1)}, "the baseline"),
        (
            {"cuda/mtp": DIVERGED, "npu/mtp": DIVERGED, "npu/base": PASS},
            {"cuda/mtp": at(1), "npu/mtp": at(1)},
            "speculation everywhere",
        ),
        (
            {"cuda/mtp": DIVERGED, "npu/mtp": DIVERGED, "npu/base": OPEN},
            {"cuda/mtp": at(1), "npu/mtp": at(1)},
            "the baseline",
        ),
    ],
)  # fmt: skip
def test_arms_that_go_wrong_alike(
    verdicts: dict[str, Verdict], faults: dict[str, tuple[FirstFault, ...]], suspect: str
) -> None:
    found = triangulate(verdicts, "cuda/base", faults=faults)
    assert found is not None
    assert str(found.name).startswith(suspect)


@pytest.mark.parametrize("baseline", ["cuda/mtp", "cuda/eager"])
def test_arms_of_the_baselines_backend_differ_by_their_settings(baseline: str) -> None:
    assert triangulate({"cuda/base": DIVERGED, "npu/base": OPEN}, baseline) is None


def test_another_backends_speculation_that_ran_is_not_asked_for() -> None:
    verdicts = {"cuda/mtp": DIVERGED, "npu/base": OPEN, "npu/mtp": DIVERGED}
    found = triangulate(verdicts, "cuda/base")
    assert found is not None
    assert str(found.name) == "speculation on cuda"
    assert str(found.why) == "cuda agrees without speculation; whether the backends of npu/mtp do is open"
    alone = triangulate({"cuda/mtp": DIVERGED, "npu/base": OPEN}, "cuda/base")
    assert alone is not None
    assert "another backend's arms would tell" in str(alone.why)


def test_recordings_of_several_backends_are_no_arms_of_one() -> None:
    """A server's recording diverged: that "base agrees on the same backend" was said of the GPU's."""
    verdicts = {"replay/mtp": Verdict.PASS, "replay/one": DIVERGED}
    recorded = {arm: ("cuda/base", of) for arm, of in (("replay/mtp", "cuda/mtp"), ("replay/one", "server/one"))}
    assert triangulate(verdicts, "replay/base") is not None
    assert triangulate(verdicts, "replay/base", recorded=recorded) is None


def test_speculation_that_diverges_in_a_recording_is_named_by_its_own_backend() -> None:
    verdicts = {"replay/a": DIVERGED, "replay/b": Verdict.PASS, "replay/c": Verdict.PASS}
    names = {"replay/a": "cuda/mtp", "replay/b": "npu/base", "replay/c": "npu/mtp"}
    found = triangulate(verdicts, "replay/x", recorded={arm: ("cuda/base", of) for arm, of in names.items()})
    assert found is not None
    assert str(found.name) == "speculation on cuda"
    twice = {arm: ("cuda/base", "npu/base" if arm == "replay/c" else of) for arm, of in names.items()}
    assert triangulate(verdicts, "replay/x", recorded=twice) is None


def test_a_comparison_names_the_arms_that_its_recordings_are_of() -> None:
    of = {"replay/a": "cuda/base", "replay/b": "server/one"}
    sides = [capture(arm, completion(TEXT), extra={"replayed": {"arm": name}}) for arm, name in of.items()]
    assert compare(*sides).stats.recorded == ("cuda/base", "server/one")
