"""Engine settings: one row each, and everything that is asked, read back, compared or said of one is a column of it.

    from parity.records.engine_settings import Setting, register

    register(Setting("top_secret", path="cache_config.top_secret", pinned=True, short="secret"))

What a plan must pin, what adapters of vLLM ask for by default, how the names of arms and `--vary` call a setting, what
the worker reads back from the engine, what a comparison of two headers and a report look at is derived from the rows.
The worker travels with this module in it: standard library only, Python 3.9 or newer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

COMPILATION_MODES = {"NONE": 0, "STOCK_TORCH_COMPILE": 1, "DYNAMO_TRACE_ONCE": 2, "VLLM_COMPILE": 3}
"""`CompilationConfig.mode` by name, and its number, which is also its predecessor `level` (vLLM 0.11.1 maps them)."""

OPEN = ...
"""No default of parity's own: what nobody asks for is left to the engine."""


class Setting(NamedTuple):
    """What parity knows of one setting of an engine.

    No dataclass: those need a module that can be imported, and the worker's text is run as it comes down a pipe.
    """

    name: str
    """As `--engine`, `--vary` and plans have it: an argument of `vllm.LLM`, dots lead into nested ones."""
    path: str = ""
    """Where `VllmConfig` has what came of it, attribute by attribute; "": not read back."""
    header: str = ""
    """The key in a capture's header; "": as `name`."""
    argument: str = ""
    """The argument of `vllm.LLM`, where it is not `name`."""
    short: str = ""
    """In the names of arms, for `--vary` and in tables; "": `name` itself."""
    aliases: tuple[str, ...] = ()
    """What `--vary` takes as well."""
    default: Any = OPEN
    """What every adapter of vLLM asks for."""
    pinned: bool = False
    """It changes numerics or scheduling: a plan in which an arm leaves it open is refused."""
    precision: bool = False
    """It changes how numbers are rounded."""
    kernels: bool = False
    """It chooses other kernels, whose sums are rounded in another order; so does what changes precision."""
    checked: bool = True
    """What was asked must be what is read back."""
    local: bool = False
    """It differs between any two hosts, or others already speak of it: no difference worth a note."""
    decides: bool = False
    """It has decided faults before: reports name the value that was run as the only one."""
    tells_apart: bool = True
    """Tables name it where arms differ in it."""
    may_be_unknown: bool = False
    """A version that has nothing of the kind does what was asked all the same."""
    of_mamba: bool = False
    """Of mamba layers and their kin: a model without any has nothing of it, whatever the engine's default says."""
    in_script: bool = True
    """A script that reproduces a case passes it on."""
    rung: bool = False
    """How an engine runs a model, beside what it runs: pinned arms keep their own value beside a deployment. A ladder
    goes from theirs to the deployment's, one at a time of those that decide."""
    indispensable: bool = False
    """Without it an arm could not be compared: the variant `deployed` has it too."""
    production: Any = OPEN
    """What vLLM chooses by itself on CUDA from 0.29 on, where that is known and not what parity pins."""

    @property
    def key(self) -> str:
        """In a capture's header."""
        return self.header or self.name

    @property
    def asked(self) -> str:
        """Among the arguments of `vllm.LLM`."""
        return self.argument or self.name


