"""What a worker says of its own: sentences by id, which the other side puts into the reader's language."""

from __future__ import annotations

from typing import Any, Dict, Union

from parity.plurals import agreeing

Sentence = Dict[str, Any]
"""A sentence of ours: its id, its parameters, and its text in English. The other side puts it into words."""


def message(id: str, english: str, **parameters: Any) -> Sentence:
    """A sentence of ours, as `parity.messages.message` makes one; a parameter may be another one, or a list of them."""
    shown = {name: in_english(value) for name, value in parameters.items()}
    return {"id": id, "parameters": parameters, "text": agreeing(english, shown).format(**shown)}


def in_english(value: Any) -> Any:
    """A parameter as a template takes it."""
    if isinstance(value, list):
        return ", ".join(str(in_english(one)) for one in value)
    return value["text"] if isinstance(value, dict) else value


class WorkerError(Exception):
    """A failure whose message says all there is to say: the log gets the message, no traceback."""

    def __init__(self, said: Union[Sentence, str]) -> None:
        super().__init__(said["text"] if isinstance(said, dict) else said)
        self.said = said


class EngineError(WorkerError):
    """What an engine said, in its own words: the log gets the traceback too."""


def of_request(request: Any, error: WorkerError) -> Sentence:
    """What went wrong, and with which request."""
    return message("server.of_request", "request {request!r}: {said}", request=request["id"], said=error.said)


def outside_vocabulary(size: int) -> Sentence:
    """Why tokens are not scored."""
    return message("worker.outside_vocabulary", "a token id outside the vocabulary of {size}", size=size)
