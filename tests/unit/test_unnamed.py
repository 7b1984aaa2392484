"""What lies in files without names is what was added, however it was added."""

from __future__ import annotations

import errno
import mmap
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity import unnamed
from parity.errors import ParityError
from parity.unnamed import Numbers, blank, kept

numbers = st.integers(-(2**31), 2**31 - 1)


@pytest.mark.parametrize("kind", ["i", "q"])
@pytest.mark.parametrize("held", [True, False])
@given(st.lists(st.one_of(numbers, st.lists(numbers, max_size=9), st.none()), max_size=9))
def test_numbers_one_by_one_and_many_at_a_time(kind: str, held: bool, added: list[int | list[int] | None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unnamed, "AT_ONCE", 128)
        found, expected = Numbers(kind, held=held), list[int]()
        for one in added:
            if isinstance(one, int):
                found.append(one)
                expected.append(one)
            elif one is not None:
                found.extend(np.array(one, dtype=np.int64))
                expected += one
            else:  # a look between
                assert found.whole().tolist() == list(found.data) == expected
        assert len(found) == len(expected)
        assert list(found.data) == found.whole().tolist() == expected
        assert found.whole().dtype == np.dtype(kind)


@pytest.mark.parametrize("values", [np.arange(40), np.arange(40) % 3 == 0, np.empty(0), np.arange(40).astype(np.int32)])
def test_large_arrays_are_kept_in_a_file(values: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept(values) is values
    monkeypatch.setattr(unnamed, "LARGE", 16)
    monkeypatch.setattr(unnamed, "AT_ONCE", 24)
    found = kept(values)
    assert found.dtype == values.dtype
    assert found.tolist() == values.tolist()
    assert len(values) == 0 or not found.flags.writeable
    assert kept(values[::3]).tolist() == values[::3].tolist()


def test_blank_arrays_are_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    held = blank((2, 8), np.int64)
    monkeypatch.setattr(unnamed, "LARGE", 16)
    mapped = blank((2, 8), np.int64)
    assert isinstance(_owner(mapped), mmap.mmap)
    for found in (held, mapped):
        assert (found.dtype, found.shape, found.any()) == (np.int64, (2, 8), False)
        found[1, 3:] = -1
        assert found.sum() == -5


def _owner(values: Any) -> Any:
    while isinstance(values, np.ndarray):
        values = values.base
    return values.obj if isinstance(values, memoryview) else values


def test_no_room_for_a_blank_array_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def pwrite(file: int, data: Any, at: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(unnamed.os, "pwrite", pwrite)
    monkeypatch.setattr(unnamed, "LARGE", 16)
    with pytest.raises(ParityError, match="No space left"):
        blank((8,), np.int64)


def test_a_full_disk_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def pwrite(file: int, data: Any, at: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(unnamed.os, "pwrite", pwrite)
    monkeypatch.setattr(unnamed, "LARGE", 16)
    found = Numbers("q")
    found.append(1)
    for fails in (found.whole, lambda: kept(np.arange(9))):
        with pytest.raises(ParityError) as said:
            fails()
        assert "TMPDIR" in str(said.value.hint)


@pytest.mark.parametrize("refused", ["mmap.mmap", "tempfile.TemporaryFile"])
def test_too_many_open_files_are_said(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(unnamed, "LARGE", 16)
    monkeypatch.setattr(f"parity.unnamed.{refused}", refuses)
    with pytest.raises(ParityError) as said:
        kept(np.arange(9))
    assert "Too many open files" in str(said.value)
    assert "ulimit -n" in str(said.value.hint)
