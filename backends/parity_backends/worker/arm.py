"""One arm of a plan on a vLLM engine in this process."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable, Optional

from .environment import environment
from .faults import unpack_faults
from .identity import fingerprint, plan_digest
from .protocol import SCHEMA, Channel, Stopped
from .records import completion_record, entries
from .resolved import counters, resolved_engine, since

PROGRESS_SECONDS = 0.5


class Arm:
    """An engine with the settings of one arm, and the plan's requests."""

    def __init__(self, plan: dict[str, Any], name: str, channel: Channel, stop: threading.Event) -> None:
        self.plan = plan
        arms: dict[str, dict[str, Any]] = {arm["name"]: arm for arm in plan["arms"]}
        if name not in arms:
            raise ValueError("the plan has no arm %r; it has %s" % (name, ", ".join(arms)))
        self.arm = arms[name]
        self.channel = channel
        self.stop = stop
        self.requests = plan["requests"]
        self.serial = 0
        self.progress_at = 0.0

    def start(self) -> None:
        self.channel.event("starting", pid=os.getpid())
        began = time.perf_counter()
        unpack_faults()
        from vllm import LLM

        asked = dict(self.arm["engine"])
        model = asked.pop("model", None) or self.plan["model"]["path"]
        self.llm = LLM(model=model, **asked)
        self.engine = self.llm.llm_engine
        self.ready_at = time.perf_counter()
        self.start_seconds = self.ready_at - began
        config = self.engine.vllm_config.model_config
        self.max_model_len = int(config.max_model_len)
        self.vocab_size = int(config.get_vocab_size())
        self.speculative = getattr(self.engine.vllm_config, "speculative_config", None) is not None
        header = {
            "record": "header",
            "schema": SCHEMA,
            "arm": self.arm["name"],
            "backend": self.arm["backend"],
            "variant": self.arm["variant"],
            "model": self.plan["model"]["name"],
            "vocab_size": self.plan["model"].get("vocab_size") or self.vocab_size,
            "eos_token_ids": self.plan["model"].get("eos_token_ids"),
            "engine": resolved_engine(self.llm, self.arm["engine"]),
            "sampling": self.plan["sampling"],
            "environment": environment(),
            "model_fingerprint": fingerprint(model),
            "plan_digest": plan_digest(self.plan),
        }
        self.channel.event("ready", engine_start_seconds=round(self.start_seconds, 3))
        self.channel.record(header)

    def _add(self, prompt_token_ids: list[int], params: Any) -> str:
        from vllm.inputs import TokensPrompt

        self.serial += 1
        name = str(self.serial)
        self.engine.add_request(name, TokensPrompt(prompt_token_ids=prompt_token_ids), params)
        return name

    def _drain(self, finished: Callable[[Any], tuple[int, int]], done: int, tokens: int) -> None:
        """Step until nothing is left; `finished` gets each finished output and returns (done, tokens)."""
        while self.engine.has_unfinished_requests():
            if self.stop.is_set():
                raise Stopped
            for output in self.engine.step():
                if output.finished:
                    done, tokens = finished(output)
            now = time.perf_counter()
            if now - self.progress_at >= PROGRESS_SECONDS:
                self.progress_at = now
                running = self.engine.get_num_unfinished_requests()
                self.channel.event("progress", running=running, completions=done, tokens=tokens)

    def _params(self, request: dict[str, Any], round_: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        wanted = dict(self.plan["sampling"])
        if request.get("max_tokens") is not None:  # a limit of its own: output lengths are mixed
            wanted["max_tokens"] = request["max_tokens"]
        seed = wanted.pop("seed", None)
        if wanted.get("temperature", 0.0) > 0 and seed is not None:
            # vLLM gives sample i the seed + i, so rounds step over all samples of the round before.
            wanted["seed"] = seed + round_ * int(wanted.get("n") or 1)
        params = SamplingParams(**wanted)
        params.output_kind = RequestOutputKind.FINAL_ONLY
        return params

    def generate(self, rounds: list[int]) -> None:
        before = counters(self.llm)
        began = last = time.perf_counter()
        done = tokens = 0
        for round_ in rounds:
            # All requests of a round are queued before the first step: the batches are the same each time.
            waiting: dict[str, Any] = {}
            for request in self.requests:
                try:
                    name = self._add(request["prompt_token_ids"], self._params(request, round_))
                except ValueError as error:
                    raise ValueError("request %r: %s" % (request["id"], error)) from error
                waiting[name] = request

            def finished(output: Any, round_: int = round_, waiting: dict[str, Any] = waiting) -> tuple[int, int]:
                nonlocal done, tokens, last
                request = waiting[output.request_id.split("-", 1)[0]]
                for sample in output.outputs:
                    self.channel.record(completion_record(request, round_, sample))
                    done += 1
                    tokens += len(sample.token_ids)
                last = time.perf_counter()
                return done, tokens

            self._drain(finished, done, tokens)
        counted = since(counters(self.llm), before)
        counted.update(
            tokens=tokens,
            generate_seconds=round(last - began, 4),
            ready_to_last_seconds=round(last - self.ready_at, 4),
            engine_start_seconds=round(self.start_seconds, 3),
        )
        self.channel.record({"record": "footer", "completions": done, "scores": 0, "counters": counted})

    def trial(self, requests: list[dict[str, Any]], sampling: dict[str, Any]) -> None:
        """One round of other requests with other sampling parameters on the engine that is up."""
        planned = self.plan, self.requests
        self.plan, self.requests = dict(self.plan, sampling=sampling), requests
        try:
            self.generate([0])
        finally:
            self.plan, self.requests = planned

    def unscorable(self, item: dict[str, Any]) -> Optional[str]:
        """Why the engine cannot teacher-force this sequence, or None."""
        if self.speculative:
            return "the scoring arm has speculation on"
        prompt, tokens = item["prompt_token_ids"], item["token_ids"]
        length = len(prompt) + len(tokens)
        if not prompt or length + 1 > self.max_model_len:
            return "%d tokens and one more do not fit into max_model_len %d" % (length, self.max_model_len)
        if tokens and not (min(tokens) >= 0 and max(tokens) < self.vocab_size):
            return "a token id outside the vocabulary of %d" % self.vocab_size
        return None

    def score(self, items: list[dict[str, Any]], top: int) -> int:
        """Teacher-force prompt + completion, each distinct sequence once; a record for every key."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sequences: dict[tuple[tuple[int, ...], tuple[int, ...]], list[dict[str, Any]]] = {}
        done = tokens = 0
        for item in items:
            reason = self.unscorable(item)
            key = {name: item[name] for name in ("arm", "request", "round", "sample")}
            if reason is not None:
                self.channel.event("unscored", key=key, reason=reason)
            elif not item["token_ids"]:
                self.channel.record(dict(record="score", logprobs=[], **key))
                done += 1
            else:
                sequence = (tuple(item["prompt_token_ids"]), tuple(item["token_ids"]))
                sequences.setdefault(sequence, []).append(key)
        params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=top, detokenize=False)
        params.output_kind = RequestOutputKind.FINAL_ONLY
        waiting = {
            self._add(list(prompt + out), params): (len(prompt), keys) for (prompt, out), keys in sequences.items()
        }

        def finished(output: Any) -> tuple[int, int]:
            nonlocal done, tokens
            length, keys = waiting[output.request_id.split("-", 1)[0]]
            logprobs = entries(output.prompt_logprobs[length:])
            for key in keys:
                self.channel.record(dict(record="score", logprobs=logprobs, **key))
                done += 1
            tokens += len(logprobs)
            return done, tokens

        self._drain(finished, done, tokens)
        self.channel.event("scored", items=len(items), sequences=len(waiting), tokens=tokens)
        return done

    def close(self) -> None:
        core = getattr(getattr(self, "engine", None), "engine_core", None)
        if core is not None:
            core.shutdown()
