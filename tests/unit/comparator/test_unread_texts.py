"""Texts without a tokenizer: what nothing shows of them is said."""

from __future__ import annotations

import pytest
from captures import capture, completion

from parity.comparator import Comparison, compare
from parity.records import TopLogprobs, Verdict

OWN = range(100, 140)


def near_tie(text: str | None, baselines: str | None) -> Comparison:
    """One pair is equal, one parts at a near-tie at its last token; all have this text."""
    parted = [*OWN[:-1], 777]
    top = TopLogprobs.from_json([[[token, -0.01]] for token in OWN[:-1]] + [[[OWN[-1], -0.7], [777, -0.71]]])
    base = [completion(OWN, name, text=baselines, logprobs=top) for name in ("p0", "p1")]
    other = [completion(OWN, "p0", text=text), completion(parted, "p1", text=text)]
    return compare(capture("cpu/base", *base), capture("cpu/mtp", *other))


@pytest.mark.parametrize(
    ("text", "baselines", "unread"),
    [("a text", "a text", [1]), ("a text", None, [2]), (None, "a text", [])],
    ids=["both", "candidate alone", "baseline alone"],
)
def test_what_no_tokenizer_shows_of_texts_is_said(text: str | None, baselines: str | None, unread: list[int]) -> None:
    result = near_tie(text, baselines)
    assert result.verdict is Verdict.PASS
    assert [one.parameters["count"] for one in result.reasons if one.id == "conclude.unread_texts"] == unread
