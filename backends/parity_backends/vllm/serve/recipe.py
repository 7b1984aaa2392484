"""The YAML file that `vllm serve --config` takes, as the words of a command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from parity.errors import ParityError
from parity.messages import message

ENDINGS = (".yaml", ".yml")


def is_recipe(source: str) -> bool:
    """Whether this names such a file rather than being a command; vLLM goes by the ending too."""
    return source.endswith(ENDINGS) and not any(letter.isspace() for letter in source)


def words_of_recipe(path: str) -> list[str]:
    """Its settings as flags, in the order of the file (`load_config_file`, utils/argparse_utils.py, 0.32).

    Raises ParityError for a file that cannot be read or holds no settings.
    """
    try:
        value = yaml.safe_load(Path(path).expanduser().read_text(encoding="utf-8"))
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
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _no_recipe(path, str(error).splitlines()[0]) from None
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise _no_recipe(path, type(value).__name__)
    return [word for name, setting in value.items() for word in _flag(name, setting)]


def _no_recipe(path: str, said: str) -> ParityError:
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
