"""Prompts: from a text file, a JSONL file, or a built-in suite."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path

from parity.errors import ParityError, cannot_read, said_by
from parity.files import read_whole
from parity.messages import Message, message
from parity.plan.messages import parse_messages
from parity.records import Json
from parity.records.sampling import Value, parameters, read_values

_FORMATS = message(
    "plan.prompt_formats",
    "a text file has one prompt per line; a .jsonl file has one object per line with `prompt`, "
    "`prompt_token_ids` or `messages`",
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt before tokenising. Token ids win over messages, messages over text."""

    id: str
    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    messages: Sequence[Mapping[str, Json]] | None = None
    sampling: Mapping[str, Value] = field(default_factory=dict)
    """Its own sampling parameters but `max_tokens`, those that are not to be the plan's."""
    max_tokens: int | None = None


def suite_names() -> list[str]:
    """Names of the built-in suites."""
    entries = (files("parity.plan") / "suites").iterdir()
    return sorted(entry.name.removesuffix(".jsonl") for entry in entries if entry.name.endswith(".jsonl"))


def load_suite(name: str) -> list[Prompt]:
    """A built-in suite. Raises ParityError for an unknown name."""
    if name not in suite_names():
        raise ParityError(
            message(
                "plan.unknown_suite_built",
                "unknown suite {name!r}; built in: {suite_names}",
                name=name,
                suite_names=suite_names(),
            ),
            hint=message("plan.use_one_them", "use one of them with --suite, or your own prompts with --prompts FILE"),
        )
    text = (files("parity.plan") / "suites" / f"{name}.jsonl").read_text(encoding="utf-8")
    return _parse_jsonl(text, f"suite {name}")


def load_prompts(path: str | Path) -> list[Prompt]:
    """Prompts of a file: JSONL where its name ends in .jsonl or .json, else one prompt per line.

    Raises ParityError that names the file and the line.
    """
    path = Path(path)
    try:
        text = read_whole(path).decode("utf-8-sig")
    except FileNotFoundError:
        raise ParityError(
            message("plan.prompt_file_not", "the prompt file {path} does not exist", path=str(path)), hint=_FORMATS
        ) from None
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise ParityError(
            message("plan.line_not_utf", "{path}, line {line} is not UTF-8 text", path=str(path), line=line),
            hint=message("plan.save_file_utf", "save the file as UTF-8"),
        ) from None
    except OSError as error:
        raise cannot_read(path, error, _FORMATS) from None
    if path.suffix in (".jsonl", ".json", ".ndjson"):
        prompts = _parse_jsonl(text, str(path))
    else:
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        prompts = [Prompt(f"p{i}", text=line) for i, line in enumerate(line for line in lines if line.strip())]
    if not prompts:
        raise ParityError(
            message("plan.prompt_file_no", "the prompt file {path} has no prompts", path=str(path)), hint=_FORMATS
        )
    return prompts


def _parse_jsonl(text: str, source: str) -> list[Prompt]:
    prompts: list[Prompt] = []
    seen: dict[str, int] = {}
    # Not splitlines(): a JSON string may hold U+2028 and friends as they are.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ParityError(
                message(
                    "plan.line_not_json",
                    "{source}, line {number} is not JSON: {said}",
                    source=source,
                    number=number,
                    said=str(error),
                ),
                hint=_FORMATS,
            ) from None
        where = f"{source}, line {number}"
        prompt = _parse_prompt(value, f"p{len(prompts)}", where)
        if isinstance(value, dict):
            _refuse_beside(value, where)
            if value.get("sampling") is not None:
                prompt = _asked(prompt, value["sampling"], where)
        if prompt.id in seen:
            raise ParityError(
                message(
                    "plan.line_id_used",
                    "{source}, line {number}: the id {prompt!r} was used on line {prompt_2}",
                    source=source,
                    number=number,
                    prompt=prompt.id,
                    prompt_2=seen[prompt.id],
                ),
                hint=message("plan.give_every_prompt", "give every prompt its own id, or none"),
            )
        seen[prompt.id] = number
        prompts.append(prompt)
    return prompts


