"""From the archive to the file that is sent back."""

from __future__ import annotations

import argparse
import glob
import importlib.util
import json
import os
import shutil
import signal
import sys
import time
import zipfile
from typing import IO, Callable, Optional

from parity.capture.sealing import sealed
from parity_backends.worker.asked import Item, Record
from parity_backends.worker.records import items_to_score

from .engine import Engine, Failed, TimeOver
from .packing import facts, pack, said_by, say

SCORE_SHARE = 0.25
"""Of the time, kept for scoring."""

TRIAL_TOKENS = 8
"""Output of the rehearsal: some steps with drafts."""

BESIDE = {
    "steps_header": ".steps", "steps": ".steps", "steps_stopped": ".steps",
    "sketches_header": ".sketches", "sketches": ".sketches", "sketches_stopped": ".sketches",
}  # fmt: skip
"""Records that go into a file of their own beside an arm's capture, or beside the scores."""

ENDINGS = (".jsonl", ".steps", ".sketches")

HEADER_BESIDE = "steps_header"
"""It comes with the first steps and once, in the rehearsal; that of sketches comes before each phase."""

SCORES = "scores"
DEPLOYED = "deployed"

PROGRESS_SECONDS = 20.0


HERE = os.path.dirname(os.path.abspath(__file__))
"""The archive, or the folder that it was unpacked into."""


def held(name: str) -> bytes:
    """A file of the kit."""
    if zipfile.is_zipfile(HERE):
        with zipfile.ZipFile(HERE) as archive:
            return archive.read(name)
    with open(os.path.join(HERE, name), "rb") as file:
        return file.read()


def unpack(folder: str) -> Optional[str]:
    """Put what the kit holds into the working folder; what is there of this kit stays. Says what is wrong with it."""
    if os.path.isdir(folder) and os.listdir(folder) and not of_this_kit(folder):
        return "%s is not of this kit: remove it, or name another folder with --work" % folder
    if zipfile.is_zipfile(HERE):
        with zipfile.ZipFile(HERE) as archive:
            archive.extractall(folder)
    elif os.path.abspath(folder) != HERE:
        shutil.copytree(HERE, folder, dirs_exist_ok=True)
    return None


def of_this_kit(folder: str) -> bool:
    try:
        with open(os.path.join(folder, "plan.json"), "rb") as file:
            return file.read() == held("plan.json")
    except OSError:
        return False


def lacking(needs: Record) -> Optional[str]:
    """Why this is the wrong machine, or the wrong Python; None where it is not."""
    missing = [name for name in needs["modules"] if importlib.util.find_spec(name) is None]
    if missing:
        return "this Python (%s) has no %s: run the kit with the one that has" % (sys.executable, " and ".join(missing))
    if needs["devices"] and not glob.glob(needs["devices"]) and not said_by(needs["tool"]):
        return "no %s here: there is no %s, and `%s` shows none (--anyway starts all the same)" % (
            needs["hardware"], needs["devices"], " ".join(needs["tool"]),
        )  # fmt: skip
    return None


class Kit:
    """The working folder, and what was done in it. `about` goes back with the captures."""

    def __init__(self, folder: str, output: str, minutes: float) -> None:
        self.folder, self.output = folder, output
        self.until = time.monotonic() + minutes * 60
        self.plan: Record = json.loads(held("plan.json"))
        self.plan["model"]["path"] = self.path("model")
        self.needs: Record = json.loads(held("kit.json"))
        self.about: Record = {**self.needs, "minutes": minutes, "arms": {}, **facts(self.needs["tool"])}
        baseline = self.plan["baseline"]
        self.arms = sorted(self.plan["arms"], key=lambda arm: bool(arm["name"] != baseline))

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def file(self, arm: str, ending: str) -> str:
        return self.path(arm.replace("/", "-") + ending)

    def sketches(self, arm: Record) -> Record:
        """What the worker is asked for of sketches. Graphs call no modules, and the engine's own defaults stay as they
        are. Of the first tokens alone: what a copy hides (a race of asynchronous scheduling) shows in the others."""
        level = self.plan.get("sketch") if arm["engine"].get("enforce_eager") and arm["variant"] != DEPLOYED else ""
        return {"sketch": level or "", "sketch_tokens": self.needs.get("sketch_tokens", 0)}

    def pack(self) -> None:
        """Write what there is to the file that is sent back: after each arm, so that no end loses it."""
        with open(self.path("about.json"), "w", encoding="utf-8") as file:
            json.dump(self.about, file, indent=1)
        names = ["about.json", "plan.json"]
        for name in (SCORES, *(arm["name"] for arm in self.arms)):
            names += [os.path.basename(self.file(name, ending)) for ending in (*ENDINGS, ".log")]
        pack(self.folder, names, self.output)

    def whole(self, arm: str) -> bool:
        try:
            with open(self.file(arm, ".jsonl"), "rb") as file:
                file.seek(max(0, os.path.getsize(file.name) - 65536))
                last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
            return bool(json.loads(last)["record"] == "footer")
        except (OSError, ValueError, KeyError):
            return False


