"""The profile of a run's modules, of one run or of several: how far what each engine's modules gave is from one
reference, as rows of a table and as a drawing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from parity.capture import read_capture
from parity.capture.sketches import Sketches, read_sketches, sketches_path
from parity.errors import ParityError
from parity.explain.aligned import align
from parity.explain.profile import DECODED, GROWN, PROMPTS, ROUNDING, Distances, Profile, profile
from parity.files import is_file
from parity.messages import Message, message, verbatim
from parity.pipeline.beneath import missed
from parity.records import Json
from parity.store import ArmRow, Store
from parity.view.find import Absent

OWN, ARBITER = "own", "arbiter"
"""The prefill of the first run's baseline engine, or that of its arbiter."""


@dataclass(frozen=True)
class Profiled:
    """A profile and what it rests on."""

    profile: Profile
    reference: str
    """One of REFERENCES."""
    reference_arm: str
    reference_dtype: str
    dtype: str
    """Of the first arm."""
    notes: tuple[Message, ...]

    @property
    def rounding(self) -> float:
        """The relative length of one rounding of what the first arm computes in; 0 where that is not known."""
        return ROUNDING.get(self.dtype.removeprefix("torch."), 0.0)

    def said(self) -> list[Message]:
        """What stands out, as sentences."""
        return [*self._of_arms(), *self.notes]

    def _of_arms(self) -> list[Message]:
        first, *others = self.profile.arms
        names = ", ".join(f"{place} {name}" for place, name in enumerate(self.profile.arms, start=1))
        found = [
            verbatim(names),
            message(
                "profile.reference",
                "distances from {arm}'s prefill of the same tokens, in {dtype}; one rounding of {own} is {rounding}",
                arm=self.reference_arm,
                dtype=self.reference_dtype.removeprefix("torch.") or "?",
                own=self.dtype.removeprefix("torch.") or "?",
                rounding=f"{self.rounding:.4f}",
            ),
        ]
        if others and self.reference == OWN:
            unjudged = message(
                "profile.own_reference",
                "whose rounding is worse is not judged: {arm} may compute its own prefill to the last bit. "
                "`--arbiter transformers` gives a reference that no engine shares",
                arm=first,
            )
            return [*found, unjudged]
        for place, name in enumerate(others, start=1):
            out = self.profile.standing_out(place)
            if not out:
                found.append(
                    message(
                        "profile.nothing",
                        "{arm}: no module adds {grown} times what it adds in {first}",
                        arm=name,
                        first=first,
                        grown=f"{GROWN:g}",
                    )
                )
            for one in out:
                of = one.of_arms[place]
                assert of is not None
                found.append(
                    message(
                        "profile.stands_out_in",
                        "{arm}: {module} is {times} times as far off in {part} as in {first}, and {grows} times "
                        "more so than any module before it",
                        arm=name,
                        part=PARTS[of.part],
                        module=one.name,
                        first=first,
                        times=f"{of.times:.2g}",
                        grows=f"{of.grows:.2g}",
                    )
                )
        return found

    def to_json(self) -> dict[str, Json]:
        return {
            "reference": self.reference,
            "reference_arm": self.reference_arm,
            "reference_dtype": self.reference_dtype,
            "dtype": self.dtype,
            "rounding": self.rounding,
            **asdict(self.profile),
        }

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Head and rows: of each arm (by its number) the median, of one or two the 99th percentile and routers' flips
        too; beside the first one's how many times its median, with a mark where a module stands out."""
        whole = len(self.profile.arms) <= WHOLE
        head = ["module"]
        for place in range(len(self.profile.arms)):
            head += [str(place + 1), *(["99 %", "flips"] if whole else []), *(["times"] if place else [])]
        rows = [
            [
                LAYERS.sub("", one.name),
                *(cell for place, of in enumerate(one.of_arms) for cell in _cells(of, beside=bool(place), whole=whole)),
            ]
            for one in self.profile.modules
        ]
        return head, rows


