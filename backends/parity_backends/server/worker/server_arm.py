"""One arm of a plan, asked of a server: many requests at once, each answer a completion."""

from __future__ import annotations

import os
import platform
import threading
import time
from typing import Any, Callable, Optional

from parity_backends.worker.asked import Churn, Item, Plan, Record, Request, Sampling
from parity_backends.worker.counters import since
from parity_backends.worker.planned import PlannedArm
from parity_backends.worker.protocol import Channel, refuse_churn
from parity_backends.worker.records import completion_record
from parity_backends.worker.sampling import all_sampling, rows_of, sampling_of
from parity_backends.worker.seeds import seed_of
from parity_backends.worker.sentences import Sentence, WorkerError, message, of_request

from .about import describe, server_counters
from .answers import Answer, NoAnswer, Sample, assembled, prompt_entries, whole
from .asking import CHAT, COMPLETIONS, OPENAI, VLLM, call_body, has_images, not_sent, sampling_body, score_body
from .bounds import excerpt
from .keys import is_readable_on_the_way
from .many import all_calls
from .receiving import Refused, ServerError
from .retokenised import Retokenised
from .transport import Body, Endpoint

NOT_TAKEN = (400, 422, 500)
"""What servers say to a form of question that they do not know: LiteLLM 1.106.2 answers token ids with 500."""
MODEL_CHECK = message(
    "server.model_unseen",
    "that the server has the plan's checkpoint: it names its model, and its weights cannot be seen",
)
TEXT_ONLY = message(
    "server.text_only",
    "token ids: the server gives text alone, so they were made again from the text with the plan's tokenizer "
    "(special tokens, the ids themselves and text against ids are not checked)",
)
NO_PROMPT_LOGPROBS = message("server.no_prompt_logprobs", "the server gives no prompt_logprobs")
PROMPT_UNSEEN = message(
    "server.prompt_unseen", "the prompt's token ids as the server saw them: it does not give them back"
)


