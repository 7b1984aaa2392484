"""What the list of findings says of itself: where the cursor is, what is hidden, why it is empty."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from parity.messages import Message, joined, message
from parity.store.browse import Facet
from parity.tui.format import plain
from parity.tui.names import value_name
from parity.tui.view import SORT_NAMES, Hidden, View

RUN_GONE = message(
    "tui.run_gone", "This run was deleted by another process.\n\nTriage is kept. q goes back to the list of runs."
)
READING_FINDINGS = message("tui.reading_findings", "Reading the findings …")
ALL_FOLLOW = message("tui.all_follow", "All that there is follows another fault: Z shows it.")


def kinds_passing(view: View, facets: Iterable[Facet]) -> list[tuple[str, str, int]]:
    """(kind, severity, findings) of what passes the filter, the most frequent first."""
    kinds: dict[tuple[str, str], int] = {}
    for facet in facets:
        if view.lets(facet):
            kinds[facet.kind, facet.severity] = kinds.get((facet.kind, facet.severity), 0) + facet.findings
    return sorted(((kind, severity, n) for (kind, severity), n in kinds.items()), key=lambda one: -one[2])


def status(
    view: View, cursor: int, total: int, everything: int, selected: Sequence[Message | str], hidden: Hidden
) -> Message:
    """Where the cursor is, what is hidden, selected and filtered, and the order; `everything`: findings of the run."""
    parts: list[Message | str] = [f"{cursor + 1 if total else 0:,}/{total:,}"]
    if everything:
        parts.append(message("tui.of_all", "of {everything:,}", everything=everything))
    parts += selected
    if said := hidden.said():
        parts.append(joined(["(", joined(said, "; "), ")"], by=""))
    if view.chosen:
        parts.append("| " + " ".join(sorted(value_name(*one) for one in view.chosen)))
    if view.text:
        parts.append(joined(["|", message("tui.text", 'text "{text}"', text=plain(view.text))], " "))
    by = message("tui.by", "by {column}", column=SORT_NAMES[view.sort])
    if view.descending:
        by = message("tui.by_reversed", "by {column} reversed", column=SORT_NAMES[view.sort])
    return joined([*parts, "|", by], " ")


def filtered_out(view: View, hidden: Hidden) -> Message | None:
    """Why nothing passes; None where no filter is the reason."""
    if view.text or view.chosen:
        nothing = message("tui.none_passes", "No finding passes the filter.\n\nEsc clears it, f changes it.")
        ties = message("tui.ties_hidden", "Near-ties are hidden, z shows them.")
        return joined([nothing, *([ties] if hidden.near_ties else [])], by=" ")
    if hidden.near_ties:
        return message(
            "tui.only_near_ties",
            "Nothing but near-ties here: {near_ties:,} of them.\n\nz shows them.",
            near_ties=hidden.near_ties,
        )
    return None
