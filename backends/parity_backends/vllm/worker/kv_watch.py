"""What the steps of one engine find, keep and leave of their requests' keys and values (kv_digests.py)."""

from __future__ import annotations

from typing import Any, Optional

from parity_backends.worker.sentences import Sentence, message

from .kv_digests import KeptPart, KeyValueDigests, key_values_of
from .step_sight import Sight

KV_COLUMNS = ("kv_found", "kv_kept", "kv_left", "kv_tokens")


class KeyValueWatch:
    """Of the first model runner, which keeps the blocks of its requests."""

    def __init__(self, runner: Any, groups: list[Any], sizes: list[int]) -> None:
        self.runner, self.groups, self.sizes = runner, groups, sizes
        self.known: dict[int, Optional[KeyValueDigests]] = {}
        """By cache group; None where nothing can be read."""
        self.parts: dict[int, dict[str, KeptPart]] = {}
        """By cache group and request: what was digested when its last step ended."""

    def begin(self, sight: Sight, group: int, kernel_size: int) -> Optional[Sentence]:
        """As a step begins. Why nothing can be read, where that is so."""
        if group not in self.known:
            readable = self._read_alone(group)
            self.known[group] = (
                key_values_of(self.runner, self.groups[group], self.sizes[group], kernel_size) if readable else None
            )
        digests = self.known[group]
        if digests is None:
            return message(
                "unseen.key_values",
                "keys and values that are not on the host, are let go before their request ends, or do not say where "
                "they lie",
            )
        parts, blocks = self.parts.get(group, {}), self._blocks(sight, group)
        sight.groups[group]["kv_found"] = digests.of([parts.get(name) for name in sight.names], blocks)
        return None

    def end(self, sight: Sight, scheduled: Any, drafts: Any) -> None:
        """As it ends. `scheduled`, `drafts`: of the scheduler's output, by request: tokens, and tokens that may be
        rejected."""
        if all(one is None for one in self.known.values()):
            return
        computed = self.runner.input_batch.num_computed_tokens_cpu[: len(sight.names)].tolist()
        tokens = [
            count + scheduled[name] - len(drafts.get(name, ()))
            for name, count in zip(sight.names, computed)  # noqa: B905 - Python 3.9
        ]
        for group, digests in self.known.items():
            found = sight.groups.get(group, {})
            if digests is None or "kv_found" not in found:
                continue
            blocks, parts = self._blocks(sight, group), self.parts.get(group, {})
            found["kv_kept"] = digests.of([parts.get(name) for name in sight.names], blocks)
            following = digests.turn(sight.step, tokens)
            found["kv_left"] = digests.of(list(following), blocks)
            found["kv_tokens"] = [part.tokens for part in following]
            self.parts[group] = dict(zip(sight.names, following))  # noqa: B905

    def _blocks(self, sight: Sight, group: int) -> list[Any]:
        return [self.runner.requests[name].block_ids[group] for name in sight.names]

    def _read_alone(self, group: int) -> bool:
        """A request keeps its blocks: none are let go as a window slides on."""
        groups = getattr(getattr(self.runner, "kv_cache_config", None), "kv_cache_groups", [])
        spec = groups[group].kv_cache_spec if group < len(groups) else None
        return any(one.__name__ == "FullAttentionSpec" for one in type(spec).__mro__)
