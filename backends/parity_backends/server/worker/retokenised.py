"""Token ids made again from the text of a server that gives none, or not all."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

from parity_backends.worker.asked import Plan, Sampling
from parity_backends.worker.records import number
from parity_backends.worker.sentences import WorkerError, message

from .answers import Named, Sample

NO_CHARACTER = "\ufffd"
"""What a tokenizer shows for bytes that make no character."""


class Retokenised:
    """The plan's tokenizer. Raises WorkerError where this Python cannot load it."""

    def __init__(self, plan: Plan) -> None:
        self.eos = plan["model"].get("eos_token_ids") or []
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise WorkerError(
                message(
                    "server.no_tokenizers",
                    "the server gives text without token ids, and this Python has no package `tokenizers` to make them",
                )
            ) from None
        self.tokenizer = Tokenizer.from_file(os.path.join(plan["model"]["path"], "tokenizer.json"))

    def whole_characters(self, listed: list[tuple[int, str]]) -> list[int]:
        """The ids that logprobs list, and the others of a character that several tokens make: llama.cpp's
        server has one entry for it, with the last one's id."""
        found: list[int] = []
        for token, text in listed:
            parts = [token]
            if text and NO_CHARACTER not in text and NO_CHARACTER in self.tokenizer.decode([token]):
                made = self.tokenizer.encode(text, add_special_tokens=False).ids
                parts = list(made) if made and made[-1] == token else parts
            found += parts
        return found

    def logprobs(self, token_ids: list[int], named: list[Named]) -> list[Any]:
        """Lists of ids from lists of texts. A list that has a text of no token, or of several, says nothing of
        which token is the best: then the chosen token stands alone."""
        return [self._listed(token, *entry) for token, entry in zip(token_ids, named)]  # noqa: B905 - Python 3.9

    def _listed(self, token: int, text: Any, value: Any, top: list[tuple[Any, Any]]) -> list[Any]:
        others = [(self.by_text.get(other), logprob) for other, logprob in top if other != text]
        known = self.by_text.get(text) == token and all(other is not None for other, _ in others)
        listed = [(token, value), *(others if known else [])]
        return [[one, None if logprob is None else number(logprob)] for one, logprob in listed]

    @cached_property
    def by_text(self) -> dict[Any, int | None]:
        """The token of each text; None where several have it."""
        ids = [[token] for token in range(self.tokenizer.get_vocab_size())]
        found: dict[Any, int | None] = {}
        for (token,), text in zip(ids, self.tokenizer.decode_batch(ids, skip_special_tokens=False)):  # noqa: B905
            found[text] = None if text in found else token
        return found

    def ids(self, sample: Sample, sampling: Sampling) -> list[int]:
        """The ids of a text that came without."""
        ids: list[int] = list(self.tokenizer.encode(sample.text or "", add_special_tokens=False).ids)
        if (
            sample.finish_reason == "stop"
            and sample.stop_reason is None
            and len(self.eos) == 1
            and not (sampling.get("stop") or sampling.get("ignore_eos"))
            and ids[-1:] != self.eos
        ):
            ids.append(self.eos[0])  # nothing else can have ended it, and text seldom shows it
        return ids
