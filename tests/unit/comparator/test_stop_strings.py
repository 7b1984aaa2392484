"""Stop strings as vLLM treats them, with the embedded checkpoint's tokenizer: who keeps to it is never accused."""

from __future__ import annotations

import random
from bisect import bisect_left
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from captures import EOS, capture, completion, header
from tokenizers.decoders import DecodeStream

import parity
from parity.comparator import CompareOptions, compare
from parity.pipeline.analyse import CheckpointTokenizer
from parity.plan.tokenise import load_tokenizer
from parity.records import Completion, Kind, Verdict

MODEL = Path(parity.__file__).parent / "models" / "tiny-qwen3-next-mtp"
TOKENIZER, RAW = CheckpointTokenizer(MODEL), load_tokenizer(MODEL)
LIMIT, VOCABULARY = 40, 2048
READABLE = [token for token in range(VOCABULARY) if TOKENIZER([token]).isascii() and TOKENIZER([token])][:400]


@dataclass
class Detokenizer:
    """`vllm/v1/engine/detokenizer.py` of v0.32; `old`: of v0.31 and before."""

    prompt: list[int]
    sampling: dict[str, Any]
    old: bool

    def write(self, tokens: list[int], step: int, rng: random.Random) -> Completion:
        """A completion in steps of up to `step` tokens more than one."""
        asked = self.sampling
        stops, includes = asked.get("stop", []), asked.get("include_stop_str_in_output", False)
        least, enders = asked.get("min_tokens", 0), [EOS, *asked.get("stop_token_ids", [])]
        stream = DecodeStream(ids=self.prompt, skip_special_tokens=asked.get("skip_special_tokens", True))
        ids: list[int] = []
        text, finish, reason = "", None, None
        rest = iter(tokens)
        while finish is None:
            first, before = len(ids), len(text)
            offsets = [before]
            for _ in range(rng.randint(1, step + 1)):
                token = next(rest)
                if len(ids) < least and token in enders:
                    token = READABLE[0]
                if token in enders:
                    finish, reason = "stop", None if token == EOS else token
                ids.append(token)
                if finish is None or includes:
                    text += stream.step(RAW, token) or ""
                offsets.append(len(text))
                if finish is None and len(ids) == LIMIT:
                    finish = "length"
                if finish is not None:
                    break
            if not stops or len(ids) <= least:
                continue
            new = len(text) - offsets[max(least - first, 0)]
            found = self._find(text, new, stops) if new else None
            if found is not None:
                reason, start, end = found
                finish = "stop"
                if not self.old:
                    del ids[first + bisect_left(offsets, end, lo=1) :]
                text = text[: end if includes else start]
        one = completion(ids, prompt=self.prompt, finish=finish, stop=reason, text=text)
        return replace(one, sampling=asked)

    def _find(self, text: str, new: int, stops: list[str]) -> tuple[str, int, int] | None:
        places = [(stop, text.find(stop, 1 - new - len(stop))) for stop in stops]
        found = [(stop, at, at + len(stop)) for stop, at in places if at >= 0]
        return None if not found else found[0] if self.old else min(found, key=lambda one: one[2])


def a_request(rng: random.Random, tokens: list[int]) -> dict[str, Any]:
    whole = RAW.decode(tokens)
    asked: dict[str, Any] = {}
    if rng.random() < 0.8:
        places = [rng.randrange(len(whole) - 6) for _ in range(rng.randint(1, 3))]
        asked["stop"] = list(dict.fromkeys(whole[at : at + rng.randint(1, 4)] for at in places))
    if rng.random() < 0.4:
        asked["include_stop_str_in_output"] = True
    if rng.random() < 0.4:
        asked["min_tokens"] = rng.randint(1, 20)
    if rng.random() < 0.3:
        asked["stop_token_ids"] = [rng.choice(tokens)]
    if rng.random() < 0.2:
        asked["skip_special_tokens"] = False
    return asked


