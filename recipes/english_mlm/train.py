"""How far does a model come in a given time on one GPU?"""

from __future__ import annotations

import argparse
import json
import math
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers
from torch import Tensor
from torch.nn import functional as F
from transformers import BertForMaskedLM

from .hiding import add_ends, hide, plan, scores_at
from .text import load_tokenizer, special_tokens, tokenise, training_passages

HIDDEN_SHARE = (0.05, 0.40)  # of a row's text, spread evenly over the rows of a batch
Batch = tuple[Tensor, Tensor, Tensor]  # covered tokens, flat sites, targets: see `hide`


@dataclass
class Progress:
    """How far a training has come; `seconds` counts neither start-up nor compilation."""

    step: int = 0
    seconds: float = 0.0
    loss: float = math.nan  # smoothed over some hundred steps


def rows_of_text(
    stream: Tensor, specials: Tensor, shape: tuple[int, int], generator: torch.Generator
) -> Iterator[Tensor]:
    """Endless batches (rows, length) of [CLS] text [SEP]; each pass cuts the stream anew."""
    rows, width = shape[0], shape[1] - 2
    within = torch.arange(width, device=stream.device)
    while True:
        shift = torch.randint(width, (1,), generator=generator, device=stream.device)
        order = torch.randperm(len(stream) // width - 1, generator=generator, device=stream.device)
        for starts in (order * width + shift)[: len(order) // rows * rows].split(rows):
            yield add_ends(stream[starts[:, None] + within], specials)


def training_batches(
    stream: Tensor, specials: Tensor, args: argparse.Namespace, seed: int
) -> Iterator[Batch]:
    """Endless training batches, made on the device where the stream lies."""
    generator = torch.Generator(stream.device).manual_seed(seed)
    shares = torch.linspace(*HIDDEN_SHARE, args.batch, device=stream.device)
    row, rank = plan((shares * (args.length - 2)).round().long())
    for tokens in rows_of_text(stream, specials, (args.batch, args.length), generator):
        yield hide(tokens, row, rank, specials, generator)


def masked_loss(model: BertForMaskedLM, tokens: Tensor, sites: Tensor, targets: Tensor) -> Tensor:
    """Mean nll of the targets at the hidden sites; weights in fp32, products on a GPU in bf16."""
    with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=tokens.is_cuda):
        return F.cross_entropy(scores_at(model, tokens, sites).float(), targets)


def compiled_loss(model: BertForMaskedLM, batch: Batch) -> Callable[..., Tensor]:
    """`masked_loss`, compiled and warm on a GPU; plain on a CPU or where the compiler fails."""
    if batch[0].device.type != "cuda":
        return masked_loss
    begun = time.perf_counter()
    compiled = torch.compile(masked_loss, dynamic=False)
    try:
        for _ in range(3):
            compiled(model, *batch).backward()
        torch.cuda.synchronize()
        print(f"compiled in {time.perf_counter() - begun:.0f} s", flush=True)
    except Exception as error:  # a slower training is better than none
        print(f"not compiled: {type(error).__name__}: {error}", flush=True)
        compiled = masked_loss
    model.zero_grad(set_to_none=True)
    return compiled


def make_optimizer(model: BertForMaskedLM) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices, none on norms and biases."""
    # One token type occurs, so its embedding only shifts the positions': it stays as it is.
    model.bert.embeddings.token_type_embeddings.requires_grad_(False)
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": 0.01},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.98), fused=True)


def learning_rate(progress: Progress, args: argparse.Namespace) -> float:
    """Linear warm-up in steps, times a cosine from the peak to 1% of it in time spent."""
    spent = min(progress.seconds / args.seconds, 1.0)
    cosine = 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * spent))
    return args.peak * min((progress.step + 1) / args.warmup, 1.0) * cosine


def start_or_resume(
    args: argparse.Namespace,
) -> tuple[BertForMaskedLM, torch.optim.AdamW, Progress]:
    """The model in fp32 and without dropout, its optimizer, and how far they have come."""
    model = BertForMaskedLM.from_pretrained(
        args.init, dtype=torch.float32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    model.to(args.device).train()
    optimizer, progress = make_optimizer(model), Progress()
    checkpoint = args.out / "checkpoint.pt"
    if args.resume and checkpoint.exists():
        state = torch.load(checkpoint, map_location=args.device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        progress = Progress(**state["progress"])
    return model, optimizer, progress


def save_checkpoint(
    path: Path, model: BertForMaskedLM, optimizer: torch.optim.AdamW, progress: Progress
) -> None:
    """Writes what `--resume` needs; a kill half-way leaves the former file whole."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state | {"progress": asdict(progress)}, path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)


def take_step(
    model: BertForMaskedLM, optimizer: torch.optim.AdamW, loss: Tensor, rate: float
) -> None:
    """One AdamW step down the gradient of the loss, clipped to norm 1."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def fit(
    model: BertForMaskedLM,
    optimizer: torch.optim.AdamW,
    progress: Progress,
    batches: Iterator[Batch],
    args: argparse.Namespace,
) -> None:
    """Trains until `progress.seconds` reaches `--seconds`."""
    loss_of = compiled_loss(model, next(batches))
    start, shown = time.perf_counter() - progress.seconds, Progress(**asdict(progress))
    saved = progress.seconds
    while progress.seconds < args.seconds:
        rate = learning_rate(progress, args)
        loss = loss_of(model, *next(batches))
        take_step(model, optimizer, loss, rate)
        progress.step += 1
        if progress.step % 10 == 1:  # reading the loss waits for the device: the clock is true
            value, past = loss.item(), progress.loss
            progress.loss = value if math.isnan(past) else 0.95 * past + 0.05 * value
        progress.seconds = time.perf_counter() - start
        if progress.seconds > shown.seconds + 10:
            show(progress, shown, rate, args)
            shown = Progress(**asdict(progress))
        if progress.seconds > saved + 60:
            save_checkpoint(args.out / "checkpoint.pt", model, optimizer, progress)
            saved = progress.seconds


def show(progress: Progress, shown: Progress, rate: float, args: argparse.Namespace) -> None:
    """Prints one line: loss, speed since the last line, rate."""
    n_tokens = (progress.step - shown.step) * args.batch * args.length
    speed = n_tokens / (progress.seconds - shown.seconds)
    print(
        f"{progress.seconds:5.0f} s  step {progress.step:6d}  loss {progress.loss:.4f}  "
        f"{speed:11,.0f} tokens/s  rate {rate:.2e}",
        flush=True,
    )


def save_model(
    model: BertForMaskedLM, progress: Progress, args: argparse.Namespace, text_tokens: int
) -> None:
    """Writes weights in fp16, config, tokenizer, and how they were made."""
    model.half().save_pretrained(args.out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(args.init / name, args.out / name)
    versions = {m.__name__: m.__version__ for m in (torch, transformers, tokenizers, np)}
    on_gpu = args.device.startswith("cuda")
    record = {
        "arguments": {k: v for k, v in vars(args).items() if k != "run"},
        **asdict(progress),
        "tokens": progress.step * args.batch * args.length,
        "text_tokens": text_tokens,
        "device": torch.cuda.get_device_name() if on_gpu else platform.machine(),
        "versions": {"python": platform.python_version(), **versions},
    }
    (args.out / "training.json").write_text(json.dumps(record, indent=2, default=str) + "\n")


def train(args: argparse.Namespace) -> None:
    """Trains init on the text for `--seconds` and writes the result to `--out`."""
    begun = time.perf_counter()
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer(args.init)
    stream = tokenise(training_passages(args.data), tokenizer).to(args.device)
    print(f"{len(stream):,} tokens of text, {time.perf_counter() - begun:.0f} s", flush=True)
    if len(stream) // (args.length - 2) <= args.batch:
        raise SystemExit("too little text for one batch")
    specials = torch.tensor(special_tokens(tokenizer), device=args.device)
    model, optimizer, progress = start_or_resume(args)
    batches = training_batches(stream, specials, args, seed=args.seed + progress.step)
    fit(model, optimizer, progress, batches, args)
    save_model(model, progress, args, len(stream))
    (args.out / "checkpoint.pt").unlink(missing_ok=True)
    print(f"{args.out}: step {progress.step}, {time.perf_counter() - begun:.0f} s in all")
