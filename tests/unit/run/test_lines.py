"""Lines of a worker that come in pieces, and several at once."""

from __future__ import annotations

import io
import json
import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity_backends.vllm.worker import arm as worker_arm
from parity_backends.worker import protocol

from parity.run.lines import lines_of

LONGEST = 12
"""Bytes of a line, its end among them."""


class InPieces(io.RawIOBase):
    """Gives what was cut to pieces, one at each reading."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = [one for one in pieces if one]

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        piece = self.pieces.pop(0) if self.pieces else b""
        into[: len(piece)] = piece
        return len(piece)


@given(st.lists(st.text("ab\n", max_size=9).map(str.encode), max_size=12))
def test_lines_are_those_of_the_whole_however_it_is_cut(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    expected = io.BytesIO(whole).readlines()
    long = next((n for n, line in enumerate(expected) if len(line) > LONGEST), None)
    if long is not None:
        expected = [*expected[:long], expected[long][: LONGEST + 1]]
    found = list(lines_of(io.BufferedReader(InPieces(pieces)), LONGEST))
    assert [line for some in found for line in some] == expected
    assert all(found)


def test_what_came_together_is_handed_over_together() -> None:
    stream = io.BufferedReader(InPieces([b"a\nb\nc", b"c\nd\n"]))
    assert list(lines_of(stream, LONGEST)) == [[b"a\n", b"b\n"], [b"cc\n", b"d\n"]]


@pytest.mark.parametrize("most", [protocol.MOST_AT_ONCE, 1])
def test_records_written_together_are_lines_of_their_own(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MOST_AT_ONCE", most)
    written: list[str] = []
    channel = SimpleNamespace(_write=written.append)
    records = [{"record": "completion", "sample": number} for number in range(3)]
    protocol.Channel.records(channel, iter(records))  # type: ignore[arg-type]
    assert [json.loads(line) for line in "\n".join(written).split("\n")] == records
    assert len(written) == (1 if most > 1 else 3)
    written.clear()
    protocol.Channel.records(channel, [])  # type: ignore[arg-type]
    assert not written


def test_a_written_line_ends_where_the_next_begins() -> None:
    read, write = os.pipe()
    channel = SimpleNamespace(fd=write)
    for text in ("one", "two\nthree"):
        protocol.Channel._write(channel, text)  # type: ignore[arg-type]
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        assert stream.read() == b"one\ntwo\nthree\n"


def test_requests_with_nothing_of_their_own_share_their_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = SimpleNamespace(RequestOutputKind=SimpleNamespace(CUMULATIVE="as it grows"))
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", kinds)

    def asked(planned: dict[str, Any], **own: Any) -> Any:
        arm = SimpleNamespace(plan={"sampling": planned}, shared={}, no_logprobs=None)
        arm._params = lambda request, round_: SimpleNamespace(output_kind="whole", of=request["id"])
        requests = [{"id": name, "prompt_token_ids": [1], **own} for name in ("a", "b")]
        return [worker_arm.Arm._asked(arm, one, 0, whole) for whole in (True, False) for one in requests]  # type: ignore[arg-type]

    whole, again, growing, too = asked({"temperature": 0.0, "seed": 3})
    assert whole is again
    assert growing is too
    assert (whole.output_kind, growing.output_kind) == ("whole", "as it grows")
    for planned, own in (
        ({"temperature": 1.0, "seed": 3}, {}),
        ({"temperature": 0.0}, {"max_tokens": 4}),
        ({"temperature": 0.0}, {"sampling": {"min_tokens": 2}}),
    ):
        assert [one.of for one in asked(planned, **own)] == ["a", "b", "a", "b"]
