"""Triangulation by the sizes of the residuals, where no verdict tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest
from msgspec import structs
from worlds import BASE, FLAT, Arm, Broken, Orders, World, speculating

from parity.comparator import Suspect, compare, triangulate
from parity.comparator.stats import Numerics
from parity.records import Verdict

NOISY = Broken(noise=1.0)
OTHER = Orders(splits=(4, 1), window=2)


@cache
def numerics(arm: Arm) -> tuple[Verdict, Numerics]:
    """Of an arm against cuda/base; equal completions and arms of several settings stay as they are."""
    world = World(21, FLAT)
    asked = world.requests(128, seed=21)
    base, other = (world.run(asked, one, max_tokens=64).capture for one in (BASE, arm))
    result = compare(base, other, world.score(base, other))
    assert isinstance(result.stats.numerics, Numerics)
    return result.verdict, result.stats.numerics


def suspect(arms: Mapping[str, Arm]) -> Suspect | None:
    found = {name: numerics(replace(arm, name=name)) for name, arm in arms.items()}
    assert Verdict.DIVERGED not in {verdict for verdict, _ in found.values()}
    verdicts = {name: verdict for name, (verdict, _) in found.items()}
    return triangulate(verdicts, "cuda/base", numerics={name: one for name, (_, one) in found.items()})


CLEAN = {"cuda/mtp": speculating(2), "npu/base": Arm("", OTHER), "npu/mtp": replace(speculating(1), orders=OTHER)}


@pytest.mark.parametrize(
    ("noisy", "name", "why"),
    [
        ((), None, ""),
        (("npu/base", "npu/mtp"), "numerics of npu", "without speculation already; "),
        (("npu/mtp",), "speculation on npu", "while speculation on cuda differs in nothing"),
        (("cuda/mtp", "npu/mtp"), "speculation on cuda, npu", "with speculation and not without; "),
    ],
    ids=["clean", "backend", "speculation", "all speculation"],
)
def test_the_suspect_by_the_sizes(noisy: tuple[str, ...], name: str | None, why: str) -> None:
    found = suspect({arm: replace(one, broken=NOISY) if arm in noisy else one for arm, one in CLEAN.items()})
    assert (None if found is None else str(found.name)) == name
    assert found is None or why in str(found.why)
    assert found is None or all(arm in str(found.why) for arm in CLEAN)


def test_speculation_that_adds_to_a_noisy_backend_is_named_as_well() -> None:
    arms = {
        **CLEAN,
        "npu/base": replace(CLEAN["npu/base"], broken=NOISY),
        "npu/mtp": replace(CLEAN["npu/mtp"], broken=Broken(noise=2.0)),
    }
    found = {name: numerics(replace(arm, name=name)) for name, arm in arms.items()}
    quiet = triangulate(
        dict.fromkeys(found, Verdict.PASS), "cuda/base", numerics={n: one for n, (_, one) in found.items()}
    )
    assert quiet is not None
    assert str(quiet.name) == "numerics of npu"
    assert "and by more in npu/mtp" in str(quiet.why)


def test_verdicts_come_first() -> None:
    found = {name: numerics(replace(arm, name=name, broken=NOISY))[1] for name, arm in CLEAN.items()}
    verdicts = {"cuda/mtp": Verdict.PASS, "npu/base": Verdict.PASS, "npu/mtp": Verdict.DIVERGED}
    told = triangulate(verdicts, "cuda/base", numerics=found)
    assert told is not None
    assert str(told.name) == "speculation on npu"
    assert "logit noise" not in str(told.why)


def test_sizes_of_an_arm_that_a_verdict_accuses_name_nobody() -> None:
    found = {name: numerics(replace(arm, name=name, broken=NOISY))[1] for name, arm in CLEAN.items()}
    verdicts = {"cuda/mtp": Verdict.PASS, "npu/base": Verdict.INCONCLUSIVE, "npu/mtp": Verdict.DIVERGED}
    assert triangulate(verdicts, "cuda/base", numerics=found) is None


COMPILED = ("compilation_mode",)


def quiet(arms: Mapping[str, Arm], compiled: str = "") -> Suspect | None:
    """Where every verdict is PASS, and the numerics of one arm come from kernels of its own."""
    found = {name: numerics(replace(arm, name=name))[1] for name, arm in arms.items()}
    if compiled:
        found[compiled] = structs.replace(found[compiled], other_kernels=COMPILED)
    return triangulate(dict.fromkeys(found, Verdict.PASS), "cuda/base", numerics=found)


def test_speculation_is_not_named_where_another_arm_with_it_is_sound() -> None:
    arms = {"cuda/mtp": speculating(2), "cuda/mtp-full": replace(speculating(2), broken=NOISY)}
    for compiled in ("", "cuda/mtp-full"):
        found = quiet(arms, compiled)
        assert found is not None
        assert str(found.name) == "the settings of cuda/mtp-full"
        assert "while those of cuda/mtp, also with speculation, do not" in str(found.why)


def test_an_arm_with_kernels_of_its_own_does_not_accuse_speculation() -> None:
    arms = {"cuda/mtp-full": replace(speculating(2), broken=NOISY)}
    assert str(quiet(arms).name) == "speculation on cuda"  # type: ignore[union-attr]
    assert quiet(arms, "cuda/mtp-full") is None


def test_kernels_that_the_plain_arm_has_too_excuse_nothing() -> None:
    arms = {"npu/base": Arm("", OTHER), "npu/mtp": replace(speculating(1), orders=OTHER, broken=NOISY)}
    found = {name: numerics(replace(arm, name=name))[1] for name, arm in arms.items()}
    found = {name: structs.replace(one, other_kernels=("backend",)) for name, one in found.items()}
    told = triangulate(dict.fromkeys(found, Verdict.PASS), "cuda/base", numerics=found)
    assert told is not None
    assert str(told.name) == "speculation on npu"
