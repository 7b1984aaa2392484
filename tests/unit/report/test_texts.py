"""Reports are in the language that was asked for."""

from __future__ import annotations

import pytest

from parity.errors import ParityError
from parity.messages import message
from parity.report.texts import Texts


def test_a_language_that_there_is_not() -> None:
    assert Texts("zh").kind("row_leak") != Texts("en").kind("row_leak")
    with pytest.raises(ParityError, match="there are no reports in 'tlh'"):
        Texts("tlh")


def test_what_the_comparison_said_is_translated_where_it_is_shown() -> None:
    kind = message("kind.row_leak", "tokens of another request")
    assert Texts("en").said(kind) == "tokens of another request"
    assert Texts("zh").said(kind) == Texts("zh").kind("row_leak")
    assert Texts("zh").said("the engine's own words") == "the engine's own words"
