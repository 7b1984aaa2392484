"""Every language has every sentence, with the same values in it."""

from __future__ import annotations

from string import Formatter

import pytest

from parity.errors import ParityError
from parity.records.kinds import kinds
from parity.report.texts import ENGLISH, Texts
from parity.report.texts_zh import CHINESE
from parity.report.texts_zh import KINDS as CHINESE_KINDS


def values_of(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name}


def test_chinese_has_every_sentence() -> None:
    assert set(CHINESE) == set(ENGLISH)
    for name, sentence in CHINESE.items():
        assert values_of(sentence) == values_of(ENGLISH[name]), name


def test_every_kind_has_its_words() -> None:
    assert set(CHINESE_KINDS) == set(map(str, kinds()))


def test_a_language_that_there_is_not() -> None:
    assert Texts("zh").kind("row_leak") != Texts("en").kind("row_leak")
    with pytest.raises(ParityError, match="there are no reports in 'tlh'"):
        Texts("tlh")


def test_sentences_of_the_comparison_are_translated_where_they_are_shown() -> None:
    reason = "3 of 64 completions are corrupt: row_leak"
    assert Texts("en").said(reason) == reason
    assert Texts("zh").said(reason) == "64 条补全中有 3 条损坏:row_leak"
