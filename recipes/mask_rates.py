"""What does the share of hidden tokens in training do to a masked LM?

Paper B's theorems are about laws that the model class holds. Here the same question is asked of
text: small masked LMs that differ in nothing but the masks that they were trained with, each seed
with the same first weights, the same rows in the same order and as many steps.

    python -m recipes.mask_rates prepare --data english --out WORK            # a vocabulary
    python -m recipes.mask_rates train --data english --out WORK --steps 3000 # one GPU, minutes
    python -m recipes.mask_rates collect --out WORK --to mask-rates.json      # one small file

`train` makes all kinds of mask side by side, seed after seed, until they are done or `--seconds`
have passed, and measures each model: nll on held-out rows by the share that is hidden, nll of half
a row filled in token by token, rectangles, and when coupled chains meet. `--data` is a folder of
*.txt.xz, one passage per line; the last synthetic file is held out.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor
from torch.nn import functional as F

from recipes.english_mlm.text import SPECIALS, load_tokenizer, read, special_tokens, tokenise
from recipes.english_mlm.train import rows_of_text
from recipes.mask_rates_training import (
    KINDS,
    LENGTH,
    Network,
    Text,
    fit,
    hidden_sites,
    losses,
    middle,
    scores_at,
)

VOCABULARY = 4096
TESTED = ("1 token", 0.15, 0.3, 0.5, 0.8)  # of a held-out row, hidden together
TEMPERATURES = (1.0, 1.5, 2.0, 3.0)


def prepare(args: argparse.Namespace) -> None:
    """A lower-case WordPiece vocabulary of the training text, in WORK/tokenizer.json."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    learn = trainers.WordPieceTrainer(vocab_size=args.vocabulary, special_tokens=list(SPECIALS))
    made.train_from_iterator(_passages(args.data)[0], learn)
    ends = [("[CLS]", made.token_to_id("[CLS]")), ("[SEP]", made.token_to_id("[SEP]"))]
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    args.out.mkdir(parents=True, exist_ok=True)
    made.save(str(args.out / "tokenizer.json"))
    names = {f"{name[1:-1].lower()}_token": name for name in SPECIALS}
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, **names}
    (args.out / "tokenizer_config.json").write_text(json.dumps(config))
    print(f"{made.get_vocab_size()} tokens")


def train(args: argparse.Namespace) -> None:
    """Every kind of mask in a process of its own, one after the other seed."""
    begun = time.time()
    stream, held_out = (tokenise(part, load_tokenizer(args.out)) for part in _passages(args.data))
    torch.save((stream, held_out), args.out / "text.pt")
    print(f"{len(stream):,} tokens, {len(held_out):,} held out, {time.time() - begun:.0f} s")
    chosen = [kind for kind in KINDS if not args.only or kind in args.only]
    if args.device == "cpu" or len(chosen) == 1:
        for kind in chosen:
            _seeds(kind, args, begun)
        return
    workers = torch.multiprocessing.get_context("spawn")
    crew = [workers.Process(target=_seeds, args=(kind, args, begun)) for kind in chosen]
    for one in crew:
        one.start()
    for one in crew:
        one.join()


def collect(args: argparse.Namespace) -> None:
    """All measured models in one file."""
    found = [json.loads(file.read_text()) for file in sorted(args.out.glob("measured/*.json"))]
    args.to.write_text(json.dumps({"models": found}, separators=(",", ":")) + "\n")
    print(f"{len(found)} models in {args.to}")


