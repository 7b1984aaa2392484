"""The YAML file that `vllm serve --config` takes, as the words of a command line."""

from __future__ import annotations

import json
from typing import Any

import yaml

from parity.errors import ParityError
from parity.files import read_whole
from parity.messages import Message, message
from parity.paths import expanded

MOST_BYTES = 1 << 20
MOST_VALUES = 10_000
DEEPEST = 32
"""Of a recipe: an alias of YAML is a few bytes, and stands for any number of values."""

ENDINGS = (".yaml", ".yml")


def is_recipe(source: str) -> bool:
    """Whether this names such a file rather than being a command; vLLM goes by the ending too."""
    return source.endswith(ENDINGS) and not any(letter.isspace() for letter in source)


def words_of_recipe(path: str) -> list[str]:
    """Its settings as flags, in the order of the file (`load_config_file`, utils/argparse_utils.py, 0.32).

    Raises ParityError for a file that cannot be read or holds no settings.
    """
    try:
        value = yaml.safe_load(read_whole(expanded(path), MOST_BYTES).decode("utf-8"))
    except OSError as error:
        raise ParityError(
            message(
                "serve.cannot_read",
                "cannot read the recipe {path}: {said}",
                path=path,
                said=str(error.strerror or error),
            ),
            hint=message("serve.name_file", "name the YAML file that `vllm serve --config` gets"),
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _no_recipe(path, (str(error).splitlines() or [type(error).__name__])[0]) from None
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise _no_recipe(path, type(value).__name__)
    found = json_of(value)
    if found is None:
        raise _no_recipe(path, message("serve.not_plain", "it holds more than plain values, lists and mappings"))
    return [word for name, setting in found.items() for word in _flag(name, setting)]


def json_of(value: dict[str, Any]) -> dict[str, Any] | None:
    """The mapping as JSON has it, aliases written out; None where it is too much, nested too deeply, or no JSON."""
    left = MOST_VALUES

    def plain(one: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or depth > DEEPEST or not isinstance(one, dict | list | str | int | float | bool | None):
            raise TypeError
        if isinstance(one, dict):
            return {
                name if isinstance(name, str) else str(name): plain(inner, depth + 1) for name, inner in one.items()
            }
        return [plain(inner, depth + 1) for inner in one] if isinstance(one, list) else one

    try:
        found: dict[str, Any] = plain(value, 0)
    except TypeError:
        return None
    return found


def _no_recipe(path: str, said: str | Message) -> ParityError:
    return ParityError(
        message("serve.no_recipe", "{path} holds no settings as NAME: VALUE: {said}", path=path, said=said),
        hint=message("serve.name_file", "name the YAML file that `vllm serve --config` gets"),
    )


def _flag(name: str, value: Any) -> list[str]:
    flag = "--" + name
    if isinstance(value, bool):
        return [flag if value else "--no-" + name]
    if isinstance(value, list):
        return [flag, *(item if isinstance(item, str) else json.dumps(item) for item in value)]
    return [flag, value if isinstance(value, str) else json.dumps(value)]
