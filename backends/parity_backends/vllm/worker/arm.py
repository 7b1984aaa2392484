"""One arm of a plan on a vLLM engine in this process."""

from __future__ import annotations

import os
import threading
import time
from types import SimpleNamespace
from typing import Any, Callable, Optional, Union

from parity.capture.sketch_table import SKETCHES_SCHEMA
from parity.capture.step_table import STEPS_SCHEMA
from parity.secrecy import without_secrets
from parity_backends.worker.asked import Item, Plan, Record, Request, Settings
from parity_backends.worker.counters import Counted, counters, since
from parity_backends.worker.identity import fingerprint
from parity_backends.worker.planned import PlannedArm
from parity_backends.worker.protocol import Channel, Stopped
from parity_backends.worker.sampling import all_sampling, rows_of, sampling_of
from parity_backends.worker.seeds import seed_of
from parity_backends.worker.sentences import EngineError, Sentence, WorkerError, message, of_request, outside_vocabulary

from .arguments import Translation, as_engine_values, installed_table, no_logprobs, translate, translate_sampling
from .asynchronous import AsyncEngine
from .checkpoints import config_of
from .environment import change_variables, environment
from .faults import unpack_faults
from .limits import refusal
from .listed import entries
from .logits import RawLogits, logsumexps
from .memory import devices_of, wait_for_memory
from .recorder import Recorder, Unrecordable
from .recording import FUNCTIONS_ASKED, RankRecorder, recorder_of
from .resolved import resolved_engine
from .rounds import PROGRESS_SECONDS, Round, add_up
from .schedule import round_schedule
from .sketch_phases import sketched, sketcher_of, unchunked
from .sketching import AS_PROMPTS, Sketcher, Unsketchable


