#!/usr/bin/env python3
# bookkeeping that a step broke, among 8 corrupt of 8 completions with ascend-emulated/ngram (ngram k=3) (tiny-qwen3-next-mtp, vllm-ascend 0.23.0)
#
# Written by parity 0.1.0 from run 20261123-130522-a67e.
# Needs the checkpoint tiny-qwen3-next-mtp and vLLM, nothing else; Python 3.9 or newer.
# Seen with vllm 0.23.0, vllm-ascend 0.23.0, torch 2.13.0+cpu, transformers 5.19.0, triton 3.6.0.
#
#     python repro.py --model PATH_OR_NAME                  once
#     python repro.py --model PATH_OR_NAME --rounds 50      the same batch again and again, for rare faults
#
# Exit code 1: the fault showed. 0: it did not. 2: the question could not be asked (no vLLM, no checkpoint, the
# engine did not start).
#
# How it decides: the prompts run as token ids through one engine with the settings below. Where the tokens are
# those expected, nothing is asked. At the first difference the reference's opinion is known (NEAR_TIES). Where
# that leaves a doubt, or allows the token, the whole completion is teacher-forced through the same engine with
# speculation off, in a process of its own: a token more than TOLERANCE nats below the best one is the fault.

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib

MODEL = None
KIND = 'violation'
TOLERANCE = 0.25  # nats
ROUNDS = 1

# Variables for both engines. What is set in the environment already wins.
ENVIRONMENT = {
    'VLLM_ENABLE_V1_MULTIPROCESSING': '0',
    'VLLM_USE_V2_MODEL_RUNNER': '0',
    'VLLM_NO_USAGE_STATS': '1',
    'VLLM_WORKER_MULTIPROC_METHOD': 'spawn',
    'VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS': '600',
    'HF_HUB_OFFLINE': '1',
    'TOKENIZERS_PARALLELISM': 'false',
    'OMP_NUM_THREADS': '1',
}

# Keyword arguments of vllm.LLM for the engine under test.
ENGINE = {
    'async_scheduling': False,
    'enable_prefix_caching': False,
    'enable_chunked_prefill': True,
    'enforce_eager': True,
    'dtype': 'bfloat16',
    'max_num_seqs': 64,
    'max_num_batched_tokens': 2048,
    'tensor_parallel_size': 1,
    'max_model_len': 256,
    'seed': 0,
    'generation_config': 'vllm',
    'logprobs_mode': 'raw_logprobs',
    'max_logprobs': 20,
    'speculative_config': {'method': 'ngram', 'num_speculative_tokens': 3, 'prompt_lookup_max': 3, 'prompt_lookup_min': 1},
    'gpu_memory_utilization': 0.8,
}

SAMPLING = {
    'temperature': 0.0,
    'top_p': 1.0,
    'top_k': 0,
    'min_p': 0.0,
    'repetition_penalty': 1.0,
    'presence_penalty': 0.0,
    'frequency_penalty': 0.0,
    'max_tokens': 32,
    'min_tokens': 0,
    'n': 1,
    'seed': 0,
    'stop': [],
    'stop_token_ids': [],
    'ignore_eos': False,
    'skip_special_tokens': True,
    'logprobs': 0,
}

# The whole batch, in order: other rows are part of the fault.
REQUESTS = [
    {'id': 'en-president', 'prompt_token_ids': [834, 298, 459, 344, 329, 286, 264, 1785, 296, 288, 1999, 1245, 311]},
    {'id': 'en-verily', 'prompt_token_ids': [56, 270, 1384, 14, 902, 1384, 14, 331, 612, 382, 454, 14]},
    {'id': 'en-story', 'prompt_token_ids': [49, 80, 328, 589, 263, 766, 14, 297, 263, 1170, 324, 426, 401, 639, 436, 264, 1751, 14, 473, 313, 1479]},
    {'id': 'en-email', 'prompt_token_ids': [38, 71, 294, 491, 85, 16, 1005, 277, 14, 301, 946, 305, 77, 454, 335, 679, 883, 397, 286]},
    {'id': 'code-class', 'prompt_token_ids': [737, 1999, 566, 318, 271, 429, 724, 1091, 791, 408, 11, 28]},
    {'id': 'code-import', 'prompt_token_ids': [1223, 951, 201, 1223, 1029, 301, 683, 223]},
    {'id': 'code-return', 'prompt_token_ids': [792, 264]},
    {'id': 'zh-lunyu', 'prompt_token_ids': [164, 258, 241, 165, 252, 111, 174, 123, 251, 164, 258, 102, 167, 225, 237, 165, 248, 117, 163, 120, 257, 163, 120, 236, 174, 123, 237]},
]

