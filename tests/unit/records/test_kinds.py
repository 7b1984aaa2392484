"""Kinds are open: what is registered at run time is a kind like the others, and a name nobody knows is one too."""

from __future__ import annotations

import copy
import json
import pickle
import sqlite3
from collections.abc import Iterator

import orjson
import pytest

from parity.messages import message
from parity.records.kinds import Family, Kind, KindRow, forget, kinds, register

ROW = KindRow(name="token_swap", family=Family.TOKENS, title=message("kind.token_swap", "two tokens swapped"))


@pytest.fixture
def swap() -> Iterator[Kind]:
    kind = register(ROW)
    yield kind
    forget(kind)


def test_a_kind_is_its_name(swap: Kind) -> None:
    assert swap == "token_swap"
    assert str(swap) == f"{swap}" == "token_swap"
    assert type(str(swap)) is str
    assert {swap: 1}["token_swap"] == 1
    assert Kind("token_swap") is swap
    assert Kind("near_tie") is Kind.NEAR_TIE
    assert copy.deepcopy(swap) is swap
    assert pickle.loads(pickle.dumps(swap)) is swap  # noqa: S301 - our own bytes


def test_files_and_databases_take_it(swap: Kind) -> None:
    assert json.loads(json.dumps(swap)) == orjson.loads(orjson.dumps(swap)) == "token_swap"
    assert sqlite3.connect(":memory:").execute("SELECT ?, typeof(?)", (swap, swap)).fetchone() == (swap, "text")


def test_a_registered_kind_is_listed_until_it_is_forgotten(swap: Kind) -> None:
    assert kinds()[-1] is swap
    assert register(ROW) is swap
    forget(swap)
    assert swap not in kinds()


def test_a_name_is_taken_once(swap: Kind) -> None:
    with pytest.raises(ValueError, match="token_swap"):
        register(KindRow(name="token_swap", family=Family.RUN, title=message("kind.other", "other")))


def test_an_unknown_kind_has_a_row_that_repeats_its_name() -> None:
    unknown = Kind("of_a_plug_in")
    assert (str(unknown.row.title), unknown.row.level, unknown.row.colour) == ("of_a_plug_in", "error", "corrupt")
    assert unknown not in kinds()


def test_each_kind_has_a_title_and_a_question_of_its_own() -> None:
    rows = [kind.row for kind in kinds()]
    for column in ("title", "question"):
        messages = [getattr(row, column) for row in rows]
        assert len({one.id for one in messages}) == len({str(one) for one in messages}) == len(rows)
