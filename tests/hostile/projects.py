"""A project of somebody else: what its parity.toml makes of a command that is given in its directory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from asked import Asked
from judging import Ended, place

MIB = 700
SECONDS = 90.0
MOVES = "\\u001b]0;owned\\u0007\\u001b[2J\\u202e"

FILES = {
    "nothing": "", "a policy of its own": '[plan]\npolicy = "parity.toml"\n[policy]\ninconclusive = "pass"\n[policy.budget]\ncorrupt = 100000\n', "a policy by its other name": '[plan]\npolicy_file = "parity.toml"\n[policy.budget]\ncorrupt = 100000\n',
    "a policy that nobody names": '[policy]\ninconclusive = "pass"\n[policy.budget]\ncorrupt = 100000\n', "a tolerance": "[plan]\ntolerance = 1e6\n", "a tolerance with a dash": '[plan]\ntolerance = "1e6"\n', "a checkout": '[plan]\nvllm-ascend = "evil"\n', "a checkout by its other name": '[plan]\ncheckout = "evil"\n',
    "servers": '[plan]\nservers = ["http://127.0.0.1:1"]\nserver-option = ["api_key_env=HOSTILE_KEY"]\n', "servers in another spelling": '[plan]\nSERVERS = ["http://127.0.0.1:1"]\n', "a command": '[backends.fake]\ncommand = ["sh", "-c", "touch PWNED"]\n', "an interpreter": '[backends.fake]\npython = "evil/python"\n',
    "a setup": '[backends.fake]\nsetup = "touch PWNED"\n', "another adapter": '[backends.fake]\nadapter = "server"\n', "a variant that loads": '[variants.mtp]\nworker_cls = "evil.Worker"\n', "a variable": '[backends.fake]\nenv = { PYTHONPATH = "evil" }\n', "a database": '[plan]\ndb = "../canary.db"\n', "like a command": '[plan]\nlike = "touch PWNED"\n',
    "where it is written": '[plan]\no = "../canary"\n', "what the command line alone says": '[plan]\nout = "../canary"\nresume = true\n', "an adapter named by a path": '[backends.fake]\nadapter = "../evil"\n', "a model elsewhere": '[plan]\nmodel = "/etc"\n', "a model that moves": f'[plan]\nmodel = "{MOVES}"\n', "a model of a device": '[plan]\nmodel = "/dev"\n',
    "prompts of a secret": '[plan]\nprompts = "/etc/shadow"\n', "prompts of a device": '[plan]\nprompts = "/dev/zero"\n', "rounds of 10^12": "[plan]\nrounds = 1000000000000\n", "2^40 samples": "[plan]\nn = 1099511627776\n", "names that move": f'["{MOVES}"]\n[plan]\n"{MOVES}" = "{MOVES}"\n', "a backend that moves": f'[backends."{MOVES}"]\ncommand = "{MOVES}"\n',
    "deep": "a = " + "[" * 5000, "deep tables": "[" + ".".join("a" * 3000) + "]\n", "a number without end": "[plan]\nrounds = " + "9" * 10_000 + "\n", "2 MB": "# " + "x" * (2 << 20), "not UTF-8": "\udcff\udcfe", "a date": "[plan]\nmax-tokens = 2024-01-01\n", "NaN": "[plan]\ntemperature = nan\n", "not for TOML": "\x00\x01",
}  # fmt: skip
PIPED = ("a pipe", "a device")
SHORT = ("a policy of its own", "a tolerance")


def campaign(asked: Asked) -> Iterator[Ended]:
    """Arms that diverge, run in each: none may come out as PASS, run what it names, or send the key."""
    for name in SHORT if asked.short else asked.piece([*FILES, *PIPED]):
        with place() as here:
            path = here.work / "parity.toml"
            if name in FILES:
                path.write_bytes(FILES[name].encode("utf-8", "surrogateescape"))
            elif name == "a pipe":
                os.mkfifo(path)
            else:
                path.symlink_to("/dev/zero")
            (here.work / "evil").mkdir()
            (here.work / "evil" / "sitecustomize.py").write_text(f"open({str(here.root / 'PWNED')!r}, 'w')")
            ended = here.run(name, "run", "--backends", "fake", "--out", "run", seconds=SECONDS, mib=MIB, env={"FAKE": "corrupt"},
                             fine=(2, 3))  # fmt: skip
            result = here.work / "run" / "result.json"
            if (
                ended.code == 1
                and result.is_file()
                and "DIVERGED" not in json.loads(result.read_text()).get("verdict", "")
            ):
                ended.problems.append("another verdict")
            yield ended
