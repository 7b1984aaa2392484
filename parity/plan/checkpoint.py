"""What parity needs to know of a checkpoint directory: vocabulary, EOS, length bound, fingerprint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from parity.errors import ParityError, reading
from parity.files import open_regular, read_whole
from parity.messages import message
from parity.paths import expanded
from parity.plan.parts import Model
from parity.records import Json

MAX_JSON_BYTES: Final = 256 << 20
"""Of a file that describes a checkpoint; tokenizer.json of 250,000 entries has some 30 MB."""

SAMPLE_BYTES: Final = 1 << 20
"""Bytes hashed at the start, the middle and the end of each weight file: enough to tell checkpoints apart
(the start of a safetensors file lists every tensor), cheap enough for a terabyte."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model directory that was looked into. `max_positions` is None where config.json gives no bound."""

    model: Model
    max_positions: int | None
    primary_eos: int | None
    """The EOS of the tokenizer: the only one an engine stops at by itself with generation_config="vllm"."""
    config: Mapping[str, Json] = field(default_factory=dict)
    """Its config.json."""


def read_checkpoint(path: str | Path, *, weights: bool = True) -> Checkpoint:
    """Look into a model directory. Raises ParityError where it is not one.

    `weights` False: it may lack them, since no engine here loads it; the fingerprint lacks them as well then.
    """
    where = expanded(path).absolute()
    if not where.is_dir():
        raise ParityError(
            message("plan.model_directory_not", "the model directory {where} does not exist", where=str(where)),
            hint=message(
                "plan.give_model_directory",
                "give --model the directory of a downloaded checkpoint (it holds config.json)",
            ),
        )
    config = json_object(where / "config.json", required=True)
    text_config = config.get("text_config")
    text: dict[str, Json] = text_config if isinstance(text_config, dict) else config

    def setting(name: str) -> Json:
        return text.get(name, config.get(name))

    if not (where / "tokenizer.json").is_file():
        raise ParityError(
            message(
                "plan.no_tokenizer_json",
                "{where} has no tokenizer.json, which parity tokenises prompts with",
                where=str(where),
            ),
            hint=message(
                "plan.save_fast_tokenizer",
                "save the fast tokenizer into the directory: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)",
            ),
        )
    if weights and not any(where.glob("*.safetensors")) and not any(where.glob("*.bin")):
        raise ParityError(
            message("plan.holds_no_weights", "{where} holds no weights (*.safetensors or *.bin)", where=str(where)),
            hint=message("plan.download_complete", "is the download complete?"),
        )
    primary = _tokenizer_eos(where)
    configured = _ids(setting("eos_token_id"))
    generation = _ids(json_object(where / "generation_config.json").get("eos_token_id"))
    if primary is None and configured:
        primary = configured[0]
    eos = {*configured, *generation, *([] if primary is None else [primary])}
    bound = setting("max_position_embeddings")
    vocabulary = setting("vocab_size")
    with reading(where, message("plan.make_checkpoint_readable", "make the checkpoint readable for this user")):
        fingerprint = _fingerprint(where)
    model = Model(
        name=where.name,
        path=str(where),
        fingerprint=fingerprint,
        vocab_size=vocabulary if isinstance(vocabulary, int) else None,
        eos_token_ids=tuple(sorted(eos)),
    )
    return Checkpoint(model, bound if isinstance(bound, int) else None, primary, config)


def text_file(path: Path) -> str:
    """A file of a checkpoint that is text. Raises ParityError."""
    try:
        return read_whole(path, MAX_JSON_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ParityError(
            message("plan.cannot_read", "cannot read {filename}: {strerror}", filename=str(path), strerror=str(error)),
            hint=message("plan.download_checkpoint_again", "download the checkpoint again"),
        ) from error


def json_object(path: Path, *, required: bool = False) -> dict[str, Any]:
    try:
        value = json.loads(read_whole(path, MAX_JSON_BYTES))
    except FileNotFoundError:
        if not required:
            return {}
        raise ParityError(
            message(
                "plan.no_not_checkpoint",
                "{parent} has no {path}: it is not a checkpoint directory",
                parent=str(path.parent),
                path=path.name,
            ),
            hint=message(
                "plan.give_model_directory_holds",
                "give --model the directory that holds config.json, tokenizer.json and the weights",
            ),
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ParityError(
            message("plan.cannot_read", "cannot read {filename}: {strerror}", filename=str(path), strerror=str(error)),
            hint=message("plan.download_checkpoint_again", "download the checkpoint again"),
        ) from error
    if not isinstance(value, dict):
        raise ParityError(
            message("plan.not_json_object", "{path} is not a JSON object", path=str(path)),
            hint=message("plan.download_checkpoint_again", "download the checkpoint again"),
        )
    return value


def _ids(value: Json) -> list[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    return [item for item in value if isinstance(item, int)] if isinstance(value, list) else []


def _tokenizer_eos(where: Path) -> int | None:
    token = json_object(where / "tokenizer_config.json").get("eos_token")
    if isinstance(token, dict):
        token = token.get("content")
    if not isinstance(token, str):
        return None
    for added in json_object(where / "tokenizer.json").get("added_tokens") or []:
        if isinstance(added, dict) and added.get("content") == token and isinstance(added.get("id"), int):
            return int(added["id"])
    return None


def _fingerprint(where: Path) -> dict[str, str]:
    prints = {}
    for name in ("config.json", "tokenizer.json"):
        prints[name] = hashlib.sha256(read_whole(where / name, MAX_JSON_BYTES)).hexdigest()
    weights = hashlib.sha256()
    files = sorted(where.glob("*.safetensors")) or sorted(where.glob("*.bin"))
    for file in files:
        size = file.stat().st_size
        weights.update(f"{file.name} {size}\n".encode())
        with open_regular(file) as stream:
            for start in sorted({0, max(0, size // 2), max(0, size - SAMPLE_BYTES)}):
                stream.seek(start)
                weights.update(stream.read(SAMPLE_BYTES))
    if files:
        prints["weights"] = weights.hexdigest()
    return prints


def shipped_checkpoint(name: str) -> Path | None:
    """The directory of a checkpoint that comes with parity, by its name in a plan or a capture."""
    models = Path(__file__).parents[1] / "models"
    return next((where for where in models.iterdir() if where.name == name and where.is_dir()), None)


def check_fingerprint(planned: Model, found: Model) -> None:
    """Raises ParityError where the checkpoint here is not the one that the plan was made with."""
    for part, expected in planned.fingerprint.items():
        if found.fingerprint.get(part) != expected:
            raise ParityError(
                message(
                    "plan.checkpoint_not_plans",
                    "the checkpoint at {found} is not the plan's {planned!r}: {part} differs",
                    found=found.path,
                    planned=planned.name,
                    part=part,
                ),
                hint=message(
                    "plan.copy_same_checkpoint",
                    "copy the same checkpoint to this host, or make a new plan with this one",
                ),
            )
