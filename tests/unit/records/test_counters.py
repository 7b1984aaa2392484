"""Counters of other hosts and other writers: what is no number is left out, and nothing breaks on what stays."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.records.counters import sane
from parity.run.counting import of_replicas

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)
NAMES = st.sampled_from(["steps", "batch_sizes", "rows_moved", "accepted_per_pos", "tokens", "other", "a_seconds"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rows_moved", "many"),
        ("steps", -1),
        ("steps", float("inf")),
        ("tokens", 2**70),
        ("batch_sizes", {"x": 1}),
        ("batch_sizes", {"²": 1}),
        ("batch_sizes", {"1": "2"}),
        ("batch_sizes", [1]),
        ("accepted_per_pos", [1, "2"]),
        ("of_others", [[[[[[[[1]]]]]]]]),
        ("of_others", float("nan")),
    ],
)
def test_what_is_not_as_its_name_says_is_left_out(name: str, value: Any) -> None:
    assert sane({name: value, "drafts": 3}) == {"drafts": 3}


def test_what_an_engine_counts_stays() -> None:
    counters = {"steps": 4, "batch_sizes": {"8": 4}, "accepted_per_pos": [3, 1], "generate_seconds": 0.5,
                "unscored_items": [["a", "p", 0, 0, "why"]], "replicas": [{"steps": 4}, None]}  # fmt: skip
    assert sane(counters) == counters


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(NAMES, JSON, max_size=5), st.dictionaries(NAMES, JSON, max_size=5))
def test_what_stays_can_be_added_and_written(one: dict[str, Any], other: dict[str, Any]) -> None:
    orjson.dumps(of_replicas([sane(one), sane(other)]))
