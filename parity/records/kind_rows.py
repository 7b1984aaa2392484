"""The kinds that parity finds, a row each."""

from __future__ import annotations

from parity.messages import message
from parity.records.evidence import (
    CopyOfSampleEvidence,
    CutoffEvidence,
    EndEvidence,
    InputEvidence,
    InvalidTokenEvidence,
    LeakEvidence,
    LocatedEvidence,
    LogprobEvidence,
    MissingEvidence,
    NearTieEvidence,
    NumericsEvidence,
    RoundsEvidence,
    RuleEvidence,
    TemperatureEvidence,
    TextEvidence,
    TokensEvidence,
    ViolationEvidence,
)
from parity.records.kinds import Family, Kind, KindRow, Severity, Stretch, register

Kind.NEAR_TIE = register(
    KindRow(
        name="near_tie",
        family=Family.NOISE,
        title=message("kind.near_tie", "parts at a near-tie (benign)"),
        question=message("kind.question.near_tie", "How near were the two tokens?"),
        evidence=NearTieEvidence,
        severity=Severity.BENIGN,
        completion_class="near_tie",
    )
)
Kind.DUPLICATION = register(
    KindRow(
        name="duplication",
        family=Family.TOKENS,
        title=message("kind.duplication", "tokens emitted again"),
        question=message("kind.question.duplication", "Which tokens stand twice?"),
        evidence=TokensEvidence,
        precedence=50,
        stretch=Stretch.COPY,
        lengthens=1,
        explained_away=True,
        may_be_doubted=True,
        may_come_and_go=True,
    )
)
Kind.OMISSION = register(
    KindRow(
        name="omission",
        family=Family.TOKENS,
        title=message("kind.omission", "tokens lost"),
        question=message("kind.question.omission", "Which tokens are missing?"),
        evidence=TokensEvidence,
        precedence=60,
        stretch=Stretch.LOST,
        lengthens=-1,
        may_be_doubted=True,
        may_come_and_go=True,
    )
)
Kind.REPETITION = register(
    KindRow(
        name="repetition",
        family=Family.TOKENS,
        title=message("kind.repetition", "falls into a loop"),
        question=message("kind.question.repetition", "Where does the loop begin, and of what is it made?"),
        evidence=TokensEvidence,
        precedence=40,
        stretch=Stretch.COPY,
        explains_rest=True,
        may_be_doubted=True,
        may_come_and_go=True,
        panel="origin",
    )
)
Kind.EARLY_STOP = register(
    KindRow(
        name="early_stop",
        family=Family.ENDS,
        title=message("kind.early_stop", "ends too early"),
        question=message("kind.question.early_stop", "What ended it?"),
        evidence=EndEvidence,
        precedence=70,
        may_be_doubted=True,
        may_come_and_go=True,
    )
)
Kind.OVERRUN = register(
    KindRow(
        name="overrun",
        family=Family.ENDS,
        title=message("kind.overrun", "goes on past its end"),
        question=message("kind.question.overrun", "Where should it have ended?"),
        evidence=EndEvidence,
        precedence=30,
        explains_rest=True,
        may_come_and_go=True,
    )
)
Kind.ROW_LEAK = register(
    KindRow(
        name="row_leak",
        family=Family.TOKENS,
        title=message("kind.row_leak", "tokens of another request"),
        question=message("kind.question.row_leak", "Whose tokens are these?"),
        evidence=LeakEvidence,
        precedence=20,
        stretch=Stretch.FOREIGN,
        explains_rest=True,
        explained_away=True,
        may_be_doubted=True,
        may_come_and_go=True,
        panel="origin",
    )
)
Kind.GARBLED = register(
    KindRow(
        name="garbled",
        family=Family.TOKENS,
        title=message("kind.garbled", "garbled text"),
        question=message("kind.question.garbled", "Where does it begin, and does it recover?"),
        evidence=TokensEvidence,
        precedence=80,
        stretch=Stretch.UNSUPPORTED,
        explained_away=True,
        may_be_doubted=True,
        may_come_and_go=True,
    )
)
Kind.UNJUSTIFIED = register(
    KindRow(
        name="unjustified",
        family=Family.TOKENS,
        title=message("kind.unjustified", "unsupported tokens"),
        question=message("kind.question.unjustified", "What would the reference have said?"),
        evidence=TokensEvidence,
        precedence=90,
        stretch=Stretch.UNSUPPORTED,
        explained_away=True,
        may_be_doubted=True,
        may_come_and_go=True,
    )
)
Kind.WRONG_TEMPERATURE = register(
    KindRow(
        name="wrong_temperature",
        family=Family.RULES,
        title=message("kind.wrong_temperature", "drawn at another temperature"),
        question=message("kind.question.wrong_temperature", "At which temperature was it drawn?"),
        evidence=TemperatureEvidence,
        one_place=False,
        precedence=85,
    )
)
Kind.BEYOND_CUTOFF = register(
    KindRow(
        name="beyond_cutoff",
        family=Family.RULES,
        title=message("kind.beyond_cutoff", "drawn beyond the cut-off"),
        question=message("kind.question.beyond_cutoff", "Which tokens had top_k, top_p or min_p cut off?"),
        evidence=CutoffEvidence,
        precedence=86,
    )
)
Kind.MISSING_COMPLETION = register(
    KindRow(
        name="missing_completion",
        family=Family.SET,
        claim=message("kind.claim.missing_completion", "{count} of {completions} completions did not come"),
        title=message("kind.missing_completion", "missing completions"),
        question=message("kind.question.missing_completion", "Which completion did not come?"),
        evidence=MissingEvidence,
        completion_class="missing",
        needs_expected_tokens=False,
    )
)
Kind.DUPLICATE_COMPLETION = register(
    KindRow(
        name="duplicate_completion",
        family=Family.SET,
        claim=message(
            "kind.claim.duplicate_completion", "{count} of {completions} completions are the same as another sample"
        ),
        title=message("kind.duplicate_completion", "the same sample twice"),
        question=message("kind.question.duplicate_completion", "Of which sample is it a copy?"),
        evidence=CopyOfSampleEvidence,
        needs_expected_tokens=False,
    )
)
Kind.LOGPROB_MISMATCH = register(
    KindRow(
        name="logprob_mismatch",
        family=Family.OUTPUT,
        claim=message(
            "kind.claim.logprob_mismatch", "{count} of {completions} completions came with logprobs that are wrong"
        ),
        title=message("kind.logprob_mismatch", "wrong logprobs"),
        question=message("kind.question.logprob_mismatch", "By how much, and at which tokens?"),
        evidence=LogprobEvidence,
    )
)
Kind.TEXT_MISMATCH = register(
    KindRow(
        name="text_mismatch",
        family=Family.OUTPUT,
        claim=message(
            "kind.claim.text_mismatch",
            "{count} of {completions} completions came with another text than that of the tokens",
        ),
        title=message("kind.text_mismatch", "text that is not its tokens"),
        question=message("kind.question.text_mismatch", "Where do text and tokens part?"),
        evidence=TextEvidence,
        needs_expected_tokens=False,
    )
)
Kind.INVALID_TOKEN = register(
    KindRow(
        name="invalid_token",
        family=Family.TOKENS,
        title=message("kind.invalid_token", "token ids outside the vocabulary"),
        question=message("kind.question.invalid_token", "Which ids?"),
        evidence=InvalidTokenEvidence,
        precedence=10,
        explains_rest=True,
    )
)
Kind.FORBIDDEN_TOKEN = register(
    KindRow(
        name="forbidden_token",
        family=Family.RULES,
        title=message("kind.forbidden_token", "a token that the request forbade"),
        question=message("kind.question.forbidden_token", "Which token, and which rule forbade it?"),
        evidence=RuleEvidence,
        precedence=14,
        explains_rest=True,
    )
)
Kind.GRAMMAR_VIOLATION = register(
    KindRow(
        name="grammar_violation",
        family=Family.RULES,
        title=message("kind.grammar_violation", "output that its grammar refuses"),
        question=message("kind.question.grammar_violation", "Where does it leave the grammar?"),
        evidence=RuleEvidence,
        precedence=16,
        explains_rest=True,
    )
)
Kind.INPUT_MISMATCH = register(
    KindRow(
        name="input_mismatch",
        family=Family.INPUT,
        title=message("kind.input_mismatch", "arms that were asked different things"),
        question=message("kind.question.input_mismatch", "What was each arm asked?"),
        evidence=InputEvidence,
    )
)
Kind.NONDETERMINISM = register(
    KindRow(
        name="nondeterminism",
        family=Family.SET,
        claim=message(
            "kind.claim.nondeterminism", "{count} of {completions} completions differ between rounds of the same batch"
        ),
        title=message("kind.nondeterminism", "another answer each time"),
        question=message("kind.question.nondeterminism", "Which rounds differ?"),
        evidence=RoundsEvidence,
    )
)
Kind.NUMERICS = register(
    KindRow(
        name="numerics",
        family=Family.RUN,
        claim=message("kind.claim.numerics", "the numerics of the run as a whole differ from the baseline's"),
        title=message("kind.numerics", "numerics that differ everywhere"),
        question=message("kind.question.numerics", "By how much, and is it more than rounding?"),
        evidence=NumericsEvidence,
    )
)
Kind.VIOLATION = register(
    KindRow(
        name="violation",
        family=Family.ENGINE,
        title=message("kind.violation", "bookkeeping that a step broke"),
        question=message("kind.question.violation", "Which step and row, and which two numbers?"),
        evidence=ViolationEvidence,
        panel="steps",
        precedence=5,
    )
)
Kind.LOCATED_FAULT = register(
    KindRow(
        name="located_fault",
        family=Family.ENGINE,
        claim=message(
            "kind.claim.located_fault",
            "in {count} of {completions} completions a module of the model gave what rounding does not explain, or "
            "another token came out than the model chose",
        ),
        title=message("kind.located_fault", "a fault inside the forward pass"),
        question=message("kind.question.located_fault", "Which module, at which token, by how much?"),
        evidence=LocatedEvidence,
        precedence=6,
    )
)
