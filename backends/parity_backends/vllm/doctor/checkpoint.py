"""Checks of the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parity.messages import message
from parity.records.objects import texts_of
from parity.run.checks import Check
from parity_backends.vllm.doctor.hardware import Hardware
from parity_backends.vllm.doctor.said import Facts, note, ok, problem


def model_checks(hardware: Hardware, facts: Facts, model: Any) -> Iterator[Check]:
    if not isinstance(model, Mapping) or model.get("error"):
        said = model.get("error") if isinstance(model, Mapping) else model
        yield problem(
            message("vllm.model", "model"),
            message("vllm.cannot_read", "cannot be read: {said}", said=said),
            message(
                "vllm.name_directory_host",
                "name its directory on that host: --model-path {hardware}=DIR",
                hardware=hardware.name,
            ),
        )
        return
    architectures = model.get("architectures")
    yield ok(
        message("vllm.model", "model"),
        message(
            "vllm.tensors",
            "{unknown}, {model} tensors",
            unknown=[*map(str, architectures or ["unknown"])],
            model=model.get("tensors"),
        ),
    )
    if model.get("unreadable"):
        yield problem(
            message("vllm.model", "model"),
            message("vllm.not_readable", "not readable: {unreadable}", unreadable=[*map(str, model["unreadable"])]),
            message("vllm.mend_permissions_chmod", "mend the permissions (chmod +r)"),
        )
    layers, tensors = model.get("mtp_layers") or 0, model.get("mtp_tensors") or 0
    if tensors and layers:
        yield ok(
            message("vllm.mtp_layers", "MTP layers"),
            message(
                "vllm.configuration_tensors",
                "{layers} in the configuration, {tensors} tensors",
                layers=layers,
                tensors=tensors,
            ),
        )
    elif layers:
        yield problem(
            message("vllm.mtp_layers", "MTP layers"),
            message("vllm.configuration_no_weights", "{layers} in the configuration, no weights", layers=layers),
            message("vllm.checkpoint_saved_without", "this checkpoint was saved without them: take the original one"),
        )
    elif tensors:
        words = message(
            "vllm.layers_unsaid",
            "{tensors} tensors; config.json does not say how many layers: an engine takes one",
            tensors=tensors,
        )
        yield note(
            message("vllm.mtp_layers", "MTP layers"),
            words,
            message("vllm.num_nextn_predict", "num_nextn_predict_layers in config.json says it"),
        )
    else:
        yield problem(
            message("vllm.mtp_layers", "MTP layers"),
            message("vllm.none", "none"),
            message(
                "vllm.variant_needs_checkpoint",
                "a variant `mtp` needs a checkpoint with prediction layers; `base` runs",
            ),
        )
    if model.get("quantization") or model.get("modelslim"):
        yield note(
            message("vllm.quantization", "quantization"),
            model.get("quantization") or "ModelSlim",
            message(
                "vllm.compare_bf_bf", "compare BF16 with BF16: quantised checkpoints have no twin on other hardware"
            ),
        )
    if model.get("sampling_defaults"):
        yield note(
            message("vllm.sampling_defaults", "sampling defaults"),
            message(
                "vllm.generation_config_json",
                "{sampling_defaults} in generation_config.json",
                sampling_defaults=model["sampling_defaults"],
            ),
            message("vllm.parity_leaves_them", "parity leaves them out (generation_config=vllm); a server may not"),
        )
    if model.get("linear_attention") and texts_of(facts.get("variables")).get("VLLM_BATCH_INVARIANT") == "1":
        yield problem(
            "VLLM_BATCH_INVARIANT",
            message("vllm.model_linear_attention", "1, and the model has linear attention (GDN)"),
            message("vllm.unset_vllm_aborts", "unset it: vLLM aborts such models with it (vllm#42960)"),
        )
