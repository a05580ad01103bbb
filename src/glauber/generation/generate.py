"""What does a masked model write from nothing, or between a prefix and a suffix?"""

from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor

from glauber.conditionals.base import PAD, Model, mask_token_of
from glauber.conditionals.starts import check_length
from glauber.dynamics.candidates import ORDERS
from glauber.dynamics.noise import random_bits, uniform
from glauber.dynamics.schedules import COUNTS, REMASKS
from glauber.dynamics.unmasking import Unmasking
from glauber.errors import GlauberError
from glauber.generation.generated import Generation, generation, spoken
from glauber.generation.writing import (
    check,
    check_out,
    check_passes,
    open_masked,
    plan_generation,
    write,
)
from glauber.parameters import Device, Dtype, MaskToken, ModelOrName, Seed, Trust
from glauber.progress import check_count, check_memory, say
from glauber.result import counted, model_parts, signature, study

LENGTH_SLOT = 2**30  # its noise draws a chain's length: no site and no sweep has that slot

Order = Annotated[str, f"Which hidden token is filled first: {', '.join(ORDERS)}."]
Count = Annotated[str | int, f"How many a pass: {COUNTS}."]
PassCount = Annotated[int | None, "Passes of linear and cosine (default: one token a pass)."]
Block = Annotated[int | None, "Fill in blocks of so many tokens, from left to right."]
Again = Annotated[str, f"Which placed tokens are hidden again: {REMASKS}."]
Heat = Annotated[float, "0 takes the likeliest token, 1 draws from the model as it is."]
TopK = Annotated[int | None, "Draw among so many likeliest tokens only."]
TopP = Annotated[float | None, "Draw among the likeliest tokens with this mass only."]
Correct = Annotated[int, "Sweeps of Glauber redraws that revise the text at its end."]
CorrectBlock = Annotated[int | None, "Tokens redrawn at once in a sweep (default: 1)."]
Between = Annotated[bool, "Sweep behind every pass, not only behind the last one."]
BatchSize = Annotated[int | None, "Texts filled together (default: all); changes nothing else."]
Out = Annotated[str | Path | None, "Folder of the run; one that was begun by this call is resumed."]


@study
def generate(
    model: ModelOrName = "bundled:english",
    *,
    length: Annotated[int | str, "Tokens to write, or a range such as 12-30."] = 24,
    prefix: Annotated[str, "Text that stands before and is never changed."] = "",
    suffix: Annotated[str, "Text that stands behind and is never changed."] = "",
    chains: Annotated[int, "How many texts."] = 8,
    order: Order = "confidence",
    count: Count = "linear",
    passes: PassCount = None,
    error: Annotated[
        float | None, "Nats of KL that a pass may cost: order and count are then calibrated."
    ] = None,
    calibration: Annotated[
        str | Path | None, "A stored calibration: glauber calibrate --out FILE.json."
    ] = None,
    block: Block = None,
    remask: Again = "none",
    temperature: Heat = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    correct: Correct = 0,
    correct_block: CorrectBlock = None,
    correct_between: Between = False,
    seed: Seed = 0,
    batch_size: BatchSize = None,
    out: Out = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: Trust = False,
    mask_token: MaskToken = None,
) -> Generation:
    """Write texts with a masked model: hide everything, then fill it pass by pass.

    By default one token a pass, where the model is surest first: the slowest way, and the best at
    temperature 1. Below, a random order repeats itself less. The same seed gives the same texts for
    any batch size and after any restart. The log-probability of a text is that of its path: the
    sum over its tokens, each in the law that it was drawn from (at temperature 0, the model's own).
    With correction, remasking or the order drawn, a path has none.
    With an error, at least 95% of the passes on texts like the bundled passages cost at most that
    many nats (see `calibrate`).
    """
    how = Unmasking(
        order, count, passes, block, remask, top_k, top_p, correct, correct_between, correct_block
    )
    check(how, temperature=temperature, seed=seed, batch_size=batch_size, device=device)
    if error is not None or calibration is not None:
        from glauber.generation.calibration import check_within_error

        check_within_error(how, error=error, stored=calibration, temperature=temperature)
    check_count("number of texts", chains)
    least, most = read_lengths(length)
    check_passes(how, least)
    check_out(out)
    opened = open_masked(
        model,
        device=device,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
        mask_token=mask_token,
    )
    if error is not None or calibration is not None:
        from glauber.generation.calibration import within_error

        how = within_error(
            opened, how, error=error, stored=calibration, temperature=float(temperature)
        )
    lengths = drawn_lengths(least, most, chains, seed)
    if temperature == 0 and order != "random" and len(set(lengths)) < chains:
        say("at temperature 0 nothing is drawn: texts of one length are the same")
    tokens = _rows(opened, prefix, suffix, lengths)
    drawn = f"{least}-{most}" if least < most else str(least)
    planned = plan_generation(
        opened,
        how,
        tokens,
        temperature=temperature,
        seed=seed,
        prefix=prefix,
        trust_remote_code=trust_remote_code,
        lengths=drawn,
    )
    made = signature(
        **model_parts(opened),
        length=length,
        prefix=prefix or None,
        suffix=suffix or None,
        chains=chains,
        error=error,
        **spoken(how),
        temperature=float(temperature),
        seed=seed,
    )
    return generation(planned, write(planned, out=out, batch_size=batch_size), made)


def read_lengths(given: int | str) -> tuple[int, int]:
    """The least and the most tokens, from 24 or 12-30."""
    ends = str(given).split("-")
    if isinstance(given, bool) or len(ends) > 2 or not all(e.strip().isdecimal() for e in ends):
        raise GlauberError(f"the length is {given!r}, but it must be a number or such as 12-30.")
    least, most = int(ends[0]), int(ends[-1])
    check_count("length", least)
    check_count("length", most)
    if most < least:
        raise GlauberError(f"the length is {given}, but a range goes from the shorter one up.")
    return least, most


def drawn_lengths(least: int, most: int, chains: int, seed: int) -> list[int]:
    """A length for each chain, drawn evenly by the chain's own noise."""
    bits, _ = random_bits(
        torch.tensor(seed), torch.arange(chains), torch.tensor(0), torch.tensor(LENGTH_SLOT)
    )
    return (least + (uniform(bits) * (most - least + 1)).long()).tolist()


def _rows(model: Model, prefix: str, suffix: str, lengths: list[int]) -> Tensor:
    """Tokens (chains, longest) with so many hidden ones between prefix and suffix."""
    vocabulary = model.vocabulary
    for name, text in (("prefix", prefix), ("suffix", suffix)):
        if not isinstance(text, str):
            raise GlauberError(f"the {name} is {text!r}, but it must be one text.")
        vocabulary.check(text, f"the {name}")
    before, behind = vocabulary.pieces(prefix), vocabulary.pieces(suffix)
    check_memory(32.0 * len(lengths) * max(lengths), f"{counted(len(lengths), 'text')}")
    return rows_of(model, [[*before, *[mask_token_of(model)] * n, *behind] for n in lengths])


def rows_of(model: Model, pieces: list[list[int]]) -> Tensor:
    """Tokens (rows, longest) with the special ones around, refused where they are too long."""
    opening, closing = model.vocabulary.text.around
    whole = [torch.tensor([*opening, *row, *closing]) for row in pieces]
    tokens = torch.nn.utils.rnn.pad_sequence(whole, batch_first=True, padding_value=PAD)
    check_length(model, tokens)
    return tokens
