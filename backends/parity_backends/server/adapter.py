"""Any OpenAI-compatible server, vLLM's first: the way to check production as it runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from parity.errors import BackendError, ParityError
from parity.messages import Message, heard, message, shortened, verbatim
from parity.run.backend import Detection, hint_for
from parity.secrecy import without_secrets
from parity_backends.bundle import FIRST, bundle
from parity_backends.refusals import WithoutEngine, check_settings

MODULES = (
    *FIRST,
    "parity_backends.worker:counters",
    "parity.records:plan_digest",
    "parity_backends.worker:planned",
    "parity_backends.worker:seeds",
    "bounds",
    "keys",
    "receiving",
    "transport",
    "asking",
    "answers",
    "many",
    "retokenised",
    "about",
    "server_arm",
    "server_main",
)

PATIENCE_SECONDS = 30.0
"""For an answer before anything runs."""

DEFAULTS: dict[str, Any] = {
    "url": None,
    "model": None,
    "endpoint": "completions",
    "stream": False,
    "concurrency": 32,
    "timeout": 600.0,
    "retries": 4,
    "api_key_env": None,
    "key_over_http": False,
}
"""Settings of an arm; docs/servers.md says what each means."""


class ServerBackend(WithoutEngine):
    """Arms are endpoints. Nothing is started: parity's own Python talks HTTP."""

    name = "server"
    variants: tuple[str, ...] = ("served",)
    takes_images = True
    loads_weights = False
    answers_anew = True
    hints: Mapping[str, Message] = {
        "server.refused": message(
            "server.is_it_up",
            "is the server up, and is this its port? `curl URL/v1/models` shows; --resume goes on",
        ),
        "server.no_access": message(
            "server.api_key",
            "name the environment variable that holds the API key with --server-option api_key_env=NAME",
        ),
        "server.declined": message(
            "server.ask_otherwise",
            "it will decline the same request again: ask otherwise, in a new run (--prompts, --max-tokens), or start "
            "the server with room for it (--max-model-len)",
        ),
        **dict.fromkeys(
            ("server.not_what", "server.no_such_place"),
            message(
                "server.root", "the URL is that of the server's root, such as http://host:8000 (with or without /v1)"
            ),
        ),
    }

    def default_model(self) -> Path | None:
        return None

    def arm_settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All settings of an arm from those given. Raises ParityError for one that is unknown or no good."""
        check_settings(self.name, given, DEFAULTS)
        settings = {**DEFAULTS, **given}
        settings["url"] = checked_url(settings["url"])
        if settings["endpoint"] not in ("completions", "chat"):
            raise ParityError(
                message("server.endpoint", "endpoint is {value}", value=repr(settings["endpoint"])),
                hint=message("server.endpoints", "it is completions or chat"),
            )
        for name, least in (("concurrency", 1), ("timeout", 0.001), ("retries", 0)):
            value = settings[name]
            whole = name != "timeout"
            if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or value < least:
                raise _setting_is(
                    name, value, message("server.number", "give a number of at least {least:g}", least=least)
                )
        for name in ("model", "api_key_env"):
            if settings[name] is not None and not isinstance(settings[name], str):
                raise _setting_is(name, settings[name], message("server.name", "give a name, or leave it out"))
        for name in ("stream", "key_over_http"):
            if not isinstance(settings[name], bool):
                raise _setting_is(name, settings[name], message("server.flag", "it is true or false"))
        return settings

    def engine_defaults(self, variant: str, *, num_speculative_tokens: int) -> dict[str, Any]:
        return dict(DEFAULTS)

    def ask(self, settings: Mapping[str, Any]) -> None:
        """Whether it is there and serves the model, by its lists: no token is generated."""
        from parity_backends.server.worker.about import describe
        from parity_backends.server.worker.keys import is_readable_on_the_way
        from parity_backends.server.worker.receiving import ServerError
        from parity_backends.server.worker.transport import Endpoint

        variable = settings.get("api_key_env")
        if variable and not os.environ.get(variable):
            raise ParityError(
                message(
                    "server.no_key",
                    "the environment variable {variable}, which is to hold the API key, is not set",
                    variable=variable,
                ),
                hint=message("server.set_key", "export {variable}=… and run the same command again", variable=variable),
            )
        key = os.environ.get(variable) if variable else None
        if key and not settings.get("key_over_http") and is_readable_on_the_way(settings["url"]):
            return  # the worker refuses it, in words
        timeout = min(float(settings["timeout"]), PATIENCE_SECONDS)
        endpoint = Endpoint(settings["url"], key, timeout, int(settings["retries"]), threading.Event())
        try:
            describe(endpoint, settings.get("model"))
        except ServerError as error:
            said = heard(error.said, shortened) or verbatim(str(error))
            raise BackendError(said, hint=hint_for(self, said)) from None

    def detect(self) -> Detection:
        return Detection(
            True, (message("server.named", "nothing to look for: a server is named by its URL (--server URL)"),)
        )

    def launch_env(self, interpreter: Path) -> dict[str, str]:
        path = os.environ.get("PYTHONPATH")
        return {"PYTHONPATH": path} if path else {}

    def worker_source(self) -> bytes:
        return bundle("parity_backends.server.worker", MODULES)


def _setting_is(name: str, value: object, hint: Message) -> ParityError:
    said = message("server.setting_is", "{name} of the server is {value}", name=name, value=repr(value))
    return ParityError(said, hint=hint)


def checked_url(url: Any) -> str:
    """The URL without a trailing slash. Raises ParityError for one that cannot be used or holds a password."""
    hint = message("server.give_root", "give the server's root, such as http://host:8000")
    if not isinstance(url, str) or not url:
        raise ParityError(
            message("server.no_url", "backend 'server' starts no engine: it needs the URL of one that runs"),
            hint=message("server.name_it", "name it with --server [NAME=]URL, once for each server"),
        )
    try:
        parts = urlsplit(url)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError as error:
        said = message("server.not_a_url", "{url!r} is not a URL: {error}", url=without_secrets(url), error=str(error))
        raise ParityError(said, hint=hint) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_fine:
        raise ParityError(
            message("server.not_http", "{url!r} is not an http or https URL", url=without_secrets(url)), hint=hint
        )
    if parts.username or parts.password:
        raise ParityError(
            message(
                "server.secret_in_url",
                "the server's URL holds a user name or a password, and URLs are written into plans and captures",
            ),
            hint=message(
                "server.key_in_variable",
                "put the key into an environment variable and name that with --server-option api_key_env=NAME",
            ),
        )
    if parts.query or parts.fragment:
        raise ParityError(
            message("server.query", "{url!r} has a query or a fragment", url=without_secrets(url)), hint=hint
        )
    return url.rstrip("/")
