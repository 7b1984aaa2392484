"""What is sent: a plan's request and sampling parameters as the body of an OpenAI-compatible call."""

from __future__ import annotations

from typing import Any, Optional

from parity_backends.worker.asked import Request, Rows, Sampling
from parity_backends.worker.sentences import WorkerError, message

from .transport import Body

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"

VLLM = "vllm"
OPENAI = "openai"


def sampling_body(sampling: Sampling, rows: Rows, dialect: str, endpoint: str, seed: Optional[int]) -> Sampling:
    """The sampling parameters, those that the dialect has, with this seed. Nothing is left to a server's default."""
    body = {
        name: value
        for name, value in sampling.items()
        if value is not None and name not in ("seed", "logprobs") and _takes(dialect, rows.get(name, {}))
    }
    if not body.get("stop"):
        body.pop("stop", None)
    if sampling.get("temperature") and seed is not None:
        body["seed"] = seed
    if dialect == VLLM:
        body.update(return_token_ids=True, return_tokens_as_token_ids=True)
    top = sampling.get("logprobs")
    if top is not None and endpoint == CHAT:
        body.update(logprobs=True, top_logprobs=top)
    elif top is not None:
        body["logprobs"] = top
    return body


def not_sent(sampling: Sampling, rows: Rows, dialect: str) -> Sampling:
    """Sampling parameters that mean something and that a server of this dialect does not take."""
    return {
        name: value
        for name, value in sampling.items()
        if value is not None and not _takes(dialect, rows.get(name, {})) and value != rows[name].get("default")
    }


def _takes(dialect: str, row: dict[str, Any]) -> bool:
    """Whether a server of this dialect has the parameter; vLLM has its own beside those of OpenAI's protocol."""
    protocol = row.get("openai", VLLM)
    return bool(protocol == "standard" or protocol == dialect)


def call_body(
    request: Request,
    model: str,
    endpoint: str,
    sampling: Sampling,
    *,
    stream: bool,
    wrap: bool,
    as_text: bool,
) -> Body:
    """The whole body for one request of the plan. Raises WorkerError for one that this endpoint cannot take."""
    body: Body = {"model": model}
    if endpoint == CHAT:
        body["messages"] = messages_of(request, wrap)
    elif has_images(request):
        raise WorkerError(message("server.images", "it has image parts, which only the chat endpoint takes"))
    elif as_text:
        if not isinstance(request.get("prompt"), str):
            raise WorkerError(message("server.no_text", "it has no text, and this server takes no token ids"))
        body["prompt"] = request["prompt"]
    else:
        body["prompt"] = request["prompt_token_ids"]
    body.update(sampling)
    if stream:
        body.update(stream=True, stream_options={"include_usage": True})
    return body


def messages_of(request: Request, wrap: bool) -> list[Any]:
    """Chat messages of a request; with `wrap` a plain prompt becomes one message of a user."""
    messages = request.get("messages")
    if messages:
        return list(messages)
    if wrap and isinstance(request.get("prompt"), str):
        return [{"role": "user", "content": request["prompt"]}]
    raise WorkerError(message("server.no_messages", "it has no messages, and the chat endpoint takes nothing else"))


def has_images(request: Request) -> bool:
    """Does a message have a part that is not text?"""
    for one in request.get("messages") or []:
        content = one.get("content")
        if isinstance(content, list) and any(part.get("type") != "text" for part in content if isinstance(part, dict)):
            return True
    return False


def score_body(model: str, token_ids: list[int], top: int) -> Body:
    """A call that teacher-forces `token_ids`: their logprobs come back as those of a prompt."""
    return {
        "model": model,
        "prompt": token_ids,
        "max_tokens": 1,
        "temperature": 0.0,
        "prompt_logprobs": top,
        "return_token_ids": True,
    }