_ROWS: dict[str, Setting] = {
    row.name: row
    for row in (
        Setting("speculative_config", decides=True, checked=False, rung=True),
        Setting(
            "speculative_method",
            "speculative_config.method",
            argument="speculative_config.method",
            tells_apart=False,
        ),
        Setting(
            "num_speculative_tokens",
            "speculative_config.num_speculative_tokens",
            argument="speculative_config.num_speculative_tokens",
            short="k",
        ),
        Setting(
            "async_scheduling", "scheduler_config.async_scheduling", short="async",
            default=False, pinned=True, decides=True, rung=True, production=True,
        ),
        Setting(
            "enable_prefix_caching", "cache_config.enable_prefix_caching", short="prefix",
            # With MTP the aligned mamba cache that hybrid models need is a Triton kernel: none on CPU.
            default=False, pinned=True, decides=True, rung=True, production=True,
        ),
        Setting(
            "enable_chunked_prefill", "scheduler_config.enable_chunked_prefill", short="chunked",
            default=True, pinned=True, decides=True, rung=True,
        ),
        Setting(
            "enforce_eager", "model_config.enforce_eager", short="eager",
            default=True, pinned=True, decides=True, rung=True, production=False,
        ),
        Setting(
            "compilation_config.cudagraph_mode", "compilation_config.cudagraph_mode", "cudagraph_mode",
            short="graph", decides=True,
        ),
        Setting(
            "compilation_config.mode", "compilation_config.mode", "compilation_mode",
            short="compile", decides=True, kernels=True,
        ),
        Setting(
            "compilation_config.level", "compilation_config.level", "compilation_level",
            checked=False, kernels=True,
        ),
        Setting(
            "compilation_config.backend", "compilation_config.backend", "compilation_backend",
            checked=False, kernels=True,
        ),
        Setting(
            "compilation_config.cudagraph_capture_sizes", "compilation_config.cudagraph_capture_sizes",
            "cudagraph_capture_sizes",
        ),
        Setting("compilation_config", decides=True, checked=False, tells_apart=False, in_script=False, rung=True),
        Setting("max_cudagraph_capture_size", decides=True, rung=True),
        Setting("optimization_level", decides=True, rung=True),
        Setting("use_v2_model_runner", local=True, in_script=False, tells_apart=False, production=True),
        Setting("mamba_cache_mode", "cache_config.mamba_cache_mode", decides=True, rung=True, of_mamba=True),
        Setting(
            # float32 does not run on a CPU: "CPU GDN attention requires BF16".
            "dtype", "model_config.dtype", default="bfloat16", pinned=True, precision=True, decides=True,
        ),
        Setting(
            "max_num_seqs", "scheduler_config.max_num_seqs", short="seqs",
            default=64, pinned=True, decides=True, rung=True,
        ),
        Setting(
            "max_num_batched_tokens", "scheduler_config.max_num_batched_tokens", short="batched",
            default=2048, pinned=True, decides=True, rung=True,
        ),
        Setting(
            "tensor_parallel_size", "parallel_config.tensor_parallel_size", short="tp", default=1, decides=True,
            kernels=True,
        ),
        Setting(
            "pipeline_parallel_size", "parallel_config.pipeline_parallel_size", short="pp", decides=True,
            kernels=True,
        ),
        Setting("data_parallel_size", "parallel_config.data_parallel_size", short="dp", decides=True),
        Setting(
            # Of gated delta networks; what came of it is the layer's own, not VllmConfig's (`worker/rows.py`).
            "gdn_prefill_backend", "chunk_gated_delta_rule.gdn_prefill_backend", short="gdn",
            kernels=True, decides=True, may_be_unknown=True,
        ),
        # What the layers came to, whoever chose it (`worker/rows.py`).
        Setting("attention_backends", decides=True, in_script=False, kernels=True),
        Setting("model_runner", decides=True, tells_apart=False, in_script=False, kernels=True),
        Setting("max_model_len", "model_config.max_model_len", short="len", default=1024, pinned=True, rung=True),
        Setting("seed", "model_config.seed", default=0, pinned=True, local=True, rung=True),
        # Else the checkpoint's own sampling defaults leak in.
        Setting(
            "generation_config", "model_config.generation_config", default="vllm", pinned=True, indispensable=True
        ),
        # The only mode that Ascend's V1 runner knows.
        Setting("logprobs_mode", "model_config.logprobs_mode", default="raw_logprobs"),
        Setting("max_logprobs", "model_config.max_logprobs", default=20, checked=False, tells_apart=False),
        # The counters of drafts and preemptions.
        Setting("disable_log_stats", default=False, in_script=False, indispensable=True),
        Setting("quantization", "model_config.quantization", short="quant", precision=True),
        Setting("kv_cache_dtype", "cache_config.cache_dtype", precision=True),
        Setting("mamba_cache_dtype", "cache_config.mamba_cache_dtype", precision=True, checked=False, of_mamba=True),
        Setting(
            "mamba_ssm_cache_dtype", "cache_config.mamba_ssm_cache_dtype", precision=True, checked=False, of_mamba=True,
        ),
        Setting("block_size", "cache_config.block_size"),
        Setting("num_gpu_blocks_override", short="blocks", aliases=("kv_blocks",), rung=True),
        Setting("gpu_memory_utilization", rung=True),
        Setting("scheduling_policy", "scheduler_config.policy", rung=True),
        Setting(
            "distributed_executor_backend", "parallel_config.distributed_executor_backend", "executor",
            short="executor", checked=False, local=True,
        ),
        Setting(
            "worker_cls", "parallel_config.worker_cls", "worker",
            checked=False, local=True, tells_apart=False, in_script=False,
        ),
        Setting("device", "device_config.device_type", checked=False, local=True, in_script=False),
        Setting("multiprocessing", local=True, in_script=False),
        Setting("trust_remote_code"),
        Setting("per_request_spec_decode_metrics", tells_apart=False, may_be_unknown=True, in_script=False, rung=True),
        Setting("swap_space", may_be_unknown=True, in_script=False),
    )
}  # fmt: skip


