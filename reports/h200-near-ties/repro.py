#!/usr/bin/env python3
# no fault: 12 of 64 completions part at near-ties with cuda/mtp (mtp k=2) (tiny-qwen3-next-mtp, vllm 0.23.0)
#
# Written by parity 0.2.0 from run 20261127-032155-b7d9.
# Needs the checkpoint tiny-qwen3-next-mtp and vLLM, nothing else; Python 3.9 or newer.
# Seen with vllm 0.23.0, torch 2.11.0, transformers 5.17.0, triton 3.6.0.
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
KIND = 'near_tie'
TOLERANCE = 0.25  # nats
ROUNDS = 1

# Variables for both engines. What is set in the environment already wins.
ENVIRONMENT = {
    'VLLM_ENABLE_V1_MULTIPROCESSING': '0',
    'VLLM_USE_V2_MODEL_RUNNER': '0',
    'VLLM_NO_USAGE_STATS': '1',
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
    'max_model_len': 832,
    'seed': 0,
    'generation_config': 'vllm',
    'logprobs_mode': 'raw_logprobs',
    'max_logprobs': 20,
    'speculative_config': {'method': 'mtp', 'num_speculative_tokens': 2},
    'gpu_memory_utilization': 0.05,
    'gdn_prefill_backend': 'triton',
}

