"""What parity reads of an engine, as rows: tools/make_engine_contract.py looks for each in every release."""

from __future__ import annotations

from typing import NamedTuple


class Owner(NamedTuple):
    """A class that parity reads from, and what it reads of it."""

    section: str
    files: tuple[str, ...]
    """Where it was in one release or another, from the package's root."""
    name: str
    reads: tuple[str, ...]
    ascend: tuple[str, str] = ("", "")
    """File and name of the class that vllm-ascend puts in its place."""
    defaults: bool = False
    """The default of each field is a part of what is read."""


RUNNER = (
    "_draft_token_ids", "_generate_process_reqs_hidden_states", "_model_forward", "_prepare_inputs", "_sample",
    "attn_groups", "compilation_config", "device", "discard_request_indices", "discard_request_mask",
    "drafter", "execute_model", "get_model", "input_batch", "input_ids", "kv_cache_config", "max_model_len", "model",
    "model_config",
    "num_discarded_requests", "positions", "query_start_loc", "requests", "sample_tokens", "speculative_config",
    "use_async_scheduling", "vllm_config",
)  # fmt: skip

READS = (
    Owner(
        "model runner", ("vllm/v1/worker/gpu_model_runner.py",), "GPUModelRunner", RUNNER,
        ("vllm_ascend/worker/model_runner_v1.py", "NPUModelRunner"),
    ),
    Owner(
        "second model runner", ("vllm/v1/worker/gpu/model_runner.py",), "GPUModelRunner",
        ("attn_groups", "device", "execute_model", "kv_cache_config", "load_model", "max_model_len", "model",
         "model_state", "prepare_attn", "prepare_inputs", "req_states", "sample", "sample_tokens", "speculative_config",
         "speculator", "vllm_config"),
        ("vllm_ascend/worker/v2/model_runner.py", "NPUModelRunner"),
    ),
    Owner(
        "batch", ("vllm/v1/worker/gpu_input_batch.py",), "InputBatch",
        ("block_table", "num_accepted_tokens_cpu", "num_computed_tokens_cpu", "num_reqs", "num_tokens_no_spec",
         "req_id_to_index", "req_ids", "token_ids_cpu"),
        ("vllm_ascend/worker/npu_input_batch.py", "NPUInputBatch"),
    ),
    Owner(
        "batch of the second runner", ("vllm/v1/worker/gpu/input_batch.py",), "InputBatch",
        ("cu_num_logits_np", "idx_mapping", "input_ids", "is_prefilling_np", "logits_indices", "num_draft_tokens",
         "num_draft_tokens_per_req", "num_reqs_after_padding", "num_tokens", "num_tokens_after_padding", "positions",
         "query_start_loc", "query_start_loc_np", "req_ids"),
    ),
    Owner(
        "requests of the second runner", ("vllm/v1/worker/gpu/states.py",), "RequestState",
        ("all_token_ids", "draft_tokens", "req_id_to_index", "total_len"),
    ),
    Owner(
        "tokens of the second runner", ("vllm/v1/worker/gpu/sample/output.py",), "SamplerOutput",
        ("num_sampled", "sampled_token_ids"),
    ),
    Owner(
        "output of the second runner", ("vllm/v1/worker/gpu/async_utils.py",), "AsyncOutput", ("get_output",),
    ),
    Owner(
        "states of a hybrid model in the second runner", ("vllm/v1/worker/gpu/model_states/mamba_hybrid.py",),
        "MambaHybridModelState", ("num_accepted_tokens_gpu", "prepare_attn"),
    ),
    Owner(
        "request", ("vllm/v1/worker/gpu_input_batch.py",), "CachedRequestState",
        ("output_token_ids", "prompt_token_ids", "req_id"),
    ),
    Owner(
        "step", ("vllm/v1/core/sched/output.py",), "SchedulerOutput",
        ("finished_req_ids", "num_scheduled_tokens", "scheduled_cached_reqs", "scheduled_new_reqs",
         "scheduled_spec_decode_tokens", "total_num_scheduled_tokens"),
    ),
    Owner(
        "new requests of a step", ("vllm/v1/core/sched/output.py",), "NewRequestData",
        ("block_ids", "num_computed_tokens", "prompt_token_ids", "req_id", "sampling_params"),
    ),
    Owner(
        "requests of the runner", ("vllm/v1/worker/gpu_input_batch.py",), "CachedRequestState", ("block_ids",),
        ("vllm_ascend/worker/npu_input_batch.py", "CachedRequestState"),
    ),
    Owner(
        "attention layers",
        ("vllm/model_executor/layers/attention/attention.py", "vllm/attention/layer.py"), "Attention",
        ("head_size", "impl", "kv_cache", "num_kv_heads"),
    ),
    Owner(
        "attention on a CPU", ("vllm/v1/attention/backends/cpu_attn.py",), "CPUAttentionBackendImpl",
        ("do_kv_cache_update",),
    ),
    Owner(
        "running requests of a step", ("vllm/v1/core/sched/output.py",), "CachedRequestData",
        ("new_block_ids", "num_computed_tokens", "req_ids", "resumed_from_preemption", "resumed_req_ids"),
    ),
    Owner(
        "scheduler", ("vllm/v1/core/sched/scheduler.py",), "Scheduler",
        ("add_request", "schedule", "update_from_output", "waiting"),
    ),
    Owner("output of the runner", ("vllm/v1/outputs.py",), "ModelRunnerOutput",
          ("req_id_to_index", "sampled_token_ids")),
    Owner("block table", ("vllm/v1/worker/block_table.py",), "BlockTable", ("block_size", "block_table")),
    Owner("block tables", ("vllm/v1/worker/block_table.py",), "MultiGroupBlockTable", ("block_tables",)),
    Owner(
        "forward context", ("vllm/forward_context.py",), "ForwardContext",
        ("attn_metadata", "batch_descriptor", "cudagraph_runtime_mode"),
    ),
    Owner("worker", ("vllm/v1/worker/worker_base.py", "vllm/worker/worker_base.py"), "WorkerWrapperBase",
          ("init_device",)),
    Owner(
        "drafts", ("vllm/v1/spec_decode/metadata.py",), "SpecDecodeMetadata",
        ("bonus_logits_indices", "draft_token_ids", "logits_indices", "num_draft_tokens"),
    ),
    Owner("sampled", ("vllm/v1/outputs.py",), "SamplerOutput", ("logprobs_tensors", "sampled_token_ids")),
    Owner("sampler", ("vllm/v1/sample/sampler.py",), "Sampler", ("compute_logprobs",)),
    Owner(
        "rejection sampler", ("vllm/v1/sample/rejection_sampler.py",), "RejectionSampler", ("parse_output",),
    ),
    Owner(
        "gated delta network", ("vllm/v1/attention/backends/gdn_attn.py",), "GDNAttentionMetadata",
        ("has_initial_state", "non_spec_state_indices_tensor", "non_spec_token_indx", "num_accepted_tokens",
         "num_decodes", "num_spec_decodes", "spec_sequence_masks",
         "spec_sequence_masks_cpu", "spec_state_indices_tensor", "spec_token_indx"),
    ),
    Owner(
        "prefill of gated delta networks",
        (
            "vllm/model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py",
            "vllm/model_executor/layers/mamba/gdn_linear_attn.py",
            "vllm/model_executor/models/qwen3_next.py",
        ),
        "ChunkGatedDeltaRule", ("_forward_method", "gdn_prefill_backend"),
    ),
    Owner(
        "output of a step", ("vllm/v1/engine/__init__.py",), "EngineCoreOutput",
        ("finish_reason", "new_logprobs", "new_token_ids", "request_id"),
    ),
    Owner("output", ("vllm/outputs.py",), "RequestOutput", ("finished", "outputs", "prompt_logprobs", "request_id")),
    Owner(
        "completion", ("vllm/outputs.py",), "CompletionOutput",
        ("finish_reason", "index", "logprobs", "spec_decode_metrics", "stop_reason", "text", "token_ids"),
    ),
    Owner(
        "engine", ("vllm/v1/engine/llm_engine.py",), "LLMEngine",
        ("abort_request", "add_request", "collective_rpc", "engine_core", "get_num_unfinished_requests",
         "has_unfinished_requests", "model_executor", "step", "vllm_config"),
    ),
    Owner(
        "LLM", ("vllm/entrypoints/llm.py", "vllm/entrypoints/offline_utils.py"), "LLM", ("get_metrics", "llm_engine"),
    ),
    Owner("core in this process", ("vllm/v1/engine/core_client.py",), "InprocClient", ("collective_rpc", "shutdown")),
    Owner(
        "stop strings", ("vllm/v1/engine/detokenizer.py",), "BaseIncrementalDetokenizer",
        ("__init__", "stop", "stop_buffer_length"),
    ),
    Owner(
        "configuration", ("vllm/config/cache.py", "vllm/config/__init__.py"), "CacheConfig",
        ("block_size", "cache_dtype", "enable_prefix_caching", "gpu_memory_utilization", "mamba_cache_dtype",
         "mamba_cache_mode", "mamba_ssm_cache_dtype"), defaults=True,
    ),
    Owner(
        "configuration", ("vllm/config/scheduler.py", "vllm/config/__init__.py"), "SchedulerConfig",
        ("async_scheduling", "enable_chunked_prefill", "max_num_batched_tokens", "max_num_seqs", "policy"),
        defaults=True,
    ),
    Owner(
        "configuration", ("vllm/config/model.py", "vllm/config/__init__.py"), "ModelConfig",
        ("dtype", "enforce_eager", "generation_config", "get_vocab_size", "has_inner_state", "logprobs_mode",
         "max_logprobs", "max_model_len", "quantization", "seed"), defaults=True,
    ),
    Owner(
        "configuration", ("vllm/config/parallel.py", "vllm/config/__init__.py"), "ParallelConfig",
        ("data_parallel_size", "distributed_executor_backend", "pipeline_parallel_size", "rank", "tensor_parallel_size",
         "worker_cls"), defaults=True,
    ),
    Owner(
        "configuration", ("vllm/config/compilation.py", "vllm/config/__init__.py"), "CompilationConfig",
        ("backend", "cudagraph_capture_sizes", "cudagraph_mode", "level", "mode", "static_forward_context"),
        defaults=True,
    ),
    Owner(
        "configuration", ("vllm/config/speculative.py", "vllm/config/__init__.py"), "SpeculativeConfig",
        ("method", "num_speculative_tokens"), defaults=True,
    ),
    Owner("configuration", ("vllm/config/device.py", "vllm/config/__init__.py"), "DeviceConfig", ("device_type",)),
    Owner(
        "configuration", ("vllm/config/vllm.py", "vllm/config/__init__.py"), "VllmConfig",
        ("additional_config", "cache_config", "compilation_config", "device_config", "model_config", "parallel_config",
         "scheduler_config", "speculative_config", "use_v2_model_runner"),
    ),
)  # fmt: skip

COUNTERS_IN = ("vllm/v1/metrics/loggers.py", "vllm/v1/spec_decode/metrics.py")
COUNTERS = (
    "vllm:generation_tokens", "vllm:num_preemptions", "vllm:prefix_cache_hits", "vllm:prefix_cache_queries",
    "vllm:prompt_tokens", "vllm:spec_decode_num_accepted_tokens", "vllm:spec_decode_num_accepted_tokens_per_pos",
    "vllm:spec_decode_num_draft_tokens", "vllm:spec_decode_num_drafts",
)  # fmt: skip
