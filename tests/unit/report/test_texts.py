"""Reports are in the language that was asked for."""

from __future__ import annotations

import pytest

from parity.errors import ParityError
from parity.messages import message
from parity.report.escape import without_paths
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


def test_each_path_of_a_list_is_cut_and_no_address() -> None:
    assert without_paths("/usr/local/nvidia/lib64:/home/me/lib") == "…/lib64:…/lib"
    assert without_paths("gpu1:/home/me/run, file:///home/me/x") == "gpu1:…/run, file://…/x"
    assert without_paths("https://a.b/c/d http://h:8000/v1") == "https://a.b/c/d http://h:8000/v1"


@pytest.mark.parametrize(
    "text", ["LD_PRELOAD=/opt/env/lib/libiomp5.so", r"C:\Users\me\model", "in ~/models/tiny, /a/b"]
)
def test_what_was_cut_before_is_not_cut_again(text: str) -> None:
    once = without_paths(text)
    assert "…/" in once
    assert without_paths(once) == once
