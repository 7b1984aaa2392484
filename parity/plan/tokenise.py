"""Prompts to token ids, once, with the checkpoint's own tokenizer and chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from parity.errors import ParityError
from parity.files import read_whole
from parity.messages import message
from parity.plan.checkpoint import MAX_JSON_BYTES, json_object, text_file
from parity.records import Json

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def load_tokenizer(model: str | Path) -> Tokenizer:
    """The tokenizer of a checkpoint directory. Raises ParityError where tokenizer.json does not load."""
    from tokenizers import Tokenizer  # 50 ms; not everyone who imports the plan needs it

    path = Path(model) / "tokenizer.json"
    try:
        return Tokenizer.from_buffer(read_whole(path, MAX_JSON_BYTES))
    except Exception as error:
        raise ParityError(
            message("plan.not_load", "{path} does not load: {said}", path=str(path), said=str(error)),
            hint=message("plan.download_checkpoint_again", "download the checkpoint again"),
        ) from error


class Spelling(NamedTuple):
    """How one token is written. `name`: as the tokenizer spells it, None for an id that it does not have."""

    name: str | None
    text: str
    special: bool


class TextOfTokens:
    """A checkpoint's tokenizer, for what parity asks of it."""

    def __init__(self, model: Path) -> None:
        self._tokenizer = load_tokenizer(model)
        added = self._tokenizer.get_added_tokens_decoder()
        self._special = {int(token_id) for token_id, token in added.items() if token.special}

    def decode(self, ids: Sequence[int], *, skip: bool = False) -> str:
        """Their text. `skip`: without special tokens."""
        return str(self._tokenizer.decode([int(token) for token in ids], skip_special_tokens=skip))

    def decode_each(self, streams: Sequence[Sequence[int]], *, skip: bool = False) -> list[str]:
        return [self.decode(ids, skip=skip) for ids in streams]

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """`special`: with the special tokens that the tokenizer adds by itself."""
        return list(self._tokenizer.encode(text, add_special_tokens=special).ids)

    def spellings(self, ids: Sequence[int]) -> list[Spelling]:
        """Of each token by itself."""
        return [
            Spelling(self._tokenizer.id_to_token(int(one)), self.decode([one]), int(one) in self._special)
            for one in ids
        ]


def texts_and_ids(prompts: Sequence[Mapping[str, Any]], model: Path) -> list[tuple[str | None, list[int]]]:
    """(text, token ids) of prompts, each with `id` and `ids`, `messages` or `text`.

    Plain text gets the special tokens that the tokenizer adds by itself (as an engine would); text
    rendered by a chat template gets none, since the template wrote them.
    """
    tokenizer = load_tokenizer(model)
    template: ChatTemplate | None = None
    made: list[tuple[str | None, list[int]]] = []
    for prompt in prompts:
        text, ids = prompt["text"], prompt["ids"]
        if ids is not None:
            if text is None and ids and 0 <= min(ids) <= max(ids) < 2**31:
                text = tokenizer.decode(ids, skip_special_tokens=False)
        elif prompt["messages"] is not None:
            template = template or ChatTemplate(model)
            text = template.render(prompt["messages"], prompt["id"])
            ids = tokenizer.encode(text, add_special_tokens=False).ids
        else:
            text = text or ""
            ids = tokenizer.encode(text).ids
        made.append((text, ids))
    return made


class ChatTemplate:
    """A checkpoint's chat template, rendered in a sandbox: the template is somebody else's program."""

    def __init__(self, model: str | Path) -> None:
        self.model = Path(model)
        config_path = self.model / "tokenizer_config.json"
        config: dict[str, Any] = {}
        if config_path.is_file():
            config = json_object(config_path)
        own = self.model / "chat_template.jinja"
        source = text_file(own) if own.is_file() else config.get("chat_template")
        if isinstance(source, list):  # several, by name
            named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
            source = named.get("default")
        if not isinstance(source, str):
            raise ParityError(
                message(
                    "plan.checkpoint_no_chat",
                    "the checkpoint {model} has no chat template, so `messages` cannot be rendered",
                    model=str(self.model),
                ),
                hint=message("plan.give_instead", "give `prompt` or `prompt_token_ids` instead"),
            )
        self._special = {
            name: str(token.get("content", "")) if isinstance(token, dict) else token
            for name, token in config.items()
            if name.endswith("_token") and isinstance(token, str | dict)
        }
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        # The settings of transformers.utils.chat_template_utils, so that the text is the same.
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ParityError(
                message(
                    "plan.chat_template_not",
                    "the chat template of {model} is not valid: {said}",
                    model=str(self.model),
                    said=str(error),
                ),
                hint=message("plan.give_instead", "give `prompt` or `prompt_token_ids` instead"),
            ) from error

    def render(self, messages: Sequence[Mapping[str, Json]], prompt_id: str) -> str:
        """The prompt's text, up to where the assistant's turn begins."""
        try:
            return self._template.render(messages=messages, add_generation_prompt=True, **self._special)
        except Exception as error:
            raise ParityError(
                message(
                    "plan.chat_template_not_render",
                    "the chat template of {model} does not render the prompt {prompt_id!r}: {said}",
                    model=str(self.model),
                    prompt_id=prompt_id,
                    said=str(error),
                ),
                hint=message("plan.check_roles_contents", "check the roles and contents of its messages"),
            ) from error


def _raise_exception(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _tojson(value: Json, indent: int | None = None) -> str:
    # jinja's own filter escapes for HTML, which a prompt must not be.
    return json.dumps(value, ensure_ascii=False, indent=indent)