# What ascend-emulated/base said: token ids and finish reason for each request and sample.
EXPECTED = {
    'en-president': {'0': {'tokens': [264, 201, 70, 325, 1570, 328, 286, 264, 298, 1592, 581, 298, 1592, 581, 724, 70, 290, 379, 680, 353, 834, 352, 69, 324, 1326, 680, 311, 263, 674, 337, 311, 813], 'finish_reason': 'length'}},
    'en-verily': {'0': {'tokens': [331, 450, 355, 1234, 1038, 382, 454, 14, 284, 331, 450, 355, 1234, 1038, 382, 454, 14, 1019, 302, 264, 454, 1887, 502, 14, 1019, 302, 492, 454, 14, 284, 302, 264], 'finish_reason': 'length'}},
    'en-story': {'0': {'tokens': [436, 264, 266, 446, 14, 284, 264, 281, 767, 296, 286, 264, 976, 14, 284, 264, 281, 767, 296, 286, 264, 976, 14, 284, 264, 281, 767, 296, 286, 264, 976, 14], 'finish_reason': 'length'}},
    'en-email': {'0': {'tokens': [264, 425, 14, 284, 264, 425, 581, 667, 793, 270, 14, 284, 264, 281, 767, 296, 286, 264, 425, 14, 284, 264, 425, 1642, 1090, 16, 350, 264, 425, 505, 382, 1090], 'finish_reason': 'length'}},
    'code-class': {'0': {'tokens': [407, 366, 301, 271, 429, 724, 1091, 791, 408, 14, 592, 923, 14, 1696, 1852, 398, 295, 366, 461, 69, 432, 1298, 336, 522, 201, 295, 366, 461, 69, 432, 1298, 336], 'finish_reason': 'length'}},
    'code-import': {'0': {'tokens': [1873, 80, 81, 16, 39, 79, 1330, 1564, 271, 535, 53, 334, 264, 1239, 302, 264, 1239, 353, 271, 487, 1239, 311, 841, 370, 264, 1239, 581, 1239, 353, 271, 487, 1239], 'finish_reason': 'length'}},
    'code-return': {'0': {'tokens': [282, 417, 286, 264, 280, 1756, 16, 350, 264, 873, 68, 1112, 286, 264, 399, 1694, 1763, 284, 264, 708, 286, 604, 14, 284, 264, 708, 286, 604, 14, 284, 264, 708], 'finish_reason': 'length'}},
    'zh-lunyu': {'0': {'tokens': [201, 259, 352, 85, 87, 494, 470, 288, 4, 1794, 85, 16, 223, 487, 352, 85, 87, 622, 692, 4, 1794, 311, 201, 259, 352, 85, 798, 737, 4, 284, 352, 86], 'finish_reason': 'length'}},
}

# Where rounding may decide: request -> position -> tokens within TOLERANCE of the best one. A position that is
# not listed has none but the expected token; one with null was not covered by the reference's list.
NEAR_TIES = {
    'en-president': {'0': [264, 297], '2': [70, 82, 85], '3': [75, 325, 546], '4': [72, 1570], '10': [287, 581], '11': [298, 1687], '12': [1455, 1592], '13': [14, 287, 581], '14': [298, 724, 1687], '16': [290, 814], '21': [281, 298, 352, 674], '22': [69, 82, 424], '27': [263, 813, 841], '28': [674, 774], '29': [337, 593], '31': [263, 813, 841]},
    'en-verily': {'1': [450, 698], '8': [284, 337, 1019], '9': [331, 450], '11': [312, 355, 1015], '16': [14, 16], '19': [264, 312, 454, 518], '29': [284, 1019]},
    'en-story': {'2': [266, 1645], '3': [402, 446], '8': [278, 767, 855], '17': [767, 855]},
    'en-email': {'1': [298, 425], '4': [264, 409], '9': [14, 85, 270], '10': [14, 16], '13': [281, 425], '18': [425, 976], '19': [14, 16], '23': [581, 1642], '26': [0, 350]},
    'code-class': {'18': [461, 786], '20': [324, 432], '23': [522, 1255]},
    'code-import': {'5': [56, 58, 79], '10': [37, 53, 792], '13': [298, 630, 1180, 1239], '14': [302, 581, 1368], '19': [487, 663, 878], '23': [370, 532], '26': [353, 581], '27': [1239, 1962], '30': [487, 663, 878]},
    'code-return': {'0': [282, 298, 341], '4': [280, 282, 298, 341], '9': None, '14': [280, 399, 661, 708]},
    'zh-lunyu': {'0': [201, 628], '1': [259, 265], '2': [223, 281, 352, 370], '4': [87, 798], '5': [494, 723], '9': [311, 395, 1794], '16': [87, 798], '17': [622, 723], '24': [352, 1662], '31': [70, 79, 85, 86]},
}