class Files:
    """An arm's capture and what lies beside it, line by line as it comes."""

    def __init__(self, kit: Kit, arm: str) -> None:
        self.kit, self.arm = kit, arm
        self.open_files: dict[str, IO[bytes]] = {}
        self.keep, self.done = True, 0
        self.said_at: Optional[float] = None
        self.stopped: dict[str, str] = {}
        """What gave up in the rehearsal, and why."""
        for ending in ENDINGS:
            if os.path.exists(kit.file(arm, ending)):
                os.unlink(kit.file(arm, ending))

    def take(self, record: Record, line: bytes) -> None:
        if not self.keep:
            if record["record"].endswith("_stopped") and not record.get("enough"):
                self.stopped[record["record"]] = str(record.get("why"))[:500]
            if record["record"] != HEADER_BESIDE:
                return
        ending = BESIDE.get(record["record"], ".jsonl")
        if ending not in self.open_files:
            self.open_files[ending] = open(self.kit.file(self.arm, ending), "wb")  # noqa: SIM115 - see close
        self.open_files[ending].write(sealed(line))
        self.open_files[ending].flush()
        if record["record"] != "completion":
            return
        self.done += 1
        if self.said_at is None:  # the first one: an engine's start is no progress
            self.said_at = time.monotonic()
        elif time.monotonic() - self.said_at > PROGRESS_SECONDS:
            self.said_at = time.monotonic()
            say("%s: %d completions so far" % (self.arm, self.done))

    def close(self) -> None:
        for file in self.open_files.values():
            file.close()


def run_arm(kit: Kit, arm: Record, until: float) -> int:
    """Writes one arm's capture; how many completions it has. Raises Failed and TimeOver."""
    name, files = arm["name"], Files(kit, arm["name"])
    asked = {**kit.plan, "record": True, **kit.sketches(arm)}
    try:
        with Engine(kit.folder, asked, arm, kit.file(name, ".log")) as engine:
            engine.answer(lambda said: said.get("record") == "header", until, files.take)
            if name == kit.plan["baseline"]:
                files.keep = False
                kit.about["rehearsal"] = {**rehearse(kit, engine, until, files.take), "stopped": files.stopped}
                files.keep = True
            engine.ask({"op": "generate", "rounds": list(range(kit.plan["rounds"]))})
            engine.answer(lambda said: said.get("record") == "footer", until, files.take)
    finally:
        files.close()
    return files.done


def rehearse(kit: Kit, engine: Engine, until: float, take: Callable[[Record, bytes], None]) -> Record:
    """One prompt, and one score of the greatest length that may have to be scored: what would fail at the end does so
    now. Of what comes nothing is kept but how long it took, and what stopped."""
    plan, began = kit.plan, time.monotonic()
    longest = max(plan["requests"], key=lambda request: len(request["prompt_token_ids"]))
    prompt, limit = longest["prompt_token_ids"], plan["sampling"]["max_tokens"]
    trial = {**plan["sampling"], "n": 1, "max_tokens": min(limit, TRIAL_TOKENS), "min_tokens": 0}
    engine.ask({"op": "trial", "requests": [{**longest, "max_tokens": None}], "sampling": trial})
    engine.answer(lambda said: said.get("record") == "footer", until, take)
    tried = time.monotonic()
    item: Item = {
        "arm": plan["baseline"], "request": longest["id"], "round": 0, "sample": 0, "prompt_token_ids": prompt,
        "token_ids": [prompt[place % len(prompt)] for place in range(limit)],
    }  # fmt: skip
    score(engine, [item], plan, until, take)
    return {
        "prompt_seconds": round(tried - began, 2),
        "scored_tokens": len(prompt) + limit,
        "score_seconds": round(time.monotonic() - tried, 2),
    }


def score(engine: Engine, items: list[Item], plan: Record, until: float, take: Callable[[Record, bytes], None]) -> None:
    engine.ask({"op": "score", "items": items, "top": plan["score"]["top"]})
    engine.answer(lambda said: said.get("event") == "scored", until, take)


