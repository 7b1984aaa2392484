"""A checkpoint in transformers: what it thinks of given tokens, and what it says itself, greedily."""

from __future__ import annotations

import threading
from typing import Any, Callable, Iterator, Optional

from parity_backends.worker.asked import Record, Rows, Sampling
from parity_backends.worker.protocol import Stopped
from parity_backends.worker.records import number
from parity_backends.worker.sentences import WorkerError, message

from .reference_sketches import ReferenceSketches

MOST_LOGIT_BYTES = 1 << 30
"""Of one batch's logits (tokens × vocabulary × 4)."""

LOWEST = float("-inf")


class Reference:
    """A model on one device, its weights and its arithmetic in one precision."""

    def __init__(self, path: str, dtype: str, device: str, batch_tokens: int, stop: threading.Event) -> None:
        import torch
        import transformers

        self.torch, self.device, self.stop = torch, device, stop
        wanted = getattr(torch, dtype, None)
        if not isinstance(wanted, torch.dtype):
            raise WorkerError(message("transformers.no_dtype", "torch has no dtype {dtype!r}", dtype=dtype))
        release = tuple(int(part) for part in transformers.__version__.split(".")[:2])
        named = {"dtype" if release >= (4, 56) else "torch_dtype": wanted, "trust_remote_code": False}
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(path, local_files_only=True, **named)
        except (OSError, ValueError, KeyError) as error:
            raise WorkerError(
                message(
                    "transformers.does_not_load",
                    "transformers {version} does not load {path}: {said}",
                    version=transformers.__version__,
                    path=path,
                    said=str(error),
                )
            ) from error
        self.model = model.to(device).eval()
        self.config = getattr(model.config, "text_config", None) or model.config
        self.vocab_size = int(self.config.vocab_size)
        self.max_length = getattr(self.config, "max_position_embeddings", None)
        self.batch_tokens = max(1, min(batch_tokens, MOST_LOGIT_BYTES // (4 * self.vocab_size)))
        self.attention = getattr(model.config, "_attn_implementation", None)
        self.sketches: Optional[ReferenceSketches] = None

    # ------------------------------------------------------------------ scoring

    def batches(self, sequences: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> Iterator[list[Any]]:
        """Sequences of about one length together: what is padded is computed for nothing."""
        batch: list[Any] = []
        for sequence in sorted(sequences, key=lambda one: len(one[0]) + len(one[1])):
            length = len(sequence[0]) + len(sequence[1])
            if batch and (len(batch) + 1) * length > self.batch_tokens:
                yield batch
                batch = []
            batch.append(sequence)
        if batch:
            yield batch

    def score(self, batch: list[tuple[tuple[int, ...], tuple[int, ...]]], top: int) -> list[Record]:
        """What a score says of each (prompt, output): entries for every output token, the chosen token first, then the
        top ones; and log(sum(exp(logits))), which makes logits of them."""
        torch = self.torch
        rows = [list(prompt + out) for prompt, out in batch]
        width = max(len(row) for row in rows)
        # Padded on the right and without a mask: every layer is causal, so what follows changes nothing before it.
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=self.device)
        if self.sketches is not None:
            self.sketches.begin(rows, [len(prompt) for prompt, _ in batch])
        with torch.inference_mode():
            logits = self.model(input_ids=ids, use_cache=False).logits
            if self.sketches is not None:
                self.sketches.end(logits)
            found = []
            for row, (prompt, out) in enumerate(batch):
                mine = logits[row, len(prompt) - 1 : len(prompt) + len(out) - 1].float()
                sums = [round(value, 4) for value in torch.logsumexp(mine, dim=-1).tolist()]
                logprobs = self.entries(torch.log_softmax(mine, dim=-1), out, top)
                found.append({"logprobs": logprobs, "logsumexp": sums})
        return found

    def entries(self, logprobs: Any, chosen: Any, top: int) -> list[Any]:
        """[[token_id, nats], ...] per row of `logprobs` (T, V): the chosen token, and the `top` best ones."""
        torch = self.torch
        best = torch.topk(logprobs, top, dim=-1)
        own = logprobs.gather(1, torch.tensor(list(chosen), device=logprobs.device)[:, None])[:, 0].tolist()
        entries = []
        for token, value, ids, values in zip(chosen, own, best.indices.tolist(), best.values.tolist()):  # noqa: B905
            listed = {token: number(value)}
            for other, logprob in zip(ids, values):  # noqa: B905 - strict is Python 3.10
                listed.setdefault(other, number(logprob))
            entries.append([[one, logprob] for one, logprob in listed.items()])
        return entries

    # ------------------------------------------------------------------ generating

    def generate(self, prompts: list[list[int]], writers: list[Writer], finished: Callable[[int], None]) -> None:
        """Greedy decoding of prompts of one length, a token a step; `finished(row)` as each row ends."""
        torch = self.torch
        ids = torch.tensor(prompts, device=self.device)
        cache = None
        with torch.inference_mode():
            while not all(writer.done for writer in writers):
                if self.stop.is_set():
                    raise Stopped
                out = self.model(input_ids=ids, past_key_values=cache, use_cache=True)
                cache = out.past_key_values
                logits = out.logits[:, -1].float()
                raw = torch.log_softmax(logits, dim=-1)
                tokens = []
                for row, writer in enumerate(writers):
                    token = 0
                    if not writer.done:
                        token = int(writer.adjusted(logits[row], torch).argmax())
                        listed = None
                        if writer.top is not None:
                            listed = self.entries(raw[row : row + 1], [token], writer.top)[0]
                        if writer.take(token, listed):
                            finished(row)
                    tokens.append([token])
                ids = torch.tensor(tokens, device=self.device)


def refuse_sampling(sampling: Sampling, rows: Rows) -> None:
    """Raises WorkerError for what greedy decoding of our own does not do."""
    if sampling.get("temperature") or int(sampling.get("n") or 1) > 1:
        raise WorkerError(
            message(
                "transformers.greedy_only", "backend 'transformers' decodes greedily only: temperature 0 and one sample"
            )
        )
    for name, row in rows.items():
        if not row.get("reference", True) and sampling.get(name) not in (None, row.get("default")):
            raise WorkerError(
                message(
                    "transformers.not_applied",
                    "backend 'transformers' does not apply {name}; leave this arm or the parameter out",
                    name=name,
                )
            )


class Writer:
    """One completion as it grows: what was said, and whether that is the end."""

    def __init__(self, prompt: list[int], sampling: Sampling, eos: list[int], decode: Callable[..., str]) -> None:
        self.prompt, self.sampling, self.decode = prompt, sampling, decode
        self.max_tokens = int(sampling["max_tokens"])
        self.eos = [] if sampling.get("ignore_eos") else eos
        self.stops = list(sampling.get("stop") or [])
        self.includes_stop = bool(sampling.get("include_stop_str_in_output"))
        self.stop_ids = list(sampling.get("stop_token_ids") or [])
        self.top = sampling.get("logprobs")
        self.token_ids: list[int] = []
        self.logprobs: list[Any] = []
        self.text: str | None = None
        self.finish_reason: str | None = None
        self.stop_reason: Any = None
        self.skipped = 0
        """Characters said within min_tokens: a stop string among them counts for nothing, as in vLLM."""

    @property
    def done(self) -> bool:
        return self.finish_reason is not None

    def adjusted(self, logits: Any, torch: Any) -> Any:
        """Logits with penalties, bans, biases and min_tokens, as vLLM applies them (vllm/v1/sample, v0.32.0)."""
        penalties = [
            self.sampling.get(name) for name in ("repetition_penalty", "frequency_penalty", "presence_penalty")
        ]
        repetition, frequency, presence = penalties
        changed = logits.clone()
        allowed = self.sampling.get("allowed_token_ids")
        if allowed:
            forbidden = torch.ones(len(logits), dtype=torch.bool, device=logits.device)
            forbidden[torch.tensor(allowed, device=logits.device)] = False
            changed[forbidden] = LOWEST
        for token, bias in (self.sampling.get("logit_bias") or {}).items():
            changed[int(token)] += float(bias)
        if repetition not in (None, 1.0):
            seen = torch.tensor(sorted({*self.prompt, *self.token_ids}), device=logits.device)
            values = changed[seen]
            changed[seen] = torch.where(values > 0, values / repetition, values * repetition)
        if self.token_ids and (frequency or presence):
            counts = torch.bincount(torch.tensor(self.token_ids, device=logits.device), minlength=len(logits))
            changed -= (frequency or 0.0) * counts + (presence or 0.0) * (counts > 0)
        if len(self.token_ids) < int(self.sampling.get("min_tokens") or 0):
            banned = sorted({*self.eos, *self.stop_ids})
            if banned:
                changed[torch.tensor(banned, device=logits.device)] = LOWEST
        return changed

    def take(self, token: int, listed: Any) -> bool:
        """Add a token; whether it was the last."""
        self.token_ids.append(token)
        if listed is not None:
            self.logprobs.append(listed)
        if self.stops and len(self.token_ids) <= int(self.sampling.get("min_tokens") or 0):
            self.skipped = len(self._text(self.token_ids))
        if token in self.eos:
            self.finish_reason = "stop"
        elif token in self.stop_ids:
            self.finish_reason, self.stop_reason = "stop", token
        elif self.stops and self._stopped():
            return True
        elif len(self.token_ids) >= self.max_tokens:
            self.finish_reason = "length"
        if self.finish_reason is not None:
            unsaid = self.stop_reason is not None and not self.includes_stop
            self.text = self._text(self.token_ids[:-1] if unsaid else self.token_ids)
        return self.done

    def _text(self, ids: list[int]) -> str:
        return self.decode(ids, skip_special_tokens=bool(self.sampling.get("skip_special_tokens", True)))

    def _stopped(self) -> bool:
        """Has a stop string come up? The text ends before the one that is complete first, or right after it."""
        text = self._text(self.token_ids)
        found = []
        for place, stop in enumerate(self.stops):
            at = text.find(stop, max(0, self.skipped - len(stop) + 1) if self.skipped else 0)
            if at >= 0 and at + len(stop) > self.skipped:
                found.append((at + len(stop), place, at, stop))
        if not found:
            return False
        end, _, at, stop = min(found)
        self.text, self.finish_reason, self.stop_reason = text[: end if self.includes_stop else at], "stop", stop
        return True
