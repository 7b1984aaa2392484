"""A screen at one completion, from which others are visited: along a list, in the batch, in another arm."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from parity.messages import message
from parity.records import Key
from parity.store import FindingRow, RunRow
from parity.tui.drawing import Drawing
from parity.tui.screens.seeking import READING, SeekingScreen
from parity.tui.stop import Stop
from parity.view.completion import CompletionView

Step = Callable[[int], Stop | None]


class VisitingScreen(SeekingScreen):
    """`step` goes along the list that the screen was opened from, `untriaged` to one that nobody has decided about."""

    def __init__(
        self,
        run: RunRow,
        stop: Stop,
        *,
        step: Step | None = None,
        untriaged: Callable[[], Stop | None] = lambda: None,
    ) -> None:
        super().__init__()
        self.run = run
        self.arm, self.key, self.finding = stop
        self.list_step, self.untriaged = step, untriaged
        self.drawing: Drawing | None = None

    @abstractmethod
    def arrive(self, *, same: bool) -> None:
        """Show where one is now; `same`: another finding of the completion that is shown."""

    @property
    def view(self) -> CompletionView | None:
        """What is drawn; None before it was read."""
        return None if self.drawing is None else self.drawing.view

    def visit(self, arm: str, key: Key, finding: FindingRow | None) -> None:
        same = (arm, key) == (self.arm, self.key)
        self.arm, self.key, self.finding = arm, key, finding
        self.arrive(same=same)
        self.refresh_bindings()

    def action_step(self, by: int) -> None:
        stop = self.list_step(by) if self.list_step else None
        if stop is None:
            self.tell(message("tui.no_further", "nothing further in the list"))
        else:
            self.visit(*stop)

    def action_next_new(self) -> None:
        stop = self.untriaged()
        if stop is None:
            self.tell(message("tui.none_new", "nothing is left that nobody has decided about"))
        else:
            self.visit(*stop)

    def action_within(self, by: int) -> None:
        if self.view is None:
            self.tell(READING)
            return
        others = list(self.view.others)
        if not others:
            self.tell(message("tui.no_finding_in", "no finding in this completion"))
            return
        ids = [row.id for row in others]
        at = ids.index(self.finding.id) + by if self.finding and self.finding.id in ids else 0
        row = others[at % len(others)]
        self.visit(row.arm, row.key, row)

    def action_other_arm(self) -> None:
        if self.view is None:
            return
        names = [name for name, arm in self.view.arms.items() if not arm.is_baseline]
        if len(names) < 2:
            self.tell(message("tui.no_other_arm", "the run has no other arm to compare"))
            return
        self._visit_first(names[(names.index(self.arm) + 1) % len(names)], self.key)

    def action_neighbour(self, step: int) -> None:
        store = self.store
        if store is None:
            return
        key = self.parity.attempt(lambda: store.neighbour(self.run.id, self.arm, self.key, step), None)
        if key is None:
            self.tell(message("tui.no_further_row", "no further row in the batch"))
        else:
            self._visit_first(self.arm, key)

    def _visit_first(self, arm: str, key: Key) -> None:
        """The worst finding of a completion, or the completion without one."""
        store = self.store
        if store is None:
            return
        nothing: list[FindingRow] = []
        found = self.parity.attempt(lambda: store.findings_of_completion(self.run.id, arm, key), nothing)
        worst = sorted(found, key=lambda row: (-row.weight, row.id))
        self.visit(arm, key, worst[0] if worst else None)
