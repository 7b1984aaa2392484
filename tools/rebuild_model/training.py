"""Training of the main model and of its MTP head. Both are bounded by wall-clock time."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from model import Head, build

BATCH, WINDOW = 16, 256
MTP_WINDOW, MTP_OWN = 192, 8
"""Tokens in a row of a batch; rows of a batch that are the model's own text."""
STEP_WEIGHTS = (1.0, 0.8, 0.6, 0.5)
"""Weight of each draft step's loss: a later draft counts only when those before it were accepted."""


def load_tokens(work: Path, name: str) -> torch.Tensor:
    return torch.from_numpy(np.fromfile(work / f"{name}.bin", dtype=np.uint16).astype(np.int64))


def train(work: Path, minutes: float) -> None:
    """Train the main model for `minutes`; writes `main.pt`."""
    torch.manual_seed(0)
    np.random.seed(0)
    config, model = build()
    model.train()
    data, held_out = load_tokens(work, "train"), load_tokens(work, "val")
    named = list(model.named_parameters())
    decayed = [p for name, p in named if p.dim() >= 2 and "embed" not in name]
    plain = [p for name, p in named if not (p.dim() >= 2 and "embed" not in name)]
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": 0.1},
        {"params": plain, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=4e-3, betas=(0.9, 0.95))
    batches = _windows(data)
    began, done = time.monotonic(), 0
    for part in _clock(minutes):
        _set_rate(optimizer, 4e-3, done, 60, part)
        tokens = next(batches)
        with torch.autocast("cpu", torch.bfloat16):
            output = model(input_ids=tokens[:, :-1], use_cache=False, output_router_logits=True)
        loss = F.cross_entropy(output.logits.float().view(-1, config.vocab_size), tokens[:, 1:].reshape(-1))
        (loss + 0.01 * output.aux_loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        done += 1
        if done % 50 == 0:
            rate = done * BATCH * WINDOW / (time.monotonic() - began)
            print(f"step {done}: loss {loss.item():.3f} nats, {rate:.0f} tokens/s", flush=True)
    loss_, accuracy = _validate(model, held_out)
    print(f"{done} steps: held-out loss {loss_:.3f} nats, top-1 {accuracy:.3f}")
    torch.save(model.state_dict(), work / "main.pt")


def train_head(work: Path, minutes: float, steps: int, rounds: int) -> None:
    """Train the head on corpus and on the model's own text; writes `mtp.pt`.

    `steps` draft steps are unrolled; `rounds` batches of 160 texts are generated, once, in `generated.pt`.
    """
    torch.manual_seed(1)
    config, main = build()
    main.load_state_dict(torch.load(work / "main.pt", weights_only=True))
    for parameter in main.parameters():  # the head must fit the model that is shipped, which is bf16
        parameter.data = parameter.data.bfloat16().float()
    main.eval().requires_grad_(False)
    data, held_out = load_tokens(work, "train"), load_tokens(work, "val")
    own = _generated(work, main, data, rounds)
    head = Head(config, main)
    optimizer = torch.optim.AdamW(head.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.02)
    corpus_view = torch.stack([held_out[i : i + MTP_WINDOW + 1] for i in range(0, 16 * MTP_WINDOW, MTP_WINDOW)])
    done = 0
    for part in _clock(minutes):
        _set_rate(optimizer, 3e-3, done, 30, part)
        starts = torch.randint(0, len(data) - MTP_WINDOW - 1, (BATCH - MTP_OWN,)).tolist()
        rows = torch.stack([data[i : i + MTP_WINDOW + 1] for i in starts])
        tokens = torch.cat([rows, own[16 + torch.randint(0, len(own) - 16, (MTP_OWN,))]])
        with torch.autocast("cpu", torch.bfloat16):
            drafted = head.unroll(main, tokens, steps)
        loss = torch.zeros(())
        for weight, (student, teacher) in zip(STEP_WEIGHTS, drafted, strict=False):
            logits, target = student.float(), teacher.float()
            soft = -(torch.softmax(target, -1) * torch.log_softmax(logits, -1)).sum(-1).mean()
            hard = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), target.argmax(-1).reshape(-1))
            loss = loss + weight * (soft + 0.5 * hard)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        done += 1
        if done % 50 == 0:
            print(f"step {done}: loss {loss.item():.2f}", flush=True)
    for name, view in (("held-out corpus", corpus_view), ("own text", own[:16])):
        shown = ", ".join(f"{rate:.3f}" for rate in _accepted(head, main, view, steps))
        print(f"{done} steps: {name}: drafts right up to and with step 1..{steps}: {shown}")
    torch.save(head.state_dict(), work / "mtp.pt")


