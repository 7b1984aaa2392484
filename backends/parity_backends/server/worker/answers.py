"""What comes back: answers, streamed or not, as samples; and what in them does not add up."""

from __future__ import annotations

from typing import Any, Iterable, Optional

from parity_backends.worker.records import number
from parity_backends.worker.sentences import Sentence, message

from .bounds import excerpt, in_brief
from .receiving import ServerError

ID_PREFIX = "token_id:"
"""What vLLM writes in place of a token's text with return_tokens_as_token_ids."""

MOST_PROBLEMS = 5


Said = dict[str, Any]
"""An object of a server's answer."""


Named = tuple[Any, Any, list[tuple[Any, Any]]]
"""The text of the chosen token, its logprob, and those of the tokens listed with it."""


class NoAnswer(ServerError):
    """HTTP 200 and nothing that answers: what gateways make of parameters that they do not know."""


class Sample:
    """One of the n choices of an answer."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.text: str | None = None
        self.token_ids: list[int] | None = None
        self.listed: list[tuple[int, str]] | None = None
        """Ids and texts of the tokens that stand in the logprobs, where these have ids and the answer has none."""
        self.logprobs: list[Any] | None = None
        self.named: list[Named] | None = None
        """Logprobs whose tokens are texts."""
        self.finish_reason: str | None = None
        self.stop_reason: Any = None
        self.chunks = 0
        self.problems: list[Sentence] = []

    def problem(self, said: Sentence) -> None:
        if said not in self.problems and len(self.problems) < MOST_PROBLEMS:
            self.problems.append(said)


class Answer:
    """All samples of one request, and what the server said of itself."""

    def __init__(self) -> None:
        self.samples: dict[int, Sample] = {}
        self.prompt_token_ids: list[int] | None = None
        self.said: Said = {}
        self.usage: Said = {}
        self.attempts = 1

    def note(self, body: Said) -> None:
        """Keep what an answer, or a chunk of one, says of the server and the whole request."""
        for name in ("id", "model", "system_fingerprint", "service_tier"):
            if isinstance(body.get(name), str):
                self.said[name] = body[name][:200]
        usage = body.get("usage")
        if isinstance(usage, dict):
            self.usage = {
                name: usage[name]
                for name in ("prompt_tokens", "completion_tokens", "total_tokens")
                if type(usage.get(name)) is int
            }
        self.take_prompt(body)

    def take_prompt(self, thing: Said) -> None:
        if thing.get("prompt_token_ids") is not None:
            self.prompt_token_ids = ids_of(thing["prompt_token_ids"], "prompt_token_ids")

    def choices(self, body: Said) -> list[tuple[Sample, Said]]:
        """The choices of an answer, or a chunk of one, with the sample each belongs to."""
        choices = body.get("choices")
        if not isinstance(choices, list):
            said = excerpt(in_brief(body))
            raise NoAnswer(message("server.no_choices", "an answer without choices: {said}", said=said))
        found = []
        for choice in choices:
            index = (choice.get("index") or 0) if isinstance(choice, dict) else None
            if type(index) is not int or index < 0:
                raise ServerError(message("server.no_index", "a choice that is not an object with an index"))
            found.append((self.samples.setdefault(index, Sample(index)), choice))
        return found

    def check(self, *, streamed: bool) -> None:
        """What does not add up is written down with the sample. Whether the usage counts these tokens the comparison
        says, which sees what this server counts throughout."""
        for sample in self.samples.values():
            if sample.named or (sample.text and not sample.logprobs):
                sample.logprobs = sample.listed = None  # nothing but empty lists, of chunks without tokens
            if sample.token_ids is None and sample.listed is not None:
                sample.token_ids = [token for token, _ in sample.listed]
            if sample.finish_reason is None:
                sample.problem(message("server.no_finish_reason", "it has no finish_reason"))
            if sample.token_ids is not None and sample.logprobs is not None:
                tokens, listed = len(sample.token_ids), len(sample.logprobs)
                if tokens != listed and streamed:
                    sample.problem(
                        message(
                            "server.other_length",
                            "{listed} logprobs for {tokens} tokens in its chunks",
                            listed=listed,
                            tokens=tokens,
                        )
                    )


def whole(body: Any, attempts: int) -> Answer:
    """An answer that came in one piece. Raises ServerError where it is not one."""
    if not isinstance(body, dict):
        said = excerpt(in_brief(body))
        raise NoAnswer(message("server.no_object", "an answer that is not a JSON object: {said}", said=said))
    answer = Answer()
    answer.attempts = attempts
    answer.note(body)
    for sample, choice in answer.choices(body):
        if sample.chunks:
            raise ServerError(message("server.choice_twice", "the choice {index} is given twice", index=sample.index))
        sample.chunks = 1
        take(answer, sample, choice, choice.get("message"))
    answer.check(streamed=False)
    return answer


def assembled(events: Iterable[Any]) -> Answer:
    """An answer put together from its chunks. Raises ServerError where a chunk is not one."""
    answer = Answer()
    for event in events:
        if "attempts" in event and "choices" not in event:
            answer.attempts = event["attempts"]
            continue
        answer.note(event)
        for sample, choice in answer.choices(event):
            if sample.finish_reason is not None and not is_empty(choice):
                sample.problem(message("server.after_the_end", "a chunk with content after the finish_reason"))
            sample.chunks += 1
            take(answer, sample, choice, choice.get("delta"))
    if not answer.samples:
        raise ServerError(message("server.empty_stream", "a stream without a single choice"))
    answer.check(streamed=True)
    return answer


def content_of(choice: Said, inner: Any) -> Any:
    return inner.get("content") if isinstance(inner, dict) else choice.get("text")


def is_empty(choice: Said) -> bool:
    return not content_of(choice, choice.get("delta")) and not choice.get("token_ids")


def take(answer: Answer, sample: Sample, choice: Said, inner: Any) -> None:
    """Add a choice's content to its sample. `inner`: the message or delta of the chat endpoint."""
    take_text(sample, choice, inner)
    answer.take_prompt(choice)
    if choice.get("token_ids") is not None:
        sample.token_ids = (sample.token_ids or []) + ids_of(choice["token_ids"], "token_ids")
    logprobs = choice.get("logprobs")
    if isinstance(logprobs, dict):
        take_logprobs(sample, logprobs, has_ids=choice.get("token_ids") is not None)
    take_end(sample, choice)


