"""Captures as directories of shards: the same as the one file, and what is wrong with a shard is said by its name."""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from parity.capture import CaptureError, find_completion, read_capture, write_capture
from parity.capture.shards import INDEX
from parity.capture.split import split
from parity.cli.main import cli
from parity.comparator import compare
from parity.errors import ParityError
from parity.language import render
from parity.records import Capture, Completion, Header, Key, ScoreKey, TopLogprobs
from tests.unit.test_capture_beside import arm_of, arms, said_by, written
from tests.unit.test_packed_captures import packed
from tests.unit.test_stretches import Cut


def all_of(capture: Capture) -> list[object]:
    """All that a capture says, with the lines of its completions."""
    scores = [(key, top.values.tolist()) for key, top in capture.scores.items()]
    return [said_by(capture), list(capture.column("line")), dict(capture.counters or {}), scores]


@given(arms(), st.integers(1, 2000), st.booleans(), st.data())
def test_shards_are_the_one_file(
    made: tuple[list[Completion], list[Completion]], size: int, large: bool, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        paths = [written(Path(name) / f"{side}.jsonl", f"a/{side}", made[number]) for number, side in enumerate("xy")]
        folders = [Path(name) / side for side in "xy"]
        for path, folder in zip(paths, folders, strict=True):
            split(path, folder, size)
        first = read_capture(paths[0])
        second = read_capture(paths[1], beside=first)
        readers = Cut(data.draw(st.lists(st.integers(0, 2000), max_size=6)), set())
        if large:
            with packed():
                mine = read_capture(folders[0], readers=readers)
                theirs = read_capture(folders[1], beside=mine, readers=readers)
        else:
            mine = read_capture(folders[0])
            theirs = read_capture(folders[1], beside=mine)
        assert all_of(mine) == all_of(first)
        assert all_of(theirs) == all_of(second)
        assert compare(mine, theirs).to_json() == compare(first, second).to_json()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A capture with scores and counters."""
    made = arm_of(30)
    scores = {ScoreKey("a/base", *one.key): TopLogprobs.from_json([[[1, -0.5]]] * 9) for one in made[:4]}
    header = Header("a/base", "a", "base", "m", sampling={"max_tokens": 9}, extra={"plan_digest": "x"})
    completions = {one.key: one for one in made}
    write_capture(
        tmp_path / "base.jsonl", Capture(header, completions, scores, {"drafts": 3, "tokens_per_second": 1.5})
    )
    return tmp_path / "base.jsonl"


@pytest.fixture
def folder(path: Path) -> Path:
    made = CliRunner().invoke(cli, ["capture", "split", str(path), "-o", str(path.with_name("shards")), "--size", "1"])
    assert made.exit_code == 0, made.output
    shutil.rmtree(path.with_name("shards"))
    assert len(split(path, path.with_name("shards"), 1500)) > 4
    return path.with_name("shards")


def test_scores_and_counters_are_there(path: Path, folder: Path) -> None:
    assert all_of(read_capture(folder)) == all_of(read_capture(path))
    for each in sorted(folder.glob("*.jsonl")):
        read_capture(each)  # each is a capture of its own
    assert find_completion(folder, Key("p29", 0, 0)) is not None
    assert find_completion(folder, Key("p30", 0, 0)) is None


def test_without_an_index_they_are_read_by_name(path: Path, folder: Path) -> None:
    (folder / INDEX).unlink()
    assert all_of(read_capture(folder)) == all_of(read_capture(path))


def missing(folder: Path) -> None:
    (folder / "00002.jsonl").unlink()


def copied(folder: Path) -> None:
    shutil.copy(folder / "00002.jsonl", folder / "00002-copy.jsonl")


def in_its_place(folder: Path) -> None:
    shutil.copy(folder / "00003.jsonl", folder / "00002.jsonl")


def of_the_same_size(folder: Path) -> None:
    data = (folder / "00002.jsonl").read_bytes()
    (folder / "00002.jsonl").write_bytes(data.replace(b'"request":"p', b'"request":"q'))


def listed_twice(folder: Path) -> None:
    index = json.loads((folder / INDEX).read_text())
    (folder / INDEX).write_text(json.dumps({**index, "shards": [*index["shards"], index["shards"][1]]}))


def elsewhere(folder: Path) -> None:
    index = json.loads((folder / INDEX).read_text())
    index["shards"][1]["name"] = "../base.jsonl"
    (folder / INDEX).write_text(json.dumps(index))


def no_json(folder: Path) -> None:
    (folder / INDEX).write_bytes(b"\xff{")


def empty(folder: Path) -> None:
    for each in folder.iterdir():
        each.unlink()


def of_a_run(folder: Path) -> None:
    (folder / INDEX).unlink()
    (folder / "plan.json").write_text("{}")


def twice_without_index(folder: Path) -> None:
    (folder / INDEX).unlink()
    copied(folder)


def of_another_arm(folder: Path) -> None:
    (folder / INDEX).unlink()
    written(folder / "00009.jsonl", "a/mtp", [replace(arm_of(1)[0], key=Key("new", 0, 0))])


def cut_off(folder: Path) -> None:
    (folder / INDEX).unlink()
    (folder / "00002.jsonl").write_bytes((folder / "00002.jsonl").read_bytes()[:-100])


WRONG = [
    (missing, "lacks 00002.jsonl, shard 2 of ", "copy 00002.jsonl again"),
    (copied, "00002-copy.jsonl is none of the ", "mv "),
    (in_its_place, "00002.jsonl is not the shard that shards.json lists", "copy 00002.jsonl again"),
    (of_the_same_size, "00002.jsonl is not the shard that shards.json lists: it is as long", "copy 00002.jsonl again"),
    (listed_twice, "shards.json: 00002.jsonl is listed twice", "copy it again"),
    (elsewhere, "shards.json: it is not one of parity.shards/1", "copy it again"),
    (no_json, "shards.json: no index of shards", "copy it again"),
    (empty, "without shards", "parity capture split"),
    (of_a_run, "is the directory of a run", "00001.jsonl"),
    (twice_without_index, "00002.jsonl, line 2: completion ", "parity capture check"),
    (of_another_arm, "00009.jsonl, line 1: its header is not that of the first shard (a/base)", "parity capture check"),
    (cut_off, "00002.jsonl, line ", "--partial"),
]


@pytest.mark.parametrize(("damage", "said", "hint"), WRONG, ids=[one[0].__name__ for one in WRONG])
@pytest.mark.parametrize("large", [False, True])
def test_what_is_wrong_is_said(folder: Path, damage: Callable[[Path], None], said: str, hint: str, large: bool) -> None:
    damage(folder)
    with packed() if large else nullcontext(), pytest.raises(ParityError) as plain:
        read_capture(folder)
    assert said in str(plain.value)
    assert plain.value.hint is not None
    assert hint in render(plain.value.hint)


def test_a_name_from_a_far_host_stays_one_word_of_the_command(folder: Path) -> None:
    (folder / "x; rm -rf q.jsonl").write_text("")
    with pytest.raises(ParityError) as wrong:
        read_capture(folder)
    command = str(wrong.value.hint).split("`")[1]
    assert shlex.split(command) == ["mv", str(folder / "x; rm -rf q.jsonl"), ".."]


def test_a_completion_in_two_shards_names_both(folder: Path) -> None:
    twice_without_index(folder)
    with packed(), pytest.raises(CaptureError, match=r"00002\.jsonl, line 2: .*first in 00002-copy\.jsonl, line 2"):
        read_capture(folder)
    with pytest.raises(CaptureError, match=r"00002\.jsonl, line 2: .*first in 00002-copy\.jsonl, line 2"):
        read_capture(folder)


@pytest.mark.parametrize("end", [-200, 300, 0])
def test_only_a_whole_capture_is_split(path: Path, end: int) -> None:
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(ParityError):
        split(path, path.with_name("shards"), 1500)
    assert not path.with_name("shards").exists()
    assert not path.with_name("shards.unfinished").exists()


def test_a_last_line_may_lack_its_end(path: Path) -> None:
    whole = all_of(read_capture(path))
    path.write_bytes(path.read_bytes()[:-1])
    split(path, path.with_name("shards"), 1500)
    assert all_of(read_capture(path.with_name("shards"))) == whole


def test_a_record_that_is_lost_is_not_hidden(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:5], *lines[6:]]))
    with pytest.raises(ParityError, match="no whole capture"):
        split(path, path.with_name("shards"), 1500)


def test_nothing_is_written_over(path: Path, folder: Path) -> None:
    with pytest.raises(ParityError, match="there already"):
        split(path, folder, 1500)


def test_it_is_compared_as_the_file_is(path: Path, folder: Path) -> None:
    other = written(path.with_name("mtp.jsonl"), "a/mtp", arm_of(30))
    one = CliRunner().invoke(cli, ["compare", str(path), str(other), "--json"])
    both = CliRunner().invoke(cli, ["compare", str(folder), str(other), "--json"])
    assert one.exit_code == both.exit_code != 2
    first, second = json.loads(one.output), json.loads(both.output)
    first.pop("next"), second.pop("next")  # commands with the captures' names
    assert second == first


def test_shards_are_checked_one_by_one_and_together(folder: Path) -> None:
    def said() -> tuple[int, str]:
        done = CliRunner().invoke(cli, ["capture", "check", str(folder)])
        return done.exit_code, done.output

    assert said()[0] == 0
    twice_without_index(folder)
    code, output = said()
    assert code == 2
    assert "given twice (first in 00002-copy.jsonl" in output
    (folder / "00002-copy.jsonl").write_bytes(b"{}\n")
    code, output = said()
    assert code == 2
    assert "00002-copy.jsonl, line 1: " in output
