"""The far side of a command prefix that lies: `python liar.py CASE FILE [words of parity's own command]`.

What only looks at the host is run as it is. In the place of a worker it speaks the protocol, with one lie in it.
Standard library only.
"""

import json
import os
import subprocess
import sys
import time

CASE = os.environ.get("LIAR", sys.argv[1])
WORDS = sys.argv[3:]


def main() -> None:
    if "parity_worker" not in " ".join(WORDS):
        os.execvp(WORDS[0], WORDS)
    size = int(" ".join(WORDS).split("s.read(")[1].split(")")[0])
    stdin = os.fdopen(os.dup(0), "rb")
    stdin.read(size)
    job = json.loads(stdin.readline())
    plan, arm = job["plan"], job["arm"]
    Liar(plan, arm).speak(stdin)


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


class Liar:
    def __init__(self, plan, arm):  # type: ignore[no-untyped-def]
        self.plan, self.name = plan, arm
        self.arm = next(one for one in plan["arms"] if one["name"] == arm)
        self.kind, _, rest = CASE.partition(" ")
        self.field, _, self.value = rest.partition("=")

    def raw(self, data: bytes) -> None:
        os.write(1, data) if len(data) < 1 << 16 else sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def say(self, record: dict) -> None:  # type: ignore[type-arg]
        if self.kind in (record.get("record"), record.get("event")) and self.field:
            value = eval(self.value)  # its own table of lies: tests/hostile/far.py
            if value is Ellipsis:
                record.pop(self.field, None)
            else:
                record = {**record, self.field: value}
        self.raw(json.dumps(record).encode() + b"\n")

    def header(self) -> None:
        plan = self.plan
        self.say({
            "record": "header", "schema": "parity.capture/1", "arm": self.name, "backend": self.arm["backend"],
            "variant": self.arm["variant"], "model": plan["model"]["name"], "vocab_size": plan["model"]["vocab_size"],
            "eos_token_ids": plan["model"]["eos_token_ids"], "engine": {"asked": self.arm["engine"]},
            "sampling": plan["sampling"], "environment": {},
        })  # fmt: skip

    def completion(self, request: dict, round_: int, sample: int = 0) -> None:  # type: ignore[type-arg]
        length = self.plan["sampling"]["max_tokens"]
        self.say({
            "record": "completion", "request": request["id"], "round": round_, "sample": sample,
            "prompt_token_ids": request["prompt_token_ids"], "token_ids": [7 + i for i in range(length)], "text": None,
            "finish_reason": "length", "stop_reason": None, "logprobs": None,
        })  # fmt: skip

    def speak(self, stdin) -> None:  # type: ignore[no-untyped-def]
        if self.kind == "start":
            getattr(self, self.field)()
        self.header()
        for line in stdin:
            command = json.loads(line)
            if command["op"] == "exit":
                return
            if command["op"] == "generate":
                self.generate(command["rounds"])
            elif command["op"] == "score":
                self.score(command["items"])

    def generate(self, rounds: list) -> None:  # type: ignore[type-arg]
        first = self.plan["requests"][0]
        for round_ in rounds:
            for index, request in enumerate(self.plan["requests"]):
                if index == 1 and self.kind == "do":
                    getattr(self, self.field)()
                if index == 1 and self.kind.endswith(":") and "the end" not in CASE:
                    self.beside()
                self.completion(request, round_)
                self.say({"event": "progress", "running": 1, "completions": index})
            if self.kind == "again":
                while True:
                    self.completion(first, round_, 0)
            if self.kind == "samples":
                for sample in range(1 << 30):
                    self.completion(first, round_, sample)
            self.say({"record": "round", "round": round_, "counters": {"tokens": 1, "steps": 2}})
            if self.kind == "rounds":
                while True:
                    self.say({"record": "round", "round": round_, "counters": {}})
        self.say({"record": "footer", "completions": 1, "scores": 0, "counters": {"tokens": 3}})
        if self.kind == "after":
            getattr(self, self.field)()
        if self.kind.endswith(":") and "the end" in CASE:
            self.beside()

    def beside(self) -> None:
        """Steps or sketches, with a lie in them (tests/hostile/beside.py)."""
        with open(sys.argv[2], "rb") as file:
            for text in file:
                times, _, line = text.partition(b" ")
                for number, request in enumerate(self.plan["requests"]):
                    line = line.replace(b'"@%d"' % number, json.dumps(request["id"]).encode())
                left = int(times)
                while left:
                    self.raw(line)
                    left -= 1

    def score(self, items: list) -> None:  # type: ignore[type-arg]
        for item in items:
            key = {name: item[name] for name in ("arm", "request", "round", "sample")}
            self.say(dict(record="score", logprobs=[[[t, -0.5]] for t in item["token_ids"]], **key))
        self.say({"event": "scored", "sequences": 1, "tokens": 1})

    # ------------------------------------------------------------------ lies that are no field

    def nothing(self) -> None:
        time.sleep(3600)

    def end(self) -> None:
        os._exit(0)

    def fail(self) -> None:
        os._exit(1)

    def garbage(self) -> None:
        self.raw(b"\x00\xff\xfe garbage \x1b[2J\n")

    def floods(self) -> None:
        while True:
            self.raw(b"x" * 65536)

    def long_line(self) -> None:
        self.raw(b'{"record":"completion","x":"' + b"x" * (70 << 20) + b'"}\n')

    def long_event(self) -> None:
        self.raw(b'{"event":"progress","x":[' + b"1," * (20 << 20) + b"1]}\n")

    def long_events(self) -> None:
        while True:
            self.raw(b'{"event": "progress","x":"' + b"x" * (60 << 20) + b'"}\n')

    def progress(self) -> None:
        while True:
            self.say({"event": "progress", "running": 1})

    def chatter(self) -> None:
        while True:
            self.say({"event": "progress", "running": 1})
            time.sleep(0.1)

    def unknown(self) -> None:
        while True:
            self.say({"event": "x", "y": [1] * 100})

    def unknown_records(self) -> None:
        while True:
            self.say({"record": "x"})

    def nested_list(self) -> None:
        self.raw(b"[" * 200_000 + b"]" * 200_000 + b"\n")

    def nested_record(self) -> None:
        self.raw(b'{"record":"completion","x":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n")

    def second_header(self) -> None:
        self.header()

    def cut(self) -> None:
        self.raw(b'{"record":"completion","request":"p')
        os._exit(0)

    def drip(self) -> None:
        for byte in b'{"record":"completion"' * 1000:
            self.raw(bytes([byte]))
            time.sleep(0.2)

    def stderr_flood(self) -> None:
        for _ in range(200_000):
            os.write(2, b"\x1b[31mcomplaint\x07 " * 20 + b"\n")

    def holds_pipes(self) -> None:
        subprocess.Popen(["sleep", "30"], start_new_session=True, env={})
        os._exit(0)

    def closes(self) -> None:
        os.close(1)
        time.sleep(3600)

    def steps(self) -> None:
        while True:
            self.say({"record": "steps", "steps": 1, "rows": 1, "requests": [], "columns": {}})

    def early_footer(self) -> None:
        self.say({"record": "footer", "completions": 1, "scores": 0, "counters": {}})

    def score_unasked(self) -> None:
        self.say({"record": "score", "arm": "x", "request": "y", "round": 0, "sample": 0, "logprobs": []})

    def bad_utf8(self) -> None:
        self.raw(b'{"record":"completion","request":"\xff\xfe"}\n')

    def surrogate(self) -> None:
        self.raw(b'{"record":"completion","request":"\\ud800"}\n')

    def error_object(self) -> None:
        self.say({"event": "error", "type": ["x"], "message": {"a": 1}, "said": nested(200)})

    def error_text(self) -> None:
        self.say(
            {
                "event": "error",
                "type": "WorkerError",
                "message": "m",
                "said": {
                    "id": "run.exit_code",
                    "parameters": {"code": {"text": "{0.__class__}\x1b[2J"}},
                    "text": "{code}",
                },
            }
        )

    def bom(self) -> None:
        self.raw(b"\xef\xbb\xbf{}\n")

    def blank(self) -> None:
        while True:
            self.raw(b"\n" * 65536)

    def brackets(self) -> None:
        self.raw(b'{"record":"completion","request":"p","logprobs":[' + b"[]," * (20 << 20) + b"[]]}\n")


if __name__ == "__main__":
    main()
