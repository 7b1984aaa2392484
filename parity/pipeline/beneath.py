"""What sketches of activations say of a candidate, into the comparison of its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from parity.capture.sketches import Sketches, read_sketches, sketches_path
from parity.comparator import Comparison
from parity.explain.aligned import align
from parity.explain.located import FEW, MODULE, Located, Locating, locate, locate_drafter
from parity.explain.noise import ERROR_RATE, LEAST_COMPLETIONS
from parity.files import is_file
from parity.messages import Message, message, words_heard
from parity.pipeline.added import with_findings
from parity.records import Capture, Finding, Kind, Severity, Verdict
from parity.records.evidence import LocatedEvidence

MISSED = {
    "no sketches": message("beneath.no_sketches", "nothing was sketched of {count} completions"),
    "no reference": message("beneath.no_reference", "the baseline's engine did not compute {count} completions again"),
    "other tokens": message(
        "beneath.other_tokens",
        "in {count} completions the engine was fed other tokens than came out, and nothing after that is judged: "
        "`--record` shows the steps",
    ),
    "other input": message(
        "beneath.other_input",
        "in {count} completions what goes into the first layer is not equal to the last bit, so nothing is judged: "
        "another checkpoint, another precision, or a fault in the embedding",
    ),
    "sketches ended": message(
        "beneath.sketches_ended", "{count} completions went on when sketching had ended; each is judged up to there"
    ),
}
"""Why completions were not judged to their end, by `parity.explain.aligned.UNPAIRED`."""


def sketched(path: Path) -> tuple[Sketches, ...]:
    """The sketches beside a capture or a scores file; none where there is no file. Raises CaptureError."""
    beside = sketches_path(path)
    return read_sketches(beside) if is_file(beside) else ()


def look_beneath(
    capture: Capture, path: Path, reference: Path, baseline: tuple[Capture, Path] | None = None
) -> Locating | None:
    """What the sketches beside a capture say, set against those beside the scores; None where there are none.

    `baseline`: its capture and where that lies, for the noise of a run with few completions. Raises CaptureError for a
    damaged file."""
    ours, theirs = sketched(path), sketched(reference)
    if not (ours and theirs):
        return None
    steps = tuple(one for one in ours if not one.header.prefill)
    aligned = align(capture, steps, theirs)
    beside = sketched(baseline[1]) if baseline is not None and len(aligned.keys) < FEW else ()
    found = locate(aligned, align(baseline[0], beside, theirs) if baseline is not None and beside else None)
    again = tuple(one for one in ours if one.header.prefill)
    if not again:
        return found
    return replace(found, drafter=locate_drafter(align(capture, steps, again, drafter=True)))


def with_sketches(
    comparison: Comparison, capture: Capture, found: Locating | None, baseline: Locating | None = None
) -> Comparison:
    """The comparison and what the modules of its candidate gave, and those of its baseline where they were sketched."""
    notes = [*comparison.notes, *_unsketched(capture)]
    if found is None:
        return replace(comparison, notes=tuple(notes)) if len(notes) > len(comparison.notes) else comparison
    notes += unjudged(found)
    if found.drafter is not None and found.drafter.located:
        notes.append(_drafter_wrong(comparison.candidate, found.drafter))
    findings = [_finding(comparison, one) for one in found.located]
    reasons = list(comparison.reasons)
    verdict = comparison.verdict
    if baseline is not None and baseline.located:
        reasons.insert(0, _baseline_wrong(comparison.baseline, baseline))
        verdict = Verdict.INCONCLUSIVE if verdict is Verdict.PASS else verdict
    if findings:
        reasons.insert(0, _wrong(found))
        verdict = Verdict.DIVERGED
    if verdict is Verdict.PASS and found.judged and not found.located:
        reasons.append(clean(found))
    return with_findings(comparison, findings, verdict, reasons, notes)


def unreadable(why: Message) -> Locating:
    """Nothing, of sketches that are damaged."""
    return Locating((), 0, 0, judged=False, unpaired={}, noise=(), unread=why)


def missed(unpaired: Mapping[str, int]) -> list[Message]:
    """Why completions were not paired to their end, by how many."""
    return [replace(MISSED[why], parameters={"count": count}) for why, count in sorted(unpaired.items())]


def unjudged(found: Locating) -> list[Message]:
    """What was not judged, and why."""
    if found.unread is not None:
        return [message("beneath.unread", "the sketches cannot be read: {why}", why=found.unread)]
    said = missed(found.unpaired)
    if not found.judged:
        said.append(
            message(
                "beneath.too_few",
                "{completions} completions are too few to know the noise of modules: it takes {least}",
                completions=found.completions,
                least=LEAST_COMPLETIONS,
            )
        )
    return said


def clean(found: Locating) -> Message:
    return message(
        "beneath.clean",
        "nothing in {tokens} tokens of {completions} completions is beyond the noise of its module (at most {rate} of "
        "clean runs have anything that is)",
        tokens=found.tokens,
        completions=found.completions,
        rate=f"{ERROR_RATE:g}",
    )


def _unsketched(capture: Capture) -> list[Message]:
    said = capture.header.extra.get("sketches")
    why = said.get("unsketched") if isinstance(said, Mapping) else None
    if why is None:
        return []
    arm = capture.header.arm
    return [
        message("beneath.unsketched", "{arm}: activations could not be sketched: {why}", arm=arm, why=words_heard(why))
    ]


def _wrong(found: Locating) -> Message:
    modules = sorted({one.module for one in found.located})
    return message(
        "beneath.wrong",
        "{wrong} of {completions} completions went wrong inside the forward pass or right after it, first in {modules}",
        wrong=len(found.located),
        completions=found.completions,
        modules=modules,
    )


def _baseline_wrong(arm: str, found: Locating) -> Message:
    return message(
        "beneath.baseline_wrong",
        "{wrong} of {completions} completions of the baseline {arm} went wrong against its own prefill, first in "
        "{modules}",
        wrong=len(found.located),
        completions=found.completions,
        arm=arm,
        modules=sorted({one.module for one in found.located}),
    )


def _drafter_wrong(arm: str, found: Locating) -> Message:
    return message(
        "beneath.drafter_wrong",
        "in {wrong} of {completions} completions the drafter of {arm} went wrong, first in {modules}: that costs "
        "acceptance, not tokens",
        wrong=len(found.located),
        completions=found.completions,
        arm=arm,
        modules=sorted({one.module for one in found.located}),
    )


def of_drafter(found: Locating) -> Message:
    """What is said of a drafter in which nothing is wrong, or of which nothing is known."""
    if not found.judged:
        return message(
            "beneath.drafter_too_few",
            "the drafter is not judged: {completions} completions can be set against its own prefill, and it takes "
            "{least}",
            completions=found.completions,
            least=LEAST_COMPLETIONS,
        )
    return message(
        "beneath.drafter_clean",
        "the drafter: nothing in {tokens} tokens of {completions} completions is beyond the noise of its module",
        tokens=found.tokens,
        completions=found.completions,
    )


def drafter_in_part(found: Locating) -> Message | None:
    """Of how many completions a drafter's tokens could not be paired to the end; None where of none."""
    count = sum(found.unpaired.values())
    if not count:
        return None
    return message(
        "beneath.drafter_in_part",
        "the drafter: {count} completion is judged in part only: it was given another token than came next, as at the "
        "end of a prompt's chunk, or was not sketched",
        plural="the drafter: {count} completions are judged in part only: it was given another token than came next, "
        "as at the end of a prompt's chunk, or was not sketched",
        count=count,
    )


