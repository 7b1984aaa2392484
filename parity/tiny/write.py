"""A checkpoint directory of a family, with the embedded tokenizer."""

from __future__ import annotations

import json
import math
import shutil
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt

from parity.errors import ParityError, writing
from parity.messages import message
from parity.tiny.families import END, FAMILIES, HIDDEN, VOCABULARY
from parity.tiny.parts import Maker, Weights
from parity.tiny.safetensors import write_safetensors

NOISE = 1.7
"""What one of two layers adds to the residual stream, in units of an embedding. With it, about one token in twenty
is not the successor, and some are near-ties; more layers add less each."""

GAIN = 0.1
"""Scale of the output rows: the successor's logit lies some nats above the rest."""

FIRST_ORDINARY = 16
"""Ids below are special tokens of the embedded tokenizer, or left alone with them; the walk avoids them."""

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def write_checkpoint(name: str, directory: Path, *, seed: int = 0) -> int:
    """Write the checkpoint of family `name` to a new directory; the number of its parameters.

    The same seed gives the same bytes. Raises ParityError for an unknown family, a directory that holds
    something already, and a place that cannot be written.
    """
    family = FAMILIES.get(name)
    if family is None:
        raise ParityError(
            message("tiny.unknown_family", "unknown family {name!r}", name=name),
            hint=message("tiny.known", "known: {families}", families=list(FAMILIES)),
        )
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ParityError(
            message("tiny.there_already", "{directory} is there already", directory=str(directory)),
            hint=message("tiny.name_new_directory", "name a new directory"),
        )
    noise = NOISE * math.sqrt(2 / family.config["num_hidden_layers"])
    make = Maker(seed, noise, HIDDEN, centred_norms=family.centred_norms)
    top = _ends(make)
    weights = {**family.weights(make, top), **top}
    with writing(directory, message("tiny.choose_another_place", "choose another place")):
        directory.mkdir(parents=True, exist_ok=True)
        _write_json(directory / "config.json", family.config)
        _write_json(directory / "generation_config.json", {"bos_token_id": END, "eos_token_id": END})
        home = resources.files("parity").joinpath("models", "tiny-qwen3-next-mtp")
        for file in TOKENIZER_FILES:
            with resources.as_file(home.joinpath(file)) as source:
                shutil.copyfile(source, directory / file)
        write_safetensors(directory / "model.safetensors", weights)
    return sum(value.size for value in weights.values())


def successor(make: Maker) -> npt.NDArray[np.int64]:
    """The token that follows each token: one cycle through all ordinary ones, which the others lead into."""
    ordinary = make.random.permutation(np.arange(FIRST_ORDINARY, VOCABULARY))
    follows = np.empty(VOCABULARY, dtype=np.int64)
    follows[ordinary] = np.roll(ordinary, -1)
    follows[:FIRST_ORDINARY] = ordinary[:FIRST_ORDINARY]
    return follows


def _ends(make: Maker) -> Weights:
    """Embedding, output rows and final norm. Each ordinary token's row is its predecessor's embedding."""
    embedding = make.random.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32)
    head = make.random.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32) * np.float32(0.1 * GAIN)
    follows = successor(make)[FIRST_ORDINARY:]
    head[follows] = embedding[FIRST_ORDINARY:] * np.float32(GAIN)
    return {"model.embed_tokens.weight": embedding, "lm_head.weight": head, "model.norm.weight": make.norm()}


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
