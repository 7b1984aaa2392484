"""Which rows verify drafts, where a release says so on the device only (vLLM 0.23.0) or on the host too (0.31.0)."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from parity_faults.rows import drafting_rows


@pytest.mark.parametrize("name", ["spec_sequence_masks", "spec_sequence_masks_cpu"])
def test_the_masks_that_there_are(name: str) -> None:
    given = SimpleNamespace(**{"spec_sequence_masks": None, name: np.array([True, False])})
    assert drafting_rows(given) == [True, False]


def test_none_drafts() -> None:
    assert drafting_rows(SimpleNamespace(spec_sequence_masks=None)) is None
    assert drafting_rows(SimpleNamespace()) is None