def _refuse_beside(line: Mapping[str, Json], where: str) -> None:
    """A parameter that stands beside the prompt, as in a request to a server, would be left out without a word."""
    beside = [row.name for row in parameters() if line.get(row.name) is not None]
    if beside:
        raise ParityError(
            message(
                "plan.sampling_beside",
                "{where} has {names} outside of `sampling`, where nobody reads it",
                where=where,
                names=beside,
            ),
            hint=message(
                "plan.sampling_within",
                "ask for it in `sampling`, or take it out: `jq -c '.sampling = {{{wanted}}} | del({gone})' FILE.jsonl`",
                wanted=", ".join(beside),
                gone=", ".join(f".{name}" for name in beside),
            ),
        )


def _asked(prompt: Prompt, value: Json, where: str) -> Prompt:
    """The prompt with its own parameters. Raises ParityError that names the line and the parameter."""
    hint = message(
        "plan.sampling_object",
        "`sampling` is an object of a prompt's own parameters; docs/plan.md has their names and forms",
    )

    def refuse(name: str, problem: Message) -> ParityError:
        return ParityError(
            message("plan.sampling", "{where}: sampling.{name} {problem}", where=where, name=name, problem=problem),
            hint=hint,
        )

    if not isinstance(value, dict):
        raise ParityError(
            message(
                "plan.sampling_not_object",
                "{where}: sampling is {value}, not an object",
                where=where,
                value=type(value).__name__,
            ),
            hint=hint,
        )
    return asking(prompt, read_values(value, refuse, own=True))


def asking(prompt: Prompt, own: Mapping[str, Value]) -> Prompt:
    """The prompt with these parameters of its own."""
    limit = own.get("max_tokens")
    others = {name: one for name, one in own.items() if name != "max_tokens"}
    return replace(prompt, sampling=others, max_tokens=limit if isinstance(limit, int) else None)


def _parse_prompt(value: Json, default_id: str, where: str) -> Prompt:
    if isinstance(value, str):
        return Prompt(default_id, text=value)
    if not isinstance(value, dict):
        raise ParityError(
            message("plan.not_object", "{where} is {value}, not an object", where=where, value=type(value).__name__),
            hint=_FORMATS,
        )
    name = value.get("id")
    if name is None:
        name = default_id
    if isinstance(name, bool) or not isinstance(name, int | str) or str(name) == "":
        raise ParityError(
            message("plan.id_must_string", "{where}: id must be a string or a number", where=where),
            hint=message("plan.leave_out", "or leave it out"),
        )
    text = value.get("prompt")
    # A rollout dump may call its text anything; only `prompt` is taken for it, and only where it is text.
    token_ids = value.get("prompt_token_ids")
    messages = value.get("messages")
    if token_ids is not None:
        if not isinstance(token_ids, list) or any(isinstance(t, bool) or not isinstance(t, int) for t in token_ids):
            raise ParityError(
                message("plan.prompt_token_ids", "{where}: prompt_token_ids must be a list of token ids", where=where),
                hint=_FORMATS,
            )
        return Prompt(str(name), text=text if isinstance(text, str) else None, token_ids=tuple(token_ids))
    if isinstance(text, list):  # the other common shape of a rollout dump: `prompt` holds the messages
        messages, text = text, None
    if messages is not None:
        try:
            return Prompt(str(name), messages=parse_messages(messages))
        except (TypeError, ValueError) as error:
            raise ParityError(
                message("plan.messages", "{where}: messages {said}", where=where, said=said_by(error)), hint=_FORMATS
            ) from None
    if text is not None and not isinstance(text, str):
        raise ParityError(
            message("plan.prompt_must_text", "{where}: prompt must be text or a list of messages", where=where),
            hint=_FORMATS,
        )
    if text is None:
        raise ParityError(
            message(
                "plan.none_prompt_prompt", "{where} has none of prompt, prompt_token_ids and messages", where=where
            ),
            hint=_FORMATS,
        )
    return Prompt(str(name), text=text)
