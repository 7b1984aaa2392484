"""Two arms at the same time on a Ray cluster of two nodes, one with a GPU, one with an NPU (declared; CPU engines
behind them), with a small checkpoint of another family."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from parity.tiny import write_checkpoint


@pytest.mark.engine
@pytest.mark.timeout(480)
@pytest.mark.long
def test_arms_on_a_cluster(interpreter: Path, tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    write_checkpoint("mimo", tmp_path / "mimo")
    store = 80 << 20
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "num_gpus": 1, "include_dashboard": False, "object_store_memory": store},
    )
    try:
        cluster.add_node(num_cpus=2, num_gpus=0, resources={"NPU": 1}, object_store_memory=store)
        cluster.wait_for_nodes(60)
        launcher = f"{sys.executable} -m parity.ray.launcher --address {cluster.address}"
        (tmp_path / "parity.toml").write_text(
            f'[backends.gpu]\nadapter = "cpu"\ncommand = "{launcher} --gpus 1"\npython = "{interpreter}"\n\n'
            f'[backends.npu]\nadapter = "cpu"\ncommand = "{launcher} --npus 1"\npython = "{interpreter}"\n'
        )
        run = tmp_path / "run"
        subprocess.run([sys.executable, "-m", "parity", "trust", str(tmp_path)], check=True, timeout=60)
        done = subprocess.run(
            [sys.executable, "-m", "parity", "run", "--backends", "gpu,npu", "--variants", "mtp", "-k", "1",
             "--baseline", "gpu/mtp",
             "--model", str(tmp_path / "mimo"), "--suite", "smoke", "--max-tokens", "16", "--score", "none",
             "--db", str(tmp_path / "db"), "--out", str(run), "--json"],
            capture_output=True, text=True, cwd=tmp_path, timeout=420,
        )  # fmt: skip
    finally:
        cluster.shutdown()
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    captures = {}
    for name in ("gpu", "npu"):
        records = [json.loads(line) for line in (run / f"{name}-mtp.jsonl").read_text().splitlines()]
        captures[name] = records[0], [r for r in records if r["record"] == "completion"], records[-1]
        assert records[-1]["counters"]["accepted_tokens"] > 0
    assert captures["gpu"][0]["environment"]["variables"]["CUDA_VISIBLE_DEVICES"] == "0"
    assert captures["npu"][0]["environment"]["variables"]["ASCEND_RT_VISIBLE_DEVICES"] == "0"
    streams = [{r["request"]: r["token_ids"] for r in captures[name][1]} for name in captures]
    assert len(streams[0]) == 4
    assert streams[0] == streams[1]
