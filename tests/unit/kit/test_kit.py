"""A kit from the archive to the verdict: everything is real but the engine (tests/unit/pipeline/fake_engine.py)."""

from __future__ import annotations

import ast
import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from parity.capture.checksum import seal_of
from parity.errors import ParityError
from parity.kit import archive
from parity.kit.read import is_result, read_result
from parity.kit.write import KitRequest, kit_plan, write_kit
from parity.plan.trusting import of_plan
from parity.run import load_backend
from parity.store import Store

FAKE_ENGINE = Path(__file__).parents[1] / "pipeline" / "fake_engine.py"
SECRET = "hf_" + "Abcdefghij0123456789"

AS_A_WORKER = """
class Arm(Arm):  # what the fake engine lacks
    def settle(self, seconds):
        sys.stderr.write("token %s in %s\\n" % (os.environ.get("HF_TOKEN"), os.path.expanduser("~")))

    def sketch(self):
        if self.plan.get("sketch"):
            self.channel.record({"record": "sketches_header", "schema": "parity.sketches/1", "arm": self.name,
                                 "modules": [], "level": self.plan["sketch"]})
            why = "%d were asked for" % self.plan["sketch_tokens"]
            self.channel.record({"record": "sketches_stopped", "step": 3, "why": why, "enough": MODE != "no sketch"})

    def score(self, items, top):
        self.sketch()
        super().score(items, top)
        order = [item["arm"] for item in items]
        sys.stderr.write("scored %s first, %s last\\n" % (order[:2], order[-1]))

    def generate(self, rounds):
        self.sketch()
        if self.plan.get("record"):
            if not hasattr(self, "began"):
                self.began = True
                self.channel.record({"record": "steps_header", "schema": "parity.steps/1", "arm": self.name})
            self.channel.record({"record": "steps_stopped", "step": len(self.plan["requests"]), "why": "no engine"})
        super().generate(rounds)

    def trial(self, requests, sampling, churn=None):
        planned, self.plan = self.plan, {**self.plan, "requests": requests, "sampling": sampling}
        self.generate([0])
        self.plan = planned


class Several:  # as many samples as are asked for; one, where only one is given back
    def __init__(self, channel, n):
        self.real, self.n = channel, n

    def __getattr__(self, name):
        return getattr(self.real, name)

    def record(self, record):
        if record["record"] == "completion":
            for sample in range(self.n):
                moved = [3 + (token + 31 * sample) % 1800 for token in record["token_ids"]]
                self.real.record({**record, "sample": sample, "token_ids": moved if sample else record["token_ids"]})
        else:
            self.real.record({**record, "completions": record["completions"] * self.n} if "completions" in record
                             else record)


class Arm(Arm):
    def generate(self, rounds):
        asked = self.plan["sampling"]["n"]
        if asked > 1:
            alone = MODE == "one of n" or (MODE == "one of n with drafts" and self.speculates)
            self.channel = Several(getattr(self.channel, "real", self.channel), 1 if alone else asked)
        super().generate(rounds)
"""


class There:
    """A machine without parity: its Python has a package called vllm, and nothing of this project."""

    def __init__(self, folder: Path, **request: object) -> None:
        self.folder, self.home = folder / "there", folder / "home"
        (self.folder / "site" / "vllm").mkdir(parents=True)
        (self.folder / "site" / "vllm" / "__init__.py").write_text("")
        real = self.folder / "real.pyz"
        asked = KitRequest("cpu", **{"rounds": 1, "samples": 1, "suite": "smoke", **request})  # type: ignore[arg-type]
        write_kit(asked, load_backend("cpu"), real)
        self.archive = self.folder / "kit.pyz"
        with zipfile.ZipFile(real) as source, zipfile.ZipFile(self.archive, "w") as target:
            for name in source.namelist():
                text = source.read(name)
                if name == "worker.py":
                    worker, begin = text.decode().split('\nif __name__ == "__main__":')
                    fake = FAKE_ENGINE.read_text(encoding="utf-8")
                    text = f'{worker}\n{fake}\n{AS_A_WORKER}\nif __name__ == "__main__":{begin}'.encode()
                target.writestr(name, text)

    def start(self, *arguments: str, site: str = "site", **fake: str) -> subprocess.Popen[str]:
        env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_PRELOAD")}
        env |= {"PYTHONPATH": str(self.folder / site), "FAKE_STARTS": str(self.folder / "starts.txt"), **fake}
        command = [sys.executable, "-I" if site == "" else "-s", str(self.archive), *arguments]
        return subprocess.Popen(command, cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True)  # fmt: skip

    def run(self, *arguments: str, site: str = "site", **fake: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, site=site, **fake)
        out, err = process.communicate(timeout=60)
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    @property
    def result(self) -> Path:
        return self.folder / "parity-kit-result.tar.gz"

    @property
    def starts(self) -> list[str]:
        return (self.folder / "starts.txt").read_text().split()

    def compare(self, *arguments: str) -> tuple[int, str]:
        """`parity compare RESULT`, elsewhere."""
        return parity(self.home, "compare", str(self.result), *arguments)


