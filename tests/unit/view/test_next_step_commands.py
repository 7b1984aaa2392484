"""The command that is offered for each thing that keeps a run from a conclusion, of two files without a plan."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from captures import TEXT, capture, completion, header, score, scores, written
from msgspec import structs

from parity.cli.main import cli
from parity.comparator import CompareOptions, Comparison, compare
from parity.messages import Message
from parity.records import Capture, ScoreKey, Scores, TopLogprobs, Verdict
from parity.records.next_steps import NextStep, Step, steps_from
from parity.view import NextCommand, RunView, next_commands, of_captures

MODEL = "tiny-qwen3-next-mtp"
OTHER = (*TEXT[:20], *range(500, 540))
SERVED = {"served": {"server": {"dialect": "openai"}, "token_source": "server"}}


def arms(left: Any = TEXT, right: Any = OTHER, **head: Any) -> tuple[Capture, Capture]:
    return (
        capture("cpu/base", completion(left), model=MODEL, **head),
        capture("cpu/mtp", completion(right), model=MODEL, **head),
    )


def decided_by(
    tmp_path: Path, base: Capture, other: Capture, known: Scores | None = None, options: CompareOptions | None = None
) -> tuple[Comparison, list[NextCommand]]:
    """What is offered for these two as files."""
    sides = [
        replace(one, source=str(written(tmp_path / f"{number}.jsonl", one))) for number, one in enumerate((base, other))
    ]
    result = compare(sides[0], sides[1], known, options)
    return result, list(next_commands(of_captures(sides, {sides[1].header.arm: result})))


def parsed(text: str) -> Mapping[str, Any]:
    """The command's options, as click reads them. Raises click.UsageError for what it does not take."""
    words = shlex.split(text)
    assert words[0] == "parity"
    command: click.Command | None = cli
    context = click.Context(cli)
    while isinstance(command, click.Group):
        name = words[1]
        command, words = command.get_command(context, name), words[1:]
    assert command is not None
    return command.make_context(words[0], words[1:], parent=context).params


def flat(tokens: Any, others: int = 8) -> TopLogprobs:
    """Every token as likely as some others."""
    return TopLogprobs.from_json([[[int(t), -6.0], *([900 + n, -6.0] for n in range(others))] for t in tokens])


def aborted(finish: str = "abort", **own: Any) -> tuple[Capture, Capture]:
    base, other = (
        capture(name, completion(stream[:30], finish=finish, **own), model=MODEL)
        for name, stream in (("cpu/base", TEXT), ("cpu/mtp", TEXT))
    )
    return base, other


def cases() -> dict[str, tuple[tuple[Capture, Capture], Scores | None]]:
    base, other = arms()
    plans = [
        replace(one, header=replace(one.header, extra={"plan_digest": digest}))
        for one, digest in ((base, "a"), (replace(other, completions={}), "b"))
    ]
    of_other = [
        capture(header(arm, model=MODEL, extra={"plan_digest": arm}), completion(TEXT), completion(TEXT, name))
        for arm, name in (("cpu/base", "p1"), ("cpu/mtp", "p2"))
    ]
    wrong = score(TEXT, {30: 9.0})
    idle = capture("cpu/mtp", completion(TEXT), model=MODEL, counters={"draft_tokens": 0})
    return {
        "unjudged": (arms(), None),
        "servers that cannot score": (
            (
                capture(header("a", model=MODEL, extra=SERVED), completion(TEXT)),
                capture(header("b", model=MODEL, extra=SERVED), completion(OTHER)),
            ),
            None,
        ),
        "scores do not cover": (arms(), scores("cpu/mtp", p0=score(OTHER[:30]))),
        "baseline rejected": (
            arms(),
            {**scores("cpu/mtp", p0=score(OTHER, {20: 0.2})), **scores("cpu/base", p0=score(TEXT, {20: 9.0}))},
        ),
        "baseline beyond noise": (arms(TEXT, TEXT), {**scores("cpu/base", p0=wrong), **scores("cpu/mtp", p0=wrong)}),
        "broken off": (aborted("error"), None),
        "aborted before a token": (
            (
                capture("cpu/base", completion([], finish="abort", aborted=True), model=MODEL),
                capture("cpu/mtp", completion([], finish="abort", aborted=True), model=MODEL),
            ),
            None,
        ),
        "different questions": ((base, capture("cpu/mtp", completion(OTHER), model=MODEL, max_tokens=7)), None),
        "different models": ((base, capture("cpu/mtp", completion(TEXT), model="another")), None),
        "different plans": ((of_other[0], of_other[1]), None),
        "an empty arm": ((plans[0], plans[1]), None),
        "nothing in common": ((base, capture("cpu/mtp", completion(TEXT, "q"), model=MODEL)), None),
        "no tokens": (arms((), ()), None),
        "flat": (arms(), {**scores("cpu/mtp", p0=flat(OTHER)), **scores("cpu/base", p0=flat(TEXT))}),
        "shaped": (arms(repetition_penalty=0.5), scores("cpu/mtp", p0=score(OTHER))),
        "not exercised": ((base, idle), None),
        "two empty arms": ((replace(base, completions={}), replace(other, completions={})), None),
        "drawn without scores": (arms(temperature=0.8), None),
    }