def a_pair(rng: random.Random, step: int, *, old: bool, name: str) -> tuple[Completion, Completion]:
    """One request without speculation, and with it. In one of five the prompt ends inside a character."""
    prompt = [rng.choice(READABLE) for _ in range(5)]
    if rng.random() < 0.2:
        prompt += RAW.encode(rng.choice("é日😀")).ids[:-1]
    tokens = [rng.choice(READABLE) if rng.random() < 0.9 else rng.randrange(VOCABULARY) for _ in range(60)]
    if rng.random() < 0.5:
        tokens[rng.randrange(60)] = EOS
    asked = a_request(rng, tokens)
    pair = (
        Detokenizer(prompt, asked, old).write(tokens, 0, rng),
        Detokenizer(prompt, asked, old).write(tokens, step, rng),
    )
    a, b = (replace(one, key=one.key._replace(request=name)) for one in pair)
    return a, b


@pytest.mark.parametrize("options", [CompareOptions(detokenize=TOKENIZER), CompareOptions()], ids=["with", "without"])
@pytest.mark.parametrize("old", [False, True], ids=["v0.32", "v0.31"])
@pytest.mark.parametrize("step", [0, 1, 3])
def test_an_engine_that_keeps_to_stop_strings_is_never_accused(step: int, old: bool, options: CompareOptions) -> None:
    rng = random.Random(1000 * step + old)
    engine = {"speculative_config": {"method": "mtp", "num_speculative_tokens": step}} if step else {}
    pairs = [a_pair(rng, step, old=old, name=f"p{n}") for n in range(60)]
    base = capture(header("cpu/base", max_tokens=LIMIT, vocab_size=VOCABULARY), *(a for a, _ in pairs))
    other = header("cpu/other", engine=engine, max_tokens=LIMIT, vocab_size=VOCABULARY)
    result = compare(base, capture(other, *(b for _, b in pairs)), None, options)
    assert (result.verdict, result.corrupt) == (Verdict.PASS, [])
    assert any(isinstance(a.stop_reason, str) for a, _ in pairs)


def test_any_other_text_under_a_stop_string_is_found() -> None:
    rng = random.Random(7)
    options = CompareOptions(detokenize=TOKENIZER)
    changes = 0
    for n in range(60):
        right, _ = a_pair(rng, 0, old=False, name=f"p{n}")
        others = [a_pair(rng, 0, old=False, name=f"o{m}")[0] for m in range(4)]
        if not right.sampling.get("stop") or len(right.text or "") < 4:
            continue
        text = right.text or ""
        made = [text[:-1], text + "!", text + str(right.stop_reason), "", text[1:]]
        arms = (header(arm, max_tokens=LIMIT, vocab_size=VOCABULARY) for arm in ("cpu/base", "cpu/other"))
        base, other = (capture(arm, *others) for arm in arms)
        base = replace(base, completions={**base.completions, right.key: right})
        for changed in (one for one in made if one.rstrip("\ufffd") != text.rstrip("\ufffd")):
            wrong = replace(right, text=changed)
            candidate = replace(other, completions={**other.completions, right.key: wrong})
            result = compare(base, candidate, None, options)
            assert [one.kind for one in result.corrupt] == [Kind.TEXT_MISMATCH], changed
            changes += 1
    assert changes > 50


@pytest.mark.parametrize("options", [CompareOptions(detokenize=TOKENIZER), CompareOptions()], ids=["with", "without"])
@pytest.mark.parametrize("includes", [False, True])
@pytest.mark.parametrize("arm", ["cpu/base", "cpu/other"])
def test_of_stop_strings_in_one_token_old_versions_take_the_first_of_the_list(
    arm: str, includes: bool, options: CompareOptions
) -> None:
    tokens = RAW.encode("said is thenceforth").ids
    asked = {"stop": ["the", " t"], "include_stop_str_in_output": includes}
    old, new = (Detokenizer([READABLE[0]], asked, which).write(tokens, 0, random.Random(1)) for which in (True, False))
    assert (old.stop_reason, new.stop_reason) == ("the", " t")
    rest = [a_pair(random.Random(n), 0, old=False, name=f"o{n}")[0] for n in range(4)]
    arms = ((name, old if name == arm else new) for name in ("cpu/base", "cpu/other"))
    result = compare(
        *(capture(header(name, max_tokens=LIMIT, vocab_size=VOCABULARY), *rest, one) for name, one in arms),
        None,
        options,
    )
    assert (result.verdict, result.corrupt) == (Verdict.PASS, [])


