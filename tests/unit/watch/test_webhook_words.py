"""The address of a webhook is a secret: nothing that a receiver says brings it out, and odd ones are no crash."""

from __future__ import annotations

import io
from email.message import Message as Headers
from urllib.error import HTTPError

import pytest

from parity.errors import ParityError
from parity.records import Verdict
from parity.watch.webhook import Webhook

SECRET = "T0AbCdEf/B0secret"


def failing(url: str, error: Exception, patch: pytest.MonkeyPatch) -> str:
    said: list[str] = []
    hook = Webhook(url, frozenset({Verdict.DIVERGED}), lambda line: said.append(str(line)))

    def fail(*_: object, **__: object) -> None:
        raise error

    patch.setattr("urllib.request.OpenerDirector.open", fail)
    hook._sent({"text": "x"})
    (line,) = said
    return line


@pytest.mark.parametrize("part", ["T0AbCdEf", "B0secret", "tokenvalue", "passphrase"])
def test_what_a_receiver_says_back_is_blanked(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"https://user:passphrase@hooks.example/services/{SECRET}?t=tokenvalue"
    line = failing(url, HTTPError(url, 403, f"no {part} for {part}", Headers(), io.BytesIO()), monkeypatch)
    assert "HTTP 403 no *** for ***" in line
    assert part not in line


def test_what_it_says_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    line = failing("https://hooks.example/x", ValueError("y" * 5000), monkeypatch)
    assert len(line) < 600


@pytest.mark.parametrize(
    "url",
    ["ftp://h/secret0", "http://[::1/secret0", "http://h:x/secret0", "http://h:99999999/secret0", "h/secret0",
     "http://h/secret0 b", "http://h/secret0\r\nX: y", "http:///secret0", "http://h/\x1b[2Jsecret0"],
)  # fmt: skip
def test_what_is_no_address_is_refused_without_saying_it(url: str) -> None:
    with pytest.raises(ParityError) as caught:
        Webhook(url, frozenset(), lambda _: None)
    assert "secret0" not in str(caught.value)
