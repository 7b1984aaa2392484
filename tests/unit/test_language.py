"""The language of the environment; messages in words of it; lines break where a reader expects it."""

from __future__ import annotations

import re
import textwrap

import pytest
from babel.messages.pofile import read_po
from hypothesis import given
from hypothesis import strategies as st

from parity import language
from parity.language import in_a_row, render
from parity.messages import Message, joined, literal, message, verbatim
from parity.text import cell_width, wrap

LEAK = message("kind.row_leak", "tokens of another request")


def test_a_message_is_looked_up_by_its_id() -> None:
    assert render(LEAK, "en") == "tokens of another request"
    assert render(LEAK, "zh") == "来自其他请求的 token"
    assert render(message("cli.error", "error: {what}", what=LEAK), "zh") == "错误：来自其他请求的 token"


def test_without_a_translation_it_is_english() -> None:
    said = message("test.never_heard_of", "{count} row is", plural="{count} rows are", count=2)
    assert render(said, "zh") == "2 rows are"
    assert render(message("test.other", "in {kind}", kind=LEAK), "zh") == "in 来自其他请求的 token"
    assert render(LEAK, "de") == "tokens of another request"


@pytest.mark.parametrize(
    "words", ["run out of memory", "it has no attribute foo", "interrupted", "", "{what}", "{0.x}"]
)
def test_words_of_others_stay_as_they_are(words: str) -> None:
    for said in (words, verbatim(words)):
        assert render(said, "zh") == words
        assert render(message("cli.error", "error: {what}", what=said), "zh") == f"错误：{words}"


@given(st.text())
def test_any_text_can_be_shown(text: str) -> None:
    assert render(verbatim(text), "zh") == text
    assert literal(text).format() == text


def test_a_file_of_another_version_cannot_break_a_page() -> None:
    """The translation asks for a parameter that the message of the file does not have."""
    read = Message.from_json({"id": "cli.error", "parameters": {"other": 1}, "text": "error: {something}"})
    assert render(read, "zh") == "error: {something}"


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


APART = re.compile(r"\{[^{}]*\}|`[^`]*`")
"""Placeholders and code."""

HALF = re.compile(r"(?<=[一-鿿])[,;:?!()]|[,;:?!()](?=[一-鿿])")
"""Half-width punctuation beside a Chinese character."""


def test_chinese_has_full_width_punctuation() -> None:
    path = language.CATALOGUES / "zh" / "LC_MESSAGES" / "parity.po"
    with path.open("rb") as file:
        entries = [(one.id, one.string) for one in read_po(file) if one.id]
    texts = [(id, one) for id, text in entries for one in ([text] if isinstance(text, str) else text)]
    assert len(texts) > 2000
    assert [(id, text) for id, text in texts if HALF.search(APART.sub(" ", text))] == []


def test_chinese_sentences_stand_in_a_row_without_blanks() -> None:
    assert in_a_row(["又输出了一遍。", "差距 2.38 nats。"]) == "又输出了一遍。差距 2.38 nats。"
    assert in_a_row(["One.", "Two.", "三。", "four"]) == "One. Two. 三。four"
    assert in_a_row([]) == ""


@pytest.mark.parametrize("by", ["", "\n", "; {x} "])
def test_what_was_joined_is_translated_after_it_was_stored(by: str) -> None:
    """JSON keeps the English text and the parts."""
    known = message("explain.number.reads", "reads a state:")
    said = joined([known, "{a} b", known], by)
    again = Message.from_json(said.to_json())
    assert render(again, "zh") == render(said, "zh") == by.join(["读取状态：", "{a} b", "读取状态："])
    assert str(again) == str(said)


@given(st.text(), st.dictionaries(st.sampled_from(["part_0", "part_1", "x"]), st.text()))
def test_parts_that_do_not_make_the_text_change_nothing(text: str, parts: dict[str, str]) -> None:
    said = Message.from_json({"id": "", "text": text, "parameters": parts})
    assert render(said, "zh") == text
