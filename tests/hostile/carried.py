"""Secrets that a command line, a configuration or a recipe carries: they reach no file, no page and no message."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from asked import Asked
from judging import Ended, Place, place

MIB = 700
SECONDS = 60.0
SECRET = "Zugang7Geheim"
"""Of no shape that a pattern knows: only where it stands tells."""
SHAPED = "hf_" + "AbCdEfGhIj" * 3
"""Of a shape that is known everywhere."""

RUN = ("run", "--backends", "fake", "--suite", "smoke", "--max-tokens", "4", "--out", "run")
PLAN = ("plan", "--backends", "fake", "--suite", "smoke", "-o", "plan.json")
LIKE = ("plan", "--backends", "cpu", "--variants", "base,deployed", "--suite", "smoke", "-o", "plan.json", "--like")
WATCH = ("watch", "--backends", "fake", "--suite", "smoke", "--max-tokens", "4", "--probes", "1", "--interval", "0")
SHOWN: tuple[tuple[str, ...], ...] = (
    ("runs", "list"), ("runs", "list", "--json"), ("runs", "show"), ("runs", "show", "--json"), ("table", "--format", "md"), ("report", "--format", "md"), ("report", "--format", "json"), ("report", "--format", "html"),
    ("report", "--format", "junit"), ("report", "--format", "github"), ("repro",), ("why",), ("runs", "check"),
)  # fmt: skip


@dataclass(frozen=True)
class Carrier:
    """A command with {s}: the secret. `given`: a file beside it, {g}."""

    words: tuple[str, ...]
    given: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    deeds: tuple[str, ...] = ()


def config(text: str, *words: str, env: Mapping[str, str] | None = None) -> Carrier:
    return Carrier((*RUN, "--config", "{g}", *words), text, env or {})


DIES: Mapping[str, str] = {"FAKE": "die at start"}
CARRIERS: dict[str, Carrier] = {
    "engine": Carrier((*RUN, "--engine", "hf_token={s}")), "engine, twice": Carrier((*RUN, "--engine", "hf_token={s}", "--engine=hf_token={s}")), "engine nested": Carrier((*RUN, "--engine", 'model_loader_extra_config={{"aws_secret_access_key": "{s}"}}')), "engine dotted": Carrier((*RUN, "--engine", "model_loader_extra_config.token={s}")),
    "engine in a plan": Carrier((*PLAN, "--engine", "hf_token={s}")), "engine with a dash": Carrier((*RUN, "--engine", "hf-token={s}")), "vary": Carrier((*RUN, "--vary", "hf_token={s},other")), "vary a variable": Carrier((*RUN, "--vary", "env.HF_TOKEN={s},other")),
    "like": Carrier((*LIKE, "vllm serve m --api-key {s}")), "like with =": Carrier((*LIKE, "vllm serve m --api-key={s} --hf-token={s}")), "like, a variable": Carrier((*LIKE, "HF_TOKEN={s} VLLM_API_KEY={s} vllm serve m")), "like, several keys": Carrier((*LIKE, "vllm serve m --api-key {s} {s} {s}")), "like, misspelt": Carrier((*LIKE, "vllm serve m --apikey {s}")), "like, no command": Carrier((*LIKE, "export HF_TOKEN={s}")),
    "like, docker": Carrier((*LIKE, "docker run -e HF_TOKEN={s} --env VLLM_API_KEY={s} vllm/vllm vllm serve m")), "like, open quotes": Carrier((*LIKE, "vllm serve m --api-key '{s}")), "like, a recipe": Carrier((*LIKE, "{g}"), "model: m\napi-key: {s}\nhf-token: {s}\n"), "like, a recipe with a fault": Carrier((*LIKE, "{g}"), "model: m\napi-key: [{s}\n"), "like, an address": Carrier((*LIKE, "http://u:{s}@127.0.0.1:{p}/")), "like, a query": Carrier((*LIKE, "http://127.0.0.1:{p}/?api-key={s}")),
    "like, a ladder": Carrier(("run", *LIKE[1:-3], "--out", "run", "--ladder", "--like", "vllm serve m --api-key {s} --enforce-eager")),
    "host": Carrier((*RUN, "--host", "fake=env HF_TOKEN={s}")), "host, dead": Carrier((*RUN, "--host", "fake=env HF_TOKEN={s}"), env=DIES), "host that is not there": Carrier((*RUN, "--host", "fake=nothing-here user:{s}@gpu1")), "host, a password": Carrier((*RUN, "--host", "fake=sshpass -p {s} ssh gpu1")), "host, a password with =": Carrier((*RUN, "--host", "fake=nothing-here --password={s} gpu1")), "host, an address": Carrier((*RUN, "--host", "fake=nothing-here ssh://u:{s}@gpu1")), "host, docker": Carrier((*RUN, "--host", "fake=nothing-here exec -e HF_TOKEN={s} -i x")),
    "host, open quotes": Carrier((*RUN, "--host", "fake=env 'HF_TOKEN={s}")), "host of nobody": Carrier((*RUN, "--host", "nobody=env HF_TOKEN={s}")), "host that says it": Carrier((*RUN, "--host", "fake=sh -c 'echo HF_TOKEN={s} >&2; exit 5' env HF_TOKEN={s}")), "host in a plan": Carrier((*PLAN, "--host", "fake=env HF_TOKEN={s}")), "host, doctor": Carrier(("doctor", "fake", "--host", "fake=env HF_TOKEN={s}")), "host, doctor, JSON": Carrier(("doctor", "fake", "--json", "--host", "fake=nothing-here user:{s}@gpu1")),
    "program": Carrier((*RUN, "--python", "fake=/nowhere/token={s}/python")), "model's path": Carrier((*RUN, "--model-path", "fake=https://u:{s}@h/x")), "model": Carrier((*RUN, "--model", "https://u:{s}@h/x")),
    "server": Carrier((*RUN, "--server", "https://u:{s}@127.0.0.1:{p}")), "server alone": Carrier(("run", "--server", "http://u:{s}@127.0.0.1:{p}", "--suite", "smoke", "--out", "run")), "server, named": Carrier(("run", "--server", "a=http://u:{s}@127.0.0.1:{p}/v1", "--backends", "fake", "--suite", "smoke", "--out", "run")), "server, a query": Carrier(("run", "--server", "http://127.0.0.1:{p}/v1?api-key={s}", "--suite", "smoke", "--out", "run")), "server, a fragment": Carrier(("run", "--server", "http://127.0.0.1:{p}/#token={s}", "--suite", "smoke", "--out", "run")),
    "server, a key as a setting": Carrier(("run", "--server", "http://127.0.0.1:{p}", "--server-option", "api_key={s}", "--suite", "smoke", "--out", "run")), "server, a key for its name": Carrier(("run", "--server", "http://127.0.0.1:{p}", "--server-option", "api_key_env={s}", "--suite", "smoke", "--out", "run")), "server, a key in the environment": Carrier(("run", "--server", "http://127.0.0.1:{p}", "--server-option", "api_key_env=MY_KEY", "--suite", "smoke", "--out", "run"), env={"MY_KEY": "{s}"}),
    "server in a plan": Carrier(("plan", "--server", "http://u:{s}@127.0.0.1:{p}", "--suite", "smoke", "-o", "plan.json")), "server, watched": Carrier(("watch", "--server", "http://u:{s}@127.0.0.1:{p}", "--suite", "smoke", "--probes", "1", "--interval", "0")), "server, no port": Carrier(("run", "--server", "http://u:{s}@127.0.0.1:x", "--suite", "smoke", "--out", "run")), "server, no host": Carrier(("run", "--server", "http://u:{s}@", "--suite", "smoke", "--out", "run")), "server, no scheme": Carrier(("run", "--server", "u:{s}@127.0.0.1:1", "--suite", "smoke", "--out", "run")),
    "webhook": Carrier((*WATCH, "--webhook", "http://127.0.0.1:{p}/services/{s}")), "webhook with =": Carrier((*WATCH, "--webhook=http://127.0.0.1:{p}/services/{s}")), "webhook with a user": Carrier((*WATCH, "--webhook", "http://u:{s}@127.0.0.1:{p}/")), "webhook, a query": Carrier((*WATCH, "--webhook", "http://127.0.0.1:{p}/?x={s}")), "webhook, no address": Carrier((*WATCH, "--webhook", "{s}")), "webhook, no scheme": Carrier((*WATCH, "--webhook", "hooks.slack.com/services/{s}")), "webhook, cut short": Carrier((*WATCH, "--webhoo", "http://127.0.0.1:{p}/services/{s}")), "webhook, cut short with =": Carrier((*WATCH, "--webhoo=http://127.0.0.1:{p}/services/{s}")),
    "webhook, before what fails": Carrier((*WATCH, "--webhook", "http://127.0.0.1:{p}/services/{s}", "--nothing-like-it")), "webhook of a run": Carrier((*RUN, "--webhook", "http://127.0.0.1:{p}/services/{s}")),
    "configured variable": config('[backends.fake]\nenv = {{ HF_TOKEN = "{s}" }}\n'), "configured variable, dead": config('[backends.fake]\nenv = {{ HF_TOKEN = "{s}" }}\n', env=DIES), "configured command": config('[backends.fake]\ncommand = ["env", "HF_TOKEN={s}"]\n'), "configured setup": config('[backends.fake]\nsetup = "export HF_TOKEN={s}"\n'), "configured setup that fails": config('[backends.fake]\nsetup = "export HF_TOKEN={s}; exit 7"\n'), "configured engine": config('[backends.fake]\nengine = {{ hf_token = "{s}" }}\n'),
    "configured server": config('[plan]\nservers = ["http://u:{s}@127.0.0.1:{p}"]\n'), "configured, misspelt": config('[backends.fake]\nhf_token = "{s}"\n'), "configured, of another type": config('[backends.fake]\nenv = "HF_TOKEN={s}"\n'), "configured, open quotes": config('[backends.fake]\nenv = {{ HF_TOKEN = "{s}\n'),
    "crash": Carrier((*RUN, "--engine", "hf_token={s}", "--host", "fake=env HF_TOKEN={s}"), deeds=("crash",)), "crash, webhook": Carrier((*WATCH, "--webhook", "http://127.0.0.1:{p}/services/{s}"), deeds=("crash",)), "crash, server": Carrier(("run", "--server", "http://u:{s}@127.0.0.1:{p}"), deeds=("crash",)), "crash, like": Carrier((*LIKE, "vllm serve m --api-key {s}"), deeds=("crash",)),
}  # fmt: skip
SHORT = ("engine", "like", "host, dead", "server", "webhook, cut short", "crash, webhook")


@contextlib.contextmanager
def nobody() -> Iterator[int]:
    """A port at which connections are refused."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def filled(carrier: Carrier, secret: str, given: Path, port: int) -> Callable[[str], str]:
    return lambda text: text.format(s=secret, g=given, p=port)