@pytest.mark.parametrize("name", list(cases()))
def test_no_dead_end(name: str, tmp_path: Path) -> None:
    (base, other), known = cases()[name]
    result, offered = decided_by(tmp_path, base, other, known)
    if name == "an empty arm":  # its completions are missing, which is a finding
        assert result.verdict is Verdict.DIVERGED
        return
    assert result.verdict is Verdict.INCONCLUSIVE, (name, [str(one) for one in result.reasons])
    settled = {one.settles for one in result.next_steps}
    assert settled <= {one.id for one in result.reasons}
    assert offered, name
    for one in offered:
        assert str(one.what)
        if one.text:
            parsed(one.text)
            assert "MODEL" not in one.text
            assert "DIR" not in one.text.split()
    assert steps_from([one.to_json() for one in result.next_steps]) == result.next_steps


def test_two_files_go_to_an_arbiter_by_their_own_names(tmp_path: Path) -> None:
    _, (one,) = decided_by(tmp_path, *arms())
    options = parsed(one.text)
    assert options["replays"] == (
        ("cpu-base", str(tmp_path / "0.jsonl")),
        ("cpu-mtp", str(tmp_path / "1.jsonl")),
    )
    assert options["arbiter"] == "transformers"
    assert options["model"].name == MODEL


def test_drawn_ones_are_compared_with_an_engine_that_scores_them(tmp_path: Path) -> None:
    _, (one,) = decided_by(tmp_path, *arms(temperature=0.8))
    options = parsed(one.text)
    assert (options["backends"], options["variants"]) == (("cpu",), ("base",))


@pytest.mark.parametrize("recorded", [False, True])
def test_a_pass_of_two_drawn_files_names_what_would_show_exchanged_rows(*, recorded: bool, tmp_path: Path) -> None:
    """Nothing in them shows rows of a flat model that were exchanged, unless their engines recorded logprobs."""

    def arm(name: str) -> Capture:
        texts = {f"p{n}": tuple(range(100 * n, 100 * n + 40)) for n in range(1, 4)}
        own = {text: own_of(text) if recorded else None for text in texts.values()}
        rows = (completion(text, name, prompt=(n,), logprobs=own[text]) for n, (name, text) in enumerate(texts.items()))
        return capture(name, *rows, model=MODEL, temperature=1.0)

    def own_of(text: tuple[int, ...]) -> TopLogprobs:
        return TopLogprobs.from_json([[[token, -2.2]] for token in text])

    base, other = arm("cpu/base"), arm("cpu/mtp")
    known = {ScoreKey(one.header.arm, *row.key): flat(row.token_ids) for one in (base, other) for row in one}
    result, offered = decided_by(tmp_path, base, other, known)
    assert result.verdict is Verdict.PASS, [str(one) for one in result.reasons]
    if recorded:
        assert offered == []
        return
    (one,) = offered
    options = parsed(one.text)
    assert (options["backends"], options["variants"]) == (("cpu",), ("base",))
    assert [path for _, path in options["replays"]] == [str(tmp_path / f"{n}.jsonl") for n in (0, 1)]


