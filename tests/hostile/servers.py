"""An OpenAI-compatible server that lies: it may end its own arm, and nothing else, and its key comes out nowhere."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from asked import Asked
from judging import KEY, Ended, place

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))

from fake_server import Behaviour, FakeServer, Handler

MIB = 700
SECONDS = 90.0
TIMEOUT = 5

Change = Callable[[dict[str, Any]], Any]
"""Changes an honest answer of a completion; what it gives back, if anything, is sent in its place."""
Deed = Callable[["Liar", bytes], object]
"""Sends something in the place of an honest answer."""


def deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def choice(**fields: Any) -> Change:
    """Each choice with these fields."""

    def change(answer: dict[str, Any]) -> None:
        for one in answer["choices"]:
            one.update(fields)

    return change


def top(**fields: Any) -> Change:
    return lambda answer: answer.update(fields)


def logprobs(**fields: Any) -> Change:
    def change(answer: dict[str, Any]) -> None:
        for one in answer["choices"]:
            one["logprobs"] = {"tokens": ["token_id:5"], "token_logprobs": [-1.0], "top_logprobs": [{}], **fields}

    return change


CHANGES: dict[str, Change] = {
    "ids of strings": choice(token_ids=["x"]), "ids of 2^70": choice(token_ids=[2**70]), "ids negative": choice(token_ids=[-5] * 8),
    "ids of floats": choice(token_ids=[1.5]), "ids of lists": choice(token_ids=[[1]]), "ids nested": choice(token_ids=deep(500)),
    "a million ids": choice(token_ids=[5] * 1_000_000), "no ids": choice(token_ids=[]), "ids an object": choice(token_ids={}),
    "text of a number": choice(text=5), "text of 20 MB": choice(text="x" * (20 << 20)), "text that moves": choice(text="\x1b[2J\x9b31m\u202e\x00"),
    "text of half a character": choice(text="\ud800"), "reason of a list": choice(finish_reason=[]), "reason of 1 MB": choice(finish_reason="x" * (1 << 20)),
    "reason that moves": choice(finish_reason="\x1b]0;owned\x07"), "stop reason of an object": choice(stop_reason={}),
    "index negative": choice(index=-1), "index of 2^70": choice(index=2**70), "index of 999": choice(index=999), "index of text": choice(index="x"),
    "prompt ids others": choice(prompt_token_ids=[1, 2, 3]), "prompt ids of text": choice(prompt_token_ids="x"),
    "prompt of a million ids": choice(prompt_token_ids=[5] * 1_000_000),
    "logprobs of text": choice(logprobs="x"), "logprobs of nothing": logprobs(tokens=None, token_logprobs=None),
    "logprobs not numbers": logprobs(token_logprobs=["x"]), "logprobs infinite": logprobs(token_logprobs=[1e999]),
    "logprobs of a dictionary": logprobs(top_logprobs={}), "logprobs wide": logprobs(top_logprobs=[{f"token_id:{n}": -1.0 for n in range(100_000)}]),
    "logprobs long": logprobs(tokens=["token_id:5"] * 300_000, token_logprobs=[-1.0] * 300_000, top_logprobs=[{}] * 300_000),
    "logprobs of odd tokens": logprobs(tokens=["token_id:" + "9" * 5000]), "content of numbers": choice(logprobs={"content": [5, None, {}]}),
    "prompt logprobs of text": choice(prompt_logprobs="x"), "prompt logprobs odd": choice(prompt_logprobs=[None, {"x": {"logprob": "y"}}, 5]),
    "usage of text": top(usage="x"), "usage odd": top(usage={"prompt_tokens": -1, "completion_tokens": 2**70}), "id of 30 MB": top(id="x" * (30 << 20)),
    "model an object": top(model={"x": deep(100)}), "fingerprint that moves": top(system_fingerprint="\x1b[2J" * 100),
    "no choices": top(choices=[]), "choices of numbers": top(choices=[5]), "choices an object": top(choices={}),
    "ten thousand choices": lambda answer: top(choices=[{**answer["choices"][0], "index": n} for n in range(10_000)])(answer),
    "two of one choice": lambda answer: answer["choices"].append(answer["choices"][0]),
    "nested answer": top(x=deep(900)), "a list": lambda answer: [answer], "a number": lambda answer: 5, "null": lambda answer: [None],
    "key as text": choice(text=f"my key is {KEY}"), "key as a reason": choice(finish_reason=KEY), "key as the fingerprint": top(system_fingerprint=KEY),
    "key as the id": top(id="x" * 195 + KEY), "key in base64": choice(text=base64.b64encode(b"Bearer " + KEY.encode()).decode()),
    "key in the model": top(model=KEY), "key as an error": lambda answer: {"error": {"message": f"Bearer {KEY} is wrong"}},
    "key at the cut": lambda answer: {"error": {"message": "x" * 292 + KEY}}, "key as a number's field": lambda answer: {KEY: 1, "choices": [{KEY: 1}]},
}  # fmt: skip


def raw(data: bytes) -> Deed:
    def send(handler: Liar, honest: bytes) -> None:
        handler.wfile.write(data)
        handler.close_connection = True

    return send


def body(data: bytes, kind: str = "application/json", status: int = 200, **headers: str) -> Deed:
    return lambda handler, honest: handler.send_plain(data, kind, status, **headers)


def endless(piece: bytes, pause: float = 0.0) -> Deed:
    def send(handler: Liar, honest: bytes) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            handler.wfile.write(piece)
            if pause and handler.server.stop.wait(pause):
                break
        handler.close_connection = True

    return send


def waits(handler: Liar, honest: bytes) -> None:
    handler.server.stop.wait(SECONDS)
    handler.close_connection = True


def packed(handler: Liar, honest: bytes) -> None:
    handler.send_plain(gzip.compress(b"x" * (200 << 20)), "application/json", Content_Encoding="gzip")


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
DEEDS: dict[str, Deed] = {
    "not HTTP": raw(b"SSH-2.0-x\r\n"), "500 headers": raw(OK + b"X-A: y\r\n" * 500 + b"\r\n{}"), "a header of 1 MB": raw(OK + b"X: " + b"y" * (1 << 20)),
    "half a status": raw(b"HTTP/1.1 2"), "status of 999": raw(b"HTTP/1.1 999 x\r\n\r\n"), "status of text": raw(b"HTTP/1.1 x y\r\n\r\n"),
    "length negative": raw(OK + b"Content-Length: -5\r\n\r\n{}"), "length of text": raw(OK + b"Content-Length: x\r\n\r\n{}"),
    "length of 2^62": raw(OK + b"Content-Length: 4611686018427387904\r\n\r\n{}"), "chunk of 2^62": raw(OK + b"Transfer-Encoding: chunked\r\n\r\n3fffffffffffffff\r\n{}"),
    "chunk of text": raw(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}"), "chunk negative": raw(OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n{}"),
    "endless 100": raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000), "endless body": endless(b"x" * 65536), "endless blanks": endless(b" " * 65536),
    "endless lists": endless(b"[" * 65536), "drip": endless(b" ", 0.2), "waits": waits, "closes": raw(b""), "45 MB of lists": body(b"[" + b"[]," * (15 << 20) + b"0]"),
    "40 MB of numbers inside": body(b'{"choices":[' + b"1," * (20 << 20) + b"0]}"), "12 MB of numbers": body(b"[" + b"1," * (6 << 20) + b"0]"),
    "40 MB of numbers": body(b"[" + b"1," * (20 << 20) + b"0]"), "deep": body(b"[" * 300_000 + b"]" * 300_000), "not UTF-8": body(b'{"choices":"\xff\xfe"}'),
    "NaN": body(b'{"choices":[{"index":NaN,"text":"x"}]}'), "digits": body(b'{"choices":[{"index":' + b"9" * 100_000 + b"}]}"), "gzip bomb": packed,
    "redirect": body(b"{}", status=307, Location="http://127.0.0.1:1/" + KEY), "redirect to a file": body(b"{}", status=302, Location="file:///etc/passwd"),
    "retry of 10^9": body(b"{}", status=503, Retry_After="1000000000"), "retry of a superscript": body(b"{}", status=429, Retry_After="\u00b2"),
    "401 with the key": body(json.dumps({"error": {"message": f"bad key {KEY}"}}).encode(), status=401), "500 that moves": body(b"\x1b[2J\x1b]0;x\x07", "text/plain", 500),
    "key as content type": body(b"x", f"text/{KEY}"), "HTML": body(b"<html><script>alert(1)</script>" + KEY.encode(), "text/html"),
    "key in a header": body(b"<", Server=KEY),
}  # fmt: skip

METRICS: dict[str, bytes] = {
    "position of 2e9": b'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="2000000000"} 1\n',
    "infinite": b"vllm:generation_tokens_total 1e999\nvllm:prompt_tokens_total e.+-\n", "digits": b"vllm:generation_tokens_total " + b"9" * 500_000 + b"\n",
    "labels": b'vllm:generation_tokens_total{' + b'a="b",' * 500_000 + b"} 1\n", "many": b"".join(b"vllm:generation_tokens_total{e=\"%d\"} 1\n" % n for n in range(300_000)),
    "not text": b"\xff\xfe\x00" * 100_000, "the key": b"vllm:generation_tokens_total{k=\"" + KEY.encode() + b"\"} 1\n",
}  # fmt: skip

MODELS: dict[str, Any] = {
    "of text": "x", "a number": {"data": [{"id": 5}]}, "many": {"data": [{"id": f"m{n}"} for n in range(100_000)]}, "nested": {"data": deep(900)},
    "that moves": {"data": [{"id": "\x1b[2J", "owned_by": "\x1b[2J", "root": {}, "max_model_len": "x"}]}, "the key": {"data": [{"id": KEY}]},
    "of 2^70": {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 2**70}]}, "negative": {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": -1}]},
}  # fmt: skip

STREAMS: dict[str, list[bytes]] = {
    "not JSON": [b"data: {\n\n"], "nested": [b"data: " + b"[" * 100_000 + b"\n\n"], "a line of 30 MB": [b"data: " + b"x" * (30 << 20)],
    "endless comments": [b": x\n" * 1000] * 100_000, "endless chunks": [b'data: {"choices":[{"index":0,"text":"x","token_ids":[5]}]}\n\n'] * 2_000_000,
    "empty events": [b"\n\n" * 1000] * 50_000, "data without end": [b"data: 1\n"] * 5_000_000, "two ends": [b'data: {"choices":[{"index":0,"text":"","finish_reason":"stop"}]}\n\n'] * 5 + [b"data: [DONE]\n\n"],
    "the key": [b'data: {"error":{"message":"' + KEY.encode() + b'"}}\n\n'], "the key in two": [b'data: {"choices":[{"index":0,"text":"sk-HOSTILE"}]}\n\n', b"data: x\n\n"],
    "choices of null": [b'data: {"choices":[null]}\n\n'], "delta of a list": [b'data: {"choices":[{"index":0,"delta":[1]}]}\n\n'],
}  # fmt: skip

CASES = [
    *(f"answer: {name}" for name in CHANGES), *(f"deed: {name}" for name in DEEDS), *(f"first: {name}" for name in ("not HTTP", "waits", "45 MB of lists", "deep", "endless body", "redirect")),
    *(f"metrics: {name}" for name in METRICS), *(f"models: {name}" for name in MODELS), *(f"stream: {name}" for name in STREAMS),
]  # fmt: skip


class Liar(Handler):
    """Honest but for one thing, which the name of its case says."""

    case = ""

    def lies_now(self) -> bool:
        """`first`: in its first answer already; else once the probe at the start is over."""
        return self.case.startswith("first") or len(self.server.behaviour.requests) > 2

    def send_plain(self, data: bytes, kind: str, status: int = 200, **headers: str) -> None:
        super().send_body(data, kind, status, **headers)

    def send_body(self, data: bytes, kind: str, status: int = 200, cut: int = 0, **headers: str) -> None:
        what, _, name = self.case.partition(": ")
        if self.path == "/metrics" and what == "metrics":
            return self.send_plain(METRICS[name], "text/plain")
        if what == "like":
            from likes import REPORTS

            return self.send_plain(json.dumps(REPORTS[name]).encode(), kind)
        if self.path == "/v1/models" and what == "models":
            return self.send_plain(json.dumps(MODELS[name]).encode(), kind)
        lied = {"answer": CHANGES, "deed": DEEDS, "first": DEEDS}.get(what)
        if lied is None or not self.lies_now() or (self.command == "GET" and what != "first"):
            return self.send_plain(data, kind, status, **headers)
        with contextlib.suppress(OSError):
            if what == "answer":
                answer = json.loads(data)
                other = CHANGES[name](answer)
                self.send_plain(json.dumps(answer if other is None else other).encode(), kind)
            else:
                DEEDS[name](self, data)
        return None

    def stream(self, *args: Any) -> None:
        what, _, name = self.case.partition(": ")
        if what != "stream" or not self.lies_now():
            return super().stream(*args)
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        self.close_connection = True
        with contextlib.suppress(OSError):
            for piece in STREAMS[name]:
                self.wfile.write(piece)
        return None

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            super().handle()


def serve(case: str) -> None:
    """Lie until stdin ends."""
    server = FakeServer(Behaviour())
    server.RequestHandlerClass = type("Liar", (Liar,), {"case": case})
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.url, flush=True)
    sys.stdin.read()


@contextlib.contextmanager
def liar(case: str) -> Iterator[str]:
    """The URL of a server that tells this lie, in a process of its own: its memory is not the command's."""
    command = [sys.executable, __file__, case]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def campaign(asked: Asked) -> Iterator[Ended]:
    """Each lie by a candidate beside an honest baseline; every third case asks for logprobs."""
    some = ("answer: ids of 2^70", "answer: key as text", "metrics: position of 2e9")
    for number, case in enumerate(some if asked.short else asked.piece(CASES), asked.first):
        with place() as here, liar(case) as url:
            options = [
                f"timeout={TIMEOUT}",
                "retries=1",
                "api_key_env=HOSTILE_KEY",
                f"stream={str(case.startswith('stream')).lower()}",
            ]
            logprobs = ("--logprobs", "1") if number % 3 == 0 or "logprob" in case else ()
            yield here.run(
                case, "run", "--backends", "fake", "--variants", "base", "--server", f"evil={url}", "--suite", "smoke",
                "--max-tokens", "8", "--out", "run", *(word for one in options for word in ("--server-option", one)), *logprobs,
                seconds=SECONDS, mib=MIB,
            )  # fmt: skip


if __name__ == "__main__":
    serve(sys.argv[1])
