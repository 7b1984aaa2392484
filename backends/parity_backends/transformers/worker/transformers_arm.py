"""One arm of a plan on Hugging Face transformers."""

from __future__ import annotations

import os
import platform
import time
from typing import IO, Any, Optional

from parity_backends.worker.asked import Churn, Item, Record, Request, Sampling
from parity_backends.worker.identity import fingerprint
from parity_backends.worker.planned import PlannedArm
from parity_backends.worker.protocol import Stopped, refuse_churn, serve
from parity_backends.worker.records import completion_record
from parity_backends.worker.sampling import rows_of, sampling_of
from parity_backends.worker.sentences import Sentence, WorkerError, message, of_request, outside_vocabulary

from .reference import Reference, Writer, refuse_sampling
from .reference_sketches import ReferenceSketches

MOST_ROWS = 64
"""Requests decoded together."""


class TransformersArm(PlannedArm):
    """A checkpoint in transformers, and the plan's requests."""

    def start(self) -> None:
        self.channel.event("starting", pid=os.getpid())
        refuse_churn(self.plan.get("churn"))
        began = time.perf_counter()
        settings, plan = self.arm["engine"], self.plan
        path = settings.get("model") or plan["model"]["path"]
        import tokenizers
        import torch
        import transformers

        dtype, device = settings.get("dtype") or "float32", settings.get("device") or "cpu"
        self.reference = Reference(path, dtype, device, int(settings.get("batch_tokens") or 8192), self.stop)
        tokenizer = tokenizers.Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
        self.decode = tokenizer.decode
        self.ready_at = time.perf_counter()
        self.start_seconds = self.ready_at - began
        versions = {module.__name__: module.__version__ for module in (torch, transformers, tokenizers)}
        engine = {"asked": settings, "dtype": dtype, "device": device, "attention": self.reference.attention}
        if isinstance(self.reference.max_length, int):
            engine["max_model_len"] = self.reference.max_length
        header = self.header(
            vocab_size=plan["model"].get("vocab_size") or self.reference.vocab_size,
            engine=engine,
            environment={
                "python": platform.python_version(),
                "platform": platform.platform(),
                "machine": platform.machine(),
                "threads": torch.get_num_threads(),
                "devices": [device],
                "versions": versions,
            },
            model_fingerprint=fingerprint(path),
        )
        if plan.get("sketch"):
            self.reference.sketches = ReferenceSketches(
                self.reference.model, self.channel.record, self.arm["name"], plan["sketch"], self._engine_dtype()
            )
        self.channel.event("ready", engine_start_seconds=round(self.start_seconds, 3))
        self.channel.record(header)

    def _engine_dtype(self) -> str:
        """What the plan's baseline computes in."""
        settings = [one["engine"] for one in self.plan["arms"] if one["name"] == self.plan.get("baseline")]
        return next((str(one["dtype"]) for one in settings if one.get("dtype")), "auto")

    def generate(self, rounds: list[int]) -> None:
        for asked in [self.plan["sampling"], *(sampling_of(self.plan, one) for one in self.requests)]:
            refuse_sampling(asked, rows_of(self.plan))
        began = last = time.perf_counter()
        done = tokens = 0
        eos = list(self.plan["model"].get("eos_token_ids") or [])
        for round_ in rounds:
            for group in self._groups():
                writers = [
                    Writer(
                        one["prompt_token_ids"],
                        sampling_of(self.plan, one),
                        eos,
                        self.decode,
                    )
                    for one in group
                ]

                def finished(
                    row: int, group: list[Any] = group, writers: list[Writer] = writers, round_: int = round_
                ) -> None:
                    nonlocal done, tokens, last
                    self.channel.record(self._record(group[row], round_, writers[row]))
                    done += 1
                    tokens += len(writers[row].token_ids)
                    last = time.perf_counter()
                    self.channel.event("progress", running=len(group), completions=done, tokens=tokens)

                self.reference.generate([one["prompt_token_ids"] for one in group], writers, finished)
        counted = {
            "tokens": tokens,
            "generate_seconds": round(last - began, 4),
            "ready_to_last_seconds": round(last - self.ready_at, 4),
            "engine_start_seconds": round(self.start_seconds, 3),
        }
        self.channel.record({"record": "footer", "completions": done, "scores": 0, "counters": counted})

    def _groups(self) -> list[list[Request]]:
        """Requests of one prompt length together: nothing is padded, so nothing depends on padding."""
        by_length: dict[int, list[Request]] = {}
        for request in self.requests:
            length, most = len(request["prompt_token_ids"]), self.reference.max_length
            limit = int(sampling_of(self.plan, request)["max_tokens"])
            if isinstance(most, int) and length + limit > most:
                too_long = message(
                    "transformers.too_long",
                    "{tokens} tokens and {more} more are over the model's {most}",
                    tokens=length,
                    more=limit,
                    most=most,
                )
                raise WorkerError(of_request(request, WorkerError(too_long)))
            by_length.setdefault(length, []).append(request)
        return [
            same[begin : begin + MOST_ROWS] for same in by_length.values() for begin in range(0, len(same), MOST_ROWS)
        ]

    @staticmethod
    def _record(request: Request, round_: int, writer: Writer) -> Record:
        return completion_record(
            request,
            round_,
            0,
            token_ids=writer.token_ids,
            text=writer.text,
            finish_reason=writer.finish_reason,
            stop_reason=writer.stop_reason,
            logprobs=writer.logprobs if writer.top is not None else None,
        )

    def trial(self, requests: list[Request], sampling: Sampling, churn: Optional[Churn] = None) -> None:
        refuse_churn(churn)
        super().trial(requests, sampling)

    def _unscorable(self, item: Item) -> Optional[Sentence]:
        tokens = [*item["prompt_token_ids"], *item["token_ids"]]
        most, size = self.reference.max_length, self.reference.vocab_size
        if not item["prompt_token_ids"]:
            return message("transformers.no_prompt", "no prompt: nothing comes before its first token")
        if isinstance(most, int) and len(tokens) > most:
            return message(
                "transformers.over", "{tokens} tokens are over the model's {most}", tokens=len(tokens), most=most
            )
        if min(tokens) < 0 or max(tokens) >= size:
            return outside_vocabulary(size)
        return None

    def score(self, items: list[Item], top: int) -> int:
        """Teacher-force prompt + completion, each distinct sequence once; a record for every key."""
        sequences, done = self.to_score(items, self._unscorable)
        tokens = 0
        for batch in self.reference.batches(list(sequences)):
            if self.stop.is_set():
                raise Stopped
            for sequence, scored in zip(batch, self.reference.score(batch, top)):  # noqa: B905 - Python 3.9
                for key in sequences[sequence]:
                    self.channel.record(dict(record="score", **scored, **key))
                    done += 1
                tokens += len(scored["logprobs"])
            self.channel.event("progress", running=len(sequences), completions=done, tokens=tokens)
        if self.reference.sketches is not None:
            self.reference.sketches.close()
        self.channel.event("scored", items=len(items), sequences=len(sequences), tokens=tokens)
        return done

    def close(self) -> None:
        """Memory goes with the process."""


def supervised(stream: IO[bytes]) -> None:
    serve(stream, TransformersArm)
