"""Evidence over probes: no false alarm however often one looks, and changes that are seen."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from parity.cli.main import cli
from parity.comparator import DEFAULT_ALPHA
from parity.comparator.martingale import Series
from parity.comparator.statistics import spent
from parity.comparator.stats import Drift, Numerics, Residuals, Stats
from parity.errors import ParityError
from parity.watch.evidence import NOTHING_YET, Evidence

DEMO = Path(str(files("parity") / "demo"))


def series(values: list[float]) -> Series:
    found = Series()
    for number, value in enumerate(values, start=1):
        found = found.after(f"run-{number}", value)
    return found


def probe(gap: float, differing: int = 3) -> Stats:
    drift = Drift(
        completions=8,
        baseline_mean_gap=0.002,
        candidate_mean_gap=gap,
        ratio=None,
        p_value=1.0,
        baseline_quantiles={},
        candidate_quantiles={},
        drifted=False,
    )
    return Stats(completions=64, identical=64 - differing, drift=drift)


@pytest.mark.parametrize("draw", ["normal", "heavy", "counts", "constant"])
def test_looking_after_each_probe_keeps_the_error_rate(draw: str) -> None:
    """40 watches of 80 probes: evidence of 1 / 0.1 is passed in at most about a tenth of them, at any time."""
    rng = np.random.default_rng(5)
    passed = 0
    for _ in range(40):
        values = {
            "normal": rng.normal(size=80),
            "heavy": rng.standard_t(2, size=80),
            "counts": rng.poisson(0.5, size=80).astype(float),
            "constant": np.zeros(80),
        }[draw]
        found, most = Series(), 0.0
        for value in values.tolist():
            found = found.after("run", value)
            most = max(most, found.log_e)
        passed += most >= np.log(10)
    assert passed <= 10  # four are expected at most; 11 or more of 40 at a rate of 0.1 have a chance of 0.2 %


def test_the_evidence_has_a_mean_of_one_where_nothing_changes() -> None:
    """A martingale: over all orders of four values the mean is 1, exactly."""
    from itertools import permutations

    means = [np.exp(series(list(order)).log_e) for order in permutations([1.0, 2.0, 3.0, 4.0])]
    assert np.mean(means) <= 1 + 1e-9
    assert max(means) > min(means)


@pytest.mark.parametrize("direction", [1.0, -1.0])
def test_a_change_is_seen_and_where_it_began(direction: float) -> None:
    rng = np.random.default_rng(1)
    before, after = rng.normal(size=200), rng.normal(size=30) + 4 * direction
    found = series([*before, *after])
    assert found.log_e > np.log(1 / DEFAULT_ALPHA)
    assert abs(found.since - 200) <= 3


def test_a_change_names_the_run_and_both_means() -> None:
    evidence = NOTHING_YET
    rng = np.random.default_rng(2)
    for number in range(140):
        gap = 0.002 + 0.0002 * rng.random() + (0.004 if number >= 100 else 0.0)
        evidence = evidence.after(f"run-{number}", {"server/live": probe(gap)})
    (change,) = evidence.changes()
    assert (change.arm, change.measure) == ("server/live", "mean_gap")
    assert abs(int(change.since.removeprefix("run-")) - 100) <= 2
    assert change.before == pytest.approx(0.0021, abs=2e-4)
    assert change.after == pytest.approx(0.0061, abs=2e-4)
    assert change.since in str(change.sentence)


@pytest.mark.parametrize(("name", "before", "after"), [("off", 0.0, 0.002), ("noise", 0.007, 0.009)])
def test_what_its_own_logprobs_say_is_followed(name: str, before: float, after: float) -> None:
    """Logprobs less scores move long before a token does."""
    evidence, rng = NOTHING_YET, np.random.default_rng(4)
    for number in range(130):
        value = (after if number >= 100 else before) + 0.0003 * rng.normal()
        residuals = Residuals(
            tokens=700, mean=value if name == "off" else 0.0, sd=0.01, median_size=0.005, quantiles={}, beyond={},
            largest=0.05, logit_noise=value if name == "noise" else 0.007,
        )  # fmt: skip
        numerics = Numerics(source="scores", candidate=residuals)
        evidence = evidence.after(f"run-{number}", {"server/live": replace(probe(0.002), numerics=numerics)})
        if number == 99:
            assert evidence.changes() == ()
    (change,) = evidence.changes()
    assert change.measure == name
    assert (change.before, change.after) == (pytest.approx(before, abs=2e-4), pytest.approx(after, abs=2e-4))


def test_probes_that_answer_the_same_each_time_are_no_evidence() -> None:
    evidence: Evidence = NOTHING_YET
    for number in range(300):
        evidence = evidence.after(f"run-{number}", {"server/live": probe(0.002)})
    assert evidence.changes() == ()


def test_all_looks_together_spend_no_more_than_alpha() -> None:
    assert sum(spent(0.001, look) for look in range(1, 100_000)) < 0.001


def test_a_watch_begun_anew_spends_no_error_rate_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch of one probe that cron starts every hour is a watch of 8,760 looks."""
    monkeypatch.setenv("PARITY_HOME", str(tmp_path))
    monkeypatch.setattr("parity.watch.earlier.evidence_of", lambda store, plan: Evidence(probes=5))
    spent_on: list[float] = []

    def execute(*_: object, alpha: float, **__: object) -> None:
        spent_on.append(alpha)
        raise ParityError("no server here")

    monkeypatch.setattr("parity.pipeline.execute.execute", execute)
    recordings = (f"{name}={DEMO / name}.jsonl.gz" for name in ("base", "mtp"))
    words = ["watch", *(word for one in recordings for word in ("--replay", one)), "--probes", "2", "--interval", "0"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 3, done.output
    assert spent_on == [spent(DEFAULT_ALPHA, 6), spent(DEFAULT_ALPHA, 7)]