SAMPLING = {
    'temperature': 0.0,
    'top_p': 1.0,
    'top_k': 0,
    'min_p': 0.0,
    'repetition_penalty': 1.0,
    'presence_penalty': 0.0,
    'frequency_penalty': 0.0,
    'max_tokens': 64,
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
    {'id': 'en-name', 'prompt_token_ids': [42, 290, 432, 14, 484, 575, 311]},
    {'id': 'en-president', 'prompt_token_ids': [834, 298, 459, 344, 329, 286, 264, 1785, 296, 288, 1999, 1245, 311]},
    {'id': 'en-capital', 'prompt_token_ids': [834, 280, 585, 296, 289, 286, 483, 84, 614, 311]},
    {'id': 'en-future', 'prompt_token_ids': [834, 281, 1660, 286, 314, 43, 311]},
    {'id': 'en-beginning', 'prompt_token_ids': [1271, 264, 1217, 265, 845, 499]},
    {'id': 'en-pass', 'prompt_token_ids': [1863, 363, 670, 302, 654]},
    {'id': 'en-lord', 'prompt_token_ids': [1863, 264, 425, 505, 382, 1090, 14]},
    {'id': 'en-king', 'prompt_token_ids': [1863, 264, 552, 505, 382, 264, 1901, 14]},
    {'id': 'en-verily', 'prompt_token_ids': [56, 270, 1384, 14, 902, 1384, 14, 331, 612, 382, 454, 14]},
    {'id': 'en-david', 'prompt_token_ids': [48, 356, 957, 460]},
    {'id': 'en-behold', 'prompt_token_ids': [36, 71, 793, 14, 331]},
    {'id': 'en-one-word', 'prompt_token_ids': [834]},
    {'id': 'en-children', 'prompt_token_ids': [1863, 264, 708, 286, 604, 819, 443]},
    {'id': 'en-wise', 'prompt_token_ids': [35, 272, 498, 502]},
    {'id': 'en-prophet', 'prompt_token_ids': [834, 802, 286, 264, 425, 670, 382, 405, 14, 827, 14]},
    {'id': 'en-disciples', 'prompt_token_ids': [946, 277, 670, 389, 919, 1012, 1454, 14, 284]},
    {'id': 'en-weather', 'prompt_token_ids': [834, 555, 1596, 297, 369, 826, 274, 302, 70, 354, 311]},
    {'id': 'en-recipe', 'prompt_token_ids': [54, 81, 835, 263, 1070, 1103, 82, 14, 873]},
    {'id': 'en-question', 'prompt_token_ids': [51, 28, 514, 356, 1310, 568, 73, 85, 1270, 263, 633, 344, 270, 475, 33, 201, 35, 28]},
    {'id': 'en-list', 'prompt_token_ids': [946, 815, 699, 320, 644, 1508, 541, 85, 28, 223, 19, 16, 310, 70, 223, 20, 16]},
    {'id': 'en-story', 'prompt_token_ids': [49, 80, 328, 589, 263, 766, 14, 297, 263, 1170, 324, 426, 401, 639, 436, 264, 1751, 14, 473, 313, 1479]},
    {'id': 'en-email', 'prompt_token_ids': [38, 71, 294, 491, 85, 16, 1005, 277, 14, 301, 946, 305, 77, 454, 335, 679, 883, 397, 286]},
    {'id': 'en-math', 'prompt_token_ids': [35, 78, 787, 907, 223, 19, 20, 1193, 1052, 284, 341, 1917, 223, 23, 302, 455, 1056, 16, 396, 598, 770, 761, 91, 85, 223, 25, 908, 16, 487, 963, 286, 1193, 1052, 752, 907, 311]},
    {'id': 'en-numbers', 'prompt_token_ids': [19, 14, 223, 19, 14, 223, 20, 14, 223, 21, 14, 223, 23, 14, 223, 26, 14, 223, 19, 21, 14]},
    {'id': 'code-main', 'prompt_token_ids': [683, 287, 430, 10, 696, 88, 11, 28]},
    {'id': 'code-class', 'prompt_token_ids': [737, 1999, 566, 318, 271, 429, 724, 1091, 791, 408, 11, 28]},
    {'id': 'code-import', 'prompt_token_ids': [1223, 951, 201, 1223, 1029, 301, 683, 223]},
    {'id': 'code-return', 'prompt_token_ids': [792, 264]},
    {'id': 'code-doc', 'prompt_token_ids': [834, 892, 429, 840, 264, 1924, 774, 85, 28]},
    {'id': 'code-raise', 'prompt_token_ids': [1173, 264, 769, 311, 355, 263, 665, 14, 263, 346, 594, 543, 311]},
    {'id': 'code-example', 'prompt_token_ids': [40, 276, 422, 1505, 28, 833, 259, 1216, 846, 310, 201, 259, 1216]},
    {'id': 'code-fib', 'prompt_token_ids': [683, 281, 600, 274, 610, 1012, 10, 80, 398, 271, 535, 792, 264, 300, 15, 260, 483, 600, 274, 610, 1012, 963, 1368]},
    {'id': 'code-test', 'prompt_token_ids': [737, 346, 417, 46, 433, 10, 446, 296, 86, 417, 16, 54, 417, 37, 601, 398, 271, 429, 1240, 65, 1151, 507, 398]},
    {'id': 'code-changed', 'prompt_token_ids': [799, 1301, 333, 741, 288, 28, 28, 223, 21, 16, 25, 201]},
    {'id': 'code-json', 'prompt_token_ids': [93, 4, 559, 4, 28, 352, 1658, 620, 659, 352, 1511, 4, 28, 703, 19, 14, 223, 20, 14]},
    {'id': 'code-sql', 'prompt_token_ids': [53, 39, 1836, 37, 54, 575, 14, 1319, 10, 12, 11, 483, 52, 49, 47, 482, 456, 536, 42, 882, 39]},
    {'id': 'code-c', 'prompt_token_ids': [5, 265, 759, 1354, 992, 319, 70, 75, 81, 16, 74, 32, 301, 606, 287, 430, 10, 88, 81, 344, 347, 93, 201]},
    {'id': 'code-shell', 'prompt_token_ids': [5, 3, 17, 68, 265, 17, 970, 201, 662, 656, 71, 201, 1438, 630, 297]},
    {'id': 'code-html', 'prompt_token_ids': [30, 385, 32, 201, 223, 992, 1133, 32, 49, 80, 71, 30, 17, 1133, 32, 201, 223, 992, 1133, 32]},
    {'id': 'code-traceback', 'prompt_token_ids': [54, 1622, 395, 79, 651, 1503, 329, 561, 1584, 398, 223, 483, 466, 352]},
    {'id': 'zh-hello', 'prompt_token_ids': [163, 124, 257, 164, 101, 124, 174, 123, 237, 165, 233, 242, 164, 240, 107]},
    {'id': 'zh-capital', 'prompt_token_ids': [165, 114, 246, 164, 252, 124, 166, 251, 229, 168, 102, 247, 168, 228, 124, 165, 249, 110]},
    {'id': 'zh-ai', 'prompt_token_ids': [163, 121, 121, 164, 118, 101, 165, 250, 121, 167, 228, 124, 166, 251, 229, 165, 253, 106, 165, 254, 101, 165, 249, 110]},
    {'id': 'zh-weather', 'prompt_token_ids': [163, 122, 235, 164, 100, 105, 164, 100, 105, 165, 111, 245, 164, 125, 233, 164, 101, 124, 174, 123, 237, 165, 233, 242, 163, 122, 108, 163, 119, 225, 167, 116, 118, 164, 239, 122]},
    {'id': 'zh-lunyu', 'prompt_token_ids': [164, 258, 241, 165, 252, 111, 174, 123, 251, 164, 258, 102, 167, 225, 237, 165, 248, 117, 163, 120, 257, 163, 120, 236, 174, 123, 237]},
    {'id': 'zh-dao', 'prompt_token_ids': [168, 226, 244, 164, 240, 110, 168, 226, 244, 174, 123, 237, 168, 254, 255, 164, 119, 119, 168, 226, 244, 162, 225, 227, 164, 241, 238, 164, 240, 110, 164, 241, 238, 174, 123, 237]},
    {'id': 'zh-tang', 'prompt_token_ids': [164, 121, 235, 164, 234, 238, 165, 249, 239, 165, 253, 233, 164, 230, 234, 174, 123, 237]},
    {'id': 'zh-question', 'prompt_token_ids': [168, 248, 109, 174, 123, 251, 165, 111, 115, 164, 253, 104, 163, 122, 225, 163, 120, 233, 165, 119, 105, 164, 121, 102, 163, 119, 236, 166, 122, 244, 164, 231, 111, 174, 123, 256, 201, 166, 258, 245, 174, 123, 251]},
    {'id': 'zh-code', 'prompt_token_ids': [167, 110, 118, 166, 245, 104, 1238, 223, 164, 231, 250, 163, 119, 225, 163, 119, 106, 164, 232, 124, 165, 246, 111, 174, 123, 237, 167, 109, 97, 166, 109, 248]},
    {'id': 'zh-mixed', 'prompt_token_ids': [88, 46, 46, 47, 223, 166, 251, 229, 782, 385, 1720, 368, 975, 223, 165, 249, 110, 165, 237, 232]},
    {'id': 'long-genesis', 'prompt_token_ids': [1271, 264, 1217, 265, 845, 499, 1987, 264, 1192, 284, 264, 976, 16, 350, 264, 976, 460, 1267, 920, 14, 284, 1435, 344, 29, 284, 292, 1379, 716, 460, 589, 264, 1702, 286, 264, 368, 747, 16, 350, 264, 396, 82, 1457, 286, 499, 287, 1647, 589, 264, 1702, 286, 264, 1207, 456, 16, 350, 499, 505, 14, 1666, 473, 312, 1896, 28, 284, 473, 460, 1896, 16, 350, 499, 1399, 264, 1896, 14, 337, 363, 460, 1070, 28, 284, 499, 599, 88, 344, 288, 264, 1896, 449, 264, 292, 1379, 716, 16, 350, 499, 841, 264, 1896, 542, 354, 14, 284, 264, 292, 1379, 716, 338, 841, 418, 584, 16, 350, 264, 797, 293, 284, 264, 1882, 845, 572, 264, 873, 596, 16, 350, 499, 505, 14, 1666, 473, 312, 263, 281, 364, 79, 309, 329, 297, 264, 1843, 286, 264, 1207, 456, 14, 284, 883, 363, 599, 88, 721, 264, 1207, 456, 449, 264, 1207, 456, 16, 350, 499, 796, 264, 281, 364, 79, 309, 329, 14, 284, 599, 88, 344, 288, 264, 1207, 456, 458, 572, 995, 264, 281, 364, 79, 309, 329, 449, 264, 1207, 456, 458, 572, 2028, 264, 281, 364, 79, 309, 329, 28, 284, 363, 460, 582, 16, 350, 499, 841, 264, 281, 364, 79, 309, 329, 874, 1076, 16, 350, 264, 797, 293, 284, 264, 1882, 845, 572, 264, 1865, 596, 16, 350, 499, 505, 14, 1666, 264, 1207, 456, 995, 264, 1192, 312, 341, 383, 691, 1453, 382, 595, 1116, 14, 284, 883, 264, 292, 731, 734, 2036, 294, 28, 284, 363, 460, 582, 16, 350, 499, 841, 264, 292, 731, 734, 496, 294, 260, 29, 284, 264, 341, 1596, 293, 1453, 286, 264, 1207, 456, 841, 338, 396, 71, 303, 28, 284, 499, 1399, 337, 363, 460, 1070, 16, 350, 499, 505, 14]},
    {'id': 'long-psalm', 'prompt_token_ids': [834, 425, 311, 484, 752, 687, 270, 70, 29, 331, 372, 355, 272, 563, 16, 874, 835, 260, 405, 302, 313, 784, 906, 297, 341, 267, 277, 298, 495, 1659, 28, 338, 568, 339, 465, 405, 282, 285, 721, 264, 367, 401, 1207, 456, 16, 874, 1426, 420, 260, 484, 1466, 28, 338, 568, 339, 465, 405, 297, 264, 961, 85, 286, 1442, 716, 335, 389, 575, 581, 410, 376, 16, 1800, 67, 14, 445, 378, 331, 1775, 1131, 264, 861, 299, 91, 286, 264, 332, 339, 356, 286, 1835, 14, 331, 450, 1866, 588, 1334, 28, 335, 445, 1510, 370, 405, 29, 472, 590, 317, 284, 472, 367, 67, 622, 404, 414, 72, 470, 405, 16, 1311, 779, 82, 669, 319, 263, 283, 567, 664, 405, 297, 264, 298, 459, 862, 286, 1329, 1815, 608, 28, 445, 380, 1007, 417, 484, 1101, 370, 269, 306, 29, 484, 280, 979, 1382, 80, 465, 715, 16, 396, 695, 467, 1070, 716, 284, 1885, 91, 372, 1161, 405, 409, 264, 1063, 286, 484, 1630, 28]},
    {'id': 'long-charity', 'prompt_token_ids': [946, 291, 378, 331, 1484, 370, 264, 283, 636, 964, 286, 750, 284, 286, 1792, 1299, 14, 284, 475, 355, 848, 620, 14, 331, 698, 312, 652, 71, 388, 266, 693, 293, 1586, 406, 14, 451, 263, 283, 890, 78, 293, 280, 91, 1989, 289, 16, 350, 445, 378, 331, 475, 264, 341, 1921, 286, 1285, 564, 91, 14, 284, 995, 1773, 409, 484, 319, 270, 608, 14, 284, 409, 889, 1058, 1028, 29, 284, 445, 378, 331, 475, 409, 1881, 14, 582, 337, 331, 280, 570, 930, 1044, 1378, 1458, 14, 284, 475, 355, 848, 620, 14, 331, 698, 588, 1580, 16, 350, 445, 378, 331, 282, 417, 356, 409, 484, 1070, 85, 302, 871, 288, 264, 298, 81, 276, 14, 284, 445, 378, 331, 1015, 484, 1995, 302, 312, 282, 362, 288, 14, 284, 475, 355, 848, 620, 14, 363, 569, 72, 296, 465, 405, 588, 1580, 16, 1005, 294, 620, 489, 622, 384, 260, 1527, 14, 284, 311, 437, 579, 29, 848, 620, 635, 88, 75, 465, 355, 29, 848, 620, 426, 547, 342, 465, 355, 363, 408, 14, 311, 355, 298, 87, 622, 288, 443, 14]},
    {'id': 'long-season', 'prompt_token_ids': [54, 81, 844, 1402, 473, 311, 263, 448, 303, 274, 14, 284, 263, 766, 302, 844, 1805, 82, 739, 995, 264, 1192, 28, 314, 766, 302, 312, 282, 1112, 14, 284, 263, 766, 302, 2016, 29, 263, 766, 302, 684, 563, 14, 284, 263, 766, 302, 684, 87, 381, 443, 337, 458, 311, 684, 563, 288, 29, 314, 766, 302, 437, 401, 14, 284, 263, 766, 302, 338, 289, 29, 263, 766, 302, 1231, 906, 14, 284, 263, 766, 302, 1452, 443, 29, 314, 766, 302, 555, 747, 14, 284, 263, 766, 302, 313, 1251, 29]},
    {'id': 'long-all', 'prompt_token_ids': [1271, 264, 1217, 265, 845, 499, 1987, 264, 1192, 284, 264, 976, 16, 350, 264, 976, 460, 1267, 920, 14, 284, 1435, 344, 29, 284, 292, 1379, 716, 460, 589, 264, 1702, 286, 264, 368, 747, 16, 350, 264, 396, 82, 1457, 286, 499, 287, 1647, 589, 264, 1702, 286, 264, 1207, 456, 16, 350, 499, 505, 14, 1666, 473, 312, 1896, 28, 284, 473, 460, 1896, 16, 350, 499, 1399, 264, 1896, 14, 337, 363, 460, 1070, 28, 284, 499, 599, 88, 344, 288, 264, 1896, 449, 264, 292, 1379, 716, 16, 350, 499, 841, 264, 1896, 542, 354, 14, 284, 264, 292, 1379, 716, 338, 841, 418, 584, 16, 350, 264, 797, 293, 284, 264, 1882, 845, 572, 264, 873, 596, 16, 350, 499, 505, 14, 1666, 473, 312, 263, 281, 364, 79, 309, 329, 297, 264, 1843, 286, 264, 1207, 456, 14, 284, 883, 363, 599, 88, 721, 264, 1207, 456, 449, 264, 1207, 456, 16, 350, 499, 796, 264, 281, 364, 79, 309, 329, 14, 284, 599, 88, 344, 288, 264, 1207, 456, 458, 572, 995, 264, 281, 364, 79, 309, 329, 449, 264, 1207, 456, 458, 572, 2028, 264, 281, 364, 79, 309, 329, 28, 284, 363, 460, 582, 16, 350, 499, 841, 264, 281, 364, 79, 309, 329, 874, 1076, 16, 350, 264, 797, 293, 284, 264, 1882, 845, 572, 264, 1865, 596, 16, 350, 499, 505, 14, 1666, 264, 1207, 456, 995, 264, 1192, 312, 341, 383, 691, 1453, 382, 595, 1116, 14, 284, 883, 264, 292, 731, 734, 2036, 294, 28, 284, 363, 460, 582, 16, 350, 499, 841, 264, 292, 731, 734, 496, 294, 260, 29, 284, 264, 341, 1596, 293, 1453, 286, 264, 1207, 456, 841, 338, 396, 71, 303, 28, 284, 499, 1399, 337, 363, 460, 1070, 353, 834, 425, 311, 484, 752, 687, 270, 70, 29, 331, 372, 355, 272, 563, 16, 874, 835, 260, 405, 302, 313, 784, 906, 297, 341, 267, 277, 298, 495, 1659, 28, 338, 568, 339, 465, 405, 282, 285, 721, 264, 367, 401, 1207, 456, 16, 874, 1426, 420, 260, 484, 1466, 28, 338, 568, 339, 465, 405, 297, 264, 961, 85, 286, 1442, 716, 335, 389, 575, 581, 410, 376, 16, 1800, 67, 14, 445, 378, 331, 1775, 1131, 264, 861, 299, 91, 286, 264, 332, 339, 356, 286, 1835, 14, 331, 450, 1866, 588, 1334, 28, 335, 445, 1510, 370, 405, 29, 472, 590, 317, 284, 472, 367, 67, 622, 404, 414, 72, 470, 405, 16, 1311, 779, 82, 669, 319, 263, 283, 567, 664, 405, 297, 264, 298, 459, 862, 286, 1329, 1815, 608, 28, 445, 380, 1007, 417, 484, 1101, 370, 269, 306, 29, 484, 280, 979, 1382, 80, 465, 715, 16, 396, 695, 467, 1070, 716, 284, 1885, 91, 372, 1161, 405, 409, 264, 1063, 286, 484, 1630, 833, 946, 291, 378, 331, 1484, 370, 264, 283, 636, 964, 286, 750, 284, 286, 1792, 1299, 14, 284, 475, 355, 848, 620, 14, 331, 698, 312, 652, 71, 388, 266, 693, 293, 1586, 406, 14, 451, 263, 283, 890, 78, 293, 280, 91, 1989, 289, 16, 350, 445, 378, 331, 475, 264, 341, 1921, 286, 1285, 564, 91, 14, 284, 995, 1773, 409, 484, 319, 270, 608, 14, 284, 409, 889, 1058, 1028, 29, 284, 445, 378, 331, 475, 409, 1881, 14, 582, 337, 331, 280, 570, 930, 1044, 1378, 1458, 14, 284, 475, 355, 848, 620, 14, 331, 698, 588, 1580, 16, 350, 445, 378, 331, 282, 417, 356, 409, 484, 1070, 85, 302, 871, 288, 264, 298, 81, 276, 14, 284, 445, 378, 331, 1015, 484, 1995, 302, 312, 282, 362, 288, 14, 284, 475, 355, 848, 620, 14, 363, 569, 72, 296, 465, 405, 588, 1580, 16, 1005, 294, 620, 489, 622, 384, 260, 1527, 14, 284, 311, 437, 579, 29, 848, 620, 635, 88, 75, 465, 355, 29, 848, 620, 426, 547, 342, 465, 355, 363, 408, 14, 311, 355, 298, 87, 622, 288, 443, 14, 301, 54, 81, 844, 1402, 473, 311, 263, 448, 303, 274, 14, 284, 263, 766, 302, 844, 1805, 82, 739, 995, 264, 1192, 28, 314, 766, 302, 312, 282, 1112, 14, 284, 263, 766, 302, 2016, 29, 263, 766, 302, 684, 563, 14, 284, 263, 766, 302, 684, 87, 381, 443, 337, 458, 311, 684, 563, 288, 29, 314, 766, 302, 437, 401, 14, 284, 263, 766, 302, 338, 289, 29, 263, 766, 302, 1231, 906, 14, 284, 263, 766, 302, 1452, 443, 29, 314, 766, 302, 555, 747, 14, 284, 263, 766, 302, 313, 1251, 29, 301, 1863]},
    {'id': 'long-summary', 'prompt_token_ids': [52, 1159, 264, 1924, 1343, 284, 612, 297, 595, 1097, 862, 1026, 363, 311, 1100, 353, 1271, 264, 1217, 265, 845, 499, 1987, 264, 1192, 284, 264, 976, 16, 350, 264, 976, 460, 1267, 920, 14, 284, 1435, 344, 29, 284, 292, 1379, 716, 460, 589, 264, 1702, 286, 264, 368, 747, 16, 350, 264, 396, 82, 1457, 286, 499, 287, 1647, 589, 264, 1702, 286, 264, 1207, 456, 16, 350, 499, 505, 14, 1666, 473, 312, 1896, 28, 284, 473, 460, 1896, 16, 350, 499, 1399, 264, 1896, 14, 337, 363, 460, 1070, 28, 284, 499, 599, 88, 344, 288, 264, 1896, 449, 264, 292, 1379, 716, 16, 350, 499, 841, 264, 1896, 542, 354, 14, 284, 264, 292, 1379, 716, 338, 841, 418, 584, 16, 350, 264, 797, 293, 284, 264, 1882, 845, 572, 264, 873, 596, 16, 350, 499, 505, 14, 1666, 473, 312, 263, 281, 364, 79, 309, 329, 297, 264, 1843, 286, 264, 1207, 456, 14, 284, 883, 363, 599, 88, 721, 264, 1207, 456, 449, 264, 1207, 456, 353, 35, 80, 1035, 270, 28]},
    {'id': 'long-queue', 'prompt_token_ids': [431, 4, 35, 223, 1909, 337, 1542, 85, 1336, 1209, 85, 297, 1703, 286, 918, 276, 620, 1106, 1467, 1223, 338, 585, 83, 201, 1223, 1485, 528, 377, 85, 1407, 737, 496, 79, 1330, 10, 1094, 1167, 398, 271, 535, 52, 67, 1130, 436, 850, 453, 532, 264, 223, 1909, 907, 588, 1209, 85, 1106, 4, 1407, 737, 523, 371, 276, 620, 51, 393, 393, 318, 271, 535, 43, 86, 390, 85, 712, 513, 313, 356, 417, 918, 276, 620, 873, 14, 284, 297, 1703, 286, 297, 85, 912, 308, 884, 918, 276, 1258, 447, 1920, 289, 1106, 1467, 271, 429, 724, 1091, 791, 408, 398, 295, 366, 461, 598, 585, 336, 703, 765, 295, 366, 461, 69, 744, 270, 336, 1485, 528, 377, 85, 853, 744, 1115, 271, 429, 724, 1544, 791, 408, 398, 295, 407, 1034, 507, 461, 598, 585, 501, 271, 429, 980, 507, 14, 1209, 14, 918, 276, 620, 31, 18, 398, 295, 535, 35, 726, 380, 1209, 16, 523, 371, 276, 1258, 447, 753, 1232, 370, 264, 313, 413, 15, 260, 305, 1263, 837, 1368, 295, 338, 585, 83, 16, 598, 1023, 1610, 507, 461, 598, 585, 14, 395, 82, 371, 276, 620, 14, 1665, 507, 461, 69, 744, 270, 897, 1209, 11, 501, 271, 429, 850, 507, 398, 295, 535, 52, 390, 1044, 284, 407, 264, 873, 1209, 16, 574, 67, 1884, 496, 79, 1330, 365, 473, 311, 1764, 1368, 295, 365, 355, 366, 461, 598, 585, 318, 343, 689, 496, 79, 1330, 776, 1032, 223, 1909, 311, 1672, 1186, 295, 918, 276, 620, 14, 1319, 14, 1209, 336, 338, 585, 83, 16, 598, 1023, 545, 507, 461, 598, 585, 347, 295, 407, 1209, 301, 271, 429, 597, 1194, 507, 398]},
    {'id': 'long-doc', 'prompt_token_ids': [834, 1128, 79, 317, 28, 66, 69, 85, 88, 66, 892, 201, 1135, 1135, 717, 31, 301, 834, 582, 15, 69, 2045, 504, 53, 56, 395, 2026, 79, 67, 396, 747, 294, 836, 1027, 289, 964, 11, 1408, 311, 264, 1904, 621, 274, 846, 284, 422, 576, 1408, 335, 633, 583, 85, 598, 1473, 284, 292, 278, 402, 303, 285, 16, 1350, 260, 291, 378, 264, 893, 1991, 456, 284, 1268, 326, 293, 1867, 426, 644, 14, 264, 715, 324, 1408, 311, 1864, 306, 294, 635, 291, 378, 337, 363, 311, 1357, 1504, 302, 1717, 263, 1978, 892, 458, 607, 315, 622, 457, 75, 329, 467, 502, 756, 385, 479, 1574, 817, 14, 273, 344, 293, 264, 292, 334, 694, 85, 286, 857, 293, 284, 942, 293, 264, 817, 449, 264, 569, 73, 1663, 79, 270, 353, 799, 774, 28, 28, 310, 758, 1602, 85, 88, 881, 14, 599, 289, 439, 1830, 424, 69, 290, 605, 1696, 72, 79, 86, 2018, 85, 501, 259, 1488, 263, 310, 758, 593, 337, 450, 1461, 1549, 449, 264, 832, 280, 85, 88, 881, 16, 314, 280, 85, 88, 881, 981, 312, 380, 1485, 567, 286, 1752, 14, 1587, 297, 264, 310, 758, 581, 1822, 280, 85, 88, 1408, 16, 496, 617, 590, 356, 857, 449, 264, 280, 85, 88, 630, 311, 1139, 388, 263, 709, 286, 1752, 353, 259, 314, 332, 470, 482, 639, 422, 1505, 28, 833, 854, 1216, 846, 280, 85, 88, 201, 854, 1216, 370, 1143, 578, 1625, 73, 85, 853, 85, 88, 605, 868, 1022, 1830, 1547, 388, 280, 85, 88, 881, 318, 854, 1915]},
    {'id': 'long-table', 'prompt_token_ids': [344, 14, 559, 14, 69, 620, 14, 85, 69, 420, 201, 19, 14, 35, 80, 80, 67, 14, 36, 270, 78, 265, 14, 25, 19, 201, 20, 14, 36, 81, 14, 53, 74, 305, 378, 1568, 14, 26, 26, 201, 21, 14, 37, 294, 78, 67, 14, 52, 991, 14, 24, 22, 201, 22, 14, 38, 277, 73, 14, 37, 74, 277, 73, 70, 87, 14, 27, 21, 201, 23, 14, 39, 371, 77, 14, 49, 85, 432, 14, 25, 25, 201, 24, 14, 40, 278, 320, 67, 14, 37, 1455, 81, 14, 26, 23, 201, 25, 14, 41, 276, 305, 14, 53, 1553, 14, 23, 27, 201, 26, 14, 42, 305, 67, 14, 50, 348, 73, 393, 14, 27, 18, 201, 27, 14, 43, 88, 305, 14, 53, 788, 1984, 14, 24, 24, 201, 19, 18, 14, 44, 293, 14, 36, 71, 75, 76, 293, 14, 27, 25, 201, 19, 19, 14]},
    {'id': 'long-loop', 'prompt_token_ids': [74, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 273, 67, 223, 201]},
    {'id': 'long-spaces', 'prompt_token_ids': [683, 281, 10, 90, 398, 271, 365, 1375, 1499, 223, 18, 318, 295, 365, 1375, 1499, 223, 19, 318, 343, 365, 1375, 1499, 223, 20, 318, 419, 365, 1375, 1499, 223, 21, 318, 632, 365, 1375, 1499, 223, 22, 318, 1037, 365, 1375, 1499, 223, 23, 318, 1861, 365, 1375, 1499, 223, 24, 318, 481, 419, 365, 1375, 1499, 223, 25, 318, 481, 632, 407]},
    {'id': 'long-dao', 'prompt_token_ids': [168, 226, 244, 164, 240, 110, 168, 226, 244, 174, 123, 237, 168, 254, 255, 164, 119, 119, 168, 226, 244, 162, 225, 227, 164, 241, 238, 164, 240, 110, 164, 241, 238, 174, 123, 237, 168, 254, 255, 164, 119, 119, 164, 241, 238, 162, 225, 227, 165, 248, 257, 164, 241, 238, 164, 100, 105, 164, 253, 111, 163, 120, 236, 164, 103, 236, 174, 123, 252, 165, 253, 234, 164, 241, 238, 163, 119, 232, 166, 234, 105, 163, 120, 236, 165, 110, 238, 162, 225, 227, 165, 246, 230, 164, 119, 119, 165, 248, 257, 174, 123, 237, 165, 108, 113, 163, 122, 101, 167, 103, 227, 164, 230, 117, 164, 102, 250, 174, 123, 252, 164, 119, 119, 165, 253, 234, 174, 123, 237, 165, 108, 113, 163, 122, 101, 167, 103, 227, 164, 230, 117, 164, 125, 123, 162, 225, 227, 165, 258, 100, 163, 119, 100, 167, 225, 230, 174, 123, 237, 164, 241, 237, 164, 232, 121, 167, 225, 237, 164, 123, 227, 164, 241, 238, 174, 123, 237, 164, 241, 237, 167, 111, 244, 163, 120, 236, 166, 239, 229, 162, 225, 227, 166, 239, 229, 163, 120, 236, 164, 240, 233, 166, 239, 229, 174, 123, 237, 163, 123, 248, 164, 102, 250, 163, 120, 236, 168, 248, 104, 162, 225, 227, 164, 100, 105, 163, 119, 236, 166, 251, 231, 166, 256, 101, 166, 125, 239, 163, 120, 236, 163, 119, 121, 166, 125, 239, 174, 123, 237, 165, 247, 110, 165, 226, 117, 164, 118, 113, 162, 225, 227, 166, 251, 231, 166, 256, 101, 164, 247, 229, 163, 120, 236, 163, 119, 121, 164, 247, 229, 174, 123, 237, 165, 247, 110, 163, 119, 238, 164, 247, 229, 164, 118, 113, 162, 225, 227, 165, 253, 234, 165, 248, 257, 166, 252, 119, 166, 245, 256, 174, 123, 237, 168, 251, 125, 165, 249, 244, 166, 252, 119, 165, 233, 241, 174, 123, 237, 168, 246, 126, 166, 256, 258, 166, 252, 119, 164, 124, 98, 174, 123, 237, 168, 107, 249, 163, 119, 236, 166, 252, 119, 166, 252, 233, 174, 123, 237, 168, 256, 114, 164, 99, 111, 166, 252, 119, 164, 243, 237, 174, 123, 237, 164, 234, 238, 164, 241, 239, 166, 252, 119, 168, 251, 240, 162, 225, 227, 165, 249, 110, 163, 122, 101, 164, 253, 99, 163, 121, 121, 164, 100, 229, 165, 248, 257, 163, 119, 121, 163, 120, 236, 163, 121, 236, 174, 123, 237, 167, 97, 237, 163, 119, 238, 167, 104, 225, 163, 120, 236, 165, 246, 250, 174, 123, 252]},
    {'id': 'long-zh-task', 'prompt_token_ids': [167, 110, 118, 168, 249, 230, 167, 110, 122, 163, 119, 236, 168, 254, 98, 166, 251, 229, 168, 248, 109, 168, 98, 249, 164, 120, 117, 166, 122, 250, 164, 232, 121, 167, 110, 102, 166, 122, 231, 166, 251, 229, 167, 103, 99, 166, 258, 245, 165, 258, 101, 168, 106, 100, 162, 225, 227, 301, 163, 119, 225, 163, 119, 106, 165, 111, 115, 165, 112, 257, 165, 253, 234, 163, 119, 100, 163, 119, 106, 167, 126, 252, 165, 111, 115, 166, 109, 97, 164, 243, 237, 163, 119, 225, 163, 119, 106, 164, 232, 121, 165, 111, 115, 166, 109, 97, 162, 225, 227, 164, 238, 246, 164, 123, 225, 166, 245, 113, 166, 109, 97, 174, 123, 237, 164, 230, 258, 164, 111, 240, 165, 248, 117, 164, 240, 110, 163, 122, 101, 165, 114, 104, 165, 122, 97, 165, 111, 115, 165, 112, 257, 174, 123, 252, 164, 238, 246, 164, 123, 225, 163, 120, 250, 166, 109, 97, 174, 123, 237, 164, 230, 107, 164, 111, 240, 165, 248, 117, 164, 240, 110, 163, 122, 101, 165, 114, 104, 165, 122, 97, 165, 111, 115, 165, 112, 257, 174, 123, 252, 164, 238, 246, 164, 123, 225, 163, 119, 250, 166, 109, 97, 174, 123, 237, 164, 238, 226, 163, 121, 237, 164, 111, 240, 165, 248, 117, 164, 240, 110, 163, 122, 101, 165, 235, 235, 165, 122, 97, 165, 112, 257, 166, 251, 229, 165, 111, 115, 165, 245, 125, 164, 109, 237, 162, 225, 227, 166, 239, 111, 164, 253, 104, 163, 119, 234, 166, 109, 97, 164, 241, 237, 165, 248, 117, 165, 234, 244, 164, 123, 225, 174, 123, 237, 168, 248, 109, 164, 100, 251, 164, 111, 242, 164, 111, 240, 165, 248, 117, 164, 240, 110, 163, 122, 101, 165, 114, 104, 165, 122, 97, 165, 111, 115, 165, 112, 257, 174, 123, 256, 301, 167, 103, 99, 166, 258, 245, 174, 123, 251]},
    {'id': 'long-mixed', 'prompt_token_ids': [54, 1749, 78, 479, 264, 414, 1372, 286, 478, 569, 73, 1663, 613, 496, 1887, 78, 771, 353, 5, 223, 167, 110, 122, 164, 240, 247, 165, 247, 232, 163, 122, 117, 164, 120, 117, 166, 122, 256, 167, 109, 97, 165, 110, 240, 163, 119, 106, 164, 238, 246, 167, 110, 238, 164, 232, 121, 166, 239, 111, 166, 251, 229, 165, 108, 97, 165, 246, 111, 201, 683, 1319, 65, 937, 85, 10, 1206, 398, 271, 1319, 85, 336, 1171, 95, 201, 271, 370, 1143, 10, 1206, 14, 1436, 31, 4, 323, 72, 15, 26, 1772, 388, 630, 28, 223, 416, 223, 165, 234, 244, 164, 123, 225, 165, 247, 232, 163, 122, 117, 201, 295, 335, 803, 297, 630, 28, 223, 416, 223, 168, 225, 241, 167, 97, 237, 167, 110, 122, 164, 240, 247, 201, 343, 335, 802, 297, 803, 1105, 1553, 1564, 419, 1319, 85, 61, 937, 63, 336, 1319, 85, 1060, 10, 937, 14, 223, 18, 11, 730, 223, 19, 201, 271, 407, 1319, 85, 223, 416, 223, 167, 126, 245, 164, 252, 255, 166, 122, 244, 165, 255, 253, 301, 54, 1749, 78, 434, 318]},
]