def test_what_transformers_does_not_decode_by_is_compared_with_an_engine_that_does(tmp_path: Path) -> None:
    """A grammar that the baseline breaks: `transformers/base` refuses the parameter, and the command would fail."""
    base, other = arms(structured_outputs={"choice": ["yes", "no"]})
    sides = [replace(one, source=str(written(tmp_path / f"{n}.jsonl", one))) for n, one in enumerate((base, other))]
    result = replace(compare(*sides), verdict=Verdict.INCONCLUSIVE, next_steps=(NextStep(Step.REFERENCE, "x"),))
    (one,) = next_commands(of_captures(sides, {"cpu/mtp": result}))
    assert (parsed(one.text)["backends"], parsed(one.text)["variants"]) == (("cpu",), ("base",))


def test_captures_that_draw_by_one_seed_are_made_again_with_one_for_each_request(tmp_path: Path) -> None:
    base, other = arms(temperature=0.8)
    other = replace(other, header=replace(other.header, engine={"speculative_config": {"num_speculative_tokens": 3}}))
    sides = [replace(one, source=str(written(tmp_path / f"{n}.jsonl", one))) for n, one in enumerate((base, other))]
    step = NextStep(Step.OWN_SEEDS, "x")
    result = replace(compare(*sides), verdict=Verdict.INCONCLUSIVE, next_steps=(step,))
    (one,) = next_commands(of_captures(sides, {"cpu/mtp": result}))
    options = parsed(one.text)
    assert options["prompts"] == tmp_path / "0.jsonl"
    assert (options["backends"], options["variants"]) == (("cpu",), ("base", "mtp"))
    assert options["num_speculative_tokens"] == 3
    assert not options["replays"]


def test_servers_that_draw_by_one_seed_are_asked_together(tmp_path: Path) -> None:
    sides = [
        capture(header(f"server/{name}", model=MODEL, temperature=0.8, engine={"asked": asked}), completion(TEXT))
        for name, asked in (
            ("old", {"url": "http://gpu1:8000", "endpoint": "chat"}),
            ("new", {"url": "http://gpu2:8000"}),
        )
    ]
    sides = [replace(one, source=str(written(tmp_path / f"{n}.jsonl", one))) for n, one in enumerate(sides)]
    result = replace(compare(*sides), verdict=Verdict.INCONCLUSIVE, next_steps=(NextStep(Step.OWN_SEEDS, "x"),))
    (one,) = next_commands(of_captures(sides, {"server/new": result}))
    options = parsed(one.text)
    assert options["servers"] == (("old", "http://gpu1:8000"), ("new", "http://gpu2:8000"))
    assert options["server_options"] == (("old:endpoint", "chat"),)


def test_an_unknown_checkpoint_has_a_place_in_the_command(tmp_path: Path) -> None:
    base, other = (replace(one, header=replace(one.header, model="org/Large")) for one in arms())
    _, (one,) = decided_by(tmp_path, base, other)
    assert shlex.split(one.text)[-2:] == ["--model", "MODEL"]
    assert str(one.remark) == "MODEL: the directory of the checkpoint org/Large"


def test_a_server_is_asked_again_by_its_url(tmp_path: Path) -> None:
    base, _ = arms()
    served = header(
        "server/new",
        model=MODEL,
        max_tokens=7,
        engine={"asked": {"url": "http://gpu2:8000", "endpoint": "chat", "stream": False, "model": None}},
    )
    _, offered = decided_by(tmp_path, base, capture(served, completion(TEXT[:7])))
    options = parsed(offered[0].text)
    assert options["servers"] == (("new", "http://gpu2:8000"),)
    assert dict(options["server_options"]) == {"endpoint": "chat", "stream": False}
    assert options["baseline"] == "replay/cpu-base"


