"""Sentences find the template they were made from; lines break where a reader expects it."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity import language
from parity.language import Catalogue, fields_of
from parity.text import cell_width, wrap

SOME = Catalogue(
    {
        "interrupted": "已中断",
        "{n:d} of {m:d} completions are corrupt: {kinds}": "{m} 条补全中有 {n} 条损坏:{kinds}",
        "{arm:w}: {sentence!t}": "{arm}:{sentence}",
        "{a} and {a}": "两个 {a}",
        "error: {message!t}": "错误:{message}",
    }
)


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("interrupted", "已中断"),
        ("3 of 64 completions are corrupt: garbled, row_leak", "64 条补全中有 3 条损坏:garbled, row_leak"),
        ("cpu/mtp: 1 of 4 completions are corrupt: omission", "cpu/mtp:4 条补全中有 1 条损坏:omission"),
        ("error: interrupted", "错误:已中断"),
        ("x and x", "两个 x"),
        ("x and y", "x and y"),
        ("never heard of it", "never heard of it"),
        ("interrupted\nnever heard of it", "已中断\nnever heard of it"),
        ("", ""),
    ],
)
def test_sentences_find_their_template(english: str, chinese: str) -> None:
    assert SOME.translate(english) == chinese


def test_fields_are_taken_over_as_they_are() -> None:
    """Text from outside that looks like a field, a format or a pattern stays what it is."""
    for text in ("{n}", "{kinds}", "%s", r"\1", "$&", "{sentence!t}", "{0.__class__}"):
        assert SOME.translate(f"1 of 2 completions are corrupt: {text}") == f"2 条补全中有 1 条损坏:{text}"


@given(st.text())
@settings(deadline=None)  # the first use reads the catalogue
def test_any_text_can_be_shown(text: str) -> None:
    assert isinstance(SOME.translate(text), str)
    assert isinstance(language.catalogue("zh").translate(text), str)


def test_translations_name_the_fields_of_their_templates() -> None:
    for english, chinese in language.catalogue("zh").messages.items():
        assert fields_of(chinese) == fields_of(english), english
        assert chinese.strip(), english


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"PARITY_LANG": "zh"}, "zh"),
        ({"PARITY_LANG": "en", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
    ],
)
def test_the_language_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str
) -> None:
    for name in ("PARITY_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert language.current() == expected
    language.use("en")
    try:
        assert language.current() == "en"
    finally:
        language.use(None)


# --------------------------------------------------------------------------- lines


@given(
    st.lists(st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=12)), st.integers(20, 90)
)
def test_english_breaks_as_textwrap_breaks_it(words: list[str], columns: int) -> None:
    text = " ".join(words)
    expected = textwrap.wrap(text, columns, initial_indent="- ", subsequent_indent="  ", break_long_words=False)
    if text:
        assert wrap(text, columns, first="- ", other="  ") == expected


def test_chinese_breaks_between_characters_but_not_before_a_full_stop() -> None:
    lines = wrap("这一次运行没有发现任何损坏。请看 `parity runs show` 的输出,再决定下一步。", 20)
    assert all(cell_width(line) <= 20 for line in lines)
    assert not any(line[0] in "。,、" for line in lines)
    assert "".join(lines).replace(" ", "") == "这一次运行没有发现任何损坏。请看`parityrunsshow`的输出,再决定下一步。"


@given(st.text(st.sampled_from("汉字。,a b/`"), max_size=60), st.integers(12, 40))
def test_no_line_is_too_wide_that_could_be_broken(text: str, columns: int) -> None:
    for line in wrap(text, columns):
        assert cell_width(line) <= columns or " " not in line
