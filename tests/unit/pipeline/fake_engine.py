"""Appended to the real worker's source: a deterministic engine of a few lines in place of vLLM.

A token id tells how good it is: ids from 1900 up are what no reference would say. FAKE names what goes
wrong, FAKE_ARM arms whose engines alone die at their start (with FAKE_WORDS in the log), FAKE_STEP (seconds) how long a
completion takes. One in FAKE_EVERY completions of an arm that speculates parts at a near-tie.
"""

import hashlib
import json
import os
import signal
import sys
import time

MODE = os.environ.get("FAKE", "")
STEP = float(os.environ.get("FAKE_STEP", "0"))
EVERY = int(os.environ.get("FAKE_EVERY", "3"))
BAD = 1900


def stream(request, round_, length, branch=0):
    seed = hashlib.sha256(f"{request} {round_} {branch}".encode()).digest()
    return [3 + (seed[i % 32] * 7 + i * 13) % 1800 for i in range(length)]


class Arm:
    def __init__(self, plan, name, channel, stop):
        self.plan, self.name, self.channel, self.stop = plan, name, channel, stop
        self.arm = next(arm for arm in plan["arms"] if arm["name"] == name)
        self.speculates = bool(self.arm["engine"].get("speculative_config"))

    def load(self):
        with open(os.environ["FAKE_LOADED"], "a") as file:
            file.write(f"{self.name} {os.getpid()}\n")

    def start(self):
        self.channel.event("starting", pid=os.getpid())
        with open(os.environ["FAKE_STARTS"], "a") as file:
            file.write(self.name + "\n")
        if MODE == "die at start" or self.name in os.environ.get("FAKE_ARM", "").split(","):
            sys.stderr.write(os.environ.get("FAKE_WORDS", "the last words") + "\n")
            os.kill(os.getpid(), signal.SIGKILL)
        self.channel.event("ready", engine_start_seconds=0.1)
        self.channel.record(
            {
                "record": "header",
                "schema": "parity.capture/1",
                "arm": self.name,
                "backend": self.arm["backend"],
                "variant": self.arm["variant"],
                "model": self.plan["model"]["name"],
                "vocab_size": self.plan["model"]["vocab_size"],
                "eos_token_ids": self.plan["model"]["eos_token_ids"],
                "engine": {"asked": self.arm["engine"]},
                "sampling": self.plan["sampling"],
                "environment": {},
            }
        )

    def tokens(self, index, request, round_, length):
        if MODE == "swapped":  # drawn at random: arms differ, and two rows of one have each other's tokens
            other = {1: 2, 2: 1}.get(index, index) if self.speculates else index
            return stream(self.plan["requests"][other]["id"], round_, length, int(self.speculates))
        tokens = stream(request["id"], round_, length)
        if self.speculates and index % EVERY == 1:  # a near-tie: another text from there on
            at = 5 + index % max(1, length - 5)
            tokens[at:] = stream(request["id"], round_, length, 1)[at:]
        if self.speculates and MODE in ("corrupt", "misplaced") and index == 2:
            tokens[11:15] = [BAD + i for i in range(4)]
            if MODE == "corrupt":
                self.planted(request)
        if self.speculates and MODE == "overlooked" and index == 0:
            self.planted(request)  # and nothing comes of it
        return tokens

    def planted(self, request):
        text = ",".join(str(token) for token in request["prompt_token_ids"])
        prompt = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        line = json.dumps({"record": "planted", "prompt": prompt})
        sys.stderr.write("(EngineCore pid=1) parity-fault " + line + "\n")

    def generate(self, rounds):
        if MODE in ("corrupt", "overlooked", "unfit"):
            sys.stderr.write('parity-fault {"record": "installed"}\nparity-fault {"record": "pl\n')
        done = 0
        length = self.plan["sampling"]["max_tokens"]
        counters = {}
        for round_ in rounds:
            before = done
            for index, request in enumerate(self.plan["requests"]):
                if self.stop.is_set():
                    raise Stopped  # noqa: F821 - the real worker's
                time.sleep(STEP)
                record = {
                    "record": "completion",
                    "request": request["id"],
                    "round": round_,
                    "sample": 0,
                    "prompt_token_ids": request["prompt_token_ids"],
                    "token_ids": self.tokens(index, request, round_, length),
                    "text": None,
                    "finish_reason": "length",
                    "stop_reason": None,
                    "logprobs": None,
                }
                self.channel.record(record)
                done += 1
                if MODE == "die" and done == 3 and self.speculates:
                    os.kill(os.getpid(), signal.SIGKILL)
            mine = {"tokens": (done - before) * length, "generate_seconds": 0.5, "steps": length}
            mine["batch_sizes"] = {str(done - before): length}
            if self.speculates:
                drafts = 0 if MODE == "idle" else (done - before) * 10
                mine.update(drafts=drafts, draft_tokens=drafts * 2, accepted_tokens=drafts)
            add_up(counters, mine)  # noqa: F821 - the real worker's
            self.channel.record({"record": "round", "round": round_, "counters": mine})
        self.channel.record({"record": "footer", "completions": done, "scores": 0, "counters": counters})

    def said_after(self, prompt):
        """What a request may say where this text ends, token by token."""
        for request in self.plan["requests"]:
            size = len(request["prompt_token_ids"])
            if prompt[:size] == request["prompt_token_ids"]:
                said = [stream(request["id"], 0, 64, branch) for branch in (0, 1)]
                return list(zip(*said, strict=True))[len(prompt) - size :]
        raise ValueError("the prompt of no request")

    def score(self, items, top):
        for item in items:
            time.sleep(STEP)
            if MODE == "swapped":
                pairs = self.said_after(item["prompt_token_ids"])
                listed = [[[one, -0.7] for one in pair] for pair in pairs[: len(item["token_ids"])]]
                logprobs = [
                    row if token in (row[0][0], row[1][0]) else [*row, [token, -12.0]]
                    for row, token in zip(listed, item["token_ids"], strict=True)
                ]
                key = {name: item[name] for name in ("arm", "request", "round", "sample")}
                self.channel.record(dict(record="score", logprobs=logprobs, **key))
                continue
            good = [[[t, -0.5], [t % 1800 + 3, -0.6]] for t in item["token_ids"]]
            logprobs = [[[5, -0.1], [row[0][0], -9.0]] if row[0][0] >= BAD else row for row in good]
            key = {name: item[name] for name in ("arm", "request", "round", "sample")}
            self.channel.record(dict(record="score", logprobs=logprobs, **key))
        self.channel.event("scored", items=len(items), sequences=len(items), tokens=len(items))

    def close(self):
        pass