def score_all(kit: Kit, whole: list[str]) -> None:
    """The completions of every whole arm on the baseline's engine, started once more. Raises Failed and TimeOver."""
    arm = next(arm for arm in kit.arms if arm["name"] == kit.plan["baseline"])
    sketched = [one for one in kit.arms if one["name"] in whole and kit.sketches(one)["sketch"]]
    items = in_order(
        {name: items_to_score(kit.file(name, ".jsonl")) for name in whole}, {one["name"] for one in sketched}
    )
    asked = {**kit.plan, **kit.sketches(arm)}
    asked["sketch_tokens"] *= len(sketched)
    files = Files(kit, SCORES)
    try:
        with Engine(kit.folder, asked, arm, kit.file(SCORES, ".log")) as engine:
            engine.answer(lambda said: said.get("record") == "header", kit.until, files.take)
            score(engine, items, kit.plan, kit.until, files.take)
    finally:
        files.close()


def in_order(items: dict[str, list[Item]], sketched: set[str]) -> list[Item]:
    """What was sketched first, as those are the arms' first tokens; the arms in turn."""
    placed = []
    for name, ours in items.items():
        before = 0
        for item in ours:
            placed.append((name not in sketched, before, item))
            before += len(item["prompt_token_ids"]) + len(item["token_ids"])
    return [item for _, _, item in sorted(placed, key=lambda one: one[:2])]


def run_all(kit: Kit) -> list[str]:
    """Names of the arms that are whole. A baseline that fails ends nothing: which engines start is worth knowing. But
    what the first two fail of alike, the others would too, each after minutes."""
    whole = []
    last = kit.until - SCORE_SHARE * (kit.until - time.monotonic())
    for arm in kit.arms:
        name, began = arm["name"], time.monotonic()
        if kit.whole(name):
            say("%s: there already" % name)
            whole.append(name)
            continue
        if began >= last:
            continue
        say("%s: running, %.0f s left" % (name, last - began))
        state: Record = {}
        kit.about["arms"][name] = state
        try:
            done = run_arm(kit, arm, last)
            whole.append(name)
            say("%s: %d completions in %.0f s" % (name, done, time.monotonic() - began))
        except Failed as error:
            state["failed"] = str(error)[:2000]
            say("%s failed: %s" % (name, str(error).split("\n", 1)[0][:300]))
        except TimeOver:
            say("%s: its time is over" % name)
        finally:
            state["seconds"] = round(time.monotonic() - began, 1)
        kit.pack()
        if fails_alike(list(kit.about["arms"].values())):
            say("the first two failed alike: the others are left out")
            break
    return whole


def fails_alike(states: list[Record]) -> bool:
    """Whether all arms so far failed, two or more, and said the same."""
    return len(states) > 1 and len({state.get("failed") for state in states}) == 1 and "failed" in states[0]


def run(kit: Kit) -> int:
    began = time.monotonic()
    kit.pack()
    complete = False
    try:
        whole = run_all(kit)
        if kit.plan["baseline"] in whole and len(whole) > 1:
            say("scoring on %s" % kit.plan["baseline"])
            try:
                score_all(kit, whole)
                complete = len(whole) == len(kit.arms)
            except Failed as error:
                kit.about["scoring_failed"] = str(error)[:2000]
                say("scoring failed: %s" % str(error).split("\n", 1)[0][:300])
            except TimeOver:
                say("scoring: its time is over")
    except KeyboardInterrupt:
        say("ended; the same command goes on")
    finally:
        kit.about["seconds"] = round(time.monotonic() - began, 1)
        kit.pack()
        say("send back: %s (%.0f KB; `tar tzf` lists it)" % (kit.output, os.path.getsize(kit.output) / 1e3))
    return 0 if complete else 3


def ended(*_: object) -> None:
    raise KeyboardInterrupt


def listing() -> str:
    plan, needs = json.loads(held("plan.json")), json.loads(held("kit.json"))
    lines = ["made by parity %s for %s, %g minutes" % (needs["parity"], needs["backend"], needs["minutes"])]
    lines += ["%d prompts, %d rounds, each arm in turn:" % (len(plan["requests"]), plan["rounds"])]
    lines += ["  %s %s" % (arm["name"], json.dumps(arm["engine"], sort_keys=True)) for arm in plan["arms"]]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, help="time that it may take [default: what the kit was made for]")
    parser.add_argument("--output", default="parity-kit-result.tar.gz", help="the file to send back")
    parser.add_argument("--work", default="parity-kit-work", help="folder to work in; what is there already is kept")
    parser.add_argument("--anyway", action="store_true", help="start although no device was found")
    parser.add_argument("--list", action="store_true", help="say what it would run, and do nothing")
    options = parser.parse_args()
    if options.list:
        print(listing())
        return 0
    folder, needs = os.path.abspath(options.work), json.loads(held("kit.json"))
    why = lacking({**needs, "devices": ""} if options.anyway else needs) or unpack(folder)
    if why:
        say(why)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ended)
    return run(Kit(folder, os.path.abspath(options.output), options.minutes or needs["minutes"]))


if __name__ == "__main__":
    sys.exit(main())
