"""A policy for CI: how many findings of which kind a run may have, and which are known already.

    [policy]
    inconclusive = "fail"             # or "pass": what INCONCLUSIVE means for the exit code
    allow_states = ["benign", "duplicate"]

    [policy.budget]                   # per kind, over all candidate arms
    near_tie = "10%"                  # of the completions compared
    unjustified = 1                   # findings
    corrupt = 0                       # every corrupt kind that is not named

    [[policy.allow]]
    fingerprint = "0123456789abcdef0123"
    reason = "vllm#45100, fixed in the next release"
    until = 2027-01-31                # no longer allowed after that day

A finding is allowed when its fingerprint is listed, or when somebody has given it one of `allow_states` in the
store (`parity tui`). What is allowed counts for no budget.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from parity.errors import ExitCode, ParityError
from parity.messages import Message, message, verbatim
from parity.plan.config import read_config
from parity.plan.fields import Hint, Read, Wrong, is_value, read_table, typed
from parity.records import Json, Severity, Verdict
from parity.records.kinds import kinds
from parity.store import TriageState

CORRUPT: Final = "corrupt"
_STATES: Final = frozenset(str(state) for state in TriageState) - {str(TriageState.NEW)}


class Budget(Struct, frozen=True):
    """At most this many findings: a number, or a share of the completions compared."""

    limit: float
    is_share: bool

    def allows(self, found: int, completions: int) -> bool:
        return found <= (self.limit * completions if self.is_share else self.limit)

    @property
    def words(self) -> Message:
        if self.is_share:
            return message("policy.share", "{percent:.4g}% of the completions", percent=100 * self.limit)
        return verbatim(f"{self.limit:g}")


# --------------------------------------------------------------------------- reading


def _states(value: Json) -> frozenset[str]:
    if not isinstance(value, list) or not set(map(str, value)) <= _STATES:
        raise ValueError(is_value(value))
    return frozenset(map(str, value))


def _budgets(value: Json) -> dict[str, Budget]:
    if not isinstance(value, Mapping):
        raise TypeError(message("report.is_no_table", "is no table"))
    names = {*map(str, kinds()), CORRUPT}
    for name in value:
        if name not in names:
            known = message("report.known", "known: {known}", known=sorted(names))
            raise Wrong(message("report.no_kind", "has no kind {name!r}", name=name), hint=known)
    return {CORRUPT: Budget(0, False), **{name: _budget(name, one) for name, one in value.items()}}


def _budget(name: str, value: Json) -> Budget:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Budget(value, False)
    if isinstance(value, str) and (match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", value.strip())):
        share = float(match.group(1)) / 100
        if share <= 1:
            return Budget(share, True)
    raise Wrong(
        is_value(value),
        f".{name}",
        message("report.whole_number_share", 'a whole number, or a share such as "2.5%"'),
    )


class Allowed(Struct, frozen=True):
    fingerprint: Annotated[
        str,
        Meta(pattern="^[0-9a-f]{20}$"),
        Hint(message("report.hex_digits_gives", "20 hex digits, as `parity runs show --json` gives them")),
    ]
    reason: Annotated[
        str,
        Meta(pattern=r"\S"),
        Hint(message("report.say_why_may", "say why it may stay: whoever reads this next wants to know")),
    ]
    until: Annotated[
        date | None, Hint(message("report.date_without_quotes", "a date without quotes, such as 2027-01-31"))
    ] = None


def _allowed(value: Json) -> tuple[Allowed, ...]:
    if not isinstance(value, list):
        raise Wrong(
            message("report.is_no_list", "is no list"),
            hint=message("report.write_policy_allow", "write [[policy.allow]] for each finding"),
        )
    found: tuple[Allowed, ...] = typed(tuple[Allowed, ...], value)
    return found


class Policy(
    Struct,
    frozen=True,
    rename={"budgets": "budget", "allowed": "allow", "states": "allow_states"},
):
    """`budgets` by kind; "corrupt" stands for every corrupt kind without one of its own."""

    budgets: Annotated[
        Mapping[str, Budget],
        Read(_budgets, message("report.write_policy_budget", "write [policy.budget] and a line for each kind")),
    ] = msgspec.field(default_factory=lambda: {CORRUPT: Budget(0, False)})
    allowed: Annotated[
        Sequence[Allowed],
        Read(_allowed, message("report.takes_fingerprint_reason", "it takes fingerprint, reason and until")),
    ] = ()
    states: Annotated[
        frozenset[str], Read(_states, message("report.list", "a list of {states}", states=sorted(_STATES)))
    ] = frozenset({"benign", "duplicate"})
    inconclusive: Annotated[
        Literal["fail", "pass"], Hint(message("report.write_fail_pass", 'write "fail" or "pass"'))
    ] = "fail"
    source: str = "policy"


class Counted(Struct, frozen=True):
    """What a policy needs to know of a finding."""

    arm: str
    kind: str
    severity: str
    fingerprint: str
    state: str = "new"


class Judgement(Struct, frozen=True):
    """What the policy makes of a run. `broken` are the rules that it broke, in words."""

    verdict: Verdict
    exit_code: ExitCode
    broken: tuple[Message, ...]
    allowed: Mapping[str, Message]
    """Fingerprints of findings that were allowed, each with the reason."""
    expired: tuple[Message, ...]
    """Rules of the allowlist whose day has passed and that would have allowed something."""
    instead: Message | None = None
    """Said where a policy makes a better verdict of the comparison's."""

    def lines(self) -> list[Message]:
        """For people: what was allowed, what was broken, what follows."""
        others = () if self.instead is None else (self.instead,)
        said = [message("policy.line", "policy: {line}", line=line) for line in (*self.expired, *self.broken, *others)]
        if not self.allowed:
            return [*said, message("policy.verdict", "policy: {verdict}", verdict=str(self.verdict))]
        end = message(
            "policy.verdict_allowed",
            "policy: {verdict}, {count} known finding allowed",
            plural="policy: {verdict}, {count} known findings allowed",
            verdict=str(self.verdict),
            count=len(self.allowed),
        )
        return [*said, end]

    def to_json(self) -> dict[str, Json]:
        return {
            "verdict": str(self.verdict),
            "exit_code": int(self.exit_code),
            "broken": [str(line) for line in self.broken],
            "allowed": list(self.allowed),
            "allowed_because": {mark: str(reason) for mark, reason in self.allowed.items()},
            "expired": [str(line) for line in self.expired],
        }