def why_drafter(one: Located) -> Message:
    """The sentence of a fault of the drafter."""
    return message("beneath.drafter", "the drafter: {why}; that costs acceptance, not tokens", why=why_located(one))


def why_located(one: Located) -> Message:
    """The sentence of one located fault."""
    if one.answer == MODULE:
        return message(
            "beneath.module",
            "step {step}, row {row}, input token {position}: {module} is the first module beyond noise, {distance} of "
            "its size away from the reference's prefill, {factor} times the usual distance; {before}",
            step=one.step,
            row=one.row,
            position=one.position,
            module=one.module,
            distance=f"{one.distance:.2g}",
            factor=f"{float(f'{one.distance / one.usual:.2g}'):,g}" if one.usual else "?",
            before=message("beneath.clean_input", "what went into it was within noise")
            if one.input_clean
            else message("beneath.noisy_input", "what went into it was noisier than usual"),
        )
    return message(
        "beneath.sampler",
        "step {step}, row {row}, input token {position}: the forward pass is clean and chooses token {own}, and "
        "{token} was handed out: the sampler or the bookkeeping after it",
        step=one.step,
        row=one.row,
        position=one.position,
        own=one.own_best,
        token=one.handed_out,
    )


def evidence_of(one: Located) -> LocatedEvidence:
    """What a person can check it by."""
    strip = one.strip
    sampler = one.answer != MODULE
    return LocatedEvidence(
        why=why_located(one),
        answer=one.answer,
        module=one.module,
        input_position=one.position,
        step=one.step,
        row=one.row,
        module_type=one.type,
        distance=round(min(one.distance, 1e9), 6),
        usual=round(one.usual, 6),
        input_clean=one.input_clean,
        tokens_beyond=one.tokens_beyond,
        handed_out=one.handed_out if sampler else None,
        own_best=one.own_best if sampler else None,
        strip_modules=() if strip is None else strip.modules,
        strip_positions=() if strip is None else strip.positions,
        strip=() if strip is None else strip.excess,
    )


def _finding(comparison: Comparison, one: Located) -> Finding:
    return Finding(
        arm=comparison.candidate,
        baseline=comparison.baseline,
        request=one.key.request,
        round=one.key.round,
        sample=one.key.sample,
        kind=Kind.LOCATED_FAULT,
        severity=Severity.CORRUPT,
        position=one.output_position,
        length=1,
        evidence=evidence_of(one),
    )
