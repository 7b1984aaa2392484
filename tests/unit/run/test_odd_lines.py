"""Lines of a worker that no parser likes: each is a breach of the protocol, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from parity.run.messages import ProtocolError, decode
from parity.run.resume import RefusedFile, read_held

HEADER = b'{"record":"header","arm":"a","engine":{},"sampling":{},"environment":{},"x":"\\ud800"}\n'
ODD = [
    b'{"record":"round","round":0,"counters":{"x":"\xff"}}\n',
    b'{"record":"completion","request":"\xd1","round":0,"sample":0,"prompt_token_ids":[],"token_ids":[]}\n',
    HEADER,
    b'{"record":"footer","counters":{"a":' + b"[" * 5000 + b"]" * 5000 + b"}}\n",
]


@pytest.mark.parametrize("line", ODD, ids=range(len(ODD)))
def test_a_line_that_cannot_be_read_is_a_breach_of_the_protocol(line: bytes, tmp_path: Path) -> None:
    with pytest.raises(ProtocolError):
        decode(line)
    path = tmp_path / "held.jsonl"
    path.write_bytes(line)
    with pytest.raises(RefusedFile):
        read_held(path)