def _clock(minutes: float) -> Iterator[float]:
    """The part of the time that has gone, until it is 1: at least one step."""
    began = time.monotonic()
    part = 0.0
    while part < 1.0:
        yield part
        part = (time.monotonic() - began) / 60 / minutes


def _set_rate(optimizer: torch.optim.Optimizer, peak: float, step: int, warm_up: int, part: float) -> None:
    """Linear warm-up over steps, cosine down to 3 % over the time."""
    rate = peak * min(1.0, (step + 1) / warm_up) * (0.5 * (1 + math.cos(math.pi * part)) * 0.97 + 0.03)
    for group in optimizer.param_groups:
        group["lr"] = rate


def _windows(data: torch.Tensor) -> Iterator[torch.Tensor]:
    """Batches [BATCH, WINDOW + 1] without end, each pass in another order and from another offset."""
    while True:
        starts = np.arange(np.random.randint(0, WINDOW), len(data) - WINDOW - 1, WINDOW)
        np.random.shuffle(starts)
        for first in range(0, len(starts) - BATCH + 1, BATCH):
            yield torch.stack([data[i : i + WINDOW + 1] for i in starts[first : first + BATCH]])


def _validate(model: Any, held_out: torch.Tensor) -> tuple[float, float]:
    """Mean loss in nats and top-1 accuracy over 40 windows."""
    model.eval()
    tokens = torch.stack([held_out[i : i + WINDOW + 1] for i in range(0, 40 * WINDOW, WINDOW)])
    losses, right = [], []
    with torch.no_grad():
        for rows in tokens.split(8):
            logits = model(input_ids=rows[:, :-1], use_cache=False).logits.float()
            losses.append(F.cross_entropy(logits.reshape(-1, logits.shape[-1]), rows[:, 1:].reshape(-1)).item())
            right.append((logits.argmax(-1) == rows[:, 1:]).float().mean().item())
    model.train()
    return sum(losses) / len(losses), sum(right) / len(right)


def _generated(work: Path, main: Any, data: torch.Tensor, rounds: int) -> torch.Tensor:
    """Text of the main model's own, greedy and sampled in turn: [160 * rounds, MTP_WINDOW + 1]."""
    path = work / "generated.pt"
    if path.exists():
        return torch.as_tensor(torch.load(path, weights_only=True))
    batches = []
    for index in range(rounds):
        length = int(torch.randint(4, 40, (1,)))
        starts = torch.randint(0, len(data) - MTP_WINDOW, (160,)).tolist()
        prompts = torch.stack([data[i : i + length] for i in starts])
        wanted = MTP_WINDOW + 1 - length
        how: dict[str, Any] = (
            {"do_sample": True, "temperature": 0.6, "top_k": 50} if index % 2 else {"do_sample": False}
        )
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            texts = main.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                max_new_tokens=wanted,
                min_new_tokens=wanted,
                eos_token_id=None,
                pad_token_id=0,
                **how,
            )
        batches.append(texts[:, : MTP_WINDOW + 1])
        print(f"generated {index + 1} of {rounds}", flush=True)
    own = torch.cat(batches)
    torch.save(own, path)
    return own


def _accepted(head: Head, main: Any, tokens: torch.Tensor, steps: int) -> list[float]:
    """For each step the share of positions where it and all steps before agree with the main model."""
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        drafted = head.unroll(main, tokens, steps)
    so_far = torch.ones_like(drafted[0][0].argmax(-1), dtype=torch.bool)
    rates = []
    for student, teacher in drafted:
        so_far = so_far & (student.argmax(-1) == teacher.argmax(-1))
        rates.append(so_far.float().mean().item())
    return rates
