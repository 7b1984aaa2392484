"""Two arms on a Ray cluster of two nodes: one asks for a GPU, one for two NPUs (two replicas). CPU engines behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.engine
@pytest.mark.timeout(480)
def test_arms_on_a_cluster(interpreter: Path, tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    store = 80 << 20
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "num_gpus": 1, "include_dashboard": False, "object_store_memory": store},
    )
    try:
        cluster.add_node(num_cpus=2, num_gpus=0, resources={"NPU": 2}, object_store_memory=store)
        cluster.wait_for_nodes(60)
        launcher = f"{sys.executable} -m parity.ray.launcher --address {cluster.address}"
        (tmp_path / "parity.toml").write_text(
            f'[backends.gpu]\nadapter = "cpu"\ncommand = "{launcher} --gpus 1"\npython = "{interpreter}"\n\n'
            f'[backends.npu]\nadapter = "cpu"\ncommand = "{launcher} --npus 1"\npython = "{interpreter}"\n'
            "replicas = 2\n"
        )
        run = tmp_path / "run"
        done = subprocess.run(
            [sys.executable, "-m", "parity", "run", "--backends", "gpu,npu", "--variants", "base", "--suite", "smoke",
             "--max-tokens", "8", "--score", "none", "--db", str(tmp_path / "db"), "--out", str(run), "--json"],
            capture_output=True, text=True, cwd=tmp_path, timeout=450,
        )  # fmt: skip
    finally:
        cluster.shutdown()
    assert done.returncode in (0, 4), done.stderr[-3000:]
    gpu = [json.loads(line) for line in (run / "gpu-base.jsonl").read_text().splitlines()]
    npu = [json.loads(line) for line in (run / "npu-base.jsonl").read_text().splitlines()]
    assert gpu[0]["environment"]["variables"]["CUDA_VISIBLE_DEVICES"] == "0"
    completions = [record for record in npu if record["record"] == "completion"]
    assert {record["replica"] for record in completions} == {0, 1}
    assert len(completions) == len([record for record in gpu if record["record"] == "completion"]) == 4
