"""A message is data until somebody reads it."""

from __future__ import annotations

import json
import pickle

import pytest

from parity.errors import ParityError
from parity.messages import Message, joined, message, verbatim


def test_english_stands_where_it_is_made() -> None:
    said = message("test.rate", "{arm}: {rate:.1%} of {count} rows", arm="cpu/mtp", rate=0.0321, count=4)
    assert str(said) == "cpu/mtp: 3.2% of 4 rows"
    assert said.parameters["rate"] == 0.0321


def test_count_decides_the_grammar() -> None:
    texts = [
        str(message("test.count", "{count} completion is", plural="{count} completions are", count=count))
        for count in (0, 1, 2)
    ]
    assert texts == ["0 completions are", "1 completion is", "2 completions are"]


def test_other_peoples_words_are_never_translated() -> None:
    engine = verbatim("run out of {memory}")
    said = message("test.failed", "{arm} failed: {said}", arm="cpu/base", said=engine)
    catalogue = {"test.failed": "{arm} 失败：{said}"}
    assert said.render(lambda one: catalogue.get(one.id, one.template)) == "cpu/base 失败：run out of {memory}"


def test_joined_messages_are_each_translated() -> None:
    said = joined([message("a", "first"), "{theirs}", message("b", "second")], "\n{}")
    assert str(said) == "first\n{}{theirs}\n{}second"
    assert said.render(lambda one: one.template if not one.id else f"<{one.id}>") == "<a>\n{}{theirs}\n{}<b>"


def test_json_carries_id_parameters_and_text() -> None:
    inner = message("test.kind", "{count} row leaks", count=2)
    said = message("test.corrupt", "corrupt: {kinds}", kinds=[inner, "garbled"])
    value = json.loads(json.dumps(said.to_json()))
    assert value["id"] == "test.corrupt"
    assert value["text"] == "corrupt: 2 row leaks, garbled"
    again = Message.from_json(value)
    assert str(again) == str(said)
    assert again.to_json() == value
    catalogue = {"test.corrupt": "损坏：{kinds}", "test.kind": "{count} 处行泄漏"}
    assert again.render(lambda one: catalogue.get(one.id, one.template)) == "损坏：2 处行泄漏, garbled"


def test_finished_sentences_of_older_files_are_kept() -> None:
    assert str(Message.from_json("64 completions, {none} is corrupt")) == "64 completions, {none} is corrupt"
    with pytest.raises(ValueError, match="a message is"):
        Message.from_json(["no"])


def test_an_error_says_what_happened_in_a_message_or_in_words() -> None:
    what, remedy = message("test.gone", "{file} is gone", file="a.json"), message("test.name", "name another")
    error = ParityError(what, hint=remedy)
    assert (error.message, error.hint) == (what, remedy)
    assert str(error) == "a.json is gone"
    plain = ParityError("cannot read {it}", hint=None)
    assert plain.message == verbatim("cannot read {it}")
    assert plain.hint is None
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 (our own bytes)
    assert (again.message, again.hint) == (what, remedy)
