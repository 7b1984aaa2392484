"""Corpus and tokenizer: the King James Bible and the standard library of the Python that runs this."""

from __future__ import annotations

import ast
import importlib
import json
import random
import sysconfig
from pathlib import Path

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SKIPPED = (
    "test", "tests", "site-packages", "dist-packages", "idlelib", "encodings", "lib2to3", "turtledemo",
    "pydoc_data", "ensurepip", "msilib",
)  # fmt: skip
_LONGEST_CODE = 60_000
_SHORTEST_DOCSTRING = 60
_VALIDATION_PART = 40
"""One document in so many is kept from training."""


def documents(bible: Path, code_characters: int) -> dict[str, list[str]]:
    """Documents by source. `code_characters` bounds the amount of program text."""
    chapters: dict[tuple[str, int], list[str]] = {}
    for line in bible.read_text(encoding="utf-8").splitlines():
        verse = json.loads(line)
        chapters.setdefault((verse["book"], verse["chapter"]), []).append(verse["text"].strip())
    topics = importlib.import_module("pydoc_data.topics").topics
    docstrings, programs = _library(Path(sysconfig.get_paths()["stdlib"]))
    random.shuffle(programs)
    kept, total = [], 0
    for program in programs:
        if len(program) <= _LONGEST_CODE and total <= code_characters:
            kept.append(program)
            total += len(program)
    return {
        "bible": [f"{book}, chapter {number}\n\n" + " ".join(verses) for (book, number), verses in chapters.items()],
        "topics": [text.strip() for text in topics.values()],
        "docstrings": docstrings,
        "code": kept,
    }


def _library(root: Path) -> tuple[list[str], list[str]]:
    """Docstrings (a document per file) and programs of the standard library."""
    docstrings, programs = [], []
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root).parts
        if any(part in _SKIPPED or part.startswith("config-3") for part in inside[:-1]):
            continue
        try:
            program = path.read_text(encoding="utf-8")
            tree = ast.parse(program)
        except (SyntaxError, ValueError):  # templates, old encodings
            continue
        found = [
            text
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and (text := ast.get_docstring(node))
            and len(text) > _SHORTEST_DOCSTRING
        ]
        if found:
            docstrings.append("\n\n".join(found))
        programs.append(program)
    return docstrings, programs


def train_tokenizer(texts: list[str], size: int, folder: Path) -> Tokenizer:
    """A byte-level BPE of `size` tokens, also written to `folder` as a checkpoint has it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=SPECIAL[0],
        pad_token=SPECIAL[0],
        additional_special_tokens=list(SPECIAL[1:]),
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = CHAT_TEMPLATE
    wrapped.save_pretrained(folder)
    # Some versions of transformers write a class name that older ones do not know.
    config = folder / "tokenizer_config.json"
    settings = json.loads(config.read_text(encoding="utf-8"))
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    config.write_text(json.dumps(settings, indent=1), encoding="utf-8")
    return tokenizer


def build(bible: Path, work: Path, size: int, code_characters: int) -> None:
    """Write `tokenizer/`, `train.bin` and `val.bin` (token ids, uint16) to `work`."""
    random.seed(0)
    parts = documents(bible, code_characters)
    for name, texts in parts.items():
        print(f"{name}: {len(texts)} documents, {sum(map(len, texts)):,} characters")
    tokenizer = train_tokenizer([text for texts in parts.values() for text in texts], size, work / "tokenizer")
    training: list[str] = []
    validation: list[str] = []
    for texts in parts.values():
        random.shuffle(texts)
        kept = max(1, len(texts) // _VALIDATION_PART)
        validation += texts[:kept]
        training += texts[kept:]
    random.shuffle(training)
    for name, texts in (("train", training), ("val", validation)):
        ids: list[int] = []
        for encoded in tokenizer.encode_batch(texts):
            ids += [*encoded.ids, 0]
        np.array(ids, dtype=np.uint16).tofile(work / f"{name}.bin")
        print(f"{name}: {len(ids):,} tokens of {sum(len(text.encode()) for text in texts) / len(ids):.2f} bytes")
