#!/bin/sh
# Make a case again: run it on a real engine, and write what its folder holds.
#
#     sh reports/regenerate.sh planted-chunk-twice|near-ties|one-token-prompt|sampled-mtp-cpu|emulated-ngram-hybrid|
#                              emulated-prompt-pieces|h200-near-ties|h200-async-race|h200-second-runner|async-mla|all|
#                              pages
#
# `pages` needs no engine: it compares the captures of the recorded cases again and writes their report.html in the layout
# of today. The rest stays as their runs wrote it.
#
# WORK=DIR keeps the runs there, to write the folders anew without an engine. Needs parity and its CPU engine environment (`parity env create cpu`; the last two cases `ascend-emulated`); about a minute a case on two cores.
set -eu
cd "$(dirname "$0")"
PARITY=${PARITY:-parity}
PYTHON=${PYTHON:-python3}

make_case() {
    name=$1 fault=$2
    shift 2
    work=${WORK:+$WORK/$name}
    work=${work:-$(mktemp -d)}
    # Relative paths only: what a run records ends up in the folder.
    test -f "$work/run/result.json" || "$PARITY" run --backends "${backend:-cpu}" --prompts "$name/prompts.jsonl" \
        --out "$work/run" --db "$work/parity.db" "$@" || test $? -eq 1
    "$PYTHON" ../tools/publish_case.py "$work/run" "$work/parity.db" "$name" ${fault:+"$fault"}
    test -n "${WORK:-}" || rm -rf "$work"
}

# n-gram drafts are asked for in the plan: `mtp` with another method.
make_ngram_case() {
    name=$1
    work=${WORK:+$WORK/$name}
    work=${work:-$(mktemp -d)}
    test -f "$work/run/result.json" || {
        "$PARITY" plan --backends ascend-emulated --variants base,mtp --prompts "$name/prompts.jsonl" --max-tokens 32 \
            --engine max_model_len=256 --record -o "$work/plan.json"
        "$PYTHON" "$name/ngram.py" "$work/plan.json"
        "$PARITY" trust "$work"
        "$PARITY" run --plan "$work/plan.json" --no-rehearse --out "$work/run" --db "$work/parity.db" || test $? -eq 1
    }
    "$PYTHON" ../tools/publish_case.py "$work/run" "$work/parity.db" "$name"
    test -n "${WORK:-}" || rm -rf "$work"
}

# The first two ask the same of the engine: four arms, of which the report is about the clean one or a planted one.
controls="--positive-control chunk_twice:rate=0.3 --positive-control row_leak:rate=0.3 --positive-control loop:rate=0.3"

case ${1:-all} in
planted-chunk-twice) make_case "$1" chunk_twice --max-tokens 48 --logprobs 5 $controls ;;
near-ties) make_case "$1" "" --max-tokens 48 --logprobs 5 $controls ;;
one-token-prompt) make_case "$1" "" --max-tokens 16 --max-num-seqs 4 --max-num-batched-tokens 48 --record ;;
emulated-ngram-hybrid) make_ngram_case "$1" ;;
emulated-prompt-pieces)
    backend=ascend-emulated
    make_case "$1" "" --variants base,mtp -k 3 --max-tokens 32 --engine max_model_len=256 --max-num-seqs 4 \
        --max-num-batched-tokens 16 --record --no-rehearse
    ;;
async-mla) # not among `all`: it needs `parity env create cpu-v2`
    backend=cpu-v2 model=../build/deepseek_v3
    test -d "$model" || "$PARITY" model tiny --arch deepseek_v3 -o "$model"
    make_case "$1" "" --model "$model" --engine async_scheduling=true --engine attention_backend=CPU_MLA \
        --max-num-seqs 8 --max-tokens 32 --repetition-penalty 1.5 -k 3 --record --no-rehearse
    ;;
h200-near-ties) # not among `all`: it needs a GPU
    backend=cuda
    make_case "$1" "" --model ../parity/models/tiny-qwen3-next-mtp --record --max-tokens 64 --no-rehearse
    ;;
h200-async-race) # not among `all`: it needs a GPU and vLLM 0.23.0, and a race comes as it likes
    backend=cuda
    make_case "$1" "" --config "$1/parity.toml" --variants base,mtp-async-full --samples 8 --rounds 8 \
        --model ../parity/models/tiny-qwen3-next-mtp --record --max-tokens 64 --no-rehearse
    ;;
h200-second-runner) # not among `all`: it needs a GPU and vLLM 0.23.0
    backend=cuda
    make_case "$1" "" --config "$1/parity.toml" --variants base,v2 --samples 4 --rounds 2 \
        --model ../parity/models/tiny-qwen3-next-mtp --record --max-tokens 64 --no-rehearse
    ;;
sampled-mtp-cpu) make_case "$1" "" --max-tokens 12 --temperature 0.8 --n 2 --record ;;
pages)
    work=$(mktemp -d)
    for one in one-token-prompt:cpu-mtp emulated-ngram-hybrid:ascend-emulated-ngram \
        emulated-prompt-pieces:ascend-emulated-mtp; do
        captures=${one%%:*}/captures candidate=${one##*:}
        "$PARITY" compare "$captures/${candidate%-*}-base.jsonl.gz" "$captures/$candidate.jsonl.gz" \
            --scores "$captures/scores.jsonl.gz" --db "$work/parity.db" >/dev/null || test $? -eq 1
        "$PARITY" report --db "$work/parity.db" --format html -o "${one%%:*}/report.html"
    done
    rm -rf "$work"
    ;;
all)
    for name in planted-chunk-twice near-ties one-token-prompt sampled-mtp-cpu emulated-ngram-hybrid \
        emulated-prompt-pieces; do
        sh regenerate.sh "$name"
    done
    ;;
*)
    echo "there is no case $1" >&2
    exit 2
    ;;
esac
