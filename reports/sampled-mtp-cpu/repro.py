#!/usr/bin/env python3
"""The cause, without an engine or a checkpoint: vLLM's own rejection sampling on made-up logits, as it is and mended.

    python repro.py

Needs vLLM's CPU build, Python 3.9 or newer. Exit code 1: as it is, tokens are not drawn from softmax(logits / T), and
with the one function mended they are. 0: they are drawn from it as it is. 2: neither of the two.

4,096 requests have the same logits and the same drafts (the likeliest token each time), so what comes out at a
position behind accepted drafts is 4,096 draws or fewer from one known distribution.
"""

import sys
from types import SimpleNamespace

import numpy
import torch
from vllm.platforms import current_platform

current_platform.import_kernels()

import vllm.v1.sample.rejection_sampler as sampler  # noqa: E402
from vllm.utils import cpu_triton_utils  # noqa: E402

ROWS, VOCABULARY = 4096, 32
FAR = 1.5  # times the farthest of 1,000 simulated draws
AS_IT_IS = cpu_triton_utils._expand_kernel_impl


def mended(output, input_val, cu_num_tokens, replace_from, replace_to, MAX_NUM_TOKENS=None):
    """What the Triton kernel does, into the caller's tensor and with its dtype."""
    lengths = torch.diff(cu_num_tokens.long(), prepend=torch.zeros(1, dtype=torch.long))
    values = torch.where(input_val == replace_from, torch.full_like(input_val, replace_to), input_val)
    output.copy_(values.repeat_interleave(lengths))


def use(function):
    """Have expand_batch_to_tokens call this function where it would call AS_IT_IS."""
    if hasattr(sampler, "_expand"):  # from 0.31 on, with a dispatcher
        sampler._expand.kernel._impl = function
    else:
        sampler.expand_kernel = cpu_triton_utils._FuncWrapper(function)


def register():
    """The CPU's stand-ins for Triton kernels, as the CPU's model runner puts them in place."""
    if hasattr(sampler, "_expand"):
        current_platform.register_triton_kernel_overrides()
        return
    for name in ("rejection_greedy_sample_kernel", "rejection_random_sample_kernel", "sample_recovered_tokens_kernel"):
        setattr(sampler, name, getattr(cpu_triton_utils, name))


def sampled(temperature, k, seeded):
    """How far from softmax(logits / temperature), at the worst of k positions, as a multiple of what chance does.

    And the share of first drafts accepted, with the probability of the draft, which it should be.
    """
    source = torch.Generator().manual_seed(1)
    logits = torch.randn(k, VOCABULARY, generator=source) * 2
    drafts = logits.argmax(-1).to(torch.int32)
    ends = torch.arange(k, ROWS * k + 1, k, dtype=torch.int32)
    generators = {row: torch.Generator().manual_seed(10_000 + row) for row in range(ROWS)} if seeded else {}
    metadata = SimpleNamespace(
        all_greedy=False, all_random=True, temperature=torch.full((ROWS,), temperature), generators=generators,
        top_k=None, top_p=None,
    )  # fmt: skip
    target = sampler.apply_sampling_constraints(logits.repeat(ROWS, 1), ends, metadata)
    bonus = torch.zeros(ROWS, 1, dtype=torch.long)
    found = sampler.rejection_sample(drafts.repeat(ROWS), [k] * ROWS, k, ends, None, target, bonus, metadata)
    worst, alive = 0.0, torch.ones(ROWS, dtype=torch.bool)
    for position in range(k):
        drawn = found[alive, position].numpy()
        drawn = drawn[drawn >= 0]  # nothing: the token before was a draft drawn again in its own place
        expected = (logits[position].double() / temperature).softmax(-1).numpy()
        if len(drawn) >= 200:
            shares = numpy.bincount(drawn, minlength=VOCABULARY) / len(drawn)
            chance = numpy.random.default_rng(0).multinomial(len(drawn), expected, size=1000) / len(drawn)
            by_chance = numpy.abs(chance - expected).sum(1).max()
            worst = max(worst, float(numpy.abs(shares - expected).sum() / by_chance))
        if position == 0:
            accepted, theory = float((drawn == int(drafts[0])).mean()), float(expected.max())
        alive = alive & (found[:, position] == drafts[position])
    return worst, accepted, theory


def greedy_beside_sampled():
    """Share of greedy requests that get their likeliest token, where every other request of the batch samples."""
    logits = torch.randn(ROWS, VOCABULARY, generator=torch.Generator().manual_seed(2)) * 2
    best = logits.argmax(-1)
    temperature = torch.full((ROWS,), 0.8)
    temperature[::2] = 0.0
    metadata = SimpleNamespace(
        all_greedy=False, all_random=False, temperature=temperature, generators={}, top_k=None, top_p=None
    )
    ends = torch.arange(1, ROWS + 1, dtype=torch.int32)
    target = sampler.apply_sampling_constraints(logits.clone(), ends, metadata)
    bonus = torch.zeros(ROWS, 1, dtype=torch.long)
    found = sampler.rejection_sample(best.to(torch.int32), [1] * ROWS, 1, ends, None, target, bonus, metadata)
    return float((found[::2, 0] == best[::2]).float().mean())


def main():
    torch.manual_seed(0)
    register()
    verdicts = {}
    for name, function in (("as it is", AS_IT_IS), ("mended", mended)):
        use(function)
        ends = torch.tensor([2, 4, 6], dtype=torch.int32)
        got = sampler.expand_batch_to_tokens(torch.full((3,), 0.8), ends, 6, replace_from=0, replace_to=1).tolist()
        shown = ", ".join(f"{one:.3g}" for one in got)
        print(f"{name}: expand_batch_to_tokens([0.8, 0.8, 0.8]) for two drafts each is [{shown}]")
        wrong = []
        for temperature in (0.3, 0.8, 1.0):
            for k in (1, 2):
                for seeded in (True, False):
                    worst, accepted, theory = sampled(temperature, k, seeded)
                    wrong.append(worst > FAR)
                    print(
                        f"  T = {temperature}, k = {k}, {'seeds' if seeded else 'no seeds'}: {worst:5.1f} times as far "
                        f"from the model as chance; drafts accepted {accepted:.3f}, should be {theory:.3f}"
                    )
        share = greedy_beside_sampled()
        wrong.append(share < 1)
        print(f"  greedy requests beside sampled ones that get their likeliest token: {share:.1%}")
        verdicts[name] = wrong
    if any(verdicts["mended"]):
        print("neither: with the function mended it is still wrong")
        return 2
    print("FAULT" if any(verdicts["as it is"]) else "no fault")
    return 1 if any(verdicts["as it is"]) else 0


if __name__ == "__main__":
    sys.exit(main())