def register(row: Setting) -> Setting:
    """Adds a setting. Raises ValueError for a name that is taken."""
    if row.name in _ROWS:
        raise ValueError(f"the engine setting {row.name!r} exists already")
    _ROWS[row.name] = row
    return row


def forget(row: Setting) -> None:
    """Undo `register`."""
    del _ROWS[row.name]


def engine_settings() -> list[Setting]:
    """All rows, in the order in which reports name them."""
    return list(_ROWS.values())


def setting_called(text: str) -> Setting | None:
    """The setting with this name, argument, header key, short name or alias; None for one that has no row."""
    if text in _ROWS:
        return _ROWS[text]
    for row in _ROWS.values():
        if text in (row.asked, row.key, row.short, *row.aliases):
            return row
    return None


def default_settings() -> dict[str, Any]:
    """Arguments of `vllm.LLM` that every adapter of vLLM asks for."""
    return {row.asked: row.default for row in _ROWS.values() if row.default is not OPEN}


def ours_beside_a_deployment(argument: str) -> bool:
    """Whether pinned arms keep their own value of this argument of `vllm.LLM` beside a deployment that has another."""
    row = setting_called(argument)
    return row is not None and row.rung


def indispensable_settings() -> dict[str, Any]:
    """Arguments of `vllm.LLM` without which an arm could not be compared, however it is deployed."""
    return {row.asked: row.default for row in _ROWS.values() if row.indispensable}


def pinned_settings() -> list[str]:
    """Names of the settings that a plan must not leave open."""
    return [row.name for row in _ROWS.values() if row.pinned]


SPECULATION = ("speculative_config", "per_request_spec_decode_metrics")
"""Arguments of `vllm.LLM` that mean speculation, and nothing without it."""


def without_speculation(engine: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the same engine with speculation off."""
    return {name: value for name, value in engine.items() if name not in SPECULATION}


def asked_of(engine: Mapping[str, Any]) -> Mapping[str, Any]:
    """What was asked of an engine, by the header of its capture; {} where that does not say."""
    asked = engine.get("asked")
    return asked if isinstance(asked, Mapping) else {}


def cudagraph_mode(engine: Mapping[str, Any]) -> Any:
    """What is asked of CUDA graphs; None: left to the engine."""
    compilation = engine.get("compilation_config")
    return compilation.get("cudagraph_mode") if isinstance(compilation, Mapping) else None


def speculative_settings(engine: Mapping[str, Any]) -> dict[str, Any]:
    """`method`, `num_speculative_tokens` and what else is known of an engine's speculation; {} without it.

    From a plan's arguments of `vllm.LLM`, from a capture's header (what it resolved to wins over what was asked), or
    from what other writers made of these.
    """
    found: dict[str, Any] = {}
    for source in (asked_of(engine), engine):
        nested = source.get("speculative_config")
        found.update(nested if isinstance(nested, Mapping) else {"method": nested} if nested else {})
        flat = {"method": "speculative_method", "num_speculative_tokens": "num_speculative_tokens"}
        found.update({name: source[key] for name, key in flat.items() if source.get(key) is not None})
    return found


def speculates(engine: Mapping[str, Any]) -> bool:
    """Did the engine set out to speculate?"""
    return any(speculative_settings(engine).values())


def draft_tokens(engine: Mapping[str, Any]) -> int:
    """Tokens that an engine drafts a step; 0 without speculation, and where it does not say."""
    tokens = speculative_settings(engine).get("num_speculative_tokens")
    return tokens if isinstance(tokens, int) and not isinstance(tokens, bool) else 0
