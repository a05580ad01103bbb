"""Must the loss of masks that favour some tokens condition on the mask?

Paper B, Definition 7, on text. Every token is hidden by itself with a probability r(v) that its own
type decides, larger for rare ones. Then p(x_K | the rest, K) is p(x_K | the rest) times the r of
the hidden tokens, normalised: the loss that conditions on K adds log r to the scores of training,
and the model without it is p(x_K | the rest). The plain loss learns p(x_K | the rest, K) instead.

    python -m recipes.mask_rates prepare --data english --out WORK
    python -m recipes.mask_rates_conditioned --data english --out WORK --to conditioned.json

Otherwise as `mask_rates`: the same rows, first weights and noise for every arm of a seed.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from recipes.english_mlm.text import load_tokenizer, special_tokens, tokenise
from recipes.english_mlm.train import rows_of_text, take_step
from recipes.mask_rates import TESTED, _filled_nll, _nll, _passages
from recipes.mask_rates_training import (
    LENGTH,
    SHAPE,
    Network,
    RobertaPreLayerNormConfig,
    Text,
    _batches,
    _optimizer,
    scores_at,
)

SHARE = 0.3  # of the text that is hidden, on average
ARMS = ("every token alike", "rare tokens more often", "the same, the loss conditions on K")


def rates(text: Text, share: float) -> Tensor:
    """r(v) (vocabulary,), proportional to the rarity of a token, with this mean over the text."""
    seen = torch.bincount(text.stream, minlength=len(text.rarity)).float()
    seen[text.specials] = 0.0
    chances = text.rarity * share / ((seen * text.rarity).sum() / seen.sum())
    return chances.clamp(max=0.95)


def losses(model: Network, tokens: Tensor, hidden: Tensor, mask: Tensor, added: Tensor) -> Tensor:
    """Mean nll of the hidden tokens (rows, length); added (vocabulary,) is log r or 0."""
    covered = torch.where(hidden, mask, tokens)
    sites = torch.arange(tokens.numel(), device=tokens.device)
    with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=tokens.is_cuda):
        scores = scores_at(model, covered, sites)
    nll = F.cross_entropy(scores.float() + added, tokens.flatten(), reduction="none")
    return (nll * hidden.flatten()).sum() / hidden.sum()


def fit(arm: str, text: Text, args: argparse.Namespace, *, seed: int) -> tuple[Network, Tensor]:
    """A model trained in one way, and log r (vocabulary,)."""
    torch.manual_seed(seed)
    model = Network(RobertaPreLayerNormConfig(vocab_size=args.vocabulary, **SHAPE))
    model = model.to(args.device).train()
    flat = torch.full_like(text.rarity, SHARE)
    chances = flat if arm == ARMS[0] else rates(text, SHARE)
    added = chances.log() if arm == ARMS[2] else torch.zeros_like(chances)
    loss_of = torch.compile(losses, dynamic=False) if args.device == "cuda" else losses
    optimizer = _optimizer(model)
    for step, (tokens, noise) in enumerate(_batches(text, args, seed)):
        if step == args.steps:
            break
        hidden = (noise[0] < chances[tokens]) & ~torch.isin(tokens, text.specials)
        loss = loss_of(model, tokens, hidden, text.specials[-1], added)
        warm, spent = min((step + 1) / args.warmup, 1.0), step / args.steps
        cosine = 0.505 + 0.495 * torch.cos(torch.tensor(torch.pi * spent)).item()
        take_step(model, optimizer, loss, args.peak * warm * cosine)
    return model.eval(), rates(text, SHARE).log()


class Corrected(torch.nn.Module):
    """A model whose scores have log r taken off."""

    def __init__(self, model: Network, added: Tensor):
        super().__init__()
        self.roberta_prelayernorm, self.head, self.added = (
            model.roberta_prelayernorm,
            model.lm_head,
            added,
        )

    def lm_head(self, states: Tensor) -> Tensor:
        return self.head(states) - self.added


def measure(model: Network, held_out: Text, tested: int) -> dict[str, object]:
    """Nll by share, and of half a row token by token, on the rows of `mask_rates`."""
    generator = torch.Generator(held_out.stream.device).manual_seed(7)
    shape = (tested, LENGTH)
    rows = next(rows_of_text(held_out.stream, held_out.specials, shape, generator, stop=0))
    with torch.inference_mode():
        nll = {str(share): round(_nll(model, rows, held_out, share), 4) for share in TESTED}
        filled = _filled_nll(model, rows[: tested // 4], held_out)
    return {"nll": nll, "filled": round(sum(filled) / len(filled), 4)}


def arm_of_all_seeds(arm: str, args: argparse.Namespace, begun: float) -> None:
    """One arm in a process of its own, seed after seed while there is time."""
    torch.set_float32_matmul_precision("high")
    torch.set_num_threads(2)
    stream, held_out = (part.to(args.device) for part in torch.load(args.out / "text.pt"))
    specials = torch.tensor(special_tokens(load_tokenizer(args.out)), device=args.device)
    seen = torch.bincount(stream, minlength=args.vocabulary).double() + 1
    text = Text(stream, specials, -(seen / seen.sum()).log().float())
    test, found, spent = Text(held_out, specials, text.rarity), [], 0.0
    for seed in range(args.seeds):
        start = time.time()
        if args.seconds and start - begun + 1.05 * spent > args.seconds:
            break
        model, added = fit(arm, text, args, seed=seed)
        found.append(
            {"arm": arm, "seed": seed, "steps": args.steps} | measure(model, test, args.tested)
        )
        if arm == ARMS[1]:
            name = {
                "arm": "the same, log r taken off the scores",
                "seed": seed,
                "steps": args.steps,
            }
            found.append(name | measure(Corrected(model, added), test, args.tested))
        spent = time.time() - start
        print(f"{spent:.0f} s", found[-1], flush=True)
        (args.out / f"arm-{ARMS.index(arm)}.json").write_text(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--to", type=Path, default=Path("conditioned.json"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=1600)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--peak", type=float, default=5e-4)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--tested", type=int, default=2048)
    parser.add_argument("--seconds", type=float, default=0, help="begin no seed that ends later")
    args = parser.parse_args()
    begun = time.time()
    stream, held_out = (tokenise(part, load_tokenizer(args.out)) for part in _passages(args.data))
    torch.save((stream, held_out), args.out / "text.pt")
    print(f"{len(stream):,} tokens, {time.time() - begun:.0f} s", flush=True)
    workers = torch.multiprocessing.get_context("spawn")
    crew = [workers.Process(target=arm_of_all_seeds, args=(arm, args, begun)) for arm in ARMS]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    found = [
        row for file in sorted(args.out.glob("arm-*.json")) for row in json.loads(file.read_text())
    ]
    args.to.write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    main()
