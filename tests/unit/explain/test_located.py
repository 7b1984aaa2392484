"""Three answers from made-up sketches: the first module, the sampler, or nothing; and nobody without proof."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec.structs import replace as structs_replace
from sketch_world import MODULES, World

from parity.capture.sketches import Sketches, SketchesStopped
from parity.explain.aligned import Aligned, _block, align
from parity.explain.located import MODULE, SAMPLER, Locating, locate
from parity.explain.noise import LEAST_COMPLETIONS
from parity.records import Key

ATTENTION = 6
"""`model.layers.1.attn`."""


def located(world: World) -> Locating:
    return locate(align(world.capture(), [world.candidate()], [world.reference()]))


def scaled(request: str, position: int, module: int, by: float, spreads: bool = True):  # type: ignore[no-untyped-def]
    """One module of one token is too large; with `spreads`, all that runs after it in this token is off too."""

    def change(name: str, at: int, one: int, vector: np.ndarray) -> np.ndarray:
        hit = name == request and at == position and (one == module or (spreads and one > module))
        return vector * (1 + by) if hit else vector

    return change


def test_every_token_is_paired_and_a_healthy_run_is_accused_of_nothing() -> None:
    world = World()
    aligned = align(world.capture(), [world.candidate()], [world.reference()])
    assert len(aligned) == world.completions * (world.length - 1)
    assert not aligned.unpaired
    assert [one.name for one in aligned.modules[:-1]] == [one.name for one in MODULES]
    found = locate(aligned)
    assert found.judged
    assert not found.located
    assert 0.003 < float(np.median(aligned.distance)) < 0.008  # what the world was made with


def test_a_router_belongs_to_its_block_or_where_that_was_not_sketched_to_its_layer() -> None:
    places = {"model.layers.0": 0, "model.layers.1.mlp": 1, "model.layers.1": 2}
    found = [_block(f"model.layers.{layer}.mlp.gate", places) for layer in (0, 1, 2)]
    assert found == [0, 1, None]


def cut(sketches: Sketches, step: int, stopped: SketchesStopped | None) -> Sketches:
    """The same up to a step."""
    kept = sketches.columns["step"] <= step
    return replace(
        sketches,
        columns={name: column[kept] for name, column in sketches.columns.items()},
        norms=sketches.norms[kept],
        values=sketches.values[kept],
        gaps={number: one[kept] for number, one in sketches.gaps.items()},
        experts={number: one[kept] for number, one in sketches.experts.items()},
        stopped=stopped,
    )


def test_where_sketching_ended_a_completion_is_judged_up_to_there_and_no_other_reason_is_given() -> None:
    world = World()
    for stopped, why in ((SketchesStopped(step=12020, why="", enough=True), "sketches ended"), (None, "other tokens")):
        aligned = align(world.capture(), [cut(world.candidate(), 12020, stopped)], [world.reference()])
        assert aligned.unpaired[Key("p12", 0, 0)] == why
        assert {aligned.unpaired[Key(f"p{number}", 0, 0)] for number in range(13, 24)} == {"no sketches"}
        assert len(aligned.unpaired) == 12
        assert len(aligned) == 12 * (world.length - 1) + 22


@pytest.mark.parametrize("position", [0, 9, 10, 11, 37])
@pytest.mark.parametrize("by", [0.3, 29.0])
def test_the_first_module_is_named_at_its_token(position: int, by: float) -> None:
    (one,) = located(World(change=scaled("p7", position, ATTENTION, by))).located
    assert (one.key, one.answer, one.module) == (Key("p7", 0, 0), MODULE, "model.layers.1.attn")
    assert (one.position, one.output_position) == (position, max(0, position - 9))
    assert one.distance == pytest.approx(by, rel=0.5)
    assert one.row == 7 % 4
    assert one.input_clean
    assert one.strip is not None
    assert max(max(row) for row in one.strip.excess) > 1


def test_what_is_no_number_is_beyond_any_noise() -> None:
    def change(name: str, at: int, module: int, vector: np.ndarray) -> np.ndarray:
        return vector * np.nan if (name, at) == ("p3", 20) and module >= ATTENTION else vector

    (one,) = located(World(change=change)).located
    assert (one.module, one.position, one.distance) == ("model.layers.1.attn", 20, np.inf)


def test_a_floor_is_not_poisoned_by_the_faults_in_it() -> None:
    """A third of the completions is wrong from some token to its end: as the largest values of a run they would hide
    each other."""

    def change(name: str, at: int, module: int, vector: np.ndarray) -> np.ndarray:
        wrong = int(name[1:]) % 3 == 0 and at >= 20 and module >= ATTENTION
        return vector * 1.5 if wrong else vector

    found = located(World(change=change))
    assert {one.key.request for one in found.located} == {f"p{number}" for number in range(0, 24, 3)}
    assert {(one.module, one.position) for one in found.located} == {("model.layers.1.attn", 20)}


def alike(candidate: Sketches, reference: Sketches, until: dict[int, int]) -> Sketches:
    """The candidate computed these requests up to a position as the reference did, to the last bit."""
    ours, theirs = (
        [tuple(one) for one in np.stack([each.columns["request"], each.columns["position"]], axis=1).tolist()]
        for each in (candidate, reference)
    )
    there = {place: at for at, place in enumerate(theirs)}
    norms, values = candidate.norms.copy(), candidate.values.copy()
    for at, (request, position) in enumerate(ours):
        other = there.get((request, position), -1)
        same = candidate.columns["token"][at] == reference.columns["token"][other]
        if other >= 0 and same and position < until.get(request, 0):
            norms[at], values[at] = reference.norms[other], reference.values[other]
    return replace(candidate, norms=norms, values=values)


@pytest.mark.parametrize(
    "until",
    [
        pytest.param(dict.fromkeys(range(24), 30), id="prompts of all"),
        pytest.param(dict.fromkeys((1, 2, 3), 40), id="all of three"),
        pytest.param({**dict.fromkeys(range(24), 25), **dict.fromkeys((1, 2, 3), 40)}, id="both"),
    ],
)
def test_what_both_sides_computed_alike_says_nothing_of_the_noise(until: dict[int, int]) -> None:
    """Prompts may be equal to the last bit, and completions of which no decode step could be paired."""
    world = World(change=scaled("p7", 34, ATTENTION, 0.3))
    candidate = alike(world.candidate(), world.reference(), until)
    found = locate(align(world.capture(), [candidate], [world.reference()]))
    assert [(one.key.request, one.module, one.position) for one in found.located] == [("p7", "model.layers.1.attn", 34)]
    healthy = alike(World().candidate(), world.reference(), until)
    assert not locate(align(world.capture(), [healthy], [world.reference()])).located


def test_a_fault_where_all_else_is_alike_is_found() -> None:
    world = World(change=scaled("p7", 34, ATTENTION, 0.3))
    candidate = alike(world.candidate(), world.reference(), {**dict.fromkeys(range(24), 40), 7: 30})
    (one,) = locate(align(world.capture(), [candidate], [world.reference()])).located
    assert (one.key.request, one.module, one.position) == ("p7", "model.layers.1.attn", 34)


def test_a_flip_of_a_router_at_a_near_tie_is_no_fault() -> None:
    """What runs after it in this token and later ones is off by half of its size."""
    gate = 7

    def change(name: str, at: int, module: int, vector: np.ndarray) -> np.ndarray:
        return vector * 1.5 if name == "p5" and at >= 15 and module > gate else vector

    assert located(World(change=change)).located  # without the flip it is one
    assert not located(World(change=change, flips={("p5", 15, gate): True})).located


@pytest.mark.parametrize("tied", [False, True])
def test_a_router_whose_logits_are_equal_may_have_chosen_either(tied: bool) -> None:
    """Which of two equal logits is taken is not in the logits: one backend takes the first, another the last."""
    gate, block = 7, "model.layers.1.mlp"
    world = World(change=scaled("p5", 15, gate + 1, 0.3))
    assert MODULES[gate + 1].name == block
    candidate = world.candidate()
    modules = [
        structs_replace(one, name=block + ".gate") if place == gate else one
        for place, one in enumerate(candidate.modules)
    ]
    header = structs_replace(candidate.header, modules=tuple(modules))
    gaps = {**candidate.gaps, gate: np.where((candidate.columns["position"] == 15) & tied, 0, candidate.gaps[gate])}
    reference = world.reference()
    theirs = replace(reference, header=structs_replace(reference.header, modules=tuple(modules)))
    found = locate(align(world.capture(), [replace(candidate, header=header, gaps=gaps)], [theirs])).located
    assert [(one.module, one.position) for one in found] == ([] if tied else [(block, 15)])


@pytest.mark.parametrize(("by", "found"), [(0.5, 0), (2.0, 1)])
def test_after_a_flip_only_what_is_something_else_altogether_counts(by: float, found: int) -> None:
    gate = 7
    world = World(change=scaled("p5", 25, 11, by), flips={("p5", 15, gate): True})
    assert [(one.module, one.position) for one in located(world).located] == [("model.layers.2.attn", 25)] * found


def test_a_router_that_is_wrong_itself_is_found_although_it_chose_otherwise() -> None:
    gate = 7
    found = located(World(change=scaled("p5", 15, gate, 0.5), flips={("p5", 15, gate): True}))
    assert [(one.module, one.position) for one in found.located] == [("model.layers.1.gate", 15)]


def handed_out(world: World, request: str, place: int, token: int) -> Aligned:
    """Another token came out than the model chose, and the model was fed it."""
    world.tokens[request] = (*world.tokens[request][: 10 + place], token, *world.tokens[request][11 + place :])
    candidate, at = world.candidate(), list(world.tokens).index(request)
    columns = dict(candidate.columns)
    before = (columns["request"] == at) & (columns["position"] == 9 + place) & (columns["token"] != 1001)
    columns["best"] = np.where(before, 7, columns["best"])
    return align(world.capture(), [replace(candidate, columns=columns)], [world.reference()])


def test_a_token_that_its_own_logits_did_not_choose_is_the_samplers() -> None:
    (one,) = locate(handed_out(World(), "p4", 6, 555)).located
    assert (one.answer, one.module, one.key.request, one.output_position) == (SAMPLER, "sampler", "p4", 6)
    assert (one.handed_out, one.own_best) == (555, 7)


def test_of_two_largest_logits_none_is_its_own() -> None:
    world = World()
    candidate = world.candidate()
    columns = {**candidate.columns, "best": candidate.columns["best"] + 1}
    tied = {**columns, "ties": np.full(len(candidate), 2)}
    assert locate(align(world.capture(), [replace(candidate, columns=columns)], [world.reference()])).located
    assert not locate(align(world.capture(), [replace(candidate, columns=tied)], [world.reference()])).located


def test_what_is_sampled_is_not_asked_for_its_argmax() -> None:
    world = World()
    candidate = world.candidate()
    requests = {number: type(one)(**{**_fields(one), "plain": False}) for number, one in candidate.requests.items()}
    columns = {**candidate.columns, "best": candidate.columns["best"] + 1}
    changed = replace(candidate, columns=columns, requests=requests)
    assert not locate(align(world.capture(), [changed], [world.reference()])).located


def _fields(one: object) -> dict[str, object]:
    return {name: getattr(one, name) for name in one.__struct_fields__}  # type: ignore[attr-defined]


def test_without_proof_nobody_is_accused() -> None:
    """What goes into the first layer is another from one token on, and everything is far off there."""

    def change(name: str, at: int, module: int, vector: np.ndarray) -> np.ndarray:
        return vector * 5 if name == "p2" and at >= 12 else vector

    world = World(change=change)
    candidate = world.candidate()
    wrong = (candidate.columns["request"] == 2) & (candidate.columns["position"] >= 12)
    columns = {**candidate.columns, "entry": candidate.columns["entry"] + wrong}
    aligned = align(world.capture(), [replace(candidate, columns=columns)], [world.reference()])
    assert dict(aligned.unpaired) == {Key("p2", 0, 0): "other input"}
    assert (aligned.completion == aligned.keys.index(Key("p2", 0, 0))).sum() == 12
    assert not locate(aligned).located
    without = replace(candidate, has_entry=False)
    assert not len(align(world.capture(), [without], [world.reference()]))


def test_an_engine_that_is_fed_other_tokens_than_it_hands_out_is_not_judged_after_that() -> None:
    world = World()
    candidate = world.candidate()
    wrong = (candidate.columns["request"] == 2) & (candidate.columns["position"] == 20)
    columns = {**candidate.columns, "token": candidate.columns["token"] + wrong}
    aligned = align(world.capture(), [replace(candidate, columns=columns)], [world.reference()])
    assert dict(aligned.unpaired) == {Key("p2", 0, 0): "other tokens"}
    assert (aligned.completion == aligned.keys.index(Key("p2", 0, 0))).sum() == 20


def test_completions_without_sketches_or_reference_are_said() -> None:
    world = World()
    candidate, reference = world.candidate(), world.reference()
    nobody = replace(candidate, requests={number: one for number, one in candidate.requests.items() if number != 3})
    aligned = align(world.capture(), [nobody], [reference])
    assert dict(aligned.unpaired) == {Key("p3", 0, 0): "no sketches"}
    assert set(align(world.capture(), [candidate], []).unpaired.values()) == {"no reference"}


@pytest.mark.parametrize("wrong", [0, 4])
def test_a_small_case_that_fails_nearly_always_is_judged_beside_its_baseline(wrong: int) -> None:
    """Of six completions four are wrong: among themselves they would be what is usual, and six are too few."""

    def change(name: str, at: int, module: int, vector: np.ndarray) -> np.ndarray:
        return vector * 1.5 if int(name[1:]) < wrong and at == 20 and module >= ATTENTION else vector

    small, healthy = World(completions=6, change=change), World(completions=6, seed=5)
    aligned = align(small.capture(), [small.candidate()], [small.reference()])
    baseline = align(healthy.capture("cpu/base"), [healthy.candidate()], [healthy.reference()])
    found = locate(aligned, baseline)
    assert found.judged
    assert {(one.key.request, one.module, one.position) for one in found.located} == {
        (f"p{number}", "model.layers.1.attn", 20) for number in range(wrong)
    }
    assert (found.completions, found.tokens) == (6, 6 * 39)  # the baseline's own are not counted
    assert not locate(aligned).judged


def test_few_completions_say_nothing() -> None:
    found = located(World(completions=LEAST_COMPLETIONS - 1, change=scaled("p2", 20, ATTENTION, 1.0)))
    assert not found.judged
    assert not found.located