def take_text(sample: Sample, choice: Said, inner: Any) -> None:
    text = content_of(choice, inner)
    if isinstance(inner, dict):
        for name in ("reasoning_content", "reasoning"):  # split off by a reasoning parser; it came first
            if isinstance(inner.get(name), str):
                text = inner[name] + (text or "")
                break
    if text is not None and not isinstance(text, str):
        raise ServerError(message("server.text_no_string", "a choice whose text is not a string"))
    if text is not None:
        sample.text = (sample.text or "") + text


def take_logprobs(sample: Sample, logprobs: Said, has_ids: bool) -> None:
    found = chat_entries(logprobs) if "content" in logprobs else completion_entries(logprobs)
    if found is None:
        sample.named = (sample.named or []) + named_entries(logprobs)
        return
    sample.logprobs = (sample.logprobs or []) + found
    if not has_ids and "content" in logprobs:
        shown = [str(one.get("token")) for one in logprobs["content"] or []]
        sample.listed = (sample.listed or []) + [(entry[0][0], text) for entry, text in zip(found, shown)]  # noqa: B905 - Python 3.9


def take_end(sample: Sample, choice: Said) -> None:
    reason = choice.get("finish_reason")
    if reason is not None:
        if not isinstance(reason, str):
            raise ServerError(message("server.reason_no_string", "a finish_reason that is not a string"))
        if sample.finish_reason is not None:
            sample.problem(
                message(
                    "server.second_reason",
                    "a second finish_reason, {second!r} after {first!r}",
                    second=reason,
                    first=sample.finish_reason,
                )
            )
        sample.finish_reason = reason
    stop = choice.get("stop_reason")
    if stop is None and isinstance(choice.get("matched_stop"), str):  # SGLang's; a number is the EOS as well
        stop = choice["matched_stop"]
    if isinstance(stop, (int, str)) and not isinstance(stop, bool):
        sample.stop_reason = stop