def _seeds(kind: str, args: argparse.Namespace, begun: float) -> None:
    """One kind of mask: as many seeds as there is time for."""
    torch.set_float32_matmul_precision("high")
    torch.set_num_threads(1)
    stream, held_out = (part.to(args.device) for part in torch.load(args.out / "text.pt"))
    specials = torch.tensor(special_tokens(load_tokenizer(args.out)), device=args.device)
    seen = torch.bincount(stream, minlength=args.vocabulary).double() + 1
    text = Text(stream, specials, -(seen / seen.sum()).log().float())
    loss_of = torch.compile(losses, dynamic=False) if args.device == "cuda" else losses
    spent = 0.0
    for seed in range(args.seeds):
        if args.seconds and time.time() - begun + 1.1 * spent > args.seconds:
            print(f"{kind}: no time for seed {seed}", flush=True)
            return
        start = time.time()
        model, curve = fit(KINDS[kind], text, loss_of, args, seed=seed)
        trained = time.time() - start
        found = {"masks": kind, "seed": seed, "steps": args.steps, "rows": args.batch,
                 "training_loss": curve, "seconds": trained}  # fmt: skip
        found |= measure(model, Text(held_out, specials, text.rarity), args, name=f"{kind}-{seed}")
        found["measuring seconds"] = time.time() - start - trained
        folder = args.out / "measured"
        folder.mkdir(exist_ok=True)
        name = "".join(c if c.isalnum() else "-" for c in kind)
        (folder / f"{name}-{seed}.json").write_text(json.dumps(found))
        spent = time.time() - start
        print(f"{kind}, seed {seed}: {trained:.0f} s, nll {found['nll']}", flush=True)


