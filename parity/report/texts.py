"""Every sentence that a report says to a person, in one place.

`Texts(language)` looks a sentence up by its name and fills in the values, which must be escaped already for
the format they go into. The name with `report.` before it is the id in the catalogues of other languages.
"""

from __future__ import annotations

from collections.abc import Iterator

from parity.errors import ParityError
from parity.language import LANGUAGES, render
from parity.messages import Message, Parameter, message
from parity.records import Kind

ENGLISH: dict[str, str] = {
    # headings
    "title.fault": "{kinds} in {corrupt} of {completions} completions with {setting} ({model}, {version})",
    "title.faults": "{kinds}, among {corrupt} corrupt of {completions} completions with {setting} ({model}, {version})",
    "title.finding": "{kinds} at output token {position} with {setting} ({model}, {version})",
    "title.finding.whole": "{kinds} with {setting} ({model}, {version})",
    "title.samples": "samples that are not drawn as the baseline's are, with {setting} ({model}, {version})",
    "title.benign": "no fault: {near} of {completions} completions part at near-ties with {setting} ({model}, "
    "{version})",
    "title.benign.drawn": "no fault: {completions} completions drawn with {setting} ({model}, {version})",
    "title.failed": "failed: {why} ({model}, {version})",
    "title.open": "not decided: {why} ({model}, {version})",
    "title.baseline": "tokens that {arbiter} does not support in {count} completions with {setting} ({model}, "
    "{version})",
    "heading.environment": "Your current environment",
    "heading.bug": "🐛 Describe the bug",
    "heading.before": "Before submitting a new issue...",
    "heading.expected": "Expected",
    "heading.actual": "Actual",
    "heading.evidence": "What the reference thinks of that token",
    "heading.evidence.run": "What the samples of the run say",
    "heading.evidence.shown": "What shows it",
    "heading.evidence.steps": "What the recorded steps show",
    "heading.evidence.sketches": "What the sketches show",
    "heading.asked": "What was asked",
    "heading.measured_table": "All arms",
    "heading.controls": "Controls",
    "heading.versions": "Versions tried",
    "heading.repro": "Minimal reproduction",
    "heading.measured": "Measured",
    "heading.inferred": "Inferred, not measured",
    "heading.unchecked": "Not checked",
    "heading.known": "Known reports with the same signature",
    "heading.both": "The other project",
    "heading.settings": "Settings of the arms",
    "heading.next": "What would decide it",
    "heading.findings": "Findings",
    "heading.inside": "Where in the engine",
    # from recorded steps
    "inside.violation": "{arm}, {request}, output token {position}: {why}{before}{shared}{again}",
    "inside.before": "; in the step before, the row was {request}'s",
    "inside.shared": "; {request} has the same row or slot in this step",
    "inside.again": "; {more} more broke in this completion",
    "inside.more": "{more} more completions broke the engine's bookkeeping",
    "inside.located": "{arm}, {request}, output token {position}: {why}",
    "inside.more_located": "{more} more completions went wrong inside the forward pass",
    # the first screen
    "first.what": "**In {arm}, {claims}.** {baseline}, asked the same, is the baseline.",
    "first.what.asked": "**In {arm}, {claims}.** {baseline} is the baseline.",
    "first.benign": "**Nothing corrupt was found in {arm}**: {near} of {completions} completions part from those of "
    "{baseline}, at near-ties.",
    "first.benign.drawn": "**Nothing corrupt was found in {arm}**: no test tells its {completions} completions, drawn "
    "at random, from those of {baseline}.",
    "first.failed": "**Nothing is known of {arms}**: {why}",
    "first.open": "**Not decided**: {why}",
    "first.baseline": "**{baseline} is accused, not {arms}**: {why}",
    "first.condition": "Common condition: {condition}",
    "first.rate": "Rate: {rate}, {faulty} of {completions} completions (95 %: {low} to {high}).",
    "first.rate.whole": "Rate: {rate}, {faulty} of {completions} completions (95 %: {low} to {high}), each by itself; "
    "the run as a whole is off as well.",
    "first.clean": "Not with {settings}: {arm}, {completions} completions, none corrupt.",
    "first.clean.same": "Not in {arm}, which has the same settings: {completions} completions, none corrupt.",
    "first.cause": "Cause, from the recorded steps of {arm}: {cause}",
    "first.cause.numerics": "Where the numbers are wrong, by the recorded steps of {arm}: of row-steps with a logprob "
    "more than {nats} nats off its score, {cause}",
    "first.cause.step": "The first step that broke: {cause}",
    "first.cause.located": "Inside the forward pass: {cause}",
    "first.again": "To see it again: {command}, with the script below.",
    "first.again.named": "To see it again: {command}, with the script that is named below.",
    "first.again.run": "To see it again: {command}",
    "fold.rest": "How it was judged, all arms, what was not checked, known reports",
    # the description
    "lead.corrupt": "Every arm ran the same prompts ({requests}, as token ids; {sampling}) and was compared with "
    "{baseline}, token by token. In {arm}, {claims}. Kinds: {kinds}.",
    "lead.asked": "The arms were not asked the same ({requests} requests; {baseline}: {sampling}); each was compared "
    "with {baseline}. In {arm}, {claims}. Kinds: {kinds}.",
    "lead.failed": "What else is compared ran the same prompts ({requests}, as token ids; {sampling}), with "
    "{baseline} as the baseline.",
    "lead.sampled": "Every arm ran the same prompts ({requests}, as token ids; {sampling}). Sampling is random, so "
    "tokens need not be equal, and distributions are compared. In {arm}, {claims}. Kinds: {kinds}.",
    "lead.benign": "Every arm ran the same prompts ({requests}, as token ids; {sampling}) and was compared with "
    "{baseline}, token by token. Nothing corrupt was found: {near} of {completions} completions of {arm} part from the "
    "baseline, each at a token that the reference holds for as good as its best one within {tolerance} nats.",
    "lead.benign.drawn": "Every arm ran the same prompts ({requests}, as token ids; {sampling}). Sampling is random, "
    "so tokens need not be equal, and distributions are compared. Nothing corrupt was found in {completions} "
    "completions of {arm}.",
    "lead.verdict": "Verdict of the run: {verdict}. {reasons}",
    "lead.unfinished": "The run has no verdict ({status}): this is what there is of it so far.",
    "lead.planted": "**A fault was planted on purpose in {arms} ({fault}): this is an example, not to be filed.**",
    "lead.rule": "A token counts as explained by rounding when, teacher-forced with speculation off "
    "(`prompt_logprobs`), it lies within {tolerance} nats of the best token at its position. Tokens after the first "
    "difference are judged too.",
    "lead.rule.sampled": "Each token's chance is that of the reference: teacher-forced with speculation off "
    "(`prompt_logprobs`), at that temperature.",
    "lead.first": "The example below: request {request}, {kind} at output token {position}{more}.",
    "lead.first.whole": "The example below: request {request}, {kind}.",
    "more_tokens": " and the {count} after it",
    "expected.text": "{arm} says (token {position} between `>>` and `<<`):",
    "html.marked": "{arm} says (token {position} is marked):",
    "html.of_run": "the run as a whole",
    "expected.text.whole": "{arm} says:",
    "actual.text": "{arm} says:",
    "side.none": "{arm} did not return this completion.",
    "side.text": "{arm} says (as text, around character {character}):",
    "side.text.other": "{arm} says (as text):",
    "side.own": "The token ids of {arm} say (as text, around character {character}):",
    "side.own.other": "The token ids of {arm} say (as text):",
    "side.drawn": "Sampling is random: the tokens of {arm} at this place are another draw, and not what was expected.",
    "asked.prompt": "{arm} was asked with {tokens} prompt tokens; from token {start}:",
    "asked.max_tokens": "{arm} was asked for at most {tokens} tokens.",
    "heading.donor": "Whose tokens these are",
    "donor.tokens": "The {part} of {donor}, from its token {start} on:",
    "source.expected": "expected",
    "logprob.none": "not listed, or not a number",
    "evidence.logprob": "At token {position}:",
    "expected.parted": "The texts had parted at token {first} already, at a token that the reference supports.",
    "tokens.expected": "expected token ids from {start}",
    "tokens.actual": "actual token ids from {start}  ",
    "ends": "{arm} ended after {tokens} tokens, finish reason {reason}.",
    "prompt": "Prompt:",
    "evidence.gap": "The token chosen lies {gap} nats below the best one{bound} (allowed: {tolerance}).",
    "evidence.bound": " at least, for it is not among the top tokens listed",
    "evidence.none": "The reference says nothing of this place: the finding rests on the tokens.",
    "evidence.end": "To end here lies {gap} nats below the best token (allowed: {tolerance}).",
    "evidence.moved": "The gap is that under the request's penalties and biases; the logprobs are those without.",
    "evidence.leaning": "The surest of these tokens: {tokens}.",
    "evidence.leaning.one": "{token} {text} by {nats} nats ({places} places)",
    "evidence.steps": "These are the engine's own counts. No reference and no tolerance has a part in it.",
    "evidence.lanes": "Requests: {names}",
    "evidence.undamaged": "The tokens of this completion are those of {arm}: the fault left no trace in them.",
    "repro.short": "The engine by itself; exit code 1 where the fault shows:",
    "repro.serve": "The same engine as a server:",
    "repro.unknown": "The capture of {arm} does not name these settings, so vLLM's defaults run: {names}.",
    "repro.run": "The careful script asks the reference about every difference. It needs vLLM and the checkpoint "
    "alone; exit code 1 when the fault shows, 0 when it does not:",
    "repro.none": "There is no script for this finding: {why}",
    "repro.long": "The script has {characters} characters, too many for an issue: {command} writes it, put it into a "
    "gist.",
    "repro.command": "The run this report is made from:",
    "control.clean": "{arm}: {completions} completions, {identical} identical, {near} near-ties, none corrupt.",
    "control.clean.drawn": "{arm}: {completions} completions drawn at random, none corrupt.",
    "control.baseline": "{arm}: the baseline ({completions} completions).",
    "control.caught": "{arm}: a fault planted on purpose, found in {corrupt} of {completions} completions. The "
    "comparison sees what it claims to see.",
    "control.drafter": "{arm}: a fault planted on purpose, found: {note}.",
    "control.missed": "{arm}: a fault planted on purpose, *not* found in {completions} completions.",
    "control.none": "No arm of this run is clean, so nothing here says which setting switches the fault off.",
    "version.row": "{arm}: {versions}",
    "version.one": "Only the versions above were run.",
    # measured and inferred
    "measured.counts": "{arm}: {completions} completions, {identical} identical to {baseline}, {near} part at "
    "near-ties only, {corrupt} corrupt{kinds}.",
    "measured.not_compared": "{arm}: {completions} completions, not compared.",
    "measured.counts.drawn": "{arm}: {completions} completions drawn at random, {corrupt} corrupt{kinds}.",
    "measured.kinds": " ({kinds})",
    "kind.count": "{kind} ({count})",
    "kind.of_run": "{kind} (the run as a whole)",
    "measured.token": "Request {request}, token {position}: {arm} gave {token}; gap {gap} nats.",
    "measured.accept": "{arm}: {accepted} of {drafted} draft tokens accepted ({rate}).",
    "measured.length": "{arm}: every corrupt request has a prompt of {tokens} tokens: {bad} of the {same} requests "
    "with such a prompt are corrupt, none of the {others} others.",
    "measured.length.from": "{arm}: every corrupt request has a prompt of {tokens} tokens or more: {bad} of the {same} "
    "requests with such a prompt are corrupt, none of the {others} others.",
    "measured.length.to": "{arm}: every corrupt request has a prompt of at most {tokens} tokens: {bad} of the {same} "
    "requests with such a prompt are corrupt, none of the {others} others.",
    "measured.place": "{arm}: all {bad} corrupt completions first go wrong at output token {position}.",
    "measured.block": "{arm}: all {bad} corrupt completions first go wrong at the start of a block of {block} tokens, "
    "prompt and output counted.",
    "measured.again": "{arm}: something corrupt in {seen} of {rounds} rounds of the same batch.",
    "measured.floor": "The reference's own noise: at most {largest} nats over {tokens} tokens of the baseline.",
    "measured.floor.rejected": "The reference's own noise: at most {largest} nats over {tokens} tokens of the "
    "baseline; {rejected} more are too far below the best to be noise.",
    "inferred.kind": "The name of the kind ({kind}) is a reading of the tokens: {why}",
    "inferred.suspect": "The pattern of verdicts points at {name}: {why}",
    "inferred.none": "Nothing is concluded about the cause.",
    "inferred.rate": "Among completions like these, between {low} and {high} are affected (95 %).",
    # what was not checked
    "unchecked.backends": "Hardware other than {backends}.",
    "unchecked.versions": "Versions of vLLM other than {versions}.",
    "unchecked.transformers": "The implementation in `transformers`: it was not run. The reference is this engine "
    "with speculation off.",
    "unchecked.reference": "A fault that the engine's prefill has with speculation off as well: the reference would "
    "share it.",
    "unchecked.setting": "{name}: only {values}.",
    "unchecked.rarer": "{arm}: faults that hit fewer than {bound} of all completions; to see one that hits a tenth of "
    "that takes {needed}.",
    "unchecked.sampling": "Random sampling: the run is greedy.",
    "unchecked.reduced": "Whether fewer prompts or fewer tokens would do: the batch is as it was run.",
    "known.lead": "Of kinds that this run has, and none of their conditions is contradicted by it. Whether it is the "
    "same bug has to be looked at.",
    "known.row": "{threads}: {symptom}. {trigger}.{state} Conditions that hold here: {holds}.{unknown}",
    "known.unknown": " Not known here: {unknown}.",
    "known.none": "None in parity's list of {count}. That list is short: search the issues as well.",
    "both.text": "Arms of both projects diverge. The same fault is reported to {other} as {title} ({link}); it may "
    "have one cause in the code they share.",
    "both.link": "put the number of that issue here when it is filed",
    "footer": "Written by parity {version} from run {run}. Paths on the machine were cut out.",
    "before.ticked": "Make sure you already searched for relevant issues, and asked the chatbot living at the bottom "
    "right corner of the [documentation page](https://docs.vllm.ai/en/latest/), which can answer lots of frequently "
    "asked questions.",
    "before.yours": "This box is yours to tick (`--searched`): parity looked in its own list only, not through the "
    "issues.",
    # tables
    "column.arm": "arm",
    "column.completions": "completions",
    "column.identical": "identical",
    "column.near": "near-ties",
    "column.corrupt": "corrupt",
    "column.shortest": "shortest",
    "column.acceptance": "acceptance",
    "column.speed": "tokens/s",
    "column.setting": "setting",
    "column.token": "token",
    "column.logprob": "logprob (nats)",
    "column.gap": "gap (nats)",
    "column.source": "source",
    "column.role": "",
    "column.kind": "kind",
    "column.request": "request",
    "column.position": "position",
    "column.state": "state",
    "column.why": "why",
    "column.run": "run",
    "column.verdict": "verdict",
    "column.versions": "engine versions",
    "role.chosen": "chosen",
    "role.best": "best",
    "baseline": "baseline",
    "control": "positive control",
    # formats
    "verdict": "Verdict",
    "junit.unlisted": "corrupt; what was found is beyond the limit of this report (--limit), or was not asked for",
    "github.more": "{count} more findings are not shown: `parity runs show {run} --json`.",
    "github.allowed": "{count} findings are known and allowed:",
    "policy.within": "within the budgets of the policy",
    "github.policy": "The policy says {policy}; the comparison itself says {run}.",
    "site.title": "parity: all runs",
    "site.history": "{runs} runs; {diverged} of {judged} with a verdict DIVERGED",
    "site.created": "begun",
    "html.title": "parity report: {verdict} {run}",
    "html.filter": "Filter by kind, arm, request or text",
    "html.corrupt": "corrupt only",
    "html.noscript": "Scripts are off: the filter does not work, everything else does.",
    "html.gaps": "Gap to the best token at each position (nats)",
    "html.nogaps": "No scores are at hand for this completion.",
    "html.left_out": "{count} of {total} findings are not in this file.",
    "html.noscript.packed": "The first {count} of {total} findings are shown.",
    "html.next": "More findings",
    "html.legend.token": "the token in question",
    "html.legend.finding": "the rest of the finding",
    "html.legend.parted": "what comes after the first divergent token",
    "html.overview": "Corrupt findings by request ({shown} of {total}) and output token, {tokens} tokens a cell",
    "html.shown": "findings shown",
    "plot.gap_distribution": "Gaps of the tokens chosen",
    "plot.divergence": "Where completions part",
    "plot.lengths": "Output lengths",
    "plot.acceptance": "Acceptance by draft position",
    "plot.modules": "How far modules are off",
    "plot.x.layer": "decoder layer",
    "plot.y.distance": "distance",
    "plot.x.gap": "nats below the best token",
    "plot.x.position": "output token",
    "plot.x.length": "output tokens",
    "plot.x.draft": "draft position",
    "plot.y.tokens": "tokens",
    "plot.y.completions": "completions",
    "plot.y.rate": "accepted",
}


def messages() -> Iterator[Message]:
    """Every sentence, for the catalogues."""
    return (sentence(name) for name in ENGLISH)


class Texts:
    """The sentences in one language. Raises ParityError for a language that there is not."""

    def __init__(self, language: str = "en") -> None:
        if language not in LANGUAGES:
            raise ParityError(
                message("report.no_language", "there are no reports in {language!r}", language=language),
                hint=message("report.no_language.hint", "choose one of {languages}", languages=LANGUAGES),
            )
        self.language = language

    def __call__(self, name: str, /, **values: Parameter) -> str:
        return render(sentence(name, **values), self.language)

    def said(self, said: Message | str) -> str:
        """What the comparison said (a reason, a finding's why); a plain string as it is."""
        return render(said, self.language)

    def kind(self, kind: str) -> str:
        """A kind of finding in words; one that this version does not know stays as it is."""
        return render(Kind(kind).row.title, self.language)


def sentence(name: str, /, **values: Parameter) -> Message:
    """A sentence of ENGLISH as a message: it is rendered, and its values escaped, by each format (`prose.py`)."""
    return Message(f"report.{name}", ENGLISH[name], values)