def test_each_command_is_offered_once_and_names_its_arms(tmp_path: Path) -> None:
    base, other = arms()
    third = capture("cpu/third", completion(OTHER), model=MODEL)
    sides = [
        replace(one, source=str(written(tmp_path / f"{number}.jsonl", one)))
        for number, one in enumerate((base, other, third))
    ]
    compared = {one.header.arm: compare(sides[0], one) for one in sides[1:]}
    (one,) = next_commands(of_captures(sides, compared))
    assert one.arms == ("cpu/mtp", "cpu/third")


def test_a_step_of_a_later_version_is_left_out() -> None:
    assert steps_from([{"step": "from the future", "settles": "x"}, {"settles": "y"}]) == ()
    step = NextStep(Step.LONGER, "x", 4, ("a", "b"))
    assert NextStep.from_json(step.to_json()) == step


def test_an_option_that_is_raised_stands_once(tmp_path: Path) -> None:
    sides = [replace(one, source=str(written(tmp_path / f"{n}.jsonl", one))) for n, one in enumerate(arms())]
    result = replace(compare(*sides), next_steps=(NextStep(Step.LONGER, "x", 4),))
    view = of_captures(sides, {"cpu/mtp": result})
    asked = "parity run --backends cpu --max-tokens 32 --record"
    (one,) = next_commands(replace(view, run=replace(view.run, command=asked, sampling={"max_tokens": 32})))
    assert one.text == "parity run --backends cpu --record --max-tokens 128"


def test_a_run_that_an_earlier_parity_stored_has_a_command_too(tmp_path: Path) -> None:
    sides = [replace(one, source=str(written(tmp_path / f"{n}.jsonl", one))) for n, one in enumerate(arms())]
    result = replace(compare(*sides), next_steps=())
    (one,) = next_commands(of_captures(sides, {"cpu/mtp": result}))
    assert parsed(one.text)["arbiter"] == "transformers"
    (tmp_path / "0.jsonl").unlink()
    (one,) = next_commands(of_captures(sides, {"cpu/mtp": result}))
    assert (one.text, one.step.step) == ("", Step.AGAIN)


def test_a_capture_that_is_damaged_since_does_not_matter(tmp_path: Path) -> None:
    base, other = arms()
    sides = [replace(one, source=str(written(tmp_path / f"{n}.jsonl", one))) for n, one in enumerate((base, other))]
    result = compare(*sides)
    for side in sides:
        Path(side.source).write_bytes(b"\x00{")
    (one,) = next_commands(of_captures(sides, {"cpu/mtp": result}))
    assert one.text


def offered_for(tmp_path: Path, step: NextStep, base: Capture, other: Capture) -> NextCommand:
    sides = [replace(one, source=str(written(tmp_path / f"{n}.jsonl", one))) for n, one in enumerate((base, other))]
    result = replace(compare(*sides), verdict=Verdict.INCONCLUSIVE, next_steps=(step,))
    (one,) = next_commands(of_captures(sides, {other.header.arm: result}))
    return one


ASKED = {"temperature": 0.7, "top_k": 20, "max_tokens": 60, "logit_bias": {"7": -2.5}, "stop": ["a b", "it's"]}
SPECULATES = {"speculative_config": {"num_speculative_tokens": 3}}