# What cuda/base said: token ids and finish reason for each request and sample.
EXPECTED = {
    'en-president': {'0': {'tokens': [264, 201, 70, 325, 1570, 328, 286, 264, 298, 1592, 581, 298, 1592, 581, 724, 70, 290, 379, 680, 353, 834, 352, 69, 324, 1326, 680, 311, 263, 674, 337, 311, 813, 302, 312, 813, 302, 201, 267, 400, 264, 674, 285, 286, 264, 674, 353, 834, 674, 311, 841, 370, 264, 674, 593, 14, 284, 264, 674, 201, 528, 264, 674, 14, 284], 'finish_reason': 'length'}},
}

# Where rounding may decide: request -> position -> tokens within TOLERANCE of the best one. A position that is
# not listed has none but the expected token; one with null was not covered by the reference's list.
NEAR_TIES = {
    'en-president': {'0': None, '1': None, '2': None, '3': None, '4': None, '5': None, '6': None, '7': None, '8': None, '9': None, '10': None, '11': None, '12': None, '13': None, '14': None, '15': None, '16': None, '17': None, '18': None, '19': None, '20': None, '21': None, '22': None, '23': None, '24': None, '25': None, '26': None, '27': None, '28': None, '29': None, '30': None, '31': None, '32': None, '33': None, '34': None, '35': None, '36': None, '37': None, '38': None, '39': None, '40': None, '41': None, '42': None, '43': None, '44': None, '45': None, '46': None, '47': None, '48': None, '49': None, '50': None, '51': None, '52': None, '53': None, '54': None, '55': None, '56': None, '57': None, '58': None, '59': None, '60': None, '61': None, '62': None, '63': None},
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
