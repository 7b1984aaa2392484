"""What arguments of `vllm.LLM` take, where that is a number, true or false, or an object, for before an engine starts.

Read from the annotations of `EngineArgs` and the bounds of the configurations in vLLM 0.23.0 and 0.32.0, and only where
both agree; `tests/engine/test_argument_table.py` holds it against the one that is installed. A name that does not stand
here takes what the engine says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from parity.errors import ParityError
from parity.messages import Message, message
from parity.records.engine_settings import OPEN, setting_called


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SWITCHES: Final = _names(
    """
    aggregate_engine_logging allow_deprecated_quantization async_scheduling calculate_kv_scales
    cudagraph_metrics data_parallel_external_lb data_parallel_hybrid_lb data_parallel_multi_port_external_lb
    dcp_q_replicate disable_cascade_attn disable_chunked_mm_input disable_custom_all_reduce
    disable_hybrid_kv_cache_manager disable_log_stats disable_nccl_for_dp_synchronization
    disable_sliding_window enable_batch_sharded_sampling enable_chunked_prefill enable_cumem_allocator
    enable_dbo enable_elastic_ep enable_ep_weight_filter enable_eplb enable_expert_parallel
    enable_fault_tolerance enable_flashinfer_autotune enable_hc_sp enable_layerwise_nvtx_tracing
    enable_logging_iteration_details enable_lora enable_mamba_cache_stochastic_rounding
    enable_mamba_shared_prefix_checkpoint enable_mfu_metrics enable_mixed_moe_lora_format enable_mm_embeds
    enable_mm_processor_stats enable_moe_shared_loras enable_nccl_comm_suspend enable_prefix_caching
    enable_prompt_embeds enable_return_routed_experts enable_shm_tensor_arena enable_sleep_mode
    enable_tower_connector_lora enable_trace_replay enforce_eager fail_on_environ_validation
    fully_sharded_loras interleave_mm_strings jit_monitor_verbose kv_cache_metrics kv_sharing_fast_prefill
    language_model_only long_prefill_token_threshold_adaptive mm_device_do_normalize mm_encoder_only numa_bind
    ray_workers_use_nsight return_sampling_mask scheduler_reserve_full_isl skip_mm_profiling
    skip_tokenizer_init sleep_mode_offload_cudagraph specialize_active_lora swa_bounded_replay tokens_only
    trust_remote_code use_fp64_gumbel use_replayssm
    """
)
"""`bool`, or `bool | None`."""

WHOLE: Final = _names(
    """
    block_size cp_kv_cache_interleave_size cpu_distributed_timeout_seconds data_parallel_rank
    data_parallel_rpc_port data_parallel_size data_parallel_size_local data_parallel_start_rank
    dbo_decode_token_threshold dbo_prefill_token_threshold dcp_kv_cache_interleave_size
    decode_context_parallel_size distributed_timeout_seconds dp_sync_interval elastic_ep_max_dp_size
    kv_cache_memory_bytes long_prefill_token_threshold mamba_block_size mamba_cache_philox_rounds master_port
    max_cpu_loras max_cudagraph_capture_size max_logprobs max_long_partial_prefills max_lora_cls_labels
    max_loras max_model_len max_num_active_seqs max_num_batched_tokens max_num_partial_prefills
    max_num_queued_reqs max_num_queued_tokens max_num_scheduled_tokens max_num_seqs
    max_parallel_loading_workers mm_shm_cache_max_object_size_mb nnodes node_rank num_gpu_blocks_override
    offload_group_size offload_num_in_group offload_prefetch_step pipeline_parallel_size
    prefill_context_parallel_size prefill_schedule_interval prefix_cache_retention_interval prefix_match_unit
    renderer_num_workers replayssm_buffer_len safetensors_prefetch_block_size safetensors_prefetch_num_threads
    seed shutdown_timeout spec_tokens stream_interval tensor_parallel_size ubatch_size
    """
)
"""`int`, or `int | None`."""

NUMBERS: Final = _names(
    """
    cpu_offload_gb gpu_memory_utilization kv_cache_metrics_sample kv_offloading_size
    mm_encoder_fp8_scale_save_margin mm_ipc_gpu_memory_gb mm_processor_cache_gb video_pruning_rate watermark
    """
)
"""`float`, or `float | None`."""

OBJECTS: Final = _names(
    """
    additional_config default_mm_loras limit_mm_per_prompt media_io_kwargs mm_processor_kwargs
    model_loader_extra_config override_generation_config speculative_config
    """
)
"""`dict`."""

POSITIVE: Final = _names(
    """
    block_size data_parallel_size decode_context_parallel_size mamba_block_size max_num_batched_tokens
    max_num_seqs max_parallel_loading_workers nnodes pipeline_parallel_size prefill_context_parallel_size
    stream_interval tensor_parallel_size
    """
)
"""Of the whole numbers those whose field says `ge=1` or `gt=0`."""

SHARES: Final = frozenset({"gpu_memory_utilization"})
"""Numbers whose field says `gt=0, le=1`."""

SHOWN: Final = 60
"""Characters of a value that are said again."""


def check_values(engine: Mapping[str, Any]) -> None:
    """Raises ParityError for the first value that its argument cannot take; None leaves it to the engine."""
    for name, value in engine.items():
        wanted = None if value is None else _wanted(name, value)
        if wanted is None:
            continue
        said = json.dumps(value, ensure_ascii=False, default=str)
        raise ParityError(
            message(
                "vllm.wrong_value",
                "vLLM's {name} takes {wanted}, and not {value}",
                name=name,
                wanted=wanted,
                value=said if len(said) <= SHOWN else f"{said[:SHOWN]}…",
            ),
            hint=message(
                "vllm.correct_value",
                "correct it where it is asked for (--engine, --vary, an option of its own, or parity.toml), such as "
                "`--engine {name}={example}`",
                name=name,
                example=_example(name),
            ),
        )


def _wanted(name: str, value: Any) -> Message | None:
    """What the argument takes, where this value is none of it."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    whole = number and value == value // 1  # the engine takes 64.0 for 64
    if name in SWITCHES and not isinstance(value, bool) and value not in (0, 1):
        return message("vllm.takes.switch", "true or false")
    if name in POSITIVE and not (whole and value > 0):
        return message("vllm.takes.positive", "a whole number from 1 on")
    if name in WHOLE and not whole:
        return message("vllm.takes.whole", "a whole number")
    if name in SHARES and not (number and 0 < value <= 1):
        return message("vllm.takes.share", "a number above 0 and up to 1")
    if name in NUMBERS and not number:
        return message("vllm.takes.number", "a number")
    if name in OBJECTS and not isinstance(value, Mapping):
        return message("vllm.takes.object", "an object in JSON")
    return None


def _example(name: str) -> str:
    if name in SWITCHES:
        return "true"
    if name in OBJECTS:
        return "'{}'"
    row = setting_called(name)
    if row is not None and row.default is not OPEN:
        return json.dumps(row.default)
    return "0.8" if name in NUMBERS else "1"
