"""Token ids made again from the text of a server that gives none, or not all."""

from __future__ import annotations

import os

from parity_backends.worker.asked import Plan, Sampling
from parity_backends.worker.sentences import WorkerError, message

from .answers import Sample

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

    def ids(self, sample: Sample, sampling: Sampling) -> list[int]:
        """The ids of a text that came without."""
        ids: list[int] = list(self.tokenizer.encode(sample.text or "", add_special_tokens=False).ids)
        if (
            sample.finish_reason == "stop"
            and sample.stop_reason is None
            and len(self.eos) == 1
            and not (sampling.get("stop") or sampling.get("ignore_eos"))
        ):
            ids.append(self.eos[0])  # nothing else can have ended it, and text does not show it
        return ids
