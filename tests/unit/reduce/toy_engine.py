"""Appended to the real worker's source: an engine of a few lines that fails now and then, and only where it is told to.

TOY is JSON: `rate` per step, the requests it `needs` in the batch, the engine version it `begins` or `ends` with,
whether it `spares` arms without speculation, the step from which it is mended (`until`). Its draws are a function of
the step, which goes on counting while the engine is up.
"""
# ruff: noqa: F821 - numpy and what makes blocks of steps are the real worker's

import hashlib
import json
import os
import random

TOY = json.loads(os.environ["TOY"])
BAD = 1900


def stream(tokens, length):
    seed = hashlib.sha256(repr(tokens).encode()).digest()
    return [3 + (seed[i % 32] * 7 + i * 13) % 1800 for i in range(length)]


class Arm:
    def __init__(self, plan, name, channel, stop):
        self.plan, self.name, self.channel, self.stop = plan, name, channel, stop
        self.requests = plan["requests"]
        self.arm = next(arm for arm in plan["arms"] if arm["name"] == name)
        self.speculates = bool(self.arm["engine"].get("speculative_config"))
        self.step = 0

    def start(self):
        self.channel.event("starting", pid=os.getpid())
        with open(os.environ["TOY_STARTS"], "a") as file:
            file.write(self.name + "\n")
        if self.arm["engine"].get("explodes"):
            raise ValueError("explodes is not an argument")
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

    def due(self, length):
        version = os.environ.get("TOY_VERSION", "99")
        if TOY.get("begins") and [int(n) for n in version.split(".")] < [int(n) for n in TOY["begins"].split(".")]:
            return None
        if TOY.get("ends") and [int(n) for n in version.split(".")] >= [int(n) for n in TOY["ends"].split(".")]:
            return None
        if self.step >= TOY.get("until", 1 << 60):
            return None
        if TOY.get("spares") and not self.speculates:
            return None
        if not set(TOY.get("needs", [])) <= {request["id"] for request in self.requests}:
            return None
        hits = [at for at in range(length) if random.Random(f"{self.step + at}").random() < TOY["rate"]]
        return hits[0] if hits else None

    def generate(self, rounds):
        length = self.plan["sampling"]["max_tokens"]
        done = 0
        for round_ in rounds:
            hit = self.due(length)
            if self.plan.get("record"):
                self.record_steps(round_, length, hit)
            self.step += length
            for index, request in enumerate(self.requests):
                tokens = stream(request["prompt_token_ids"], length)
                if hit is not None and index == 0:
                    tokens[hit : hit + 4] = [BAD + i for i in range(len(tokens[hit : hit + 4]))]
                self.channel.record(
                    {
                        "record": "completion",
                        "request": request["id"],
                        "round": round_,
                        "sample": 0,
                        "prompt_token_ids": request["prompt_token_ids"],
                        "token_ids": tokens,
                        "text": None,
                        "finish_reason": "length",
                        "stop_reason": None,
                        "logprobs": None,
                    }
                )
                done += 1
        counters = {"tokens": done * length, "generate_seconds": 0.01}
        if self.speculates:
            counters.update(drafts=done, draft_tokens=2 * done, accepted_tokens=done)
        self.channel.record({"record": "footer", "completions": done, "scores": 0, "counters": counters})

    def record_steps(self, round_, length, hit):
        """Each request makes a token a step; where it goes wrong, the count that is kept does too."""
        rows, prompts = len(self.requests), [len(request["prompt_token_ids"]) for request in self.requests]
        if not self.step:
            self.channel.record({"record": "steps_header", "schema": "parity.steps/1", "arm": self.name})
        numbers = [round_ * rows + row for row in range(rows)]
        of_prompt, step = np.tile(prompts, length), np.repeat(np.arange(length), rows)
        tokens = Ragged(np.ones(length * rows, dtype=np.int64), np.repeat(np.arange(length), rows))
        kept = tokens.counts.copy()
        kept[: rows * length : rows] += 0 if hit is None else (np.arange(length) == hit)
        columns = {
            "step": self.step + np.arange(length),
            "rows": np.full(length, rows),
            "request": np.tile(numbers, length),
            "arrival": (step == 0).astype(np.int64),
            "computed": np.where(step == 0, 0, of_prompt + step - 1),
            "scheduled": np.where(step == 0, of_prompt, 1),
            "kept": kept,
            "drafts": Ragged(tokens.counts * 0, tokens.values[:0]),
            "sampled": tokens,
            "handed": tokens,
        }
        requests = [
            {"number": number, "request": request["id"], "round": round_, "prompt_tokens": prompt}
            for number, request, prompt in zip(numbers, self.requests, prompts)  # noqa: B905
        ]
        block = {"record": "steps", "steps": length, "rows": rows * length, "requests": requests}
        block.update(pack_block(columns))
        self.channel.record(block)

    def trial(self, requests, sampling):
        planned = self.plan, self.requests
        self.plan, self.requests = dict(self.plan, sampling=sampling), requests
        self.generate([0])
        self.plan, self.requests = planned

    def score(self, items, top):
        for item in items:
            good = [[[t, -0.5], [t % 1800 + 3, -0.6]] for t in item["token_ids"]]
            logprobs = [[[5, -0.1], [row[0][0], -9.0]] if row[0][0] >= BAD else row for row in good]
            key = {name: item[name] for name in ("arm", "request", "round", "sample")}
            self.channel.record(dict(record="score", logprobs=logprobs, **key))
        self.channel.event("scored", items=len(items), sequences=len(items), tokens=len(items))

    def close(self):
        pass
