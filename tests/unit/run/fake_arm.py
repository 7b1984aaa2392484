"""Appended to the real worker's source in tests: an engine of a few lines in place of vLLM.

What it does wrong is named by the environment variable FAKE, which reaches it the way an arm's `env` does.
"""

import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time

MODE = os.environ.get("FAKE", "")
DEVICES = os.environ.get("FAKE_DEVICES", "")
if " on " in MODE:  # the trouble of one replica
    MODE = MODE.split(" on ")[0] if MODE.endswith(" on " + DEVICES) else ""


def fake_tokens(request, round_, length):
    seed = hashlib.sha256(f"{request} {round_}".encode()).digest()
    return [seed[i % 32] for i in range(length)]


RANKS_FILE = os.environ.get("FAKE_RANKS", "")
LOADED_FILE = os.environ.get("FAKE_LOADED", "")
"""What is loaded and started, a line each, with the process that does it."""
HELD_FILE = os.environ.get("FAKE_HELD", "")
"""While it is there, somebody else has the memory of the devices."""


def deaf():
    """A rank in a collective: it hears nothing but SIGKILL."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    time.sleep(600)


def start_ranks():
    """Two of them, as vLLM's executor of several devices has; their ids in a file."""
    ranks = [multiprocessing.get_context("fork").Process(target=deaf, daemon=True) for _ in range(2)]
    for rank in ranks:
        rank.start()
    with open(RANKS_FILE, "a") as file:
        file.writelines(f"{rank.pid}\n" for rank in ranks)
    return ranks


