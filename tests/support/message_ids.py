"""What a comparison says, by the ids of its messages."""

from __future__ import annotations

from parity.comparator import Comparison


def ids_in(result: Comparison) -> set[str]:
    """Ids of all messages, those inside others included."""
    found = set()
    left = [*result.reasons, *result.notes]
    while left:
        one = left.pop()
        found.add(one.id)
        left += [value for value in one.parameters.values() if hasattr(value, "parameters")]
    return found