def read_policy(path: Path) -> Policy:
    """The [policy] of a configuration file. Raises ParityError naming the file and what is wrong in it."""
    config = read_config(path)
    if not config.policy:
        raise ParityError(
            message("report.no_policy", "{path} has no [policy]", path=str(path)),
            hint=message("report.docs_ci_md", "docs/ci.md has an example"),
        )
    return parse_policy(config.policy, str(path))


def parse_policy(table: Json, source: str) -> Policy:
    return read_table(
        Policy,
        table,
        f"{source}: [policy]",
        write=message("plan.write_settings_below", "write [{name}] and its settings below it", name="policy"),
        hint=message("report.docs_ci_md", "docs/ci.md has an example"),
        source=source,
    )


def judge(
    policy: Policy,
    findings: Iterable[Counted],
    *,
    verdict: Verdict | str,
    completions: int,
    other_reasons: bool = False,
    today: date | None = None,
) -> Judgement:
    """Hold a run against a policy.

    `completions` are those compared, over all candidate arms. `other_reasons` says that the run would have been
    INCONCLUSIVE, had it not diverged: then allowed findings do not make it a PASS.
    """
    today = today or datetime.now(UTC).date()
    listed = {one.fingerprint: one.reason for one in policy.allowed if one.until is None or today <= one.until}
    late = {one.fingerprint: one for one in policy.allowed} if len(listed) < len(policy.allowed) else {}
    counted: Counter[str] = Counter()
    severities: dict[str, str] = {}
    allowed: dict[str, Message] = {}
    expired: dict[str, Message] = {}
    for finding in findings:
        if finding.fingerprint in listed:
            allowed[finding.fingerprint] = verbatim(listed[finding.fingerprint])
            continue
        if finding.state in policy.states:
            allowed[finding.fingerprint] = message("policy.triaged", "triaged as {state}", state=finding.state)
            continue
        if finding.fingerprint in late:
            one = late[finding.fingerprint]
            expired[one.fingerprint] = message(
                "policy.expired",
                "{fingerprint} was allowed until {until}: {reason}",
                fingerprint=one.fingerprint,
                until=str(one.until),
                reason=one.reason,
            )
        counted[finding.kind] += 1
        severities[finding.kind] = finding.severity
    broken = _broken(policy, counted, severities, completions)
    decided = _decide(Verdict(verdict), bool(broken), bool(other_reasons), policy)
    codes = {
        Verdict.PASS: ExitCode.PASS,
        Verdict.DIVERGED: ExitCode.DIVERGED,
        Verdict.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
        Verdict.ERROR: ExitCode.BACKEND_FAILED,
    }
    return Judgement(
        decided,
        codes[decided],
        tuple(broken),
        allowed,
        tuple(expired.values()),
        _instead(Verdict(verdict), decided, policy),
    )


def _instead(own: Verdict, decided: Verdict, policy: Policy) -> Message | None:
    if own is decided or decided is Verdict.DIVERGED:
        return None
    return message(
        "policy.instead",
        "{source} makes {decided} of what the comparison calls {own}",
        source=policy.source,
        decided=str(decided),
        own=str(own),
    )


def _broken(policy: Policy, counted: Counter[str], severities: Mapping[str, str], completions: int) -> list[Message]:
    broken = []
    rest = 0
    for kind, found in sorted(counted.items()):
        budget = policy.budgets.get(kind)
        if budget is None:
            rest += found if severities[kind] == Severity.CORRUPT else 0
        elif not budget.allows(found, completions):
            broken.append(
                message(
                    "policy.over_budget",
                    "{kind}: {found} in {completions} completions, at most {budget} allowed",
                    kind=kind,
                    found=found,
                    completions=completions,
                    budget=budget.words,
                )
            )
    if rest and not policy.budgets[CORRUPT].allows(rest, completions):
        corrupt = [
            f"{found} {kind}"
            for kind, found in sorted(counted.items())
            if kind not in policy.budgets and severities[kind] == Severity.CORRUPT
        ]
        broken.append(
            message(
                "policy.over_corrupt",
                "corrupt: {found} in {completions} completions ({corrupt}), at most {budget} allowed",
                found=rest,
                completions=completions,
                corrupt=corrupt,
                budget=policy.budgets[CORRUPT].words,
            )
        )
    return broken


def _decide(verdict: Verdict, broken: bool, other_reasons: bool, policy: Policy) -> Verdict:
    if verdict is Verdict.ERROR:
        return verdict
    if broken:
        return Verdict.DIVERGED
    inconclusive = verdict is Verdict.INCONCLUSIVE or (verdict is Verdict.DIVERGED and other_reasons)
    return Verdict.INCONCLUSIVE if inconclusive and policy.inconclusive == "fail" else Verdict.PASS
