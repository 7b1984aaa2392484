"""The checkpoint that comes with parity, by name."""

from __future__ import annotations

import pytest

from parity.plan.checkpoint import shipped_checkpoint


def test_the_shipped_checkpoint_is_found_by_its_name() -> None:
    where = shipped_checkpoint("tiny-qwen3-next-mtp")
    assert where is not None
    assert (where / "tokenizer.json").is_file()


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../models", "Qwen3-Next-80B-A3B-Instruct", "/", "a/../tiny-qwen3-next-mtp"]
)
def test_no_other_name_leads_anywhere(name: str) -> None:
    assert shipped_checkpoint(name) is None