class ServerArm(PlannedArm):
    """An endpoint with the settings of one arm, and the plan's requests."""

    tokens: Retokenised
    """Where the server gives no token ids, or not all, or texts in its lists of logprobs."""

    def __init__(self, plan: Plan, name: str, channel: Channel, stop: threading.Event) -> None:
        super().__init__(plan, name, channel, stop)
        self.rows = rows_of(plan)
        settings = self.arm["engine"]
        self.path = CHAT if settings.get("endpoint") == "chat" else COMPLETIONS
        self.stream = bool(settings.get("stream"))
        self.concurrency = int(settings.get("concurrency") or 32)
        self.dialect = VLLM
        self.as_text = False
        # A prompt may become a chat message only where every arm gets it that way, else inputs would differ.
        self.wrap = all(arm["engine"].get("endpoint") == "chat" for arm in plan["arms"])
        self.gives_ids = True
        self.lists_ids = False
        """Token ids stand in the lists of logprobs alone, so these are asked for."""
        self.heeds_vllm = True
        """Its answers show that the server takes vLLM's own parameters."""

    # ------------------------------------------------------------------ start

    def start(self) -> None:
        self.channel.event("starting", pid=os.getpid())
        refuse_churn(self.plan.get("churn"))
        settings = self.arm["engine"]
        variable = settings.get("api_key_env")
        key = os.environ.get(variable) if variable else None
        if variable and not key:
            raise WorkerError(
                message(
                    "server.no_key",
                    "the environment variable {variable}, which is to hold the API key, is not set",
                    variable=variable,
                )
            )
        if key and not settings.get("key_over_http") and is_readable_on_the_way(settings["url"]):
            raise WorkerError(
                message(
                    "server.key_in_clear",
                    "the API key in {variable} would go to {url} unencrypted: name it with https, or say that it may "
                    "with --server-option key_over_http=true",
                    variable=variable,
                    url=settings["url"],
                )
            )
        began = time.perf_counter()
        timeout, retries = float(settings.get("timeout") or 600.0), int(settings.get("retries", 4))
        self.endpoint = Endpoint(settings["url"], key, timeout, retries, self.stop)
        self.server = describe(self.endpoint, settings.get("model"))
        gives_prompt = self._probe()
        self.ready_at = time.perf_counter()
        self.start_seconds = self.ready_at - began
        missing = {}
        for asked in all_sampling(self.plan):
            missing.update(not_sent(asked, self.rows, self.dialect))
        unchecked = [MODEL_CHECK]
        unchecked += [] if self.gives_ids else [TEXT_ONLY]
        unchecked += [] if gives_prompt else [PROMPT_UNSEEN]
        unchecked += [
            message(
                "server.not_taken",
                "{name}={value}: the server takes no such parameter, it was not sent",
                name=name,
                value=repr(value),
            )
            for name, value in missing.items()
        ]
        unchecked += [] if self.heeds_vllm else self._in_doubt()
        asked = self.plan["sampling"]
        sent = sampling_body(asked, self.rows, self.dialect, self.path, asked.get("seed"))
        header = self.header(
            engine={
                "asked": settings,
                "model": self.server["model"],
                **({"max_model_len": self.server["max_model_len"]} if "max_model_len" in self.server else {}),
            },
            served={
                "server": dict(self.server, dialect=self.dialect),
                "path": self.path,
                "stream": self.stream,
                "sent": sent,
                "not_sent": missing,
                "token_source": "server" if self.gives_ids else "retokenised",
                "prompt_source": "server" if gives_prompt else "plan",
                "unchecked": unchecked,
            },
            environment={
                "client_python": platform.python_version(),
                "versions": {"vllm": self.server["version"]} if "version" in self.server else {},
            },
        )
        self.channel.event("ready", engine_start_seconds=round(self.start_seconds, 3))
        self.channel.record(header)

    def _probe(self) -> bool:
        """One token, to learn what the server takes and gives; whether it gives the prompt's ids back."""
        sampling = dict(self.plan["sampling"], max_tokens=1, min_tokens=0, n=1)
        request = self.requests[0]
        tries = [(VLLM, False)] if "version" in self.server else [(VLLM, False), (OPENAI, False)]
        if "version" not in self.server and self.path == COMPLETIONS:
            tries.append((OPENAI, True))
        for number, (dialect, as_text) in enumerate(tries):
            self.dialect, self.as_text = dialect, as_text
            try:
                answer = self._ask(request, sampling, 0, stream=False)
            except (Refused, NoAnswer) as error:
                if number + 1 < len(tries) and not (isinstance(error, Refused) and error.status not in NOT_TAKEN):
                    continue
                raise
            sample = answer.samples.get(0)
            if sample is None:
                url = self.endpoint.shown + self.path
                raise ServerError(message("server.no_choice", "{url}: an answer without a choice", url=url))
            heeded = sample.token_ids is not None and sample.listed is None and sample.named is None
            self.heeds_vllm = dialect != VLLM or heeded
            self.gives_ids = sample.token_ids is not None
            break
        if not sampling.get("logprobs") and not self.gives_ids:
            self._try_lists(request, sampling)
        elif not sampling.get("logprobs") and "version" not in self.server and self.heeds_vllm:
            self._try_names(request, sampling)
        if not self.gives_ids or not self.heeds_vllm:
            self.tokens = Retokenised(self.plan)
        return answer.prompt_token_ids is not None

    def _try_lists(self, request: Request, sampling: Sampling) -> None:
        """A server may give token ids with logprobs and not without."""
        try:
            sample = self._ask(request, dict(sampling, logprobs=1), 0, stream=False).samples.get(0)
        except Refused:
            return
        self.gives_ids = self.lists_ids = sample is not None and sample.token_ids is not None

    def _try_names(self, request: Request, sampling: Sampling) -> None:
        """A server may give token ids and pass over what else is vLLM's: SGLang does. Its lists show it."""
        try:
            sample = self._ask(request, dict(sampling, logprobs=1), 0, stream=False).samples.get(0)
        except Refused:
            return
        self.heeds_vllm = self.dialect != VLLM or (sample is not None and sample.named is None)

    def _in_doubt(self) -> list[Sentence]:
        """Parameters of vLLM's own that matter: sent to a server that lets pass what it does not know."""
        found: Sampling = {}
        for asked in all_sampling(self.plan):
            found.update(not_sent(asked, self.rows, OPENAI))
        return [
            message(
                "server.in_doubt",
                "{name}={value}: it was sent, and nothing shows that this server takes it",
                name=name,
                value=repr(value),
            )
            for name, value in found.items()
        ]

    # ------------------------------------------------------------------ one request

    def _ask(self, request: Request, sampling: Sampling, round_: int, *, stream: bool) -> Answer:
        if self.lists_ids and not sampling.get("logprobs"):
            sampling = dict(sampling, logprobs=1)
        try:
            body = call_body(
                request,
                self.server["model"],
                self.path,
                sampling_body(sampling, self.rows, self.dialect, self.path, seed_of(sampling, request["id"], round_)),
                stream=stream,
                wrap=self.wrap,
                as_text=self.as_text,
            )
            return self._answered(body, stream)
        except Refused as error:
            raise Refused(of_request(request, error), error.status, error.answered) from error
        except NoAnswer as error:
            raise NoAnswer(of_request(request, error)) from error
        except ServerError as error:
            raise ServerError(of_request(request, error)) from error
        except WorkerError as error:
            raise WorkerError(of_request(request, error)) from error

    def _answered(self, body: Body, stream: bool) -> Answer:
        """What comes back; whatever of it has another form than any that is known is the server's doing."""
        try:
            if stream:
                return assembled(self.endpoint.post_stream(self.path, body))
            return whole(*self.endpoint.post_json(self.path, body))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            said = self.endpoint.key.hide(excerpt("%s: %s" % (type(error).__name__, error)))
            raise ServerError(
                message(
                    "server.odd_answer",
                    "{url}: an answer of an unknown form ({said})",
                    url=self.endpoint.shown + self.path,
                    said=said,
                )
            ) from error

    # ------------------------------------------------------------------ commands

    def generate(self, rounds: list[int]) -> None:
        before = server_counters(self.endpoint)
        retried = self.endpoint.retried
        began = last = time.perf_counter()
        done = tokens = 0
        for round_ in rounds:

            def call(request: Request, round_: int = round_) -> Callable[[], Any]:
                def asked() -> Any:
                    start = time.perf_counter()
                    answer = self._ask(request, sampling_of(self.plan, request), round_, stream=self.stream)
                    return request, answer, time.perf_counter() - start

                return asked

            def finished(result: Any, round_: int = round_) -> None:
                nonlocal done, tokens, last
                request, answer, seconds = result
                for index in sorted(answer.samples):
                    record = self._record(request, round_, answer, answer.samples[index], seconds)
                    self.channel.record(record)
                    done += 1
                    tokens += len(record["token_ids"])
                last = time.perf_counter()

            all_calls(self, [call(request) for request in self.requests], finished, len(self.requests))
        counted = since(server_counters(self.endpoint), before)
        counted.update(
            tokens=tokens,
            generate_seconds=round(last - began, 4),
            ready_to_last_seconds=round(last - self.ready_at, 4),
            engine_start_seconds=round(self.start_seconds, 3),
            retries=self.endpoint.retried - retried,
        )
        self.channel.record({"record": "footer", "completions": done, "scores": 0, "counters": counted})

    def trial(self, requests: list[Request], sampling: Sampling, churn: Optional[Churn] = None) -> None:
        refuse_churn(churn)
        super().trial(requests, sampling)

    def _record(self, request: Request, round_: int, answer: Answer, sample: Sample, seconds: float) -> Record:
        token_ids = sample.token_ids
        if token_ids is None and self.gives_ids:
            said = message("server.ids_gone", "an answer without token_ids; earlier ones had them")
            raise ServerError(of_request(request, ServerError(said)))
        logprobs = sample.logprobs
        if token_ids is not None and sample.listed is not None:
            token_ids = self.tokens.whole_characters(sample.listed)
            logprobs = logprobs if len(token_ids) == len(sample.listed) else None
        if token_ids is not None and sample.named is not None and len(sample.named) == len(token_ids):
            logprobs = self.tokens.logprobs(token_ids, sample.named)
        if token_ids is None:
            token_ids = self.tokens.ids(sample, sampling_of(self.plan, request))
        server: Record = dict(answer.said, seconds=round(seconds, 4), attempts=answer.attempts)
        if answer.usage:
            server["usage"] = answer.usage
        if self.stream:
            server["chunks"] = sample.chunks
        if sample.problems:
            server["problems"] = sample.problems
        if answer.prompt_token_ids is not None and has_images(request):
            server["prompt"] = message("server.has_images", "has images; its token ids are the server's")
        return completion_record(
            request,
            round_,
            sample.index,
            prompt_token_ids=answer.prompt_token_ids or request["prompt_token_ids"],
            token_ids=token_ids,
            text=sample.text,
            finish_reason=sample.finish_reason,
            stop_reason=sample.stop_reason,
            logprobs=logprobs,
            server=server,
        )

    def score(self, items: list[Item], top: int) -> int:
        """Teacher-force prompt + completion by `prompt_logprobs`, each distinct sequence once."""
        can = self.dialect == VLLM and self.gives_ids and self.heeds_vllm
        cannot = None if can else NO_PROMPT_LOGPROBS
        sequences, done = self.to_score(items, lambda item: cannot)
        tokens = 0

        def call(prompt: tuple[int, ...], out: tuple[int, ...]) -> Callable[[], Any]:
            def asked() -> Any:
                body = score_body(self.server["model"], list(prompt + out), top)
                try:
                    answer, _ = self.endpoint.post_json(COMPLETIONS, body)
                except Refused as error:
                    if error.status not in (400, 422):
                        raise
                    return (prompt, out), error.answered
                entries = prompt_entries(answer, len(out))
                return (prompt, out), NO_PROMPT_LOGPROBS if entries is None else entries

            return asked

        def finished(result: Any) -> None:
            nonlocal done, tokens
            sequence, logprobs = result
            for key in sequences[sequence]:
                if not isinstance(logprobs, list):
                    self.channel.event("unscored", key=key, reason=logprobs)
                    continue
                self.channel.record(dict(record="score", logprobs=logprobs, **key))
                done += 1
            tokens += len(logprobs) if isinstance(logprobs, list) else 0

        all_calls(self, [call(*sequence) for sequence in sequences], finished, len(sequences))
        self.channel.event("scored", items=len(items), sequences=len(sequences), tokens=tokens)
        return done

    def close(self) -> None:
        endpoint = getattr(self, "endpoint", None)
        if endpoint is not None:
            endpoint.abort()
