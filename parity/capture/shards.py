"""A capture as a directory of shards: files that are captures of a part of the completions, with the same header.

`shards.json` beside them says which they are, in their order; without it they are all `*.jsonl` and `*.jsonl.gz` by
their names. The capture is that of one file in which their completions and scores stand one after another.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final, NoReturn
from zlib import crc32

import msgspec

from parity.capture.problems import CaptureError
from parity.capture.remote import Place, Remote, how_to_reach
from parity.errors import ParityError, cannot_read
from parity.files import MAX_BYTES, is_file, read_whole
from parity.messages import Message, message

INDEX: Final = "shards.json"
SCHEMA: Final = "parity.shards/1"
ENDINGS: Final = (".jsonl", ".jsonl.gz")
LOOKED_AT: Final = 1 << 16
"""Bytes at either end of a shard that its checksum in the index is of: another capture's shard has others there."""


class Listed(msgspec.Struct, frozen=True):
    """A shard, as the index has it."""

    name: str
    bytes: int
    crc32: str
    """Of its first and its last LOOKED_AT bytes."""


class Index(msgspec.Struct, frozen=True):
    schema: str
    shards: list[Listed]


def has_index(path: Place) -> bool:
    """Whether it is a directory that says which shards of a capture it has. Raises OSError."""
    return (path / INDEX).is_file()


def is_there(path: Path) -> bool:
    """Whether a capture, or scores, are there: a file, or a directory of shards with an index."""
    return is_file(path) or is_file(path / INDEX)


def files_of(path: Place) -> list[Place]:
    """The files of a capture in their order: itself, or the shards of a directory. Raises ParityError where one is
    missing, is another than it was, or does not belong there."""
    try:
        if not path.is_dir():
            return [path]
        names = sorted(each.name for each in path.iterdir() if each.name.endswith(ENDINGS))
        index = _read(path / INDEX) if has_index(path) else None
    except OSError as error:
        raise cannot_read(str(path), error, how_to_reach(path)) from None
    if index is not None:
        return _as_listed(path, _index(path, index), names)
    if (path / "plan.json").is_file():
        raise ParityError(
            message("capture.run_directory", "{path} is the directory of a run, no capture", path=str(path)),
            hint=message("capture.name_an_arm", "name the captures in it, one for each arm: {names}", names=names),
        )
    if not names:
        raise ParityError(
            message("capture.no_shards", "{path} is a directory without shards (*.jsonl, *.jsonl.gz)", path=str(path)),
            hint=message(
                "capture.make_shards", "`parity capture split CAPTURE -o DIRECTORY` makes shards of a capture"
            ),
        )
    return [path / name for name in names]


def _read(path: Place) -> bytes:
    """A whole file. Raises OSError."""
    if not isinstance(path, Remote):
        return read_whole(path)
    with path.open() as file:
        return file.read(MAX_BYTES)


def _index(path: Place, data: bytes) -> Index:
    try:
        found = msgspec.json.decode(data, type=Index)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        _refuse(path / INDEX, message("capture.bad_index", "no index of shards: {said}", said=str(error)))
    names = [one.name for one in found.shards]
    if found.schema != SCHEMA or any(Path(name).name != name or not name.endswith(ENDINGS) for name in names):
        said = message("capture.index_of_others", "it is not one of {schema}, or names other files", schema=SCHEMA)
        _refuse(path / INDEX, said)
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        _refuse(path / INDEX, message("capture.shard_listed_twice", "{name} is listed twice", name=twice[0]))
    return found


def _refuse(path: Place, said: Message) -> NoReturn:
    raise CaptureError(
        str(path),
        None,
        said,
        hint=message("capture.copy_index", "copy it again, or remove it to read all *.jsonl there by their names"),
    )


def _as_listed(path: Place, index: Index, there: list[str]) -> list[Place]:
    listed = [one.name for one in index.shards]
    for one in index.shards:
        if one.name not in there:
            raise ParityError(
                message(
                    "capture.shard_missing",
                    "{path} lacks {name}, shard {number} of {count}",
                    path=str(path),
                    name=one.name,
                    number=listed.index(one.name) + 1,
                    count=len(listed),
                ),
                hint=message("capture.copy_shard", "copy {name} again from where the capture was split", name=one.name),
            )
    for name in there:
        if name not in listed:
            raise ParityError(
                message(
                    "capture.shard_foreign",
                    "{path} is none of the {count} shards that {index} lists",
                    path=str(path / name),
                    count=len(listed),
                    index=INDEX,
                ),
                hint=message(
                    "capture.move_shard", "move it elsewhere: `mv {path} ..`", path=shlex.quote(str(path / name))
                ),
            )
    for one in index.shards:
        size, digest = look(path / one.name)
        if (size, digest) != (one.bytes, one.crc32):
            raise ParityError(
                message(
                    "capture.shard_changed",
                    "{path} is not the shard that {index} lists: it has {size} bytes, the list says {listed}",
                    path=str(path / one.name),
                    index=INDEX,
                    size=size,
                    listed=one.bytes,
                )
                if size != one.bytes
                else message(
                    "capture.shard_other",
                    "{path} is not the shard that {index} lists: it is as long, and begins or ends otherwise",
                    path=str(path / one.name),
                    index=INDEX,
                ),
                hint=message("capture.copy_shard", "copy {name} again from where the capture was split", name=one.name),
            )
    return [path / name for name in listed]


def look(path: Place) -> tuple[int, str]:
    """Bytes of a shard, and the checksum of its ends. Raises ParityError."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            digest = crc32(file.read(LOOKED_AT))
            file.seek(max(size - LOOKED_AT, 0))
            return size, f"{crc32(file.read(LOOKED_AT), digest):08x}"
    except OSError as error:
        raise cannot_read(str(path), error, how_to_reach(path)) from None