TOP = 5  # logprobs asked for when a completion is teacher-forced
LOGPROB_TOLERANCE, LIKELY = 0.5, -5.0  # nats; below LIKELY logprobs are not compared
NOT_FOR_THE_REFERENCE = ("PARITY_FAULT", "PARITY_FAULT_LOG", "PARITY_FAULT_BUNDLE")  # planted faults


class Setup(Exception):
    """The question could not be asked."""


# ---------------------------------------------------------------- in the engine's process


def start_engine(model, settings):
    try:
        from vllm import LLM, EngineArgs
    except ImportError as error:
        raise Setup("vLLM cannot be imported by %s: %s" % (sys.executable, error))
    known = getattr(EngineArgs, "__dataclass_fields__", settings)
    unknown = [name for name in settings if name not in known]
    if unknown:
        say("this vLLM does not know %s: left out" % ", ".join(unknown))
    try:
        return LLM(model=model, **{name: value for name, value in settings.items() if name in known})
    except Exception as error:
        raise Setup("the engine did not start: %s: %s" % (type(error).__name__, error))


def prompt_of(token_ids):
    from vllm.inputs import TokensPrompt

    return TokensPrompt(prompt_token_ids=token_ids)


def run_candidate(job):
    """Generate rounds of the batch; stop at the first proof unless all rounds are to be counted."""
    llm = start_engine(job["model"], ENGINE)
    from vllm import SamplingParams

    def params_of(request, number):
        wanted = dict(SAMPLING, **request.get("sampling", {}))
        if request.get("max_tokens") is not None:
            wanted["max_tokens"] = request["max_tokens"]
        if wanted.get("logit_bias"):
            wanted["logit_bias"] = {int(token): bias for token, bias in wanted["logit_bias"].items()}
        if wanted.get("structured_outputs"):
            from vllm.sampling_params import StructuredOutputsParams

            wanted["structured_outputs"] = StructuredOutputsParams(**wanted["structured_outputs"])
        if wanted.get("temperature", 0.0) > 0 and wanted.get("seed") is not None:  # as in the run: its own, each round
            own = zlib.crc32(request["id"].encode("utf-8")) + number * (wanted.get("n") or 1)
            wanted["seed"] = (wanted["seed"] + own) % (1 << 31)
        return SamplingParams(**wanted)

    tokenizer = llm.get_tokenizer() if KIND == "text_mismatch" else None
    results = []
    for number in range(job["rounds"]):
        prompts, params = zip(*((prompt_of(r["prompt_token_ids"]), params_of(r, number)) for r in REQUESTS))
        outputs = llm.generate(list(prompts), list(params), use_tqdm=False)
        doubts, proofs = [], []
        for request, output in zip(REQUESTS, outputs):
            proof, doubt = judge(request["id"], output, tokenizer)
            proofs += proof
            doubts += doubt
        results.append({"round": number, "proofs": proofs, "doubts": doubts})
        say("round %d: %s" % (number, proofs[0]["why"] if proofs else "%d to look at" % len(doubts)))
        if proofs and not job["count"]:
            break
    return results


