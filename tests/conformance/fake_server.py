"""An OpenAI-compatible server of a few lines, which can be made to misbehave in every way that servers do.

Its "model" is a hash: the same prompt gives the same tokens, each sample its own where sampling is random.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

import parity

MODEL = Path(parity.__file__).parent / "models" / "tiny-qwen3-next-mtp"
VOCABULARY = 2048


@dataclass
class Behaviour:
    """How a fake server behaves; a test changes it while the server runs."""

    vllm: bool = True
    """Token ids, vLLM's parameters and prompt_logprobs; else text alone, and unknown parameters are refused."""
    sglang: bool = False
    """With `vllm`: token ids as SGLang 0.5 gives them, other parameters of vLLM's passed over, logprobs of texts."""
    mode: str = ""
    """What goes wrong, from the request number `after` on (the probe at the start is number 0)."""
    after: int = 1
    salt: str = ""
    """Another salt is another model."""
    template: str = ""
    """Another template makes other prompts of the same messages."""
    models: tuple[str, ...] = ("tiny",)
    busy: int = 0
    """So many requests are answered with 503 before one is let through."""
    key: str | None = None
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """(path, body) of every POST."""
    keys: set[str | None] = field(default_factory=set)
    """The Authorization headers that came."""


class FakeServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, behaviour: Behaviour) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviour = behaviour
        self.tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
        self.lock = threading.Lock()
        self.stop = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def fake_server(**behaviour: Any) -> Iterator[FakeServer]:
    server = FakeServer(Behaviour(**behaviour))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop.set()
        server.shutdown()
        server.server_close()
        thread.join(5)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeServer

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    # ------------------------------------------------------------------ sending

    def send_json(self, value: Any, status: int = 200, **headers: str) -> None:
        self.send_body(json.dumps(value).encode(), "application/json", status, **headers)

    def send_body(self, data: bytes, kind: str, status: int = 200, cut: int = 0, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data[: len(data) - cut])
        if cut:
            self.close_connection = True

    # ------------------------------------------------------------------ calls

    def do_GET(self) -> None:
        how = self.server.behaviour
        if self.path == "/v1/models":
            owner = {"owned_by": "vllm", "max_model_len": 512} if how.vllm else {"owned_by": "somebody"}
            if how.mode == "html models":
                return self.send_body(b"<html>a login page</html>", "text/html")
            if not self.authorised():
                return None
            owner = {"owned_by": "sglang", "max_model_len": 512} if how.sglang else owner
            return self.send_json({"object": "list", "data": [{"id": name, **owner} for name in how.models]})
        if self.path == "/version" and how.vllm and not how.sglang:
            return self.send_json({"version": "0.32.0-fake"})
        if self.path == "/metrics" and how.vllm:
            asked = len(how.requests)
            text = f'# HELP x\nvllm:generation_tokens_total{{engine="0"}} {asked * 10}.0\n'
            return self.send_body(text.encode(), "text/plain")
        return self.send_json({"error": {"message": "not found"}}, 404)

    def authorised(self) -> bool:
        key = self.server.behaviour.key
        self.server.behaviour.keys.add(self.headers.get("Authorization"))
        if key is None or self.headers.get("Authorization") == f"Bearer {key}":
            return True
        self.send_json({"error": {"message": f"wrong key {self.headers.get('Authorization')}"}}, 401)
        return False

    def do_POST(self) -> None:
        how = self.server.behaviour
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.authorised():
            return None
        with self.server.lock:
            if how.busy:
                how.busy -= 1
                return self.send_json({"error": {"message": "try again"}}, 503, Retry_After="0")
            number = len(how.requests)
            how.requests.append((self.path, body))
        mode = how.mode if number >= how.after else ""
        chat = self.path.endswith("/chat/completions")
        if not how.vllm:
            known = {"model", "messages" if chat else "prompt", "stream", "stream_options", "max_tokens", "temperature"}
            known |= {"top_p", "n", "seed", "stop", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs"}
            unknown = sorted(set(body) - known)
            if unknown and how.mode == "null":
                return self.send_json(None)
            if how.mode == "text alone" and isinstance(body.get("prompt"), list):
                return self.send_json({"error": {"message": "Unmapped prompt format"}}, 500)
            if unknown:
                return self.send_json({"detail": f"unknown parameter {unknown[0]}"}, 422)
        if self.trouble(mode):
            return None
        prompt = self.prompt_ids(body, chat)
        if len(prompt) + body["max_tokens"] > 512:
            message = f"This model's maximum context length is 512 tokens, you asked for {len(prompt)}"
            return self.send_json({"error": {"message": message, "type": "BadRequestError", "code": 400}}, 400)
        choices = [self.choice(body, prompt, index, chat) for index in range(body.get("n") or 1)]
        if mode == "one of n":
            choices = choices[:1]
        if mode == "twice":
            choices = [choices[0], dict(choices[0])]
        if mode == "no ids":
            for choice in choices:
                choice["token_ids"] = None
        usage = {"prompt_tokens": len(prompt), "completion_tokens": sum(len(c.pop("ids")) for c in choices)}
        base = {"id": f"fake-{number}", "model": body["model"], "created": int(time.time())}
        if body.get("stream"):
            return self.stream(base, choices, usage, prompt if how.vllm else None, mode, chat)
        answer = {**base, "choices": choices, "usage": usage, "system_fingerprint": "fake-1"}
        if how.vllm and chat:
            answer["prompt_token_ids"] = prompt
        if mode == "cut body":
            return self.send_body(json.dumps(answer).encode(), "application/json", cut=20)
        if mode == "drip":
            return self.drip(json.dumps(answer).encode())
        return self.send_json(answer)

    def trouble(self, mode: str) -> bool:
        """Play a failure that does not look at the request; whether it did."""
        if mode == "http 500":
            self.send_json({"error": {"message": "out of \x1b[31mmemory"}}, 500)
        elif mode == "html":
            self.send_body(b"<html>Bad gateway</html>", "text/html")
        elif mode == "garbage":
            self.send_body(b'{"choices": [', "application/json")
        elif mode == "no choices":
            self.send_json({"object": "error"})
        elif mode == "redirect":
            self.send_json({}, 307, Location="http://elsewhere.example/")
        elif mode == "not http":
            self.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n")
            self.close_connection = True
        elif mode == "closes":
            self.close_connection = True
        elif mode == "busy":
            self.send_json({"error": {"message": "try later"}}, 429, Retry_After="0")
        elif mode == "hang":
            self.server.stop.wait(60)
            self.close_connection = True
        else:
            return False
        return True

    def drip(self, data: bytes) -> None:
        """A byte now and then: never silent for long, never done."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.close_connection = True
        for byte in data:
            if self.server.stop.wait(0.2):
                return
            try:
                self.wfile.write(bytes([byte]))
            except OSError:
                return

    # ------------------------------------------------------------------ the model

    def prompt_ids(self, body: dict[str, Any], chat: bool) -> list[int]:
        prompt = body.get("prompt")
        if chat:
            prompt = self.server.behaviour.template + json.dumps(body["messages"])
        ids: list[int] = prompt if isinstance(prompt, list) else self.server.tokenizer.encode(prompt).ids
        return ids

    def choice(self, body: dict[str, Any], prompt: list[int], index: int, chat: bool) -> dict[str, Any]:
        how = self.server.behaviour
        seed = f"{how.salt} {prompt} {(body.get('seed') or 0) + index if body.get('temperature') else 0}"
        wanted = body["max_tokens"]
        blocks = b"".join(hashlib.sha256(f"{seed} {n}".encode()).digest() for n in range(wanted // 16 + 1))
        ids = [300 + (blocks[2 * i] * 256 + blocks[2 * i + 1]) % 1600 for i in range(wanted)]
        text = self.server.tokenizer.decode(ids)
        if not how.vllm:  # what text alone can say: the tokens that the text is made of
            ids = self.server.tokenizer.encode(text, add_special_tokens=False).ids
        reason, stop_reason = "length", None
        for stop in body.get("stop") or []:
            at = text.find(stop)
            if at >= 0:
                kept = next(n for n in range(1, len(ids) + 1) if stop in self.server.tokenizer.decode(ids[:n]))
                ids, text, reason, stop_reason = ids[:kept], text[:at], "stop", stop
        choice: dict[str, Any] = {"index": index, "finish_reason": reason, "ids": ids}
        choice.update({"message": {"role": "assistant", "content": text}} if chat else {"text": text})
        if how.vllm:
            choice["matched_stop" if how.sglang else "stop_reason"] = stop_reason
            if body.get("return_token_ids"):
                choice["token_ids"] = ids
                if not chat:
                    choice["prompt_token_ids"] = prompt
            if body.get("prompt_logprobs") is not None and not how.sglang and how.mode != "no prompt_logprobs":
                choice["prompt_logprobs"] = [None] + [
                    {str(token): {"logprob": -0.25, "rank": 1}, "7": {"logprob": -2.0, "rank": 2}}
                    for token in prompt[1:]
                ]
        if body.get("logprobs") is not None and body.get("logprobs") is not False:
            choice["logprobs"] = self.logprobs(ids, chat)
            if how.sglang and not body.get("logprobs"):
                choice["logprobs"]["top_logprobs"] = []
        return choice

    def logprobs(self, ids: list[int], chat: bool) -> dict[str, Any]:
        how = self.server.behaviour
        as_ids = how.vllm and not how.sglang
        names = [f"token_id:{t}" if as_ids else self.server.tokenizer.decode([t]) for t in ids]
        other = "token_id:7" if not how.sglang else self.server.tokenizer.decode([7])
        if chat:
            top = {"token": other, "logprob": -2.0}
            return {"content": [{"token": n, "logprob": -0.25, "top_logprobs": [top]} for n in names]}
        return {
            "tokens": names,
            "token_logprobs": [-0.25] * len(ids),
            "top_logprobs": [{name: -0.25, other: -2.0} for name in names],
        }

    # ------------------------------------------------------------------ streaming

    def stream(
        self, base: dict[str, Any], choices: list[Any], usage: Any, prompt: list[int] | None, mode: str, chat: bool
    ) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain" if mode == "stream of another type" else "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        events = [event for choice in choices for event in self.chunks(choice, chat)]
        if mode == "loses a chunk":
            del events[1]
        if mode == "cut stream":
            events = events[: len(events) // 2]
        if mode == "repeats a chunk":
            events.insert(1, events[1])
        for number, event in enumerate(events):
            if mode == "fails in the middle" and number == 1:
                self.event({"error": {"message": "the engine died"}})
                return
            if prompt is not None and number == 0:
                (event if not chat else base)["prompt_token_ids"] = prompt
            self.event({**base, "choices": [event]})
            if chat:
                base.pop("prompt_token_ids", None)
        if mode == "cut stream":
            return
        self.event({**base, "choices": [], "usage": usage})
        self.wfile.write(b": a comment\n\ndata: [DONE]\n\n")

    def event(self, value: Any) -> None:
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")

    def chunks(self, choice: dict[str, Any], chat: bool) -> Iterator[dict[str, Any]]:
        """A choice three tokens at a time (text: a third at a time)."""
        text = choice["message"]["content"] if chat else choice["text"]
        ids, logprobs = choice.get("token_ids"), choice.get("logprobs")
        steps = 4
        width = -(-max(len(ids or ()), 1) // steps)
        for step in range(steps):
            part: dict[str, Any] = {"index": choice["index"], "finish_reason": None}
            begin, end = len(text) * step // steps, len(text) * (step + 1) // steps
            part.update({"delta": {"content": text[begin:end]}} if chat else {"text": text[begin:end]})
            rows = slice(width * step, width * (step + 1))
            if ids is not None:
                part["token_ids"] = ids[rows]
            if logprobs is not None:
                part["logprobs"] = {name: values[rows] for name, values in logprobs.items()}
            if step == steps - 1:
                part.update({name: choice.get(name) for name in ("finish_reason", "stop_reason", "matched_stop")})
            yield part