PARTS: Final = {
    PROMPTS: message("profile.prompts", "tokens of prompts"),
    DECODED: message("profile.decoded", "decode steps"),
}

WHOLE: Final = 2
"""Arms, beyond which a table has the medians alone: it must fit into 80 columns."""

LAYERS: Final = re.compile(r"^.*?\blayers\.(?=\d)")


def _cells(of: Distances | None, *, beside: bool, whole: bool) -> list[str]:
    more = [] if of is None or not whole else [f"{of.high:.4f}", str(of.flips or "")]
    times = [] if of is None or not beside else [f"{of.times:.2f}{' <' if of.stands_out else ''}"]
    if of is None:
        return [""] * (1 + 2 * whole + beside)
    return [f"{of.middle:.4f}", *more, *times]


def profiled(
    store: Store, runs: Sequence[str | None], *, arms: Sequence[str] = (), reference: str | None = None
) -> Profiled:
    """The profile of the sketched arms of these runs (None: the newest), or of those named, in that order.

    The reference is that of the first run; where there are several runs an arm is called RUN:ARM. Raises Absent where
    nothing was sketched, ParityError for an arm that is not there or a file that is damaged.
    """
    ids = [store.run(one).id for one in runs or [None]]
    of_runs = {run: dict(_sketched(store, run, apart=len(ids) > 1)) for run in ids}
    for run, of_run in of_runs.items():
        if not of_run:
            said = message("profile.none_sketched", "nothing was sketched in run {run}, or the files are gone", run=run)
            raise Absent(run, said)
    found = {name: path for of_run in of_runs.values() for name, path in of_run.items()}
    if missing := [name for name in arms if name not in found]:
        known = sorted(found)
        said = message(
            "profile.not_sketched", "no sketches of {arms}; there are those of {known}", arms=missing, known=known
        )
        raise ParityError(said, hint=message("view.name_one_arm", "name one of {known} with --arm", known=known))
    kind, theirs = _reference(store, ids[0], reference)
    captures = {
        name: (read_capture(path, partial=True), read_sketches(sketches_path(path))) for name, path in found.items()
    }
    chosen = list(arms) or list(found)
    pairs = [(name, align(*captures[name], theirs, prefixes=True)) for name in chosen]
    headers = [one.header for _, ours in [captures[chosen[0]]] for one in ours]
    notes = [
        message("profile.missed", "{arm}: {why}", arm=name, why=why)
        for name, pair in pairs
        for why in missed(Counter(pair.unpaired.values()))
    ]
    return Profiled(
        profile=profile(pairs, own_reference=kind == OWN),
        reference=kind,
        reference_arm=theirs[0].header.arm,
        reference_dtype=theirs[0].header.dtype,
        dtype=headers[0].dtype if headers else "",
        notes=tuple(notes),
    )


def _sketched(store: Store, run: str, *, apart: bool) -> list[tuple[str, Path]]:
    def has(one: ArmRow) -> bool:
        return bool(one.capture) and is_file(sketches_path(Path(str(one.capture))))

    return [(f"{run}:{one.name}" if apart else one.name, Path(str(one.capture))) for one in store.arms(run) if has(one)]


def _reference(store: Store, run: str, wanted: str | None) -> tuple[str, tuple[Sketches, ...]]:
    """Which reference, and its sketches: the arbiter's where it was sketched and nobody asks for the other."""
    directory = Path(store.run(run).directory or "")
    paths = {ARBITER: sketches_path(directory / "arbiter.jsonl"), OWN: sketches_path(directory / "scores.jsonl")}
    for kind, path in paths.items():
        if wanted in (None, kind) and is_file(path):
            found = tuple(one for one in read_sketches(path) if len(one))
            if found:
                return kind, found
    said = message(
        "profile.no_reference",
        "the run has no sketches of its reference: {paths}",
        paths=[str(paths[wanted])] if wanted else [str(one) for one in paths.values()],
    )
    raise Absent(run, said, ("--arbiter", "transformers") if wanted == ARBITER else ())
