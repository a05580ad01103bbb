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
Batch = tuple[Tensor, Tensor, Tensor, Tensor]  # covered tokens, flat sites, targets, weights


@dataclass
class Progress:
    """How far a training has come; `seconds` counts neither start-up nor compilation."""

    step: int = 0
    seconds: float = 0.0
    loss: float = math.nan  # smoothed over some hundred steps


def rows_of_text(
    stream: Tensor, specials: Tensor, shape: tuple[int, int], generator: torch.Generator, stop: int
) -> Iterator[Tensor]:
    """Endless batches (rows, length) of [CLS] text [SEP]; each pass cuts the stream anew.

    With a stop token, every other row begins behind the last one before it: at a sentence.
    """
    rows, width = shape[0], shape[1] - 2
    within = torch.arange(width, device=stream.device)
    begins = sentence_begins(stream, stop) if stop else None
    while True:
        shift = torch.randint(width, (1,), generator=generator, device=stream.device)
        order = torch.randperm(len(stream) // width - 1, generator=generator, device=stream.device)
        for starts in (order * width + shift)[: len(order) // rows * rows].split(rows):
            if begins is not None:
                starts = torch.where(
                    within.new_ones(rows).cumsum(0) % 2 == 0, begins[starts], starts
                )
            yield add_ends(stream[starts[:, None] + within], specials)


def sentence_begins(stream: Tensor, stop: int) -> Tensor:
    """For each place of the stream the first place of its sentence."""
    place = torch.arange(len(stream), device=stream.device)
    behind = torch.where(stream.roll(1) == stop, place, 0)
    return behind.cummax(0).values


def hidden_counts(args: argparse.Namespace, rows: int, width: int, device: torch.device) -> Tensor:
    """Hidden sites (rows,) of each row: 5 to 40%; to write too, 0 to 100% in every other row."""
    shares = torch.linspace(*HIDDEN_SHARE, rows, device=device)
    if args.to_write:
        shares = torch.where(
            torch.arange(rows, device=device) // 2 % 2 == 0,
            shares,
            torch.linspace(0, 1, rows, device=device),
        )
    return (shares * width).round().long().clamp(min=1)


def training_batches(
    stream: Tensor, specials: Tensor, args: argparse.Namespace, seed: int, length: int, stop: int
) -> Iterator[Batch]:
    """Endless training batches of one length, made on the device where the stream lies."""
    generator = torch.Generator(stream.device).manual_seed(seed)
    rows = args.batch * args.lengths[0] // length
    counts = hidden_counts(args, rows, length - 2, stream.device)
    row, rank = plan(counts)
    # To write, a row counts once however much of it is hidden: the mean of the likelihood bound.
    weights = 1 / counts[row] / rows if args.to_write else torch.ones_like(row) / len(row)
    for tokens in rows_of_text(stream, specials, (rows, length), generator, stop):
        yield *hide(tokens, row, rank, specials, generator), weights


def in_turns(several: list[Iterator[Batch]]) -> Iterator[Batch]:
    """A batch of each, again and again."""
    while True:
        for one in several:
            yield next(one)


def masked_loss(
    model: BertForMaskedLM, tokens: Tensor, sites: Tensor, targets: Tensor, weights: Tensor
) -> Tensor:
    """Weighted nll of the targets at the hidden sites; fp32 weights, products on a GPU in bf16."""
    with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=tokens.is_cuda):
        nll = F.cross_entropy(scores_at(model, tokens, sites).float(), targets, reduction="none")
        return (nll * weights).sum()


def compiled_loss(model: BertForMaskedLM, batches: list[Batch]) -> Callable[..., Tensor]:
    """`masked_loss`, compiled and warm on a GPU; plain on a CPU or where the compiler fails."""
    if batches[0][0].device.type != "cuda":
        return masked_loss
    begun = time.perf_counter()
    compiled = torch.compile(masked_loss, dynamic=False)
    try:
        for batch in batches * 3:
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
    loss_of = compiled_loss(model, [next(batches) for _ in args.lengths])
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
    n_tokens = (progress.step - shown.step) * args.batch * args.lengths[0]
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
        "tokens": progress.step * args.batch * args.lengths[0],
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
    if len(stream) // (min(args.lengths) - 2) <= args.batch * args.lengths[0] // min(args.lengths):
        raise SystemExit("too little text for one batch")
    specials = torch.tensor(special_tokens(tokenizer), device=args.device)
    model, optimizer, progress = start_or_resume(args)
    stop = tokenizer.token_to_id(".") if args.to_write else 0
    batches = [
        training_batches(stream, specials, args, args.seed + progress.step, length, stop)
        for length in args.lengths
    ]
    fit(model, optimizer, progress, in_turns(batches), args)
    save_model(model, progress, args, len(stream))
    (args.out / "checkpoint.pt").unlink(missing_ok=True)
    print(f"{args.out}: step {progress.step}, {time.perf_counter() - begun:.0f} s in all")