def found(here: Place, secret: str, ended: Ended) -> list[str]:
    """Where it came out: on the terminal, or in any file that parity has written."""
    places = [name for name, text in (("stdout", ended.out), ("stderr", ended.err)) if secret in text]
    for top in (here.home, here.work):
        places += [str(path.relative_to(here.root)) for path in sorted(top.rglob("*")) if path.is_file() and secret.encode() in path.read_bytes()]  # fmt: skip
    return [f"LEAK to {where}" for where in places]


def campaign(asked: Asked) -> Iterator[Ended]:
    """Each given, once with a secret of no shape and once with one of Hugging Face's; then all that shows a run."""
    for name in SHORT if asked.short else asked.piece(list(CARRIERS)):
        for secret in (SECRET,) if asked.short else (SECRET, SHAPED):
            with place() as here, nobody() as port:
                carrier = CARRIERS[name]
                given = here.root / "given" / ("x.yaml" if "recipe" in name else "x.toml")
                fill = filled(carrier, secret, given, port)
                given.write_text(fill(carrier.given))
                env = {key: fill(value) for key, value in carrier.env.items()}
                one = [fill(word) for word in carrier.words]
                crashed = "crash" in carrier.deeds
                fine = (70,) if crashed else (0, 2, 3, 4)
                for ended in here.run_several("carried", [one], seconds=SECONDS, mib=MIB, env={"FAKE": "corrupt", **env}, deeds=carrier.deeds, fine=fine):  # fmt: skip
                    ended.name = f"{name}: {'no shape' if secret == SECRET else 'shaped'}"
                    ended.problems += found(here, secret, ended)
                    if crashed:
                        ended.problems = [one for one in ended.problems if not one.startswith("TRACEBACK")]
                        ended.problems += [] if list(here.home.glob("crash-*")) else ["no crash was written down"]
                    if ended.code == 1 and "DIVERGED" in ended.err:
                        ended.problems = [one for one in ended.problems if one != "exit 1 without DIVERGED"]
                    yield ended
                shown = SHOWN[::4] if asked.short else SHOWN
                for ended in here.run_several(f"{name}, shown", shown if (here.home / "parity.db").exists() else (), seconds=SECONDS, mib=MIB):  # fmt: skip
                    ended.problems += found(here, secret, ended)
                    yield ended
