"""Which modules of a model are sketched, and what of their output is the vector of a token."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Optional

LAYERS = "layers"
PARTS = "parts"
"""How much is sketched: decoder layers and their routers, or their other parts too."""

DECODER_LAYER = re.compile(r"(?:^|\.)(?:(?:mtp_)?layers|h|blocks)\.\d+$")
NORM = re.compile(r"norm|(?:^|\.)ln", re.IGNORECASE)

OUTPUT = "output"
LOGITS = "logits"
HANDED = "hidden_states"
"""Names of what is no module of its own: the last hidden states, the logits, and what a drafter is handed."""

DRAFTER = "drafter."
"""Before the path of a drafter's module."""
SHARED = ("VocabParallelEmbedding", "ParallelLMHead", "LogitsProcessor", "ModuleList")
"""Classes that a drafter has in common with its target, or that are no part of their own; others end in the same."""


class Sketched(NamedTuple):
    """A module that is sketched."""

    name: str
    """Its path in the model."""
    role: str
    """"layer", "norm", "router", "part", "output" or "logits"."""
    module: Any = None
    experts: int = 0
    """Of a router: how many experts a token has; 0 where its choice cannot be known from its logits alone."""


def sketched_modules(model: Any, level: str) -> list[Sketched]:
    """Decoder layers with their routers and direct parts, in the order in which they run: parts before their layer.

    Routers come with `layers` too: another choice of experts at a near-tie is no fault, and nothing else shows it."""
    named = dict(model.named_modules())
    layers = [name for name in named if DECODER_LAYER.search(name) and ".experts." not in name]
    layers = [name for name in layers if not any(name.startswith(other + ".") for other in layers if other != name)]
    found: list[Sketched] = []
    for layer in layers:
        for child, module in named[layer].named_children():
            path = layer + "." + child
            found += _routers(path, module)
            if level == PARTS:
                found.append(Sketched(path, "norm" if NORM.search(child) else "part", module))
        found.append(Sketched(layer, "layer", named[layer]))
    return [*found, Sketched(OUTPUT, "output", model)]


def drafter_modules(model: Any, level: str) -> list[Sketched]:
    """Those of a drafter, and what stands beside its layers; first the hidden states that it is handed."""
    found = sketched_modules(model, level)
    named, layers = dict(model.named_modules()), [one.name for one in found if one.role == "layer"]
    beside = []
    for owner in dict.fromkeys(name.rpartition(".")[0].rpartition(".")[0] for name in layers):
        for child, module in named[owner].named_children():
            if level == PARTS and not type(module).__name__.endswith(SHARED):
                path = owner + "." * bool(owner) + child
                beside.append(Sketched(path, "norm" if NORM.search(child) else "part", module))
    handed = Sketched(HANDED, "part")
    return [one._replace(name=DRAFTER + one.name) for one in (handed, *beside, *found)]


def _routers(path: str, block: Any) -> list[Sketched]:
    """The router of a block of experts."""
    gate, experts = getattr(block, "gate", None), getattr(block, "experts", None)
    if not (hasattr(gate, "register_forward_hook") and experts is not None):
        return []
    return [Sketched(path + ".gate", "router", gate, _plain_choice(gate, experts))]


def _plain_choice(gate: Any, experts: Any) -> int:
    """Experts of a token where those of the largest logits are chosen, else 0: groups of experts and a correction of
    the scores choose otherwise."""
    holders = [experts, getattr(experts, "router", None), getattr(experts, "moe_config", None), gate]
    for holder in holders:
        if getattr(holder, "use_grouped_topk", False) or getattr(holder, "custom_routing_function", None):
            return 0
        if getattr(holder, "e_score_correction_bias", None) is not None:
            return 0
    counts = [getattr(holder, name, None) for holder in holders for name in ("top_k", "experts_per_token")]
    return next((int(one) for one in counts if isinstance(one, int)), 0)


def token_vectors(role: str, given: Any, args: Any, kwargs: Any) -> Optional[Any]:
    """What a module gave for each token, shape (tokens, width); None where no tensor is to be seen.

    A decoder layer carries its sum as two streams, hidden states and residual (vllm/model_executor/models): they are
    added. A norm gives the residual beside its output. What gives nothing writes into an argument.
    """
    import torch

    def fits(one: Any) -> bool:
        return isinstance(one, torch.Tensor) and one.dim() >= 2 and one.is_floating_point()

    found = [one for one in (given if isinstance(given, (tuple, list)) else (given,)) if fits(one)]
    if not found:
        written = kwargs.get("output")
        found = [written] if fits(written) else [one for one in args if fits(one)][-1:]
    if not found:
        return None
    first = found[0].reshape(found[0].shape[0], -1)
    if role == "layer" and len(found) > 1 and found[1].shape == found[0].shape:
        return first.float() + found[1].reshape(first.shape).float()
    return first