@pytest.mark.parametrize(
    ("asked", "text", "unread"),
    [
        ({"stop": ["stop"]}, None, 2),
        ({"stop": ["stop"]}, "and on", 0),
        ({"stop": ["stop"], "min_tokens": 4}, "and on", 2),
        ({}, None, 0),
    ],
    ids=["nothing", "text", "min_tokens", "not asked"],
)
def test_what_no_text_and_no_tokenizer_shows_of_stop_strings_is_said(
    asked: dict[str, Any], text: str | None, unread: int
) -> None:
    rows = [completion(range(100, 140), f"p{number}", text=text) for number in range(2)]
    arms = [capture(name, *rows, max_tokens=LIMIT, **asked) for name in ("cpu/base", "cpu/mtp")]
    result = compare(arms[0], arms[1])
    assert result.verdict is Verdict.PASS
    said = [one.parameters["count"] for one in result.reasons if one.id == "conclude.unread_stops"]
    assert said == ([unread] if unread else [])


@pytest.mark.parametrize("detokenize", [None, TOKENIZER], ids=["no tokenizer", "tokenizer"])
@pytest.mark.parametrize(
    ("ending", "reason", "finish", "is_odd"),
    [
        ([], None, "stop", True),
        ([EOS], None, "stop", False),
        ([], None, "length", False),
        ([READABLE[9]], READABLE[9], "stop", False),
    ],
    ids=["nothing", "eos", "length", "stop token"],
)
def test_an_end_that_nothing_made_is_an_early_stop(
    detokenize: Any, ending: list[int], reason: Any, finish: str, is_odd: bool
) -> None:
    """parity's workers name the stop string that ended a completion."""
    sampling = {"stop": ["\n\n\n\n"], "stop_token_ids": [READABLE[9]], "temperature": 1.0}
    rows = []
    for number in range(2):
        tokens = [*READABLE[20 + number : 30 + number], *ending]
        text = TOKENIZER([one for one in tokens if one not in ending])
        rows.append(completion(tokens, f"p{number}", finish=finish, stop=reason, text=text))
    usual = [completion(READABLE[:40], f"p{number}", text=TOKENIZER(READABLE[:40])) for number in range(2)]
    engine = {"asked": {}}
    found = compare(
        capture("cpu/base", *usual, max_tokens=LIMIT, engine=engine, vocab_size=None, **sampling),
        capture("cpu/mtp", *rows, max_tokens=LIMIT, engine=engine, vocab_size=None, **sampling),
        None,
        CompareOptions(detokenize=detokenize),
    )
    said = [one.request for one in found.corrupt if one.evidence.why.id == "early_stop.for_nothing"]
    assert said == (["p0", "p1"] if is_odd else [])


def test_a_script_may_leave_out_what_stopped_a_completion() -> None:
    rows = [completion(READABLE[20:30], "p0", finish="stop", text=TOKENIZER(READABLE[20:30]))]
    usual = [completion(READABLE[:40], "p0", text=TOKENIZER(READABLE[:40]))]
    sampling = {"stop": ["\n\n\n\n"], "temperature": 1.0, "max_tokens": LIMIT}
    found = compare(capture("cpu/base", *usual, **sampling), capture("cpu/mtp", *rows, **sampling))
    assert "early_stop.for_nothing" not in {one.evidence.why.id for one in found.findings}


@pytest.mark.parametrize(("asked", "is_odd"), [({}, False), ({"speculative_config": None, "seed": 1}, True)])
def test_a_replayed_recording_is_its_writers(asked: dict[str, Any], is_odd: bool) -> None:
    """What replays it is a worker of parity's; who wrote it says what it asked its engine."""
    rows = [completion(READABLE[20:30], "p0", finish="stop", text=TOKENIZER(READABLE[20:30]))]
    usual = [completion(READABLE[:40], "p0", text=TOKENIZER(READABLE[:40]))]
    sampling = {"stop": ["\n\n\n\n"], "temperature": 1.0, "max_tokens": LIMIT, "engine": {"asked": {"capture": "c"}}}
    candidate = capture("cpu/mtp", *rows, extra={"replayed": {"arm": "cuda/mtp", "asked": asked}}, **sampling)
    found = compare(capture("cpu/base", *usual, **sampling), candidate)
    assert ("early_stop.for_nothing" in {one.evidence.why.id for one in found.findings}) is is_odd