class Arm(PlannedArm):
    """An engine with the settings of one arm, and the plan's requests."""

    load_seconds: Optional[float] = None
    """What loading the engine's code took, once it is loaded."""
    no_logprobs: Optional[Sentence] = None
    """Why the engine is not asked for the logprobs of the chosen tokens, where it is not."""

    def __init__(self, plan: Plan, name: str, channel: Channel, stop: threading.Event) -> None:
        super().__init__(plan, name, channel, stop)
        self.serial = 0
        self.progress_at = 0.0
        self.asked: dict[str, tuple[str, int]] = {}
        """Request and round by the name that the engine was given; only while steps are recorded or sketched."""
        self.recorder: Union[Recorder, RankRecorder, None] = None
        self.write_steps: Optional[Callable[[Record], None]] = None
        """Where records of the steps file go, where that is not the channel."""
        self.sketcher: Optional[Sketcher] = None
        self.write_sketches: Optional[Callable[[Record], None]] = None
        """The same of the sketches file."""
        self.shared: dict[bool, Any] = {}
        """Parameters of requests with nothing of their own, while rounds are run: given whole, and as they grow."""
        self.spoken: dict[tuple[int, ...], None] = {}
        """Prompts with what was said to them, while a drafter is sketched."""

    def settle(self, seconds: float) -> None:
        """Wait, so long at most, until the devices have the memory that the engine will ask for."""
        engine = self.arm["engine"]
        share = float(engine.get("gpu_memory_utilization") or 0.9)  # vLLM's default; 0.92 from 0.20.0 on
        found = wait_for_memory(share, seconds, devices_of(engine))
        if found is not None:
            self.channel.event("settled", **found)

    def load(self) -> None:
        """What needs no device: the engine's arguments and variables, and its code. The order is that of `start`."""
        began = time.perf_counter()
        unpack_faults()
        self.table = installed_table()
        asked = dict(self.arm["engine"])
        self.model = asked.pop("model", None) or self.plan["model"]["path"]
        self.given, self.not_sampled = self._translated(asked)
        refused = refusal(self.table, self.given.engine, config_of(self.model))
        if refused:
            raise WorkerError(refused)
        recorded = FUNCTIONS_ASKED if self.plan.get("record") else {}
        self.changed = change_variables(self.arm.get("env") or {}, {**recorded, **self.given.variables})
        import vllm

        vllm.LLM  # noqa: B018 - it is imported when it is asked for, and most of vLLM with it
        self.load_seconds = time.perf_counter() - began

    def start(self) -> None:
        self.channel.event("starting", pid=os.getpid())
        if self.load_seconds is None:
            self.load()
        assert self.load_seconds is not None
        began = time.perf_counter()
        given, model, not_sampled = self.given, self.model, self.not_sampled
        self._open({"model": model, **given.engine})
        self.ready_at = time.perf_counter()
        self.start_seconds = self.ready_at - began + self.load_seconds
        config = self.engine.vllm_config.model_config
        self.max_model_len = int(config.max_model_len)
        self.vocab_size = int(config.get_vocab_size())
        self.speculative = getattr(self.engine.vllm_config, "speculative_config", None) is not None
        header = self.header(
            vocab_size=self.plan["model"].get("vocab_size") or self.vocab_size,
            engine={
                **resolved_engine(self.llm, without_secrets(self.arm["engine"])),
                **({"multiprocessing": True, "api": "AsyncLLM"} if self.asynchronous else {}),
                "dropped": without_secrets({**given.dropped, **not_sampled}),
                "translated": without_secrets(given.translated),
                "arguments": self.table.source,
            },
            environment=environment(self.changed),
            model_fingerprint=fingerprint(model),
            **({"churn": self.plan["churn"]} if self.plan.get("churn") else {}),
            **({"steps": self._recorded()} if self.plan.get("record") else {}),
            **({"sketches": self._sketched()} if self.plan.get("sketch") else {}),
        )
        self.channel.event("ready", engine_start_seconds=round(self.start_seconds, 3))
        self.channel.record(header)

    def _recorded(self) -> Record:
        """Starts the flight recorder; what the capture's header says of it."""
        try:
            write, states = self.write_steps or self.channel.record, bool(self.plan.get("sketch"))
            self.recorder = recorder_of(self.llm, write, self.arm["name"], self.named, states)
        except Unrecordable as error:
            return {"schema": STEPS_SCHEMA, "unrecorded": error.said}
        return {"schema": STEPS_SCHEMA}

    def _sketched(self) -> Record:
        """Puts the hooks of sketches into the model; what the capture's header says of them."""
        write, level = self.write_sketches or self.channel.record, self.plan["sketch"]
        try:
            most = self.plan.get("sketch_tokens") or 0
            self.sketcher = sketcher_of(self.llm, write, self.arm["name"], self.named, level, most)
        except Unsketchable as error:
            return {"schema": SKETCHES_SCHEMA, "unsketched": str(error)}
        return {"schema": SKETCHES_SCHEMA, "level": level}

    def named(self, engine_id: str) -> Optional[Record]:
        """The completion that the engine makes under a name of its own: ours and a random part, samples before it."""
        sample, _, name = engine_id.rpartition("_")
        asked = self.asked.get(name.split("-", 1)[0])
        if asked is None:
            return None
        return {"request": asked[0], "round": asked[1], "sample": int(sample) if sample.isdigit() else 0}

    def _translated(self, asked: Settings) -> tuple[Translation, dict[str, Sentence]]:
        """What the engine is given, and why of the sampling parameters some are not. Raises WorkerError."""
        given = translate(asked, self.arm.get("env") or {}, self.table)
        self.no_logprobs = no_logprobs(given.engine, self.table, all_sampling(self.plan))
        not_sampled: dict[str, Sentence] = {}
        for wanted in all_sampling(self.plan):
            not_sampled.update(translate_sampling(wanted, self.table, rows_of(self.plan))[1])
            if self.no_logprobs and wanted.get("logprobs") == 0:
                not_sampled["sampling.logprobs"] = self.no_logprobs
        return given, not_sampled

    def _open(self, settings: Settings) -> None:
        """The engine in this process, or (where the plan's churn says so) AsyncLLM."""
        self.asynchronous = bool((self.plan.get("churn") or {}).get("asynchronous"))
        if self.asynchronous:
            self.engine: Any = AsyncEngine(settings)
            self.llm = SimpleNamespace(llm_engine=self.engine, get_metrics=self.engine.get_metrics)
            return
        from vllm import LLM

        self.llm = LLM(**settings)
        self.engine = self.llm.llm_engine

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
            self.progress(done, tokens)

    def _asked(self, request: Request, round_: int, whole: bool) -> Any:
        """The parameters of a request. Those with nothing of their own share one object, as in `LLM.generate`: making
        it takes longer than whatever else is done for a request here."""
        own = request.get("sampling") or request.get("max_tokens") is not None
        shared = not own and seed_of(self.plan["sampling"], request["id"], round_) is None
        if shared and whole in self.shared:
            return self.shared[whole]
        from vllm.sampling_params import RequestOutputKind

        params = self._params(request, round_)
        if self.no_logprobs and params.logprobs == 0:
            params.logprobs = None
        if not whole:
            params.output_kind = RequestOutputKind.CUMULATIVE
        if shared:
            self.shared[whole] = params
        return params

    def _params(self, request: Request, round_: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        wanted = sampling_of(self.plan, request)
        seed = seed_of(wanted, request["id"], round_)
        wanted.pop("seed", None)
        if seed is not None:
            wanted["seed"] = seed
        params = SamplingParams(**as_engine_values(translate_sampling(wanted, self.table, rows_of(self.plan))[0]))
        params.output_kind = RequestOutputKind.FINAL_ONLY
        return self._flat(params)

    def _flat(self, params: Any) -> Any:
        """The same, with logprobs as flat lists where the release has them: no object for each token and rank."""
        if "flat_logprobs" in self.table.known["SamplingParams"]:
            params.flat_logprobs = True
        return params

    @property
    def samples(self) -> int:
        return int(self.plan["sampling"].get("n") or 1)

    def add_request(self, request: Request, round_: int, *, whole: bool = True) -> str:
        """Queue a request; without `whole` every step gives what there is of it so far."""
        params = self._asked(request, round_, whole)
        if self.recorder is not None or self.sketcher is not None:
            self.asked[str(self.serial + 1)] = (request["id"], round_)
        try:
            return self._add(request["prompt_token_ids"], params)
        except Exception as error:  # ValueError, and from vLLM 0.3x on VLLMValidationError, which is none
            raise EngineError(of_request(request, EngineError(str(error)))) from error

    def progress(self, done: int, tokens: int) -> None:
        now = time.perf_counter()
        if now - self.progress_at >= PROGRESS_SECONDS:
            self.progress_at = now
            running = self.engine.get_num_unfinished_requests()
            self.channel.event("progress", running=running, completions=done, tokens=tokens)

    def generate(self, rounds: list[int]) -> None:
        """All requests of each round, joining as the plan's churn says: the batches are the same each time."""
        last = time.perf_counter()
        done = tokens = 0
        counted: Counted = {}
        self.shared = {}
        names = [request["id"] for request in self.requests]
        for number in rounds:
            before, start = counters(self.llm), time.perf_counter()
            joins = round_schedule(self.plan.get("churn") or {}, names, number)
            this = Round(self, number, joins, done, tokens)
            self._run(this)
            mine = since(counters(self.llm), before)
            mine.update(this.watch.counters(), tokens=this.tokens - tokens)
            mine["generate_seconds"] = round(this.last - start, 4)
            done, tokens, last = this.done, this.tokens, this.last
            add_up(counted, mine)
            self.channel.record({"record": "round", "round": number, "counters": mine})
        self._prefill(done, tokens)
        counted["generate_seconds"] = round(counted.get("generate_seconds", 0.0), 4)
        counted.update(
            tokens=tokens,
            ready_to_last_seconds=round(last - self.ready_at, 4),
            engine_start_seconds=round(self.start_seconds, 3),
        )
        self.channel.record({"record": "footer", "completions": done, "scores": 0, "counters": counted})

    def _run(self, this: Round) -> None:
        """A round, its steps recorded and sketched where that is asked for."""
        with sketched(self.sketcher, "generate"):
            if self.recorder is None:
                this.run()
                return
            self.recorder.on = True
            try:
                this.run()
            finally:
                self.recorder.flush()
                self.recorder.on = False

    def remember(self, record: Record) -> None:
        """A completion that a sketched drafter computes once more."""
        sequence = (*record["prompt_token_ids"], *record["token_ids"])
        if self.sketcher is not None and self.sketcher.drafter is not None and len(sequence) < self.max_model_len:
            self.spoken[sequence] = None

    def _prefill(self, done: int, tokens: int) -> None:
        """Each sequence once as a prompt, for its sketches: what the drafter's decode steps are set against."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        if not self.spoken:
            return
        params = SamplingParams(temperature=0.0, max_tokens=1, detokenize=False)
        params.output_kind = RequestOutputKind.FINAL_ONLY
        if "skip_reading_prefix_cache" in self.table.known["SamplingParams"]:
            params.skip_reading_prefix_cache = True
        with sketched(self.sketcher, AS_PROMPTS):
            for group in unchunked(self.spoken, self.engine.vllm_config):
                for sequence in group:
                    self._add(list(sequence), params)
                self._drain(lambda output: (done, tokens), done, tokens)
        self.spoken.clear()

    def unscorable(self, item: Item) -> Optional[Sentence]:
        """Why the engine cannot teacher-force this sequence, or None."""
        if self.speculative:
            return message("vllm.score_speculates", "the scoring arm has speculation on")
        prompt, tokens = item["prompt_token_ids"], item["token_ids"]
        length = len(prompt) + len(tokens)
        if not prompt or length + 1 > self.max_model_len:
            return message(
                "vllm.does_not_fit",
                "{length} tokens and one more do not fit into max_model_len {most}",
                length=length,
                most=self.max_model_len,
            )
        if tokens and not (min(tokens) >= 0 and max(tokens) < self.vocab_size):
            return outside_vocabulary(self.vocab_size)
        return None

    def score(self, items: list[Item], top: int) -> int:
        """Teacher-force prompt + completion, each distinct sequence once; a record for every key."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sequences, done = self.to_score(items, self.unscorable)
        tokens = 0
        params = self._flat(SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=top, detokenize=False))
        params.output_kind = RequestOutputKind.FINAL_ONLY
        logits = self._logits(sequences, params) if self.penalises_logits else {}
        # The longest before all others: if the memory for its logprobs is not there, that shows at once.
        longest = max(sequences, key=lambda one: len(one[0]) + len(one[1]), default=None)
        ordered = sorted(sequences, key=lambda one: one != longest)
        waiting = {self._add(list(prompt + out), params): (prompt, out) for prompt, out in ordered}

        def finished(output: Any) -> tuple[int, int]:
            nonlocal done, tokens
            sequence = waiting[output.request_id.split("-", 1)[0]]
            logprobs = entries(output.prompt_logprobs[len(sequence[0]) :])
            scored = {"logprobs": logprobs}
            sums = logsumexps(logprobs, logits[sequence]) if sequence in logits else None
            if sums is not None:
                scored["logsumexp"] = sums
            for key in sequences[sequence]:
                self.channel.record(dict(record="score", **scored, **key))
                done += 1
            tokens += len(logprobs)
            return done, tokens

        with sketched(self.sketcher, "score"):
            self._drain(finished, done, tokens)
        self.channel.event("scored", items=len(items), sequences=len(waiting), tokens=tokens)
        return done

    @property
    def penalises_logits(self) -> bool:
        """A repetition penalty takes off a share of the logit, which logprobs do not show."""
        asked = [one.get("repetition_penalty") for one in all_sampling(self.plan)]
        return not self.asynchronous and any(value not in (None, 1.0) for value in asked)

    def _logits(self, sequences: Any, params: Any) -> dict[Any, Any]:
        """[[token_id, logit], …] of the chosen token and the best one at each scored position, by sequence."""
        params = params.clone()
        params.prompt_logprobs = 1
        found: dict[Any, Any] = {}
        with RawLogits():
            waiting = {self._add(list(prompt + out), params): (prompt, out) for prompt, out in sequences}

            def finished(output: Any) -> tuple[int, int]:
                sequence = waiting[output.request_id.split("-", 1)[0]]
                found[sequence] = entries(output.prompt_logprobs[len(sequence[0]) :])
                return 0, 0

            self._drain(finished, 0, 0)
        return found

    def close(self) -> None:
        core = getattr(getattr(self, "engine", None), "engine_core", None)
        if core is not None:
            core.shutdown()