def judge(name, output, tokenizer):
    """(proofs, doubts) for one request: what is wrong beyond doubt, and what has to be teacher-forced."""
    proofs, doubts = [], []
    samples = sorted(output.outputs, key=lambda one: one.index)
    if len(samples) < SAMPLING.get("n", 1):
        why = "%d completions instead of %d" % (len(samples), SAMPLING.get("n", 1))
        proofs.append(fault(name, 0, None, "missing_completion", why))
    if KIND == "duplicate_completion" and len({tuple(one.token_ids) for one in samples}) < len(samples):
        proofs.append(fault(name, 0, None, KIND, "two of %d samples are the same" % len(samples)))
    for sample in samples:
        tokens = [int(token) for token in sample.token_ids]
        expected = EXPECTED.get(name, {}).get(str(sample.index))
        item = {"request": name, "sample": sample.index, "tokens": tokens, "from": 0, "own": None}
        if tokenizer is not None:
            text = tokenizer.decode(tokens, skip_special_tokens=SAMPLING.get("skip_special_tokens", True))
            if sample.text is not None and text.strip() != sample.text.strip():
                proofs.append(fault(name, sample.index, None, KIND, "the text is not that of the token ids"))
        if KIND == "logprob_mismatch" and sample.logprobs is not None:
            item["own"] = [own_logprob(entry, token) for entry, token in zip(sample.logprobs, tokens)]
            if len(sample.logprobs) != len(tokens):
                proofs.append(fault(name, sample.index, None, KIND, "%s for %s" % (
                                    counted(len(sample.logprobs), "logprob"), counted(len(tokens), "token"))))
            doubts.append(item)
        if SAMPLING.get("temperature", 0.0) > 0 or expected is None:
            continue
        at = first_difference(expected["tokens"], tokens)
        if at is None:
            if sample.finish_reason != expected["finish_reason"]:
                why = "finish reason %r instead of %r" % (sample.finish_reason, expected["finish_reason"])
                proofs.append(fault(name, sample.index, len(tokens), "early_stop", why))
            continue
        if at == len(tokens) or at == len(expected["tokens"]):
            why = "%s instead of %d, equal up to there" % (counted(len(tokens), "token"), len(expected["tokens"]))
            kind = "early_stop" if at == len(tokens) else "overrun"
            proofs.append(fault(name, sample.index, at, kind, why))
            continue
        allowed = NEAR_TIES.get(name, {}).get(str(at), [])
        if allowed is not None and tokens[at] not in allowed:
            why = "token %d is %d, expected %d" % (at, tokens[at], expected["tokens"][at])
            proofs.append(fault(name, sample.index, at, "unsupported token", why))
        elif sample.finish_reason == "length" and len(tokens) < limit_of(name):
            why = "ended by length after %d of %s" % (len(tokens), counted(limit_of(name), "token"))
            proofs.append(fault(name, sample.index, len(tokens), "early_stop", why))
        elif item["own"] is None:
            item["from"] = at
            doubts.append(item)
    return proofs, doubts


def limit_of(name):
    request = next(one for one in REQUESTS if one["id"] == name)
    return request.get("max_tokens") or SAMPLING["max_tokens"]


def own_logprob(entry, token):
    return entry[token].logprob if entry and token in entry else None


def fault(name, sample, position, kind, why):
    return {"request": name, "sample": sample, "position": position, "kind": kind, "why": why}


def first_difference(a, b):
    for index, (left, right) in enumerate(zip(a, b)):
        if left != right:
            return index
    return None if len(a) == len(b) else min(len(a), len(b))


def run_reference(job):
    """Teacher-force every doubtful completion with speculation off."""
    settings = {name: value for name, value in ENGINE.items() if name != "speculative_config"}
    llm = start_engine(job["model"], settings)
    from vllm import SamplingParams

    prompts = {request["id"]: request["prompt_token_ids"] for request in REQUESTS}
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=TOP, detokenize=False)
    items = [item for item in job["items"] if item["tokens"]]
    outputs = llm.generate([prompt_of(prompts[i["request"]] + i["tokens"]) for i in items], params, use_tqdm=False)
    found = []
    for item, output in zip(items, outputs):
        wrong = first_unsupported(item, output.prompt_logprobs[len(prompts[item["request"]]):])
        if wrong is not None:
            found.append(dict(fault(item["request"], item["sample"], *wrong), round=item["round"]))
    return found