class Arm:
    def __init__(self, plan, name, channel, stop):
        self.plan, self.name, self.channel, self.stop = plan, name, channel, stop
        self.arm = next(arm for arm in plan["arms"] if arm["name"] == name)

    def settle(self, seconds):
        wait_for_memory(0.8, seconds, 2, pause=0.01)  # noqa: F821 - the real worker's

    def load(self):
        if MODE == "die while loading":
            sys.stderr.write("the last words\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        self.note("load")

    def note(self, what):
        if LOADED_FILE:
            with open(LOADED_FILE, "a") as file:
                file.write(f"{what} {os.getpid()}\n")

    def start(self):
        self.note("start")
        self.ranks = start_ranks() if RANKS_FILE else []
        self.channel.event("starting", pid=os.getpid())
        print("loading weights", flush=True)
        sys.stderr.write("\x1b[31mred\x1b[0m line with \x07 bell\n")
        sys.stderr.flush()
        if MODE == "die at start":
            sys.stderr.write("the last words\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        if MODE == "error at start":
            raise RuntimeError("no such\x1b[2J checkpoint")
        if HELD_FILE and os.path.exists(HELD_FILE):
            sys.stderr.write(
                "ERROR (Worker_TP1) ValueError: Free memory on device npu:1 (7.4/60.9 GiB) on startup is less than "
                "desired GPU memory utilization (0.8, 48.7 GiB).\n" + "  a line of its leader's complaint\n" * 60
            )
            raise RuntimeError("WorkerProc initialization failed due to an exception in a background process.")
        if MODE == "late out of memory":
            raise RuntimeError("NPU out of memory. Tried to allocate 9.25 GiB (NPU 0; 60.96 GiB total capacity)")
        if MODE == "hang at start":
            time.sleep(600)
        self.channel.event("ready", engine_start_seconds=0.1)
        header = {
            "record": "header",
            "schema": "parity.capture/1",
            "arm": "another" if MODE == "wrong arm" else self.name,
            "backend": "fake",
            "variant": "base",
            "model": self.plan["model"]["name"],
            "engine": {"asked": self.arm["engine"], "fake": os.environ.get("FAKE_ENGINE", "1")},
            "sampling": self.plan["sampling"],
            "environment": {"versions": {"vllm": "0"}},
            "plan_digest": plan_digest(self.plan),  # noqa: F821 - the real worker's
        }
        if MODE == "odd":
            header["engine"]["fake"] = "another"
        if MODE == "other plan":
            header["plan_digest"] = "f" * 64
        if MODE == "other checkpoint":
            header["model_fingerprint"] = {"config.json": "1" * 64}
        self.channel.record(header)

    def generate(self, rounds):
        done = 0
        drafts = 0
        for round_ in rounds:
            for request in self.plan["requests"]:
                for sample in range(self.plan["sampling"]["n"]):
                    if self.stop.is_set():
                        raise Stopped  # noqa: F821 - the real worker's
                    self.misbehave(done)
                    tokens = fake_tokens(request["id"], round_, 6)
                    if MODE == "different":
                        tokens = [*tokens[:-1], 255 - tokens[-1]]
                    self.channel.record(
                        {
                            "record": "completion",
                            "request": "stranger" if MODE == "stranger" and done == 3 else request["id"],
                            "round": round_,
                            "sample": sample,
                            "prompt_token_ids": request["prompt_token_ids"],
                            "token_ids": "abc" if MODE == "wrong type" and done == 3 else tokens,
                            "text": "t",
                            "finish_reason": "length",
                            "stop_reason": None,
                            "logprobs": None,
                            "spec": {"accepted": [1, 2], "drafted": [2, 2]},
                            "surplus": "x",
                        }
                    )
                    done += 1
                    drafts += 2
                    self.channel.event("progress", running=1, completions=done, tokens=done * 6)
        if self.plan.get("record"):
            self.record_steps(len(rounds))
        if MODE == "die before footer":
            os.kill(os.getpid(), signal.SIGKILL)
        counters = {"drafts": drafts, "tokens": done * 6, "generate_seconds": 0.5}
        self.channel.record({"record": "footer", "completions": done, "scores": 0, "counters": counters})

    def record_steps(self, steps):
        """A step for each round, all of one row."""
        self.channel.record({"record": "steps_header", "schema": "parity.steps/1", "arm": self.name})
        ones = np.ones(steps, dtype=np.int64)  # noqa: F821 - the real worker's
        columns = {"step": np.arange(steps), "rows": ones, "request": ones * 0}  # noqa: F821
        block = {"record": "steps", "steps": steps, "rows": steps, "requests": [{"number": 0, "request": "p0"}]}
        self.channel.record({**block, **pack_block(columns)})  # noqa: F821

    def misbehave(self, done):
        if MODE == "noisy":
            print("garbage on stdout", flush=True)
            os.write(1, b'{"record": "completion"}\n')
            subprocess.run(["echo", "a child's garbage"], check=True)
        if MODE == "slow":
            time.sleep(0.05)
        if MODE == "chatty":
            sys.stderr.write(("x" * 200 + "\n") * 200)
        if done != (2 if DEVICES else 3):
            return
        if MODE == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if MODE == "hang":
            time.sleep(600)
        if MODE == "rank dies":
            self.ranks[1].kill()
            self.ranks[1].join()
            raise RuntimeError("Worker proc VllmWorker-1 died unexpectedly, shutting down executor.")
        if MODE == "garbage":
            os.write(self.channel.fd, b"Traceback: \x1b[2J nonsense\n")
        if MODE == "not an object":
            os.write(self.channel.fd, b"[1, 2]\n")
        if MODE == "truncated":
            os.write(self.channel.fd, b'{"record":"completion","request":"p')
            os._exit(0)
        if MODE == "oversized":
            os.write(self.channel.fd, b'{"record":"' + b"x" * 300000 + b'"}\n')
        if MODE == "endless":
            while True:
                os.write(self.channel.fd, b"x" * 65536)
        if MODE == "nested":
            os.write(self.channel.fd, b"[" * 100000 + b"\n")
        if MODE == "full disk":
            with open(os.environ.get("FAKE_DISK", "/dev/full"), "w") as file:
                file.write("x" * 1000000)
        if MODE == "error":
            raise ValueError("request 'p1': the prompt is too long")

    def score(self, items, top):
        distinct = set()
        if MODE == "no memory to score" and max(len(item["token_ids"]) for item in items) > 6:
            raise RuntimeError("CUDA out of memory. Tried to allocate 1.16 GiB.")
        for number, item in enumerate(items):
            key = {name: item[name] for name in ("arm", "request", "round", "sample")}
            if MODE == "die" and number == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            if max(item["token_ids"]) > 999:
                self.channel.event("unscored", key=key, reason="a token id outside the vocabulary")
                continue
            distinct.add(tuple(item["token_ids"]))
            logprobs = [[[token, -0.5], [0, -1.0]] for token in item["token_ids"]]
            self.channel.record(dict(record="score", logprobs=logprobs[1:] if MODE == "short" else logprobs, **key))
        self.channel.event("scored", items=len(items), sequences=len(distinct), tokens=len(items))

    def close(self):
        if MODE == "hang at end":
            time.sleep(600)
