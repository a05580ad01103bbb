"""glauber translate: English to Spanish by parallel refinement, or word by word."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glauber.cli import options

if TYPE_CHECKING:
    from rich.text import Text

    from glauber.translation.translate import Translation
    from glauber.translation.vocabulary import Vocabulary

Folder = Annotated[
    Path | None, typer.Option("--models", help="Folder of translators (default: the bundled one).")
]


Initial = Annotated[
    str | None,
    typer.Option(help="First draft: mask or random (default: random for sundae, else mask)."),
]
Judge = Annotated[
    str, typer.Option(help="Who chooses among the drafts: itself or teacher (one pass more).")
]
Doubt = Annotated[
    float, typer.Option(help="refine: share hidden after a pass, the least sure; less each time.")
]
Ratio = Annotated[float, typer.Option(help="--length ratio: target tokens for a source token.")]


def translate(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT…", help="English sentences.")],
    decoder: Annotated[
        str, typer.Option(help="refine, mask-predict, easy-first, left-to-right, sundae or ar.")
    ] = "refine",
    steps: Annotated[int, typer.Option(help="Passes over the sentence.")] = 4,
    lengths: Annotated[int, typer.Option(help="Lengths tried in parallel; the best is kept.")] = 5,
    length: Annotated[str, typer.Option(help="Lengths around what: predicted or ratio.")] = (
        "predicted"
    ),
    ratio: Ratio = 1.0,
    initial: Initial = None,
    remask: Annotated[bool, typer.Option(help="refine: hide repeats between passes.")] = True,
    doubt: Doubt = 0.5,
    hypotheses: Annotated[int, typer.Option(help="sundae: drafts of each length.")] = 16,
    judge: Judge = "teacher",
    beams: Annotated[int, typer.Option(help="ar only: hypotheses kept; 1 is greedy.")] = 5,
    seed: options.Seed = 0,
    trace: Annotated[
        bool, typer.Option("--trace", help="Show the sentence at every pass.")
    ] = False,
    models: Folder = None,
    device: options.Device = "cpu",
    json: options.Json = False,
) -> None:
    """Translate English into Spanish, all words at once in a few passes."""
    from glauber.cli.screen import emit, out
    from glauber.conditionals.weights import choose_device
    from glauber.errors import GlauberError
    from glauber.translation.store import BUNDLED, load, load_vocabulary
    from glauber.translation.translate import Way
    from glauber.translation.translate import translate as translated

    if length == "oracle":
        raise GlauberError("the length oracle needs references: use evaluate-translator.")
    folder = models or BUNDLED
    way = Way(
        decoder, steps, lengths, beams, length, ratio, initial, remask, doubt,
        n_hypotheses=hypotheses, seed=seed, judge=judge,
    )  # fmt: skip
    chosen = str(choose_device(device))
    model = load(folder, "teacher" if decoder == "ar" else "student", device=chosen)
    vocabulary = load_vocabulary(folder)
    way.check(model)
    asked = decoder != "ar" and judge == "teacher" and lengths > 1
    teacher = load(folder, "teacher", device=chosen) if asked else None
    made = translated(model, vocabulary, texts, way=way, teacher=teacher)
    if json:
        rows = zip(texts, made, strict=True)
        emit({"translations": [_plain(vocabulary, text, one, trace) for text, one in rows]})
        return
    for one in made:
        for line in _passes(vocabulary, one) if trace else ():
            out.print(line, highlight=False)
        out.print(one.text, highlight=False, markup=False, soft_wrap=True)


def _plain(vocabulary: "Vocabulary", text: str, one: "Translation", trace: bool) -> dict[str, Any]:
    told: dict[str, Any] = {
        "source": text,
        "translation": one.text,
        "score": one.score,
        "passes": one.n_passes,
        "kind": "estimate",
    }
    if trace:
        told["trace"] = [vocabulary.decode(list(tokens)) for tokens in one.trace]
    return told


def _passes(vocabulary: "Vocabulary", one: "Translation") -> "list[Text]":
    """A line for each pass; tokens that changed since the pass before are marked."""
    from rich.text import Text

    lines, before = [], one.trace[0] if one.trace else ()
    for number, tokens in enumerate(one.trace, 1):
        line = Text(f"{number:>4} ", style="dim")
        for token, old in zip(tokens, before, strict=True):
            spelled = vocabulary.spell(token).replace("▁", " ")
            line.append(spelled, "bold black on yellow" if token != old else "none")
        lines.append(line)
        before = tokens
    return lines