def first_unsupported(item, scored):
    """(position, kind, why) of the first token that the reference does not support, or None."""
    for position in range(item["from"], len(item["tokens"])):
        entry = scored[position] if position < len(scored) else None
        if not entry:
            continue
        chosen = entry[item["tokens"][position]].logprob
        gap = max(one.logprob for one in entry.values()) - chosen
        if gap > TOLERANCE and item["own"] is None:
            why = "token %d is %d, %.2f nats below the best" % (position, item["tokens"][position], gap)
            return position, "unsupported token", why
        own = item["own"][position] if item["own"] else None
        if own is not None and chosen > LIKELY and abs(own - chosen) > LOGPROB_TOLERANCE:
            why = "the engine says %.2f nats for token %d, teacher-forced it is %.2f" % (own, position, chosen)
            return position, "logprob_mismatch", why
    return None


# ---------------------------------------------------------------- in the first process


def counted(number, noun):
    """ "1 token", "2 tokens"."""
    return "%d %s%s" % (number, noun, "" if number == 1 else "s")


def say(line):
    print(line, file=sys.stderr, flush=True)


def in_process(role, job, environment):
    """Run one engine in a process of its own, so that two engines never share the memory."""
    with tempfile.TemporaryDirectory(prefix="repro-") as folder:
        asked, answer = os.path.join(folder, "job.json"), os.path.join(folder, "answer.json")
        with open(asked, "w") as file:
            json.dump(job, file)
        command = [sys.executable, os.path.abspath(__file__), "--role", role, asked, answer]
        code = subprocess.call(command, env=environment, stdout=sys.stderr)
        if code != 0 or not os.path.exists(answer):
            raise Setup("the %s engine's process ended with %d" % (role, code))
        with open(answer) as file:
            return json.load(file)


def play(role, asked, answer):
    """The other processes: an engine, its answer in a file, and out without waiting for its threads."""
    with open(asked) as file:
        job = json.load(file)
    try:
        result = {"candidate": run_candidate, "reference": run_reference}[role](job)
    except Setup as error:
        say("error: %s" % error)
        return 2
    with open(answer, "w") as file:
        json.dump(result, file)
    return 0


def main():
    parser = argparse.ArgumentParser(description="Exit code 1: the fault shows; 0: it does not; 2: not set up.")
    parser.add_argument("--model", default=MODEL, help="checkpoint directory or name [default: %(default)s]")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="times to run the batch [default: %(default)s]")
    parser.add_argument("--count", action="store_true", help="run all rounds and count those that show the fault")
    parser.add_argument("--role", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role:
        code = play(*arguments.role)
        sys.stderr.flush()
        os._exit(code)
    if not arguments.model:
        say("error: name the checkpoint with --model PATH_OR_NAME")
        return 2
    if arguments.rounds < 1:
        say("error: --rounds must be at least 1")
        return 2
    environment = dict(ENVIRONMENT, **os.environ)
    began = time.time()
    job = {"model": arguments.model, "rounds": arguments.rounds, "count": arguments.count}
    try:
        results = in_process("candidate", job, environment)
        found = [dict(proof, round=one["round"]) for one in results for proof in one["proofs"]]
        doubts = [dict(item, round=one["round"]) for one in results for item in one["doubts"]]
        if doubts and (arguments.count or not found):
            clean = {name: value for name, value in environment.items() if name not in NOT_FOR_THE_REFERENCE}
            found += in_process("reference", {"model": arguments.model, "items": doubts}, clean)
    except Setup as error:
        say("error: %s" % error)
        return 2
    rounds, bad = len(results), len({one["round"] for one in found})
    for one in sorted(found, key=lambda one: (one["round"], one["request"]))[:20]:
        print("round %(round)d, request %(request)s, sample %(sample)d: %(kind)s: %(why)s" % one)
    if not found:
        print("not seen in %s of %s (%.0f s); rarer than about 1 in %s could be missed (95 %%)"
              % (counted(rounds, "round"), counted(len(REQUESTS), "request"), time.time() - began,
                 counted(max(1, round(rounds / 3.0)), "round")))
        return 0
    print("the fault showed in %d of %s (%.0f s)" % (bad, counted(rounds, "round"), time.time() - began))
    return 1


if __name__ == "__main__":
    sys.exit(main())
