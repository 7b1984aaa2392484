"""Tokenizers of others in a process of their own: the same answers, one process, an end to those that do not end."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from parity.errors import ParityError
from parity.pipeline.analyse import CheckpointTokenizer
from parity.plan import apart
from parity.plan.apart import ApartTokens, tokens_of
from parity.plan.tokenise import TextOfTokens
from parity.tui.tokens import Decoder
from parity.view.tokens import TokenText

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the limits are those of POSIX")

MODEL = Path(__file__).resolve().parents[3] / "parity" / "models" / "tiny-qwen3-next-mtp"
TEXT = "And the king said, 你好 naïve 🙂 done\n"


def theirs(folder: Path, **changes: object) -> Path:
    """The shipped tokenizer in another place, so that nobody knows it."""
    folder.mkdir()
    value = json.loads((MODEL / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**value, **changes}))
    return folder


def test_the_same_answers_apart_as_here(tmp_path: Path) -> None:
    model = theirs(tmp_path / "model")
    here, there = TextOfTokens(MODEL), ApartTokens(model)
    ids = here.encode(TEXT)
    odd = [*ids, 0, 1, 2047, 100_000]
    assert there.encode(TEXT) == ids
    assert [there.decode(odd, skip=skip) for skip in (True, False)] == [here.decode(odd, skip=s) for s in (True, False)]
    assert there.spellings(odd) == here.spellings(odd)
    assert there.decode_each([[one] for one in ids] * 20) == here.decode_each([[one] for one in ids] * 20)


def test_what_is_shown_is_the_same(tmp_path: Path) -> None:
    model = theirs(tmp_path / "model")
    ids = np.array([*TextOfTokens(MODEL).encode(TEXT), 0, 100_000], dtype=np.int64)
    assert Decoder(model).pieces(ids) == Decoder(MODEL).pieces(ids)
    assert TokenText(model).marked(ids, 3, 60) == TokenText(MODEL).marked(ids, 3, 60)


def test_one_process_serves_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = theirs(tmp_path / "model")
    started: list[Path] = []
    real = apart.Child.__init__

    def start(self: apart.Child, model: Path) -> None:
        started.append(model)
        real(self, model)

    monkeypatch.setattr(apart.Child, "__init__", start)
    for _ in range(3):
        TokenText(model).token(300)
        Decoder(model).piece(300)
        CheckpointTokenizer(model)([300, 301])
    assert started == [model]
    assert isinstance(tokens_of(model), ApartTokens)
    assert isinstance(tokens_of(MODEL), TextOfTokens)
    shutil.copy(MODEL / "tokenizer.json", model / "tokenizer.json")  # another file of the same name
    TokenText(model).token(300)
    assert started == [model, model]


def test_no_secret_is_in_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-secret")
    child = ApartTokens(theirs(tmp_path / "model"))._child
    environment = Path(f"/proc/{child._process.pid}/environ")
    if not environment.exists():
        pytest.skip("no /proc")
    assert b"SOME_API_KEY" not in environment.read_bytes()


def replaced(text: str, content: str) -> dict[str, object]:
    return {"type": "Replace", "pattern": {"String": text}, "content": content}


PANICS = [{"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "x"}]
GROWS = [replaced("a", "b" * 100_000), replaced("b", "c" * 100_000)]
"""400 GB of text."""


@pytest.mark.parametrize(("decoders", "said"), [(PANICS, "PanicException"), (GROWS, "needs more than")])
def test_a_decoder_that_explodes_is_given_up_and_ids_are_shown(
    tmp_path: Path, decoders: list[dict[str, object]], said: str
) -> None:
    """Reports and screens show ids, a comparison says why."""
    decoder = {"type": "Sequence", "decoders": [{"type": "Fuse"}, *decoders]}
    vocabulary = {"a" * 40 + "!": 0, "b": 1}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "b"}
    folder = theirs(tmp_path / "model", model=model, decoder=decoder, added_tokens=[], pre_tokenizer=None,
                    normalizer=None, post_processor=None)  # fmt: skip
    text = TokenText(folder)
    assert text.decode(np.array([0, 1])) == "[0] [1]"
    assert text.token(1) == "[1]"
    shown = Decoder(folder)
    assert [one.text for one in shown.pieces(np.array([0, 1]))] == ["[0]", "[1]"]
    assert said in str(shown.problem)
    with pytest.raises(ParityError, match=said):
        CheckpointTokenizer(folder)([0])


def test_one_that_does_not_load_says_so(tmp_path: Path) -> None:
    model = theirs(tmp_path / "model")
    (model / "tokenizer.json").write_text("{")
    with pytest.raises(ParityError, match="does not load"):
        CheckpointTokenizer(model)
    assert TokenText(model).token(300) == "[300]"
