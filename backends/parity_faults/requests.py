"""Faults of one request's rules: its own copy of the parameters changed, so that the engine ignores what was asked.

Each gives back whether there was anything to ignore.
"""

from __future__ import annotations

from typing import Any


def penalties_ignored(params: Any, others: list[Any]) -> bool:
    asked = (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) != (1.0, 0.0, 0.0)
    params.repetition_penalty, params.presence_penalty, params.frequency_penalty = 1.0, 0.0, 0.0
    return asked


def temperature_leak(params: Any, others: list[Any]) -> bool:
    if not params.temperature:
        return False
    other = [one.temperature for one in others if one.temperature != params.temperature]
    params.temperature = other[-1] if other else 0.0
    return True


def bad_words_ignored(params: Any, others: list[Any]) -> bool:
    asked = bool(params.bad_words)
    params.bad_words, params._bad_words_token_ids = [], None
    return asked


def allowed_ignored(params: Any, others: list[Any]) -> bool:
    asked = params.allowed_token_ids is not None
    params.allowed_token_ids = None
    return asked


def min_tokens_ignored(params: Any, others: list[Any]) -> bool:
    asked = bool(params.min_tokens)
    params.min_tokens = 0
    return asked


def stop_ignored(params: Any, others: list[Any]) -> bool:
    asked = bool(params.stop or params.stop_token_ids)
    params.stop, params.stop_token_ids = [], []
    return asked


def grammar_ignored(params: Any, others: list[Any]) -> bool:
    asked = params.structured_outputs is not None
    params.structured_outputs = None
    return asked
