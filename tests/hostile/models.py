"""Model directories of somebody else: templates, tokenizers and configurations that do not want to be read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from asked import Asked
from judging import ROOT, Ended, place

SECONDS = 150.0
MIB = 2100
"""The process that reads them may have 2 GiB."""

SHIPPED = ROOT / "parity" / "models" / "tiny-qwen3-next-mtp"

Change = Callable[[Path], None]


def template(text: str | bytes) -> Change:
    def change(model: Path) -> None:
        (model / "chat_template.jinja").write_bytes(text if isinstance(text, bytes) else text.encode())

    return change


def file(name: str, content: bytes) -> Change:
    return lambda model: (model / name).write_bytes(content) and None


def link(name: str, target: str) -> Change:
    def change(model: Path) -> None:
        (model / name).unlink(missing_ok=True)
        (model / name).symlink_to(target)

    return change


def pipe(name: str) -> Change:
    def change(model: Path) -> None:
        (model / name).unlink(missing_ok=True)
        os.mkfifo(model / name)

    return change


def edited(name: str, edit: Callable[[dict[str, Any]], Any]) -> Change:
    def change(model: Path) -> None:
        path = model / name
        value = json.loads(path.read_text()) if path.exists() else {}
        made = edit(value)
        path.write_text(json.dumps(value if made is None else made))

    return change


def put(name: str, **values: Any) -> Change:
    return edited(name, lambda value: value.update(values))


def normalizer(pattern: str) -> Change:
    return put("tokenizer.json", normalizer={"type": "Replace", "pattern": {"Regex": pattern}, "content": "x"})


def splitter(pattern: str) -> Change:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return put("tokenizer.json", pre_tokenizer=split)


LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
CASES: dict[str, Change] = {
    "template of two loops": template(LOOP),
    "template of three loops with text": template("{% for a in range(9999) %}{% for b in range(9999) %}xxxxxxxxxxxxxxxx{% endfor %}{% endfor %}"),
    "template that multiplies": template("{{ 'x' * 99999999999 }}"),
    "template of a huge format": template("{{ '%999999999d' % 1 }}"),
    "template that recurses": template("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
    "template of a huge list": template("{{ range(99999)|list * 9999 }}"),
    "template that looks for classes": template("{{ ''.__class__.__mro__[1].__subclasses__() }}"),
    "template that looks for globals": template("{{ cycler.__init__.__globals__.os.system('touch PWNED') }}"),
    "template that imports": template("{{ self.__init__.__globals__['__builtins__']['__import__']('os').system('touch PWNED') }}"),
    "template that reads": template("{% include '/etc/hostname' %}"),
    "template with an escape": template("\x1b[2J{{ raise_exception('\x1b]0;x') }}"),
    "template not UTF-8": template(b"\xff\xfe{{ messages }}"),
    "template of deep blocks": template("{% if 1 %}" * 5000 + "{% endif %}" * 5000),
    "template of deep brackets": template("{{ " + "(" * 20000 + ")" * 20000 + " }}"),
    "template of 300 MB": lambda model: os.truncate(_touch(model / "chat_template.jinja"), 300 << 20),
    "template of two powers": template("{{ 9 ** 9 ** 9 }}"),
    "template that is a device": link("chat_template.jinja", "/dev/zero"),
    "template that is a pipe": pipe("chat_template.jinja"),
    "templates without names": put("tokenizer_config.json", chat_template=[{}, 5, {"template": 5}]),
    "template of a number": put("tokenizer_config.json", chat_template=5),
    "special token of an object": put("tokenizer_config.json", bos_token={}, eos_token={"content": 5}),
    "normalizer that explodes": normalizer("(a+)+$"),
    "normalizer of nested stars": normalizer("(x*)*y"),
    "splitter that explodes": splitter("(a|aa)+$"),
    "splitter of look-behinds": splitter("(?<=(a+)+)b"),
    "bad regex": normalizer("(("),
    "tokenizer not JSON": file("tokenizer.json", b"{"),
    "tokenizer nested": file("tokenizer.json", b"[" * 100_000 + b"]" * 100_000),
    "tokenizer of a list": file("tokenizer.json", b"[1]"),
    "tokenizer of nothing": file("tokenizer.json", b""),
    "tokenizer with odd added tokens": put("tokenizer.json", added_tokens=[5, {"content": "x"}, {"id": "y"}]),
    "tokenizer with a huge id": put("tokenizer.json", added_tokens=[{"id": 2**31, "content": "<|x|>", "special": True}]),
    "tokenizer that is a device": link("tokenizer.json", "/dev/zero"),
    "tokenizer that is a pipe": pipe("tokenizer.json"),
    "tokenizer of 300 MB": lambda model: os.truncate(model / "tokenizer.json", 300 << 20),
    "config that is a device": link("config.json", "/dev/zero"),
    "config that is a pipe": pipe("config.json"),
    "config nested": file("config.json", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "config of a list": file("config.json", b"[]"),
    "config not UTF-8": file("config.json", b"\xff\xfe"),
    "config with odd numbers": put("config.json", vocab_size="x", max_position_embeddings=[], eos_token_id={"a": 1}),
    "config with huge numbers": put("config.json", vocab_size=2**62, max_position_embeddings=2**62),
    "config with negative numbers": put("config.json", vocab_size=-1, max_position_embeddings=-5, eos_token_id=-3),
    "text config of a list": put("config.json", text_config=[1]),
    "tokenizer_config nested": file("tokenizer_config.json", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "tokenizer_config of a list": file("tokenizer_config.json", b"[1]"),
    "generation_config of a list": file("generation_config.json", b"[1]"),
    "weights that are a pipe": pipe("model-2.safetensors"),
}  # fmt: skip


def _touch(path: Path) -> Path:
    path.touch()
    return path


def campaign(asked: Asked) -> Iterator[Ended]:
    """A plan made with each, of plain text and of chat messages."""
    for name in ("template that looks for globals", "config nested") if asked.short else asked.piece(list(CASES)):
        with place() as here:
            model = here.root / "given" / "model"
            model.mkdir()
            for one in SHIPPED.iterdir():
                if one.suffix == ".safetensors":
                    (model / one.name).symlink_to(one)
                elif one.is_file():
                    (model / one.name).write_bytes(one.read_bytes())
            CASES[name](model)
            prompts = here.root / "given" / "prompts.jsonl"
            lines = [{"id": "t", "prompt": "a" * 40}, {"id": "c", "messages": [{"role": "user", "content": "aaaa"}]}]
            prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
            yield here.run(name, "plan", "--backends", "fake", "--model", str(model), "--prompts", str(prompts), "-o",
                           "plan.json", seconds=SECONDS, mib=MIB)  # fmt: skip
