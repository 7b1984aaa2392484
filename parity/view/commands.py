"""The next command: what would decide a run that its verdict leaves open, complete, for the run at hand.

The comparison names steps (`parity.records.next_steps`); here the first of them that can be taken becomes the words of
a command, from the run's directory, its plan and its captures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from parity.capture.shards import is_there
from parity.messages import Message, joined, message
from parity.records import Json, Verdict
from parity.records.engine_settings import speculates
from parity.records.next_steps import EXCHANGED, NextStep, Step
from parity.records.sampling import beyond_reference
from parity.view import controls
from parity.view.arm import ArmView
from parity.view.asking import options_of, options_of_all, sampling_options
from parity.view.at_hand import REPLAY, SERVER, Here, recorded_of
from parity.view.next_command import NextCommand, made
from parity.view.run import RunView
from parity.view.without_command import in_words

ARBITER: Final = "transformers"
"""The engine that shares least with any other; greedy decoding only."""

SCORER: Final = "cpu"
"""The engine that needs no hardware and can score what was drawn at random."""

LOGPROBS: Final = 5

METHOD, DTYPE = "METHOD", "DTYPE"
"""Stand in a command for a precision that nobody has named."""

AT_FAULT: Final = "arbiter.baseline_at_fault"
"""The reason that an arbiter supports the candidates and not the baseline."""

_OF_DRAWS: Final = ("--top-p", "--top-k", "--min-p")
"""Options that say how tokens are drawn."""

_ANY: Final = tuple(NextStep(step, "") for step in (Step.SCORE, Step.ARBITER, Step.REFERENCE, Step.AGAIN))
"""For runs that an earlier parity stored, which named none."""


def next_commands(view: RunView) -> tuple[NextCommand, ...]:
    """For each thing that keeps the run from a conclusion, the best command that there is; each command once."""
    here = Here(view)
    if view.run.verdict == Verdict.DIVERGED:
        return (*_sides(here), *_whose(here))
    if view.run.verdict == Verdict.PASS:
        return _whose(here)
    if view.run.verdict != Verdict.INCONCLUSIVE:
        return ()
    found: dict[tuple[str, ...], NextCommand] = {}
    open_ = [arm for arm in view.candidates if arm.verdict == Verdict.INCONCLUSIVE]
    for arm in open_:
        for steps in _by_reason(arm.next_steps or _ANY):
            one = _first(here, arm, steps)
            known = found.get(one.words or (str(one.what),))
            found[one.words or (str(one.what),)] = (
                one if known is None else replace(known, arms=tuple(dict.fromkeys((*known.arms, *one.arms))))
            )
    if not open_ and view.controls:
        found[()] = _first(here, *controls.of_missed(here))  # a planted fault was missed
    return tuple(found.values())


def _sides(here: Here) -> Iterator[NextCommand]:
    """Where an arbiter has found the baseline at fault: what is wrong in it has findings once it is the candidate."""
    for arm in here.view.against_baseline[:1]:
        recordings = here.recordings(swapped_with=arm)
        if recordings is None:
            return
        model, remark = here.model()
        what = message(
            "next.sides",
            "see what is wrong in {baseline}: the same captures with the sides swapped",
            baseline=here.view.run.baseline,
        )
        words = ("run", *recordings, "--arbiter", here.view.run.arbiter or ARBITER, *model)
        yield NextCommand(NextStep(Step.SWAP, AT_FAULT), (arm.name,), what, words, remark)


def _whose(here: Here) -> tuple[NextCommand, ...]:
    """What would say more of what was found, or whether completions were exchanged, which nobody was asked."""
    steps = ((arm, one) for arm in here.view.candidates for one in arm.next_steps if one.step is Step.DONORS)
    found: dict[tuple[str, ...], NextCommand] = {}
    for arm, step in steps:
        one = _donors(here, step, arm)
        if one is not None:
            known = found.get(one.words, one)
            found[one.words] = replace(one, arms=tuple(dict.fromkeys((*known.arms, *one.arms))))
    return tuple(found.values())


def _by_reason(steps: Sequence[NextStep]) -> Iterator[list[NextStep]]:
    """Those of each reason. Where the arms were not asked the same, nothing else decides anything before they are."""
    first = {one.settles for one in steps if one.step is Step.SAME_QUESTIONS}
    for reason in dict.fromkeys(one.settles for one in steps if not first or one.settles in first):
        yield [one for one in steps if one.settles == reason]


def _first(here: Here, arm: ArmView, steps: Sequence[NextStep]) -> NextCommand:
    """The first step that can be taken; where none can, in words what is missing."""
    for step in steps:
        one = _command(here, step, arm)
        if one is not None:
            return one
    return in_words(steps[-1], arm)


def _command(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    return _COMMANDS[step.step](here, step, arm)


def _score(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    if here.view.run.score == "all" or not here.can_score(here.view.baseline):
        return None
    what = message("next.score", "score all completions on the engine of {arm}", arm=here.view.run.baseline)
    return made(step, arm, what, here.on_captures("--score", "all"))


def _score_top(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    if not here.can_score(here.view.baseline):
        return None
    top = str(step.number or LOGPROBS)
    what = message(
        "next.score_top",
        "score them again on {arm}, with {top} tokens at each place",
        arm=here.view.run.baseline,
        top=top,
    )
    return made(step, arm, what, here.on_captures("--score", "all", "--score-top", top))


def _calibrate(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    if here.view.run.tolerance == "auto":
        return None
    remark = message(
        "next.trained",
        "where it stays as wide, the distributions are too flat for greedy tokens to tell: a checkpoint that was "
        "trained (--model) will do",
    )
    words = here.on_captures("--score", "all", "--tolerance", "auto")
    if words is not None and here.can_score(here.view.baseline):
        what = message(
            "next.calibrate", "measure the tolerance: {arm} scores its own completions", arm=here.view.run.baseline
        )
        return made(step, arm, what, words, remark)
    against = _reference(here, step, arm)
    return against and replace(against, words=(*against.words, "--tolerance", "auto"))


def _arbiter(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    view = here.view
    if not view.run.greedy or view.run.arbiter is not None:
        return None
    what = message("next.arbiter", "ask {arbiter}, which is no arm, which side it supports", arbiter=ARBITER)
    words = here.on_captures("--arbiter", ARBITER)
    if words is not None:
        return made(step, arm, what, words)
    recordings = here.recordings()
    model, remark = here.model()
    words = None if recordings is None else ("run", *recordings, "--arbiter", ARBITER, *model)
    return made(step, arm, what, words, remark)


def _reference(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    recordings = here.recordings()
    model, remark = here.model()
    backend = _scorer(here)
    what = message("next.reference", "compare all captures with {backend}/base, which scores them", backend=backend)
    words = ("run", "--backends", backend, "--variants", "base", *(recordings or ()), *model)
    return made(step, arm, what, None if recordings is None else words, remark)


def _scorer(here: Here) -> str:
    return ARBITER if here.view.run.greedy and not beyond_reference(here.view.run.sampling) else SCORER


def _donors(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    if step.settles == EXCHANGED:
        return _exchanged(here, step, arm)
    what = message(
        "next.donors",
        "ask {arm} whose the unlikely tokens are: it scores them after the prompts of other requests",
        arm=here.view.run.baseline,
    )
    words = here.on_captures() if here.can_score(here.view.baseline) else None
    if words is not None:
        return made(step, arm, what, words)
    against = _reference(here, step, arm)
    another = message(
        "next.donors_reference",
        "ask {backend}/base, which scores all captures, whose the unlikely tokens are",
        backend=_scorer(here),
    )
    return against and replace(against, what=another)


def _exchanged(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    """Of captures alone: a run has asked that already."""
    against = None if here.directory is not None else _reference(here, step, arm)
    what = message(
        "next.exchanged",
        "see whether completions of two requests were exchanged: {backend}/base scores all captures, and the most "
        "surprising completions after other prompts as well",
        backend=_scorer(here),
    )
    return against and replace(against, what=what)


def _same_precision(here: Here, step: NextStep, arm: ArmView) -> NextCommand:
    """Precisions that are known to be others are no reason: of one arm it is unknown, or it is the same."""
    what = message(
        "next.same_precision",
        "capture a baseline with weights and a cache in the precision that {arm} has; where it is the same already, "
        "rounding does not explain them",
        arm=arm.name,
    )
    baseline, other = recorded_of(here.view.baseline), recorded_of(arm)
    if all("dtype" in one.settings for one in (baseline, other)):
        against = _reference(here, step, arm)
        third = message(
            "next.which_is_off",
            "the arms compute in one precision, so rounding does not explain it; which of them is off, {backend}/base "
            "says: compare both with it",
            backend=_scorer(here),
        )
        return NextCommand(step, (arm.name,), what) if against is None else replace(against, what=third)
    if baseline.backend in (SERVER, REPLAY) or not arm.capture or not is_there(Path(arm.capture)):
        return NextCommand(step, (arm.name,), what)
    model, remark = here.model()
    values = message(
        "next.precision_values",
        "{method} and {dtype}: as {arm} was started; leave out what it has not",
        method=METHOD,
        dtype=DTYPE,
        arm=arm.name,
    )
    precision = ("--engine", f"quantization={METHOD}", "--engine", f"kv_cache_dtype={DTYPE}")
    recording = ("--replay", f"{here.names[arm.name]}={Path(arm.capture).absolute()}")
    words = ("run", "--backends", baseline.backend, "--variants", "base", *precision, *recording, *model)
    return NextCommand(step, (arm.name,), what, words, values if remark is None else joined([remark, values], "; "))


def _one_sample(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    rounds = (step.number or 1) * here.view.run.rounds
    what = message(
        "next.one_sample", "ask for one sample at a time, in {rounds} rounds: a server may not know n", rounds=rounds
    )
    words = here.as_asked("--n", "1", "--rounds", str(rounds), without=("--n", "--samples", "--rounds"))
    return made(step, arm, what, words) or _anew(here, step, arm, what, asked={"n": 1, "rounds": rounds})


def _swap(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    others = [one for one in here.view.candidates if here.can_score(one)]
    chosen = next((one for one in others if not speculates(one.planned)), others[0] if others else None)
    if chosen is None or _is_swapped(here):
        return None
    what = message(
        "next.swap",
        "swap the sides: {chosen} as the baseline, which scores {baseline}",
        chosen=chosen.name,
        baseline=here.view.run.baseline,
    )
    return made(step, arm, what, here.on_plan("--baseline", chosen.name))


def _is_swapped(here: Here) -> bool:
    """Was the run started by this advice? Then the way back is known."""
    words = here.view.run.command.split()
    return "--plan" in words and "--baseline" in words


def _logprobs(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    if here.view.run.sampling.get("logprobs"):
        return None  # asked for already, and there are none
    what = message("next.logprobs", "capture again, each arm with its own {number} best tokens", number=LOGPROBS)
    options = ("--logprobs", str(LOGPROBS))
    return made(step, arm, what, here.on_plan(*options)) or _anew(here, step, arm, what, options)


def _same_questions(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    baseline = here.view.baseline
    if not baseline.capture or not is_there(Path(baseline.capture)):
        return None
    asking = options_of(recorded_of(arm))
    if asking is None:
        return None
    name = here.names[baseline.name]
    what = message("next.same_questions", "ask {arm} what {baseline} was asked", arm=arm.name, baseline=baseline.name)
    model, remark = here.model()
    recording = ("--replay", f"{name}={Path(baseline.capture).absolute()}", "--baseline", f"{REPLAY}/{name}")
    return made(step, arm, what, ("run", *recording, *asking, *model), remark)


def _again(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    what = message("next.again", "run the same plan once more")
    asked = message("next.ask_again", "ask both the same again")
    return made(step, arm, what, here.on_plan()) or _anew(here, step, arm, asked)


def _anew(
    here: Here,
    step: NextStep,
    arm: ArmView,
    what: Message,
    options: Sequence[str] = (),
    asked: Mapping[str, Json] | None = None,
) -> NextCommand | None:
    """Of two captures, or recordings, both engines or servers asked again what the baseline was: exactly that, or with
    other sampling parameters or rounds (`asked`), which takes all of them as options."""
    baseline, run = here.view.baseline, here.view.run
    asking = options_of_all([recorded_of(baseline), recorded_of(arm)])
    if here.directory is not None and not here.replays:
        return None
    if asking is None or not baseline.capture or not is_there(Path(baseline.capture)):
        return None
    if asked:
        values = {**run.sampling, "rounds": run.rounds, **asked}
        rounds = ("--rounds", str(values["rounds"])) if values["rounds"] != 1 else ()
        options = (*sampling_options(values), *rounds)
    model, remark = here.model()
    prompts = ("--prompts", str(Path(baseline.capture).absolute()))
    return made(step, arm, what, ("run", *prompts, *asking, *options, *model), remark)


def _own_seeds(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    if here.directory is not None and not here.replays:  # each had one, and a server drew by its own
        what = message("next.greedy", "run it greedily: it decides all but how tokens are drawn")
        words = here.as_asked("--temperature", "0", "--n", "1", without=("--temperature", "--n", *_OF_DRAWS))
        return made(step, arm, what, words)
    what = message("next.own_seeds", "ask both the same again, each request with a seed of its own")
    return _anew(here, step, arm, what)


def _rounds(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    rounds = (step.number or 4) * here.view.run.rounds
    what = message("next.rounds", "run {rounds} rounds of it", rounds=rounds)
    words = here.on_plan("--rounds", str(rounds))
    return made(step, arm, what, words) or _anew(here, step, arm, what, asked={"rounds": rounds})


def _longer(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    limit = here.view.run.sampling.get("max_tokens")
    if not isinstance(limit, int):
        return None
    longer = (step.number or 4) * limit
    what = message("next.longer", "run it with up to {tokens} output tokens for each request", tokens=longer)
    words = here.as_asked("--max-tokens", str(longer), without=("--max-tokens",))
    return made(step, arm, what, words) or _anew(here, step, arm, what, asked={"max_tokens": longer})


def _fewer_blocks(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    blocks = here.view.run.churn.get("kv_blocks")
    if not isinstance(blocks, int) or blocks < 2:
        return None
    of_one, of_all = _blocks_needed(here, arm) or (0, blocks)
    fewer = min(blocks // 2, of_all)
    if fewer <= of_one:  # no engine starts with less than one request needs
        return _longer(here, NextStep(Step.LONGER, step.settles, 4), arm)
    what = message("next.fewer_blocks", "run it with {blocks} KV blocks", blocks=fewer)
    return made(step, arm, what, here.as_asked("--kv-blocks", str(fewer), without=("--kv-blocks",)))


GROUPS: Final = 4
"""Times the blocks of one layer that all layers may need: a hybrid model has some for each group of them."""


def _blocks_needed(here: Here, arm: ArmView) -> tuple[int, int] | None:
    """KV blocks of the longest request, and of all that run together; None where their size is not known."""
    known = [arm.engine.get(name) for name in ("block_size", "max_model_len", "max_num_seqs")]
    size, longest, rows = (one if isinstance(one, int) and one > 0 else None for one in known)
    if size is None or longest is None or not here.view.requests:
        return None
    requests = len(here.view.requests) * here.view.run.samples
    of_one = GROUPS * -(-longest // size)
    return of_one, of_one * min(requests, rows or requests)


def _unshaped(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    flags = [f"--{name.replace('_', '-')}" for name in step.names]
    asked = here.as_asked()
    words = here.as_asked(without=flags)
    what = message("next.unshaped", "run it without {flags}, which scores do not show", flags=flags)
    sampling = here.view.run.sampling
    if asked is None and all(sampling_options({name: sampling.get(name)}) for name in step.names):
        return _anew(here, step, arm, what, asked=dict.fromkeys(step.names))
    if words is None or asked == words:  # the prompts or the configuration ask for it
        return None
    return made(step, arm, what, words)


def _tokenizer(here: Here, step: NextStep, arm: ArmView) -> NextCommand:
    sides = (here.view.baseline.capture, arm.capture)
    if here.directory is not None or not all(one and is_there(Path(one)) for one in sides):
        what = message(
            "next.tokenizer", "add --model DIRECTORY, the checkpoint: its tokenizer says what the tokens are"
        )
        return NextCommand(step, (arm.name,), what)
    what = message("next.with_tokenizer", "compare them again with the tokenizer of the checkpoint")
    model, remark = here.model()
    scores = message("next.scores_too", "and with --scores, where they stand in files of their own")
    words = ("compare", *(str(Path(one).absolute()) for one in sides if one), *model)
    return NextCommand(step, (arm.name,), what, words, scores if remark is None else joined([remark, scores], "; "))


_COMMANDS: Final[Mapping[Step, Callable[[Here, NextStep, ArmView], NextCommand | None]]] = {
    Step.SCORE: _score,
    Step.SCORE_TOP: _score_top,
    Step.ARBITER: _arbiter,
    Step.REFERENCE: _reference,
    Step.SAME_PRECISION: _same_precision,
    Step.SWAP: _swap,
    Step.DONORS: _donors,
    Step.LOGPROBS: _logprobs,
    Step.SAME_QUESTIONS: _same_questions,
    Step.AGAIN: _again,
    Step.OWN_SEEDS: _own_seeds,
    Step.ROUNDS: _rounds,
    Step.LONGER: _longer,
    Step.FEWER_BLOCKS: _fewer_blocks,
    Step.USUAL_RATE: controls.usual_rate,
    Step.DEEPER: controls.deeper,
    Step.OTHER_FAULT: controls.other_fault,
    Step.UNSHAPED: _unshaped,
    Step.TOKENIZER: _tokenizer,
    Step.CALIBRATE: _calibrate,
    Step.ONE_SAMPLE: _one_sample,
}
