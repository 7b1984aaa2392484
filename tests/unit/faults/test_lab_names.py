"""The fault lab: which completion a name of the engine stands for."""

from __future__ import annotations

import pytest
from parity_faults.lab import Names


@pytest.mark.parametrize(("engine_id", "request_id", "sample"), [
    ("0", "p0", 0), ("1-9fe21ab0", "p1", 0), ("2_1-9fe21ab0", "p1", 2),
])  # fmt: skip
def test_requests_are_named_by_the_number_that_the_engine_gave_them(
    engine_id: str, request_id: str, sample: int
) -> None:
    names = Names()
    names.begin(["p0", "p1"])
    assert names(engine_id) == {"request": request_id, "round": 0, "sample": sample}


def test_numbers_go_on_from_one_capture_to_the_next() -> None:
    names = Names()
    names.begin(["p0", "p1"])
    names.begin(["p0", "p1"])
    assert names("1-aa") is None
    assert names("3-aa") == {"request": "p1", "round": 0, "sample": 0}
