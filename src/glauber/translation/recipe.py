"""The study `train_translator`: settings, the recipe of paper B, and a trained translator.

`preset="paper"` takes every hyperparameter of paper B, appendix L.2, that the paper gives;
`compare_recipe` lists each of them next to the paper's.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypedDict, Unpack

import torch

from glauber.foundation.checks import OneOf, Positive, Real, Share, Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import Device, Seed
from glauber.foundation.progress import say
from glauber.foundation.study import Default, Result, defaults_of, study, visible
from glauber.foundation.tables import table
from glauber.models.weights import choose_device
from glauber.translation.data import (
    LONGEST,
    VOCABULARY,
    load_vocabulary,
    read_lines,
    read_split,
)
from glauber.translation.decoding import REMASK
from glauber.translation.model import Shape, Translator
from glauber.translation.training import (
    CORRUPTIONS,
    OPTIMIZERS,
    Batch,
    Size,
    Stages,
    TrainedModel,
    TrainingPlan,
    check_size,
    make,
)

FIRST_WEIGHTS = ("teacher", "random")
DATA_SETS = ("wmt14:de-en", "wmt16:ro-en", "wmt17:zh-en")  # of the paper, in both directions
FACTORED_FROM = 128  # T5X: a matrix with a smaller side is not factored


PRESET = Default(None)  # the value of the preset, else that in the help


class Recipe(TypedDict, total=False):
    """Sizes and hyperparameters."""

    steps: Annotated[int | None, "Steps of teacher and student (default: 5000).", Whole(), PRESET]
    batch: Annotated[int | None, "Pairs of a batch (default: 2048).", Batch, PRESET]
    vocabulary: Annotated[
        int | None, "Tokens of the shared vocabulary (default: 8000).", Size, PRESET
    ]
    width: Annotated[int | None, "Hidden units (default: 256).", Size, PRESET]
    heads: Annotated[
        int | None, "Attention heads; they divide the width (default: 8).", Size, PRESET
    ]
    layers: Annotated[int | None, "Layers of encoder and decoder each (default: 3).", Size, PRESET]
    encoder_layers: Annotated[int | None, "Layers of the encoder (default: layers).", Size, PRESET]
    decoder_layers: Annotated[int | None, "Layers of the decoder (default: layers).", Size, PRESET]
    inner: Annotated[
        int | None, "Hidden units of feed-forward blocks (default: 5/2 of the width).", Size, PRESET
    ]
    dropout: Annotated[float | None, "Dropout rate (default: 0.1).", Share, PRESET]
    positional: Annotated[
        bool | None, "Positional attention in the student's decoder (default: yes).", PRESET
    ]
    relative: Annotated[
        bool | None, "Scores of distances in self-attention, not of ar (default: no).", PRESET
    ]
    attend_masks: Annotated[
        bool | None, "Hidden positions are attended to by other positions (default: yes).", PRESET
    ]
    corruption: Annotated[
        str | None,
        "Corruption of the student's drafts: mask, random, mixed or cmlm (default: mask).",
        OneOf(CORRUPTIONS),
        PRESET,
    ]
    kept: Annotated[
        float | None, "Share of a draft that is kept (default: drawn for each row).", Share, PRESET
    ]
    stages: Annotated[
        int | None,
        "Passes of the student, each on the output of the previous one (default: 2; cmlm: 1).",
        Stages,
        PRESET,
    ]
    remask: Annotated[
        float | None,
        "Largest fraction of tokens, the least confident, hidden between stages (default: 0.5).",
        Share,
        PRESET,
    ]
    remask_repeats: Annotated[bool | None, "Hide repeats between stages (default: yes).", PRESET]
    begin: Annotated[
        str | None,
        "First weights of the student, the teacher's or random (default: teacher).",
        OneOf(FIRST_WEIGHTS),
        PRESET,
    ]
    smoothing: Annotated[float | None, "Label smoothing (default: 0.1).", Share, PRESET]
    length_weight: Annotated[
        float | None, "Weight of the length predictor's loss (default: 0.2).", Real(0.0), PRESET
    ]
    optimizer: Annotated[
        str | None,
        "adamw, or adafactor with the constants of T5X (default: adamw).",
        OneOf(OPTIMIZERS),
        PRESET,
    ]
    clip: Annotated[
        float | None, "Largest norm of the gradient; 0: no limit (default: 1).", Real(0.0), PRESET
    ]
    peak: Annotated[float | None, "Highest learning rate (default: 0.002).", Positive, PRESET]
    warmup: Annotated[
        int | None, "Steps until then (default: a fifth, at most 400).", Whole(), PRESET
    ]
    longest: Annotated[
        int | None, "Tokens on a side; longer pairs are not used (default: 31).", Size, PRESET
    ]
    joined: Annotated[
        bool | None, "Join 2 to 4 pairs in three of five batches (default: yes).", PRESET
    ]


DEFAULTS: dict[str, Any] = dict(
    steps=5000,
    batch=2048,
    vocabulary=8000,
    width=256,
    heads=8,
    layers=3,
    dropout=0.1,
    positional=True,
    relative=False,
    attend_masks=True,
    corruption="mask",
    remask=REMASK,
    remask_repeats=True,
    begin="teacher",
    smoothing=0.1,
    length_weight=0.2,
    optimizer="adamw",
    clip=1.0,
    peak=2e-3,
    longest=LONGEST,
    joined=True,
)
# Paper B, appendix L.2. The paper says nothing of length_weight and longest.
PAPER: dict[str, Any] = dict(
    steps=500_000,
    batch=2048,
    vocabulary=32_000,
    width=512,
    heads=8,
    layers=6,
    inner=2048,
    dropout=0.1,
    positional=True,
    corruption="random",
    kept=0.15,
    stages=2,
    remask=0.0,
    remask_repeats=False,
    begin="random",
    smoothing=0.0,
    length_weight=0.2,
    optimizer="adafactor",
    clip=0.0,
    peak=3e-3,
    warmup=10_000,
    longest=127,
    joined=False,
)
PRESETS: dict[str, dict[str, Any]] = {"paper": PAPER}


def settings_of(preset: str | None, recipe: Recipe) -> dict[str, Any]:
    """The given values, else those of the preset, else the defaults."""
    given = {name: value for name, value in recipe.items() if value is not None}
    own = defaults_of(Recipe) | DEFAULTS | PRESETS.get(preset or "", {}) | given
    derived = {
        "encoder_layers": own["layers"],
        "decoder_layers": own["layers"],
        "inner": 5 * own["width"] // 2,
        "stages": 1 if own["corruption"] == "cmlm" else 2,
        "warmup": max(1, min(400, own["steps"] // 5)),
    }
    return own | {name: value for name, value in derived.items() if own[name] is None}


def plan_of(settings: Mapping[str, Any], seed: int = 0) -> TrainingPlan:
    """The plan of teacher and student."""
    own: dict[str, Any] = {field.name: settings.get(field.name) for field in fields(TrainingPlan)}
    own |= {"n_steps": settings["steps"], "n_pairs": settings["batch"], "seed": seed}
    return TrainingPlan(**own | {"last": TrainingPlan.last})


def shape_of(settings: Mapping[str, Any]) -> Shape:
    """The sizes of the student; four pairs are joined at most."""
    most = 4 * settings["longest"] + 4 if settings["joined"] else settings["longest"] + 1
    own = {field.name: settings[field.name] for field in fields(Shape) if field.name in settings}
    own |= {"n_encoder": settings["encoder_layers"], "n_decoder": settings["decoder_layers"]}
    own |= {"vocab_size": settings["vocabulary"], "max_length": max(Shape.max_length, most)}
    return Shape(**own)


def weight_shapes(shape: Shape) -> list[torch.Size]:
    """The shape of each weight of such a translator, none of which is made."""
    with torch.device("meta"):
        return [weight.shape for weight in Translator(shape).parameters()]


# Paper B, section 3.3 and appendix L.2; what is not here the paper does not give.
PUBLISHED: dict[str, object] = {
    "encoder layers": 6,
    "decoder layers": 6,
    "attention heads": 8,
    "width": 512,
    "feed-forward width": 2048,
    "parameters": "67 million",
    "positional attention": "each Transformer layer",
    "position embeddings": "learnt",
    "vocabulary": 32_000,
    "vocabulary learnt from": "the pairs",
    "first weights": "random",
    "pairs of a batch": 2048,
    "steps": 500_000,
    "dropout": 0.1,
    "share of a draft that is kept": 0.15,
    "rest of a draft": "random",
    "stages": 2,
    "hidden between stages": "nothing",
    "optimizer": "adafactor",
    "its constants": "T5X defaults",
    "highest learning rate": 0.003,
    "warm-up steps": 10_000,
    "first and last rate": 1e-5,
    "form of the rate": "linear, then cosine",
    "targets": "Google Cloud Translation",
    "pairs": "WMT14, WMT16 or WMT17",
    "longest pair": "not limited",
    "joined pairs": "no",
}
NOTES = {
    "positional attention": "73 million with it in the encoder",
    "hidden between stages": "as in (L.59); stutter in decoding",
    "targets": "another autoregressive system",
    "longest pair": "the paper's mean is 28 to 33",
}


@dataclass(frozen=True)
class Hyperparameter:
    """One hyperparameter here and in paper B, and whether they are equal."""

    hyperparameter: str
    here: object
    paper: object
    verdict: str  # equal, differs, or our choice where the paper does not give it
    note: str = ""


def compare_recipe(
    settings: Mapping[str, Any], *, texts: bool = False, pairs: str | None = None
) -> list[Hyperparameter]:
    """Every hyperparameter of a training next to that of paper B.

    texts: the vocabulary is learnt from other texts than the pairs.
    """
    plan, shape = plan_of(settings), shape_of(settings)
    weights = weight_shapes(shape)
    n_millions = sum(map(math.prod, weights)) / 1e6
    narrowest = min(min(sides) for sides in weights if len(sides) > 1)
    constants = {
        "norm limited": plan.clip > 0,
        f"sides < {FACTORED_FROM} factored": narrowest < FACTORED_FROM,
    }
    changed = ", ".join(name for name, holds in constants.items() if holds)
    hidden = {"repeats": plan.remask_repeats, "the least confident": plan.remask > 0}
    here: dict[str, object] = {
        "encoder layers": shape.n_encoder,
        "decoder layers": shape.n_decoder,
        "attention heads": shape.heads,
        "width": shape.width,
        "feed-forward width": shape.inner,
        "parameters": f"{n_millions:.1f} million",
        "positional attention": "decoder layers" if shape.positional else "none",
        "position embeddings": "learnt, and distances" if shape.relative else "learnt",
        "vocabulary": shape.vocab_size,
        "vocabulary learnt from": "other texts" if texts else "the pairs",
        "first weights": settings["begin"],
        "pairs of a batch": plan.n_pairs,
        "steps": plan.n_steps,
        "dropout": shape.dropout,
        "share of a draft that is kept": "drawn by row" if plan.kept is None else plan.kept,
        "rest of a draft": plan.corruption,
        "stages": plan.stages,
        "hidden between stages": " and ".join(name for name in hidden if hidden[name]) or "nothing",
        "optimizer": plan.optimizer,
        "its constants": changed or "T5X defaults",
        "highest learning rate": plan.peak,
        "warm-up steps": plan.warmup,
        "first and last rate": plan.last,
        "form of the rate": "linear, then cosine",
        "targets": "our teacher, 5 beams",
        "pairs": pairs,
        "longest pair": f"{settings['longest']} tokens on a side",
        "joined pairs": "yes" if plan.joined else "no",
        "hidden positions are attended to": "yes" if shape.attend_masks else "no",
        "label smoothing": plan.smoothing,
        "weight of the length's loss": plan.length_weight,
        "draft of the next stage": "most likely tokens",
    }
    equal = {
        "parameters": round(n_millions) == 67,
        "its constants": plan.optimizer == "adafactor" and not changed,
        "pairs": any(name in (pairs or "") for name in DATA_SETS),
    }
    return [
        Hyperparameter(
            name,
            value,
            PUBLISHED.get(name, "not given"),
            "our choice" if name not in PUBLISHED else "equal" if same else "differs",
            NOTES.get(name, ""),
        )
        for name, value in here.items()
        if value is not None
        for same in [equal.get(name, value == PUBLISHED.get(name))]
    ]


@study
def train_translator(
    pairs: Annotated[
        str | Path, "Two-column file, plain or xz, or hub:NAME:CONFIG[:SOURCE-TARGET]."
    ],
    *,
    out: Annotated[str | Path, "Folder of the translator; an existing one is resumed."],
    preset: Annotated[
        str | None,
        "paper: the hyperparameters of paper B, each printed next to the paper's.",
        OneOf(tuple(PRESETS)),
    ] = None,
    further: Annotated[str | Path | None, "Sentences without a translation, one a line."] = None,
    vocabulary_from: Annotated[
        str | Path | None,
        "Sentences from which the vocabulary is learnt, one a line (default: the pairs).",
    ] = None,
    control: Annotated[
        bool, "Also train an autoregressive model on the distilled pairs (paper B's baseline)."
    ] = False,
    seed: Seed = 0,
    device: Device = "auto",
    **recipe: Unpack[Recipe],
) -> "TrainedTranslator":
    """Train a translator from pairs: a teacher, its distilled translations, and a student.

    What `translate` reads with `model=OUT`. Teacher and student are trained for as many steps; the
    student begins from the teacher's weights, which have seen as many pairs before it. With
    `preset=paper` the defaults are those of paper B, appendix L.2; other options given with it
    replace its values.
    """
    settings = settings_of(preset, recipe)
    plan, shape = plan_of(settings, seed), shape_of(settings)
    plan.check()
    shape.check()
    check_size(shape, plan)
    folder = _check_folder(out)
    sentences = read_lines(Path(further)) if further else []
    texts = read_lines(Path(vocabulary_from)) if vocabulary_from else []
    listed = read_split(pairs, "train")
    steps, size = settings["steps"], settings["batch"]
    say(f"{len(listed):,} pairs; teacher and student, {steps:,} steps of {size:,} pairs each")
    models = make(
        listed,
        folder,
        plan,
        shape=shape,
        longest=settings["longest"],
        further=sentences,
        vocabulary_texts=texts,
        begin_from="teacher" if settings["begin"] == "teacher" else None,
        control=control,
        device=choose_device(device).type,
    )
    settings["vocabulary"] = load_vocabulary(folder).size
    compared = compare_recipe(settings, texts=bool(texts), pairs=_name_of(pairs))
    return TrainedTranslator(folder, models, compared, preset)


def _name_of(pairs: str | Path) -> str:
    return str(pairs) if str(pairs).startswith("hub:") else Path(pairs).name


@dataclass(frozen=True, eq=False)
class TrainedTranslator(Result):
    """A folder with a translator, and the losses of its training."""

    folder: Path
    models: list[TrainedModel]
    recipe: list[Hyperparameter]  # each next to that of paper B
    preset: str | None = None
    kind: str = "estimate: losses of single batches"  # What every number is

    FIGURES = {"loss": ("glauber.interfaces.plots.translation:plot_losses", "models")}

    def lines(self) -> Iterable[str]:
        for model in self.models:
            cost = f"{model.seconds:,.0f} s on {model.device}" if model.new else "present before"
            yield (
                f"{model.name}: {model.n_parameters:,} parameters, {model.n_examples:,} pairs"
                f"{f' ({model.n_dropped:,} more were too long)' if model.n_dropped else ''}, "
                f"loss {model.loss:.3f} (last batch), {cost}"
            )
        if self.preset is not None:
            n_equal = sum(row.verdict == "equal" for row in self.recipe)
            yield f"{n_equal} of {len(self.recipe)} hyperparameters are those of paper B"
            yield from table([vars(row) for row in self.recipe])
        yield f'{self.folder} contains the translator: glauber translate "…" --model {self.folder}'

    def table(self) -> Iterable[Mapping[str, object]]:
        """One row for each loss that was recorded."""
        return [
            {"model": model.name, "step": step, "loss": loss}
            for model in self.models
            for step, loss in model.curve
        ]


def _check_folder(out: str | Path) -> Path:
    """The folder of the translator: new, empty, or with an unfinished translator."""
    folder = Path(out)
    try:
        if not str(out).strip():
            raise GlauberError("the folder of the translator has no name.")
        if "\0" in str(out):
            raise ValueError("it has a null byte")
        if folder.exists() and not folder.is_dir():
            raise GlauberError(f"{folder} is a file, not the folder of a translator.")
        if folder.is_dir() and any(folder.iterdir()) and not (folder / VOCABULARY).is_file():
            raise GlauberError(
                f"{folder} contains other things than a translator; give a new name."
            )
    except (OSError, ValueError) as problem:
        text = f"{visible(str(out))[:200]} cannot be the folder of a translator"
        raise GlauberError(f"{text}: {getattr(problem, 'strerror', None) or problem}.") from problem
    return folder