def parity(home: Path, *arguments: str) -> tuple[int, str]:
    env = {**os.environ, "PARITY_HOME": str(home)}
    command = [sys.executable, "-m", "parity", *arguments]
    done = subprocess.run(command, cwd=home.parent.parent, env=env, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def there(tmp_path: Path) -> There:
    return There(tmp_path, max_tokens=24)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> There:
    """A kit that ran to its end."""
    there = There(tmp_path_factory.mktemp("clean"), max_tokens=24)
    done = there.run(HF_TOKEN=SECRET, HOME="/srv/somebody")
    assert done.returncode == 0, done.stderr
    return there


@pytest.fixture
def result(clean: There) -> Iterator[There]:
    """Its result may be changed."""
    data = clean.result.read_bytes()
    yield clean
    clean.result.write_bytes(data)


def test_one_file_goes_there_and_one_comes_back(clean: There) -> None:
    assert clean.starts == ["cpu/base", "cpu/mtp", "cpu/deployed", "cpu/base"]  # the last one scores
    code, said = clean.compare()
    assert code == 0, said
    assert "PASS" in said
    assert "cpu/deployed" in said
    with Store.open(clean.home / "parity.db", create=False) as store:
        (run,) = store.runs()
        assert [arm.status for arm in store.arms(run.id)].count("compared") == 2


def test_a_fault_there_is_found_here(there: There) -> None:
    assert there.run(FAKE="corrupt").returncode == 0
    code, said = there.compare("--json")
    assert code == 1, said
    found = json.loads(said[said.index("{") : said.rindex("}") + 1])
    assert found["arms"]["cpu/mtp"]["verdict"] == "DIVERGED"


@pytest.mark.parametrize(
    ("fake", "code", "words"),
    [
        ("", 0, "PASS"),
        ("one of n with drafts", 1, "missing_completion"),
        ("one of n", 4, "n is 4, and neither side returned 12 of 16 samples"),
    ],
)
def test_samples_that_do_not_come_back(tmp_path: Path, fake: str, code: int, words: str) -> None:
    """As in the report of n = 16 at temperature 0.7 that gave one completion."""
    there = There(tmp_path, max_tokens=24, samples=4, temperature=0.7, top_p=0.9)
    done = there.run(FAKE=fake)
    assert done.returncode == 0, done.stderr
    found, said = there.compare()
    assert found == code, said
    assert words in " ".join(said.split())


def test_the_rehearsal_comes_first_and_nothing_of_it_is_kept(clean: There) -> None:
    plan = kit_plan(KitRequest("cpu", rounds=1, samples=1, suite="smoke", max_tokens=24), load_backend("cpu"))
    with tarfile.open(clean.result) as archive:
        about = json.load(archive.extractfile("about.json"))  # type: ignore[arg-type]
        lines = archive.extractfile("cpu-base.jsonl").read().splitlines()  # type: ignore[union-attr]
        steps = [json.loads(line) for line in archive.extractfile("cpu-base.steps")]  # type: ignore[union-attr]
    longest = max(len(request.prompt_token_ids) for request in plan.requests)
    assert about["rehearsal"]["scored_tokens"] == longest + 24
    kinds = [json.loads(line)["record"] for line in lines]
    assert [one["record"] for one in steps] == ["steps_header", "steps_stopped"]
    assert steps[1]["step"] == len(plan.requests)
    assert kinds == ["header", *["completion"] * len(plan.requests), "round", "footer"]


def in_archive(path: Path, ending: str) -> dict[str, list[dict[str, object]]]:
    with tarfile.open(path) as archive:
        names = [name for name in archive.getnames() if name.endswith(ending)]
        return {name: [json.loads(line) for line in archive.extractfile(name)] for name in names}  # type: ignore[union-attr]


def test_eager_arms_are_sketched_and_so_are_the_scores_that_they_are_set_against(clean: There) -> None:
    found = in_archive(clean.result, ".sketches")
    assert sorted(found) == ["cpu-base.sketches", "cpu-mtp.sketches", "scores.sketches"]  # deployed: its own settings
    for name, lines in found.items():  # nothing of the rehearsal's
        assert [one["record"] for one in lines] == ["sketches_header", "sketches_stopped"], name
        assert lines[0]["level"] == "layers"
    asked = {name: lines[1]["why"] for name, lines in found.items()}
    assert asked["cpu-base.sketches"] == "20000 were asked for"
    assert asked["scores.sketches"] == "40000 were asked for"  # of two arms
    with tarfile.open(clean.result) as archive:
        scores = archive.extractfile("scores.log").read().decode()  # type: ignore[union-attr]
    assert "scored ['cpu/base', 'cpu/mtp'] first, cpu/deployed last" in scores


def test_a_kit_that_sketches_nothing(tmp_path: Path) -> None:
    there = There(tmp_path, max_tokens=8, sketch="")
    assert there.run().returncode == 0
    assert in_archive(there.result, ".sketches") == {}
    assert there.compare()[0] == 0


def test_what_gave_up_in_the_rehearsal_is_said(there: There) -> None:
    assert there.run(FAKE="no sketch").returncode == 0
    _, said = there.compare()
    assert "its rehearsal ended the sketching of activations: 20000 were asked for" in " ".join(said.split())


def test_sketches_without_scores_are_left_out(result: There) -> None:
    """There is nothing to set them against."""
    with tarfile.open(result.result) as source:
        members = {one.name: source.extractfile(one).read() for one in source}  # type: ignore[union-attr]
    with tarfile.open(result.result, "w:gz") as target:
        for name, data in members.items():
            if not name.startswith("scores"):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                target.addfile(member, io.BytesIO(data))
    code, said = result.compare()
    assert code in (0, 4), said


def test_a_byte_that_changed_on_the_way_back_is_found(result: There) -> None:
    """Every record has its checksum; what a kit of an earlier release wrote has none, and is read."""
    with tarfile.open(result.result) as source:
        members = {one.name: source.extractfile(one).read() for one in source}  # type: ignore[union-attr]
    kept = [name for name in members if name.endswith((".jsonl", ".steps", ".sketches"))]
    assert len(kept) == 10  # three captures, what lies beside them and the scores
    assert all(seal_of(line) for name in kept for line in members[name].splitlines(keepends=True))

    def repacked(change: Callable[[str, bytes], bytes]) -> tuple[int, str]:
        with tarfile.open(result.result, "w:gz") as target:
            for name, data in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(changed := change(name, data))
                target.addfile(member, io.BytesIO(changed))
        return result.compare()

    code, said = repacked(lambda name, data: data.replace(b'"length"', b'"lengtf"', 1))
    assert code == 2, said
    assert "its checksum is wrong" in " ".join(said.split())
    code, said = repacked(lambda name, data: re.sub(rb',"crc32":"[0-9a-f]{8}"\}\n', b"}\n", data))
    assert code == 0, said


def test_no_secret_no_home_and_no_name_of_the_machine_comes_back(clean: There) -> None:
    with tarfile.open(clean.result) as archive:
        texts = {one.name: archive.extractfile(one).read().decode() for one in archive}  # type: ignore[union-attr]
    assert "token *** in ~" in texts["cpu-base.log"]
    assert not [name for name, text in texts.items() if SECRET in text or "/srv/somebody" in text]


def test_an_arm_that_dies_is_named_and_the_others_are_compared(there: There) -> None:
    done = there.run(FAKE_ARM="cpu/mtp")
    assert done.returncode == 3
    assert "cpu/mtp failed: the engine's process ended" in done.stderr
    code, said = there.compare()
    assert code == 3, said
    assert "cpu/mtp failed: it failed there" in " ".join(said.split())
    assert "cpu/deployed" in said
    _, again = parity(there.home, "run", "--resume")
    assert "there is no unfinished run" in again  # nothing of it can be run here


def test_without_the_baseline_it_is_said_which_engines_start(there: There) -> None:
    done = there.run(FAKE_ARM="cpu/base")
    assert done.returncode == 3
    assert there.starts == ["cpu/base", "cpu/mtp", "cpu/deployed"]
    code, said = there.compare()
    assert code == 3, said
    assert "cpu/base failed there, and nothing was compared" in " ".join(said.split())
    with tarfile.open(there.result) as archive:
        assert {"cpu-mtp.jsonl", "cpu-deployed.jsonl", "cpu-base.log"} <= set(archive.getnames())


def test_what_the_first_two_fail_of_the_others_are_not_tried_with(there: There) -> None:
    """Each start takes minutes on an accelerator (seen on an H200: four arms, one module that was not there)."""
    done = there.run(FAKE_ARM="cpu/base,cpu/mtp,cpu/deployed")
    assert done.returncode == 3
    assert there.starts == ["cpu/base", "cpu/mtp"]
    assert "the first two failed alike: the others are left out" in done.stderr
    code, said = there.compare()
    assert code == 3, said
    assert "cpu/base failed there, and nothing was compared" in " ".join(said.split())


def test_what_a_baseline_failed_of_comes_with_its_remedy(there: There) -> None:
    there.run(FAKE_ARM="cpu/base", FAKE_WORDS="std::bad_alloc")
    _, said = there.compare()
    assert "hint: out of memory: lower VLLM_CPU_KVCACHE_SPACE" in " ".join(said.split())


def until_there_is(path: Path, process: subprocess.Popen[str], text: str) -> None:
    end = time.monotonic() + 30
    while not path.exists() or text not in path.read_text():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.skipif(os.name != "posix", reason="there are no such signals")
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_killed_in_the_middle_what_there_is_can_be_read_and_it_goes_on(there: There, name: str) -> None:
    """In the last arm: two are whole by then."""
    capture = there.folder / "parity-kit-work" / "cpu-deployed.jsonl"
    process = there.start(FAKE_STEP="0.3")
    until_there_is(capture, process, '"completion"')
    os.kill(process.pid, getattr(signal, name))
    process.communicate(timeout=30)
    code, said = there.compare()
    assert code in (0, 4), said
    assert "cpu/deployed" in said  # left out, and said so
    assert "the kit's time was over" in " ".join(said.split())
    done = there.run()
    assert done.returncode == 0, done.stderr
    assert "cpu/mtp: there already" in done.stderr
    assert there.starts == ["cpu/base", "cpu/mtp", "cpu/deployed", "cpu/deployed", "cpu/base"]


def test_too_little_time_is_said_here(there: There) -> None:
    done = there.run("--minutes", "0.02", FAKE_STEP="1")
    assert done.returncode == 3
    assert "cpu/base: its time is over" in done.stderr
    code, said = there.compare()
    assert code == 2
    assert "0 of 3 arms are whole" in " ".join(said.split())


def test_a_wrong_machine_says_so_in_one_line(there: There, tmp_path: Path) -> None:
    (there.folder / "nothing").mkdir()
    done = there.run(site="nothing")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "has no vllm" in done.stderr
    write_kit(KitRequest("ascend"), load_backend("ascend"), there.archive)
    (there.folder / "site" / "vllm_ascend.py").write_text("")
    done = there.run()
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "no Ascend NPU here" in done.stderr
    assert sorted(path.name for path in there.folder.iterdir() if "parity" in path.name) == []


def test_the_list_of_what_it_would_do_does_nothing(there: There) -> None:
    done = there.run("--list")
    assert done.returncode == 0
    assert "cpu/mtp" in done.stdout
    assert not (there.folder / "parity-kit-work").exists()


def test_a_folder_of_something_else_is_left_alone(there: There) -> None:
    work = there.folder / "parity-kit-work"
    work.mkdir()
    (work / "thesis.txt").write_text("")
    done = there.run()
    assert done.returncode == 2
    assert "is not of this kit" in done.stderr
    assert [path.name for path in work.iterdir()] == ["thesis.txt"]


def test_the_arms_are_those_that_the_hardware_has() -> None:
    arms = {
        name: [arm.name for arm in kit_plan(KitRequest(name), load_backend(name)).arms] for name in ("cuda", "ascend")
    }
    assert "cuda/mtp-async-full" in arms["cuda"]
    assert "ascend/mtp-async-eager" in arms["ascend"]
    assert not [name for name in arms["ascend"] if "full" in name]
    for name in ("cuda", "ascend"):
        assert arms[name][0] == f"{name}/base"
        assert arms[name][-1] == f"{name}/deployed"


def test_names_that_no_kit_writes_are_passed_over(result: There) -> None:
    with tarfile.open(result.result) as source:
        members = [(one, source.extractfile(one).read()) for one in source]  # type: ignore[union-attr]
    strange = [tarfile.TarInfo(name) for name in ("../../escaped.jsonl", "/tmp/escaped.jsonl", "other-escaped.jsonl")]
    with tarfile.open(result.result, "w:gz") as target:
        for member, data in [*members, *((one, b"{}") for one in strange)]:
            member.size = len(data)
            target.addfile(member, io.BytesIO(data))
    assert result.compare()[0] == 0
    assert [*result.folder.parent.rglob("*escaped*"), *Path("/tmp").glob("escaped*")] == []


def bomb(path: Path, *members: tuple[tarfile.TarInfo, int]) -> Path:
    """An archive whose members hold so many zeros: a thousandth of that as gzip."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        for member, size in members:
            member.size = size
            file.write(member.tobuf())
            for _ in range(size >> 20):
                file.write(bytes(1 << 20))
        file.write(bytes(1024))
    return path


def named(name: str, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    return member


@pytest.mark.parametrize(
    ("kind", "size"),
    [(tarfile.REGTYPE, 64), (tarfile.XHDTYPE, 64), (tarfile.GNUTYPE_LONGNAME, 64)],
    ids=["about", "pax", "name"],
)
def test_a_small_file_that_unpacks_to_much_asks_for_little(tmp_path: Path, kind: bytes, size: int) -> None:
    path = bomb(tmp_path / "result.tar.gz", (named("about.json", kind), size << 20), (named("about.json"), 0))
    tracemalloc.start()
    try:
        with pytest.raises(ParityError, match="is not what a kit writes"):
            read_result(path, tmp_path / "run", "r", {})
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_what_is_passed_over_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_BYTES", 8 << 20)
    path = bomb(tmp_path / "result.tar.gz", (named("other"), 16 << 20), (named("about.json"), 0))
    with pytest.raises(ParityError, match="holds more than 8 MiB"):
        read_result(path, tmp_path / "run", "r", {})
    monkeypatch.setattr(archive, "MOST_MEMBERS", 50)
    path = bomb(tmp_path / "many.tar.gz", *[(named(f"x{number}"), 0) for number in range(60)])
    with pytest.raises(ParityError, match="more than 50 files"):
        read_result(path, tmp_path / "run", "r", {})


def test_a_pipe_is_no_result(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert not is_result(tmp_path / "pipe")


@pytest.mark.parametrize(
    "change", [{"env": {"LD_PRELOAD": "/tmp/x.so"}}, {"engine": {"worker_cls": "evil.Worker"}}], ids=["env", "code"]
)
def test_a_plan_that_would_run_code_here_is_refused(result: There, change: dict[str, object]) -> None:
    """What is read becomes a run of parity's own, which `parity reduce` starts engines for."""
    with tarfile.open(result.result) as source:
        members = [(one, source.extractfile(one).read()) for one in source]  # type: ignore[union-attr]
    with tarfile.open(result.result, "w:gz") as target:
        for member, data in members:
            if member.name == "plan.json":
                plan = json.loads(data)
                plan["arms"][0].update(change)
                data = json.dumps(plan).encode()
            member.size = len(data)
            target.addfile(member, io.BytesIO(data))
    code, said = result.compare()
    assert code == 2
    assert "its plan sets" in " ".join(said.split())


def test_an_engine_of_a_kit_starts_beside_others_on_its_device() -> None:
    """On a shared H200 vLLM measured what was free, and found nothing: the size of the cache is named."""
    for name, named in (("cuda", True), ("ascend", True), ("cpu", False)):
        plan = kit_plan(KitRequest(name), load_backend(name))
        assert {"kv_cache_memory_bytes" in arm.engine for arm in plan.arms} == {named}


def test_the_plans_of_kits_set_nothing_that_is_run() -> None:
    for name in ("cuda", "ascend", "cpu"):
        assert list(of_plan(kit_plan(KitRequest(name), load_backend(name)))) == []


def test_a_file_that_is_cut_off_or_none_is_refused(result: There) -> None:
    data = result.result.read_bytes()
    result.result.write_bytes(data[: len(data) // 2])
    code, said = result.compare()
    assert code == 2
    assert "is not what a kit writes" in " ".join(said.split())
    result.result.write_bytes(b"something else")
    assert not is_result(result.result)
    code, said = result.compare()
    assert code == 2
    assert "name two captures" in said


def test_a_backend_without_an_engine_has_no_kit(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    code, said = parity(tmp_path / "there" / "home", "kit", "--backend", "server", "-o", str(tmp_path / "x.pyz"))
    assert code == 2
    assert "starts no engine" in said


def test_the_program_is_python_3_9() -> None:
    source = load_backend("cuda").kit().program  # type: ignore[attr-defined]
    ast.parse(source, feature_version=(3, 9))
    assert b"import parity" not in source
    assert b"from parity" not in source