def measure(
    model: Network, held_out: Text, args: argparse.Namespace, *, name: str
) -> dict[str, Any]:
    """What the trained model is like, in float32, on the same rows and pairs for every model."""
    device = held_out.stream.device
    generator = torch.Generator(device).manual_seed(7)
    shape = (args.tested, LENGTH)
    rows = next(rows_of_text(held_out.stream, held_out.specials, shape, generator, stop=0))
    with torch.inference_mode():
        nll = {str(share): _nll(model, rows, held_out, share) for share in TESTED}
        filled = _filled_nll(model, rows[: args.tested // 4], held_out)
    folder = args.out / "models" / "".join(c if c.isalnum() else "-" for c in name)
    _save(model, folder, args)
    texts = _texts(held_out, args)
    return {"nll": nll, "nll of half a row, token by token": filled} | _dynamics(
        folder, texts, args
    )


def _nll(model: Network, rows: Tensor, held_out: Text, share: Any) -> float:
    """Mean nll of hidden tokens, the same sites for every model."""
    generator = torch.Generator(rows.device).manual_seed(11)
    noise = torch.rand(rows.shape, generator=generator, device=rows.device).clamp(min=1e-12)
    count = 1 if isinstance(share, str) else round(share * (LENGTH - 2))
    counts = torch.full((len(rows),), count, device=rows.device)
    sites = hidden_sites(rows, counts, middle(rows).float(), noise)
    flat, length = rows.flatten(), rows.shape[1]
    covered = flat.scatter(0, sites, held_out.specials[-1].expand(len(sites))).view_as(rows)
    total, done = 0.0, 0
    for part in range(0, len(rows), 256):
        here = sites[(sites >= part * length) & (sites < (part + 256) * length)] - part * length
        scores = scores_at(model, covered[part : part + 256], here).float()
        targets = rows[part : part + 256].flatten()[here]
        total += F.cross_entropy(scores, targets, reduction="sum").item()
        done += len(here)
    return total / done


def _filled_nll(model: Network, rows: Tensor, held_out: Text) -> list[float]:
    """Nll a token of each row's hidden half, filled in one by one in random order."""
    generator = torch.Generator(rows.device).manual_seed(13)
    noise = torch.rand(rows.shape, generator=generator, device=rows.device)
    half = (LENGTH - 2) // 2
    order = torch.where(middle(rows), noise, 2.0).argsort(dim=1)[:, :half]
    covered = rows.scatter(1, order, held_out.specials[-1].expand_as(order))
    first = torch.arange(len(rows), device=rows.device) * rows.shape[1]
    total = torch.zeros(len(rows), device=rows.device)
    for rank in range(half):
        site = order[:, rank]
        truth = rows.gather(1, site[:, None])[:, 0]
        scores = scores_at(model, covered, first + site).float()
        total += F.cross_entropy(scores, truth, reduction="none")
        covered = covered.scatter(1, site[:, None], truth[:, None])
    return [round(value, 4) for value in (total / half).tolist()]


def _save(model: Network, folder: Path, args: argparse.Namespace) -> None:
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_text((args.out / name).read_text())


def _texts(held_out: Text, args: argparse.Namespace) -> list[str]:
    """Held-out passages to start chains and rectangles from."""
    plain = (text for text in _passages(args.data)[1] if text.isascii())
    return [text for text in plain if len(text.split()) > 40][: args.passages]


def _dynamics(folder: Path, texts: list[str], args: argparse.Namespace) -> dict[str, Any]:
    """Rectangles, and the steps after which coupled chains of 16 tokens meet."""
    import glauber
    from glauber.models.load import load
    from glauber.studies.mixing.meeting import meet
    from glauber.texts.starts import starts

    opened = load(str(folder), device=args.device)
    found = glauber.rectangles(opened, texts, count=args.rectangles, length=20, seed=0)
    tokens, free = starts(opened, texts, length=16)
    n_pairs = min(args.pairs, len(tokens) // 2)
    left, right = (tokens[first : 2 * n_pairs : 2] for first in (0, 1))
    hot = torch.tensor(TEMPERATURES).repeat_interleave(n_pairs)
    again = len(TEMPERATURES)
    meetings = meet(
        opened.conditionals(),
        left.repeat(again, 1),
        right.repeat(again, 1),
        free[:n_pairs].repeat(again, 1),
        temperature=hot,
        seed=0,
        steps=args.sweeps * 16,
        pair=torch.arange(n_pairs).repeat(again),
    )
    met = zip(meetings.times.tolist(), meetings.met.tolist(), strict=True)
    delta = [round(float(value), 5) for value in found.delta]
    times = [time if ok else None for time, ok in met]
    by = {f"{tau:g}": times[n * n_pairs : (n + 1) * n_pairs] for n, tau in enumerate(TEMPERATURES)}
    return {"delta": delta, "passages": found.passages.tolist(), "meeting steps": by,
            "budget": args.sweeps * 16}  # fmt: skip


def _passages(folder: Path) -> tuple[list[str], list[str]]:
    """Passages to train on, and the last synthetic file, which is held out."""
    files = sorted(file for file in folder.glob("*.txt.xz") if "-test" not in file.name)
    files = [file for file in files if "-valid" not in file.name]
    held_out = [file for file in files if file.name.startswith("synthetic")][-1]
    training = [text for file in files if file != held_out for text in read(file)]
    return training, read(held_out)[:20_000]


def main(words: list[str] | None = None) -> None:
    """Reads the command line and runs one of the steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    steps = parser.add_subparsers(required=True)
    for name, run in {"prepare": prepare, "train": train, "collect": collect}.items():
        step = steps.add_parser(name)
        step.set_defaults(run=run)
        step.add_argument("--data", type=Path)
        step.add_argument("--out", type=Path, required=True, help="the folder of all steps")
        step.add_argument("--to", type=Path, default=Path("mask-rates.json"))
        step.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
        step.add_argument("--vocabulary", type=int, default=VOCABULARY)
        step.add_argument("--steps", type=int, default=3000)
        step.add_argument("--seeds", type=int, default=4)
        step.add_argument("--batch", type=int, default=512, help="rows")
        step.add_argument("--peak", type=float, default=1e-3, help="highest learning rate")
        step.add_argument("--warmup", type=int, default=200, help="steps")
        step.add_argument("--seconds", type=float, default=0, help="begin no seed that ends later")
        step.add_argument("--only", nargs="*", default=[], help="kinds of masks")
        step.add_argument("--tested", type=int, default=2048, help="held-out rows")
        step.add_argument("--passages", type=int, default=256)
        step.add_argument("--rectangles", type=int, default=300)
        step.add_argument("--pairs", type=int, default=64)
        step.add_argument("--sweeps", type=int, default=100, help="budget of coupled chains")
    args = parser.parse_args(words)
    args.run(args)


if __name__ == "__main__":
    main()