@pytest.mark.parametrize(
    ("step", "changed"),
    [
        (NextStep(Step.LONGER, "x", 4), {"max_tokens": 240}),
        (NextStep(Step.ROUNDS, "x", 5), {"rounds": 5}),
        (NextStep(Step.UNSHAPED, "x", names=("logit_bias",)), {"logit_bias": ()}),
    ],
)
def test_engines_of_two_files_are_asked_for_more_of_the_same(
    step: NextStep, changed: dict[str, Any], tmp_path: Path
) -> None:
    """All that the captures were asked stands in the command: one option of sampling takes the place of them all."""
    base, other = arms(**ASKED)
    other = replace(other, header=replace(other.header, engine=SPECULATES))
    options = parsed(offered_for(tmp_path, step, base, other).text)
    assert options["prompts"] == tmp_path / "0.jsonl"
    assert (options["backends"], options["variants"], options["num_speculative_tokens"]) == (
        ("cpu",),
        ("base", "mtp"),
        3,
    )
    expected = {
        "temperature": 0.7,
        "top_k": 20,
        "max_tokens": 60,
        "logit_bias": ((7, -2.5),),
        "stop": ("a b", "it's"),
        "rounds": 1,
        **changed,
    }
    assert {name: options[name] for name in expected} == expected


def test_engines_of_two_files_are_asked_again_with_their_logprobs(tmp_path: Path) -> None:
    base, other = arms(**ASKED)
    other = replace(other, header=replace(other.header, engine=SPECULATES))
    again = offered_for(tmp_path, NextStep(Step.AGAIN, "x"), base, other)
    words = shlex.split(again.text)
    assert words[:8] == [
        "parity",
        "run",
        "--prompts",
        str(tmp_path / "0.jsonl"),
        "--backends",
        "cpu",
        "--variants",
        "base,mtp",
    ]
    listed = offered_for(tmp_path, NextStep(Step.LOGPROBS, "x"), base, other)
    assert [one for one in shlex.split(listed.text) if one not in words] == ["--logprobs", "5"]


def test_arms_that_no_option_tells_apart_are_told_in_words(tmp_path: Path) -> None:
    """Both are cpu/base but for settings that no option of a command names: one arm compares with nothing."""
    base, other = arms()
    other = replace(other, header=replace(other.header, arm="cpu/small-batch", engine=base.header.engine))
    one = offered_for(tmp_path, NextStep(Step.LONGER, "x", 4), base, other)
    assert (one.text, str(one.what)) == (
        "",
        "capture the arms again with 4 times as many output tokens, all in one `parity run`",
    )
    one = offered_for(tmp_path, NextStep(Step.ROUNDS, "x", 5), base, other)
    assert str(one.what) == "capture the arms again with 5 times as many rounds, all in one `parity run`"


def test_a_tokenizer_is_named_in_the_command(tmp_path: Path) -> None:
    one = offered_for(tmp_path, NextStep(Step.TOKENIZER, "x"), *arms())
    options = parsed(one.text)
    assert (options["baseline"], options["candidate"]) == (tmp_path / "0.jsonl", tmp_path / "1.jsonl")
    assert options["model"].name == MODEL


