"""What parity says of a grammar's tokens, against xgrammar and llguidance themselves.

    parity model tiny --arch mimo --output MODEL
    PYTHONPATH=. PYTHON benchmarks/grammar_fates.py MODEL [--seed 0] [--grammars 120]

PYTHON: of an environment with vLLM (`parity env list`), which has both libraries. Random JSON schemas; expressions,
EBNF, Lark and choices of a list. A text goes along each, in tokens that one of the engines takes; at each place
`fate` is asked about some ninety tokens, and `fate_of_end` about the end. As vLLM compiles them
(`vllm/v1/structured_output/`, v0.32.0): xgrammar with whitespace and without, llguidance with it. Counted is each token
that is said to be TAKEN and that an engine refuses, or said to be REFUSED and that one takes. The exit code is 1 where
there is one.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import llguidance
import llguidance.hf
import torch
import xgrammar
from transformers import AutoTokenizer

from parity.comparator.grammar import Fate, Spec, fate, fate_of_end

REGEXES = (
    r"[A-Z][a-z]{2,8}( [a-z]{2,8}){3,6}\.", r"\d{3}-\d{4}", r"(yes|no|maybe)( please)?", r"\w+@\w+\.com",
    r"[^a-z]{3,6}x", r".{3,10}end", r"a*b+c?", r"(?:foo|bar){2}\s\S+", r"[0-9]+(\.[0-9]{1,2})? (USD|EUR)",
    r"^[A-F0-9]{4}$", r"[\w.-]+/[a-z]*",
)  # fmt: skip
GRAMMARS = (
    'root ::= item ("," item)*\nitem ::= [a-z]+ "=" [0-9]+',
    'root ::= "SELECT " [a-z_]+ (", " [a-z_]+)* " FROM " [a-z]+',
    'root ::= expr\nexpr ::= term (("+"|"-") term)*\nterm ::= [0-9]+ | "(" expr ")"',
)
LARK = ('start: item ("," item)*\nitem: /[a-z]+/ "=" /[0-9]+/',)
CHOICES = (["yes", "no", "maybe so"], ["red", "reddish", "blue"], ["a", "b c d", "e-f"])
FORMS = ("json",) * 5 + ("regex",) * 2 + ("grammar", "lark", "choice")
NAMES = ("name", "age", "tags", "a", "b", "value", "items", "is_ok")
LEAVES: Sequence[Mapping[str, Any]] = (
    {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}, {"type": "null"}, {},
    {"const": "x y"}, {"const": 3}, {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    {"enum": ["a", "cd", 1, True]},
)  # fmt: skip


def schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    kind = rng.random() if depth < 2 else 1.0
    if kind < 0.45:
        names = rng.sample(NAMES, rng.randint(0, 3))
        found: dict[str, Any] = {"type": "object", "properties": {one: schema(rng, depth + 1) for one in names}}
        if rng.random() < 0.7:
            found["required"] = [one for one in names if rng.random() < 0.6]
        if rng.random() < 0.3:
            found["additionalProperties"] = rng.choice([False, True, {"type": "integer"}])
        return found
    if kind < 0.6:
        return {"type": "array", "items": schema(rng, depth + 1), "maxItems": rng.randint(1, 3)}
    if rng.random() < 0.15:
        return {"type": "string", "maxLength": rng.randint(1, 12), "minLength": rng.randint(0, 1)}
    return dict(rng.choice(LEAVES))


class Engine:
    """One way to enforce a grammar, and how far it has come."""

    def __init__(self, name: str, matcher: Any, size: int) -> None:
        self.name, self._matcher, self._size = name, matcher, size
        self._is_xgrammar = isinstance(matcher, xgrammar.GrammarMatcher)

    def mask(self) -> torch.Tensor:
        """Which token ids it takes next, bool, shape (V,)."""
        if self._is_xgrammar:
            found = xgrammar.allocate_token_bitmask(1, self._size)
            self._matcher.fill_next_token_bitmask(found, 0)
            words = found[0]
        else:
            words = torch.frombuffer(bytearray(self._matcher.compute_bitmask()), dtype=torch.int32)
        return ((words[:, None] >> torch.arange(32)) & 1).flatten()[: self._size].bool()

    def take(self, token: int) -> bool:
        return bool(self._matcher.accept_token(token) if self._is_xgrammar else self._matcher.consume_token(token))


def engines_of(form: str, given: str, compiler: Any, tokenizer: Any, size: int) -> list[Engine]:
    """Raises RuntimeError and ValueError for a grammar that one of them does not know."""
    ours: list[Any] = []
    theirs: list[str] = []
    if form == "json":
        ours.append(compiler.compile_json_schema(given, any_whitespace=True))
        ours.append(compiler.compile_json_schema(given, any_whitespace=False, separators=(",", ":")))
        theirs.append(llguidance.LLMatcher.grammar_from_json_schema(given, defaults={"whitespace_flexible": True}))
    elif form == "regex":
        ours, theirs = [compiler.compile_regex(given)], [llguidance.grammar_from("regex", given)]
    elif form == "grammar":
        ours = [compiler.compile_grammar(given)]
    elif form == "lark":
        ours, theirs = [compiler.compile_lark(given)], [llguidance.grammar_from("grammar", given)]
    else:
        choices = json.loads(given)
        ours = [compiler.compile_grammar("root ::= " + " | ".join(map(json.dumps, choices)))]
        theirs = [llguidance.LLMatcher.grammar_from_regex("|".join(choices))]
    matchers = [llguidance.LLMatcher(tokenizer, one, log_level=0) for one in theirs]
    named = [(f"xgrammar {n}", xgrammar.GrammarMatcher(one)) for n, one in enumerate(ours)]
    named += [(f"llguidance {n}", one) for n, one in enumerate(matchers) if not one.is_error()]
    return [Engine(name, matcher, size) for name, matcher in named]


def grammar_of(rng: random.Random) -> tuple[str, str]:
    form = rng.choice(FORMS)
    if form == "json":
        return form, json.dumps(schema(rng))
    if form == "choice":
        return form, json.dumps(rng.choice(CHOICES))
    return form, rng.choice({"regex": REGEXES, "grammar": GRAMMARS, "lark": LARK}[form])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a checkpoint directory with a tokenizer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--grammars", type=int, default=120)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    words = AutoTokenizer.from_pretrained(options.model)
    size, eos = len(words), words.eos_token_id
    compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo.from_huggingface(words, vocab_size=size))
    tokenizer = llguidance.hf.from_tokenizer(words, size)
    said, wrong = Counter[str](), 0
    for _ in range(options.grammars):
        form, given = grammar_of(rng)
        try:
            engines = engines_of(form, given, compiler, tokenizer, size)
        except (RuntimeError, ValueError) as error:
            said[f"not compiled: {type(error).__name__}"] += 1
            continue
        spec, tokens, leads = Spec("grammar" if form == "lark" else form, given), list[int](), rng.choice(engines)
        for _ in range(rng.randint(3, 40)):
            masks = {one.name: one.mask() for one in engines}
            taken = [int(token) for token in masks[leads.name].nonzero().flatten()]
            before = words.decode(tokens)
            asked = {*rng.sample(range(size), 60), *rng.sample(taken, min(30, len(taken)))} - {eos}
            answers = {one: fate(spec, before, words.decode([*tokens, one], skip_special_tokens=True)) for one in asked}
            answers[eos] = fate_of_end(spec, before)
            said.update(("end " if one == eos else "") + answer.name for one, answer in answers.items())
            for name, mask in masks.items():
                for token, answer in answers.items():
                    if answer is not Fate.OPEN and bool(mask[token]) != (answer is Fate.TAKEN):
                        wrong += 1
                        print(f"{name}: {answer.name} {words.decode([token])!r} after {before!r}, {form} {given}")
            left = [one for one in taken if one != eos and one not in words.all_special_ids]
            inked = [one for one in left if words.decode([one]).strip()]
            if not left:
                break
            tokens.append(rng.choice(inked if inked and rng.random() < 0.6 else left))
            engines = [one for one in engines if one.take(tokens[-1])]
            if leads not in engines:
                break
    print(f"{sum(said.values())} answers, {wrong} wrong: {dict(said)}")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