def ids_of(value: Any, name: str) -> list[int]:
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        raise ServerError(message("server.no_ids", "{name} is not a list of token ids", name=name))
    return value


def id_of(token: Any) -> int | None:
    """The id in "token_id:123"; None for a token's text."""
    if isinstance(token, str) and token.startswith(ID_PREFIX) and token[len(ID_PREFIX) :].isdigit():
        return int(token[len(ID_PREFIX) :])
    return None


def id_in(entry: Said) -> int | None:
    """The id of an entry of `content`: llama.cpp's server writes it beside the token's text."""
    own = entry.get("id")
    return own if type(own) is int else id_of(entry.get("token"))


def pairs(chosen: int | None, value: Any, top: Iterable[tuple[int | None, Any]]) -> list[Any] | None:
    """[[token_id, logprob], ...], the chosen token first; None where the chosen token is given as text."""
    if chosen is None:
        return None
    listed = {chosen: value}
    for token, logprob in top:
        if token is not None:
            listed.setdefault(token, logprob)
    return [[token, None if logprob is None else number(logprob)] for token, logprob in listed.items()]


def completion_entries(logprobs: Said) -> list[Any] | None:
    """Entries from the completions endpoint's parallel lists; None where they are of texts, not of ids."""
    tokens, values = logprobs.get("tokens") or [], logprobs.get("token_logprobs") or []
    top = logprobs.get("top_logprobs") or [None] * len(tokens)
    if not len(tokens) == len(values) == len(top):
        raise ServerError(message("server.uneven", "logprobs whose lists have different lengths"))
    found = [
        pairs(id_of(a), b, [(id_of(token), logprob) for token, logprob in (c or {}).items()])
        for a, b, c in zip(tokens, values, top)  # noqa: B905 - Python 3.9
    ]
    return None if any(entry is None for entry in found) else found


def chat_entries(logprobs: Said) -> list[Any] | None:
    """Entries from the chat endpoint's `content`; None where they are of texts, not of ids."""
    found = [
        pairs(
            id_in(one),
            one.get("logprob"),
            [(id_in(other), other.get("logprob")) for other in one.get("top_logprobs") or []],
        )
        for one in logprobs.get("content") or []
    ]
    return None if any(entry is None for entry in found) else found


def named_entries(logprobs: Said) -> list[Named]:
    """Entries of either endpoint whose tokens are texts, as SGLang gives them."""
    if "content" in logprobs:
        return [
            (
                one.get("token"),
                one.get("logprob"),
                [(o.get("token"), o.get("logprob")) for o in one.get("top_logprobs") or []],
            )
            for one in logprobs["content"] or []
        ]
    tokens, values = logprobs.get("tokens") or [], logprobs.get("token_logprobs") or []
    top = logprobs.get("top_logprobs") or [None] * len(tokens)
    return [(a, b, list((c or {}).items())) for a, b, c in zip(tokens, values, top)]  # noqa: B905 - Python 3.9


def prompt_entries(body: Any, length: int) -> Optional[list[Any]]:
    """Entries of the last `length` tokens of a prompt, from `prompt_logprobs`; None where an answer has none. Raises
    ServerError for others than were asked for."""
    choices = body.get("choices") if isinstance(body, dict) else None
    listed = choices[0].get("prompt_logprobs") if isinstance(choices, list) and choices else None
    if listed is None and isinstance(choices, list) and choices:
        return None
    if not isinstance(listed, list) or len(listed) < length:
        raise ServerError(message("server.cannot_score", "the server gives no prompt_logprobs, so it cannot score"))
    try:
        return [
            [] if entry is None else [[int(token), number(item["logprob"])] for token, item in entry.items()]
            for entry in listed[len(listed) - length :]
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ServerError(
            message("server.unknown_form", "prompt_logprobs of an unknown form: {said}", said=str(error))
        ) from None