@pytest.mark.parametrize("wrong", ["probabilities", "shifted"])
def test_where_the_scores_are_wrong_an_engine_scores_anew(wrong: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    streams = [rng.integers(100, 900, 40).tolist() for _ in range(8)]
    base, other = (
        capture(arm, *(completion(one, f"p{n}") for n, one in enumerate(streams)), model=MODEL)
        for arm in ("cpu/base", "cpu/mtp")
    )
    known = {}
    for arm in ("cpu/base", "cpu/mtp"):
        for key, top in scores(arm, **{f"p{n}": score(one) for n, one in enumerate(streams)}).items():
            values = np.exp(top.values) if wrong == "probabilities" else np.roll(top.values, 1, axis=0)
            ids = top.ids if wrong == "probabilities" else np.roll(top.ids, 1, axis=0)
            known[key] = TopLogprobs(ids, values)
    result, (one, *_) = decided_by(tmp_path, base, other, known)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert one.step.step is Step.REFERENCE
    assert parsed(one.text)["backends"] == ("transformers",)


RECORDED = {"url": "http://gpu2:8000", "endpoint": "chat"}


def replayed(arm: str, backend: str, variant: str, asked: Any, tokens: Any) -> Capture:
    of = {"arm": f"{backend}/{variant}", "backend": backend, "variant": variant, "asked": asked}
    head = header(f"replay/{arm}", model=MODEL, engine={"asked": {"capture": "a.jsonl"}}, extra={"replayed": of})
    return capture(head, completion(tokens))


@pytest.mark.parametrize(
    ("step", "more"),
    [
        (NextStep(Step.LONGER, "x", 4), {"max_tokens": 240}),
        (NextStep(Step.ROUNDS, "x", 5), {"rounds": 5}),
        (NextStep(Step.AGAIN, "x"), {}),
        (NextStep(Step.LOGPROBS, "x"), {"logprobs": 5}),
        (NextStep(Step.ONE_SAMPLE, "x", 4), {"n": 1, "rounds": 4}),
    ],
)
def test_what_recordings_are_of_is_asked_again(step: NextStep, more: dict[str, Any], tmp_path: Path) -> None:
    base = replayed("one", "cpu", "base", {"dtype": "bfloat16"}, TEXT)
    other = replayed("two", "server", "prod", RECORDED, OTHER)
    options = parsed(offered_for(tmp_path, step, base, other).text)
    assert options["prompts"] == tmp_path / "0.jsonl"
    assert (options["backends"], options["variants"]) == (("cpu",), ("base",))
    assert options["servers"] == (("prod", "http://gpu2:8000"),)
    assert not options["replays"]
    assert {name: options[name] for name in more} == more


def test_recordings_are_not_asked_for_more_than_they_hold(tmp_path: Path) -> None:
    """With a run's own command and one more option, `parity run` would refuse them."""
    base, other = replayed("one", "cpu", "base", {}, TEXT), replayed("two", "gone", "x", {}, OTHER)
    sides = [replace(one, source=str(written(tmp_path / f"{n}.jsonl", one))) for n, one in enumerate((base, other))]
    step = NextStep(Step.LONGER, "x", 4)
    view = of_captures(sides, {"replay/two": replace(compare(*sides), next_steps=(step,))})
    view = replace(view, run=replace(view.run, command="parity run --replay one=a.jsonl --replay two=b.jsonl"))
    (one,) = next_commands(view)
    assert (one.text, str(one.what)) == (
        "", "capture the arms again with 4 times as many output tokens, all in one `parity run`"
    )  # fmt: skip


def test_an_arm_of_unknown_precision_is_compared_with_a_baseline_of_its_own(tmp_path: Path) -> None:
    step = NextStep(Step.SAME_PRECISION, "x")
    served = capture(header("server/prod", model=MODEL, engine={"asked": RECORDED}), completion(OTHER))
    base, _ = arms(engine={"asked": {"dtype": "bfloat16"}})
    one = offered_for(tmp_path, step, base, served)
    options = parsed(one.text)
    assert (options["backends"], options["variants"]) == (("cpu",), ("base",))
    assert options["replays"] == (("server-prod", str(tmp_path / "1.jsonl")),)
    assert dict(options["engine"]) == {"quantization": "METHOD", "kv_cache_dtype": "DTYPE"}
    assert str(one.remark) == "METHOD and DTYPE: as server/prod was started; leave out what it has not"


def test_arms_of_one_precision_are_compared_with_a_third(tmp_path: Path) -> None:
    one = offered_for(tmp_path, NextStep(Step.SAME_PRECISION, "x"), *arms(engine={"asked": {"dtype": "bfloat16"}}))
    options = parsed(one.text)
    assert (options["backends"], len(options["replays"])) == (("transformers",), 2)
    assert "rounding does not explain it" in str(one.what)


def test_samples_that_nobody_returned_are_asked_for_one_at_a_time(tmp_path: Path) -> None:
    base, other = arms(TEXT, TEXT, n=3, temperature=0.7)
    result, offered = decided_by(tmp_path, base, other)
    assert result.verdict is Verdict.INCONCLUSIVE
    one = next(one for one in offered if one.step.settles == "missing.by_none")
    options = parsed(one.text)
    assert (options["n"], options["rounds"], options["temperature"]) == (1, 3, 0.7)


def test_of_captures_alone_another_engine_is_asked_for_donors(tmp_path: Path) -> None:
    sides = [
        capture(name, completion(tokens), model=MODEL, temperature=0.8)
        for name, tokens in (("cpu/base", TEXT), ("cpu/mtp", OTHER))
    ]
    sides = [replace(one, source=str(written(tmp_path / f"{n}.jsonl", one))) for n, one in enumerate(sides)]
    result = replace(compare(sides[0], sides[1]), next_steps=(NextStep(Step.DONORS, ""),))
    (offered,) = next_commands(of_captures(sides, {"cpu/mtp": result}))
    assert offered.what.id == "next.donors_reference"
    assert offered.what.parameters["backend"] in offered.words
    assert parsed(offered.text)


def test_before_both_are_asked_the_same_nothing_else_is_offered(tmp_path: Path) -> None:
    """Recordings of other questions cannot be replayed together: an arbiter would be refused them."""
    other = capture("cpu/mtp", completion(OTHER), model=MODEL, repetition_penalty=1.3)
    result, offered = decided_by(tmp_path, arms()[0], other)
    assert {one.step for one in result.next_steps} > {Step.SAME_QUESTIONS}
    assert [one.step.step for one in offered] == [Step.SAME_QUESTIONS]


def started(tmp_path: Path, command: str, step: NextStep, **of_arm: Any) -> RunView:
    """An INCONCLUSIVE run that was started with this."""
    sides = [
        replace(one, source=str(written(tmp_path / f"{number}.jsonl", one)))
        for number, one in enumerate(arms(TEXT, TEXT))
    ]
    view = of_captures(sides, {sides[1].header.arm: compare(*sides)})
    other = replace(view.arms[1], verdict=str(Verdict.INCONCLUSIVE), next_steps=(step,))
    run = replace(view.run, command=command, verdict=str(Verdict.INCONCLUSIVE))
    return replace(view, run=run, arms=(view.arms[0], replace(other, **of_arm)))


SIZES = {"block_size": 16, "max_model_len": 100}


@pytest.mark.parametrize(
    ("engine", "requests", "blocks", "options"),
    [
        ({}, 1, 4000, {"kv_blocks": 2000, "max_tokens": 60}),
        (SIZES, 4, 4000, {"kv_blocks": 112, "max_tokens": 60}),
        (SIZES, 4, 112, {"kv_blocks": 56, "max_tokens": 60}),
        (SIZES, 4, 56, {"kv_blocks": 56, "max_tokens": 240}),  # fewer are not enough for one request
    ],
)
def test_kv_blocks_become_so_few_that_the_requests_fill_them(
    tmp_path: Path, engine: dict[str, Any], requests: int, blocks: int, options: dict[str, int]
) -> None:
    command = f"parity run --backends cpu --churn light --kv-blocks {blocks} --max-tokens 60"
    view = started(tmp_path, command, NextStep(Step.FEWER_BLOCKS, "x"), engine=engine)
    run = replace(view.run, churn={"kv_blocks": blocks})
    (one,) = next_commands(replace(view, run=run, requests=[*view.requests] * requests))
    assert {name: parsed(one.text)[name] for name in options} == options


@pytest.mark.parametrize(("rate", "usual"), [(":rate=0.001:seed=3", True), (":rate=0.5", False), ("", False)])
def test_a_control_that_was_planted_too_seldom_is_planted_more_often(tmp_path: Path, rate: str, usual: bool) -> None:
    command = f"parity run --backends cpu --positive-control row_swap{rate} --max-tokens 24"
    name = "mtp-control-row_swap"
    view = started(tmp_path, command, NextStep(Step.ROUNDS, "x"), variant=name, control=f"row_swap{rate}")
    (one,) = next_commands(view)
    assert (one.step.step is Step.USUAL_RATE) is usual
    if usual:
        assert parsed(one.text)["positive_controls"] == ("row_swap:seed=3",)
        assert parsed(one.text)["max_tokens"] == 24


def missed(
    tmp_path: Path, command: str, why: str, *, completions: int = 64, fault: str = "norm_off:rate=0.3"
) -> RunView:
    """A run that was not to miss this fault, and did; its captures are in a directory of its own."""
    name = f"mtp-control-{fault.partition(':')[0]}"
    view = started(tmp_path, command, NextStep(Step.ROUNDS, "x"), variant=name, control=fault)
    tally = [structs.replace(one, completions=completions) for one in view.arms[1].tally]
    view = replace(view, arms=(view.arms[0], replace(view.arms[1], tally=tally)))
    reason = Message(f"pipeline.{why}", "why", {})
    said = Message("pipeline.control_not_caught", "{arm}: {why}", {"arm": view.arms[1].name, "why": reason})
    (tmp_path / "plan.json").write_text("{}")
    run = replace(view.run, source="run", directory=str(tmp_path), reasons=(said,))
    return replace(view, run=run)


def test_a_weak_control_is_looked_at_more_closely_and_not_asked_for_ever(tmp_path: Path) -> None:
    command = "parity run --backends cpu --positive-control norm_off:rate=0.3 --max-tokens 24"
    few = missed(tmp_path, command, "control_missed", completions=4)
    assert parsed(next_commands(few)[0].text)["rounds"] == 15
    view = missed(tmp_path, command, "control_missed")
    (one,) = next_commands(view)
    assert one.step.step is Step.DEEPER
    assert (parsed(one.text)["sketch"], parsed(one.text)["record"]) == ("parts", True)
    for suffix in (".steps", ".sketches"):
        Path(str(view.arms[1].capture).removesuffix(".jsonl") + suffix).write_bytes(b"x")
    (one,) = next_commands(view)  # what is planted in half of the completions is noise to sketches
    assert (one.step.step, parsed(one.text)["positive_controls"]) == (Step.USUAL_RATE, ("norm_off",))
    seldom = replace(view.arms[1], control="norm_off")
    (one,) = next_commands(replace(view, arms=(view.arms[0], seldom)))
    assert one.step.step is Step.OTHER_FAULT
    assert parsed(one.text)["positive_controls"] == ("row_swap:rate=0.1",)
    assert parsed(one.text)["max_tokens"] == 24


def test_of_a_run_of_another_ones_plan_the_command_is_that_ones(tmp_path: Path) -> None:
    first = tmp_path / "first run"
    first.mkdir()
    command = "parity run --backends cpu --record --positive-control row_swap:rate=0.1 --rounds 2 --out x"
    (first / "run.json").write_text(json.dumps({"command": command}))
    again = shlex.join(["parity", "run", "--plan", str(first / "plan.json"), "--db", "y", "--rounds", "30"])
    (one,) = next_commands(missed(tmp_path, again, "control_unfit", fault="row_swap:rate=0.1"))
    assert "docs/fault-lab.md" in str(one.what)
    asked = parsed(one.text)
    assert asked["positive_controls"] == ("garbled_row:rate=0.1",)
    assert (asked["rounds"], asked["record"], asked["out"], asked["plan_file"]) == (30, True, None, None)


def test_a_plugin_that_was_not_there_is_planted_by_no_command(tmp_path: Path) -> None:
    (one,) = next_commands(missed(tmp_path, "parity run --backends cpu", "control_absent", completions=4))
    assert one.words == ()
    assert "VLLM_PLUGINS" in str(one.what)


@pytest.mark.parametrize(("command", "swaps"), [("--backends cpu", True), ("--plan a.json --baseline cpu/mtp", False)])
def test_sides_that_were_swapped_are_not_swapped_back(tmp_path: Path, command: str, swaps: bool) -> None:
    view = started(tmp_path, f"parity run {command}", NextStep(Step.SWAP, "x"))
    (tmp_path / "plan.json").write_text("{}")
    view = replace(view, run=replace(view.run, source="run", directory=str(tmp_path)))
    (one,) = next_commands(view)
    assert bool(one.words) is swaps
