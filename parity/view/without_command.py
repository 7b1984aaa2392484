"""The next steps in words, for where no command can take them."""

from __future__ import annotations

from parity.capture.remote import SIGN
from parity.messages import Message, message
from parity.records.next_steps import NextStep, Step
from parity.view.arm import ArmView
from parity.view.next_command import NextCommand


def in_words(step: NextStep, arm: ArmView) -> NextCommand:
    """Where no command can: the captures are gone, or the arms are recordings."""
    return NextCommand(step, (arm.name,), _words(step, arm))


def _words(step: NextStep, arm: ArmView) -> Message:
    if step.step is Step.SAME_QUESTIONS:
        return message(
            "next.words.same_questions",
            "capture {arm} again with the baseline's prompts and sampling parameters: one `parity run` asks both",
            arm=arm.name,
        )
    if step.step is Step.OWN_SEEDS:
        return message(
            "next.words.own_seeds",
            "capture the arms again, all in one `parity run`: it gives each request a seed of its own",
        )
    if step.step is Step.UNSHAPED:
        return message("next.words.unshaped", "run it without {names}, which scores do not show", names=step.names)
    if step.step is Step.CALIBRATE:
        return message(
            "next.words.calibrate",
            "the distributions are too flat for greedy tokens to tell: capture the arms again with a checkpoint that "
            "was trained (--model)",
        )
    if step.step is Step.LONGER:
        return message(
            "next.words.longer",
            "capture the arms again with {times} times as many output tokens, all in one `parity run`",
            times=step.number or 4,
        )
    if step.step is Step.ONE_SAMPLE:
        return message(
            "next.words.one_sample",
            "capture the arms again with one sample for each request, in {rounds} rounds, all in one `parity run`",
            rounds=step.number or 1,
        )
    if step.step is Step.ROUNDS:
        return message(
            "next.words.rounds",
            "capture the arms again with {times} times as many rounds, all in one `parity run`",
            times=step.number or 4,
        )
    if step.step in (Step.SCORE, Step.SCORE_TOP, Step.ARBITER, Step.REFERENCE, Step.LOGPROBS):
        if arm.capture and SIGN in arm.capture:
            return message(
                "next.words.score_remote",
                "an engine must score these completions, and it replays captures of this machine: copy them here, and "
                "compare the copies; then the command is given",
            )
        return message(
            "next.words.score",
            "an engine must score these completions, and their captures cannot be replayed (they were moved, or lie in "
            "shards): run it again with --score all",
        )
    return message("next.words.again", "capture the arms again, all in one `parity run`")
