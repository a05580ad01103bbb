"""Translations of sentences, with the draft after each pass."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict, Unpack

from glauber.foundation.checks import OneOf, Positive, Share
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import Device, Seed
from glauber.foundation.progress import track
from glauber.foundation.study import Default, Result, internal, report_skipped, study
from glauber.models.weights import choose_device
from glauber.texts.read import Corpus, Row
from glauber.texts.starts import read_texts, row_name, skip
from glauber.translation.data import SubwordVocabulary, load_vocabulary
from glauber.translation.decoding import (
    DECODERS,
    INITIAL,
    JUDGES,
    LENGTHS,
    Decoding,
    Drafted,
    Steps,
    Translation,
    translate_texts,
)
from glauber.translation.model import BUNDLED, load

if TYPE_CHECKING:
    import plotly.graph_objects as go

TranslatorModel = Annotated[
    str | Path | None, "Folder of a translator (default: the bundled one, English to Spanish)."
]
Lengths = Annotated[
    int, "Number of lengths tried in parallel; the best translation is returned.", Drafted
]


class DecodingOptions(TypedDict, total=False):
    """How drafts begin and what is hidden between passes; named as the fields of `Decoding`."""

    length: Annotated[
        str,
        "Tried lengths: predicted or ratio; in evaluate-translator also oracle.",
        OneOf(LENGTHS),
        Default(Decoding.length),
    ]
    ratio: Annotated[
        float,
        "With length=ratio: target tokens per source token.",
        Positive,
        Default(Decoding.ratio),
    ]
    initial: Annotated[
        str | None,
        "First draft: mask or random (default: random for sundae, else mask).",
        OneOf(INITIAL),
        Default(None),
    ]
    remask: Annotated[
        float,
        "refine-remask: fraction of least confident tokens hidden after a pass; decreasing.",
        Share,
        Default(Decoding.remask),
    ]
    remask_repeats: Annotated[
        bool,
        "refine, refine-remask: hide repeats between passes.",
        Default(Decoding.remask_repeats),
    ]
    seed: Annotated[Seed, Default(0)]


SHOWN = 8  # sentences that are drawn


@study
def translate(
    texts: Annotated[str | Path | Sequence[str] | None, "Sentences to translate."] = None,
    *,
    model: TranslatorModel = None,
    decoder: Annotated[
        str,
        "refine-remask, refine (the paper's own), mask-predict, easy-first, confident-first, "
        "left-to-right, sundae or ar.",
        OneOf(DECODERS),
    ] = Decoding.decoder,
    steps: Annotated[int, "Passes over the sentence.", Steps] = Decoding.n_steps,
    lengths: Lengths = Decoding.n_lengths,
    hypotheses: Annotated[int, "sundae: drafts of each length.", Drafted] = Decoding.n_hypotheses,
    judge: Annotated[
        str,
        "Model that chooses among the drafts: itself or teacher (one pass more).",
        OneOf(JUDGES),
    ] = Decoding.judge,
    beams: Annotated[
        int, "ar only: number of hypotheses; 1 is greedy.", Drafted
    ] = Decoding.n_beams,
    trace: Annotated[bool, "Show the sentence at every pass."] = False,
    device: Device = "cpu",
    **options: Unpack[DecodingOptions],
) -> "Translations":
    """Translate English into Spanish, all words at once in a few passes.

    The parallel refinement of paper B (PaDIR, `refine`): every position is predicted again in each
    pass, and what repeats its left neighbour is hidden from the next one. `refine-remask`
    hides the least confident tokens as well, which the paper does not. mask-predict, easy-first and
    sundae are those of its table 2, here by a student trained for refinement; `ar` writes word by
    word.
    """
    decoding = Decoding(
        decoder, steps, lengths, beams, n_hypotheses=hypotheses, judge=judge, **options
    )
    decoding.check()
    if decoding.length == "oracle":
        raise GlauberError("the length oracle needs references: use evaluate-translator.")
    if texts is None:
        raise GlauberError("no text was given: there is nothing to translate.")
    corpus, folder = read_texts(texts), translator_folder(model)
    vocabulary, kind = load_vocabulary(folder), str(choose_device(device))
    translator = load(folder, "teacher" if decoder == "ar" else "student", device=kind)
    teacher = load(folder, "teacher", device=kind) if decoding.asks_teacher else None
    rows = _legible(corpus, vocabulary, translator.shape.max_length)
    with track("sentences", len(rows)) as advance:
        translations = translate_texts(
            translator,
            vocabulary,
            [row.text for row in rows],
            decoding=decoding,
            teacher=teacher,
            confidence=True,
            advance=advance,
            unknown=corpus.unknown,
        )
    sentences = [
        _sentence(row, translation, vocabulary, trace)
        for row, translation in zip(rows, translations, strict=True)
    ]
    return Translations(sentences, trace)


def _legible(corpus: Corpus, vocabulary: SubwordVocabulary, max_length: int) -> list[Row]:
    """The texts that can be translated; the others are left out and reported."""
    rows, skipped = [], []
    for row in corpus.sound().rows:
        reason = ""
        for unknown in ("token", corpus.unknown):
            try:
                vocabulary.read_source(row.text, max_length, unknown=unknown)
            except GlauberError as error:
                reason = f"cannot be translated: {str(error).rstrip('.')}"
                if unknown == "error":
                    raise GlauberError(f"{row_name(row)} {reason}.") from error
                break
        if reason:
            skipped.append(skip(row, reason))
        else:
            rows.append(row)
    report_skipped(skipped, len(rows) + len(skipped))
    return rows


@dataclass(frozen=True)
class Sentence:
    """One sentence: its translation, and the words of every pass.

    tokens: (passes, tokens), as the vocabulary spells them; an autoregressive model has one row.
    """

    number: int  # of the sentence in the input, from 1
    id: str  # in its source
    source: str
    translation: str
    score: float  # mean log-probability of a token, by the judge
    passes: int
    trace: list[str]  # the text after each pass, on request
    tokens: list[list[str]] = internal()
    decoded: Translation = internal()
    kind: str = "estimate"

    @property
    def log_probs(self) -> Sequence[Sequence[float]]:
        """Of each of the tokens, in the pass that wrote it."""
        return self.decoded.confidence


@dataclass(frozen=True, eq=False)
class Translations(Result):
    """Sentences in the other language."""

    translations: list[Sentence]
    trace: bool = internal()  # whether the passes are shown

    @property
    def texts(self) -> list[str]:
        """The translations alone."""
        return [sentence.translation for sentence in self.translations]

    def lines(self) -> Iterable[str]:
        """The translations, one per line; with the trace, the draft after each pass."""
        for sentence in self.translations:
            if self.trace:
                yield from _passes(sentence.tokens)
            yield sentence.translation

    def table(self) -> Mapping[str, object]:
        """One row per sentence."""
        names = ("number", "id", "source", "translation", "score", "passes")
        columns: dict[str, object] = {
            name: [getattr(sentence, name) for sentence in self.translations] for name in names
        }
        sizes = [
            len(sentence.tokens[-1]) if sentence.tokens else 0 for sentence in self.translations
        ]
        return columns | {"tokens": sizes}

    def figures(self) -> "dict[str, go.Figure]":
        """The confidence of each word at every pass, of the first sentences."""
        from glauber.interfaces.plots.translation import plot_passes

        return {
            f"passes-{number}": plot_passes(sentence)
            for number, sentence in enumerate(self.translations[:SHOWN], 1)
        }


def translator_folder(model: str | Path | None) -> Path:
    """The folder of a translator; None is the bundled one."""
    if not isinstance(model, str | Path | None):
        raise GlauberError(
            f"the model must be a folder of a translator, not a {type(model).__name__}."
        )
    return BUNDLED if model is None else Path(model)


def _sentence(
    row: Row, translation: Translation, vocabulary: SubwordVocabulary, trace: bool
) -> Sentence:
    passes = translation.trace or (translation.tokens,)
    return Sentence(
        number=row.number,
        id=row.id,
        source=row.text,
        translation=translation.text,
        score=translation.score,
        passes=translation.n_passes,
        trace=[vocabulary.decode(list(tokens)) for tokens in translation.trace if trace],
        tokens=[[vocabulary.spell(token) for token in tokens] for tokens in passes],
        decoded=translation,
    )


def _passes(rows: list[list[str]]) -> Iterable[str]:
    """A line for each pass; words that changed since the previous pass are in brackets."""
    before = rows[0] if rows else []
    for number, row in enumerate(rows, 1):
        marked = [
            token if token == old else _in_brackets(token)
            for token, old in zip(row, before, strict=True)
        ]
        yield f"{number:>4} {''.join(marked).replace('▁', ' ').strip()}"
        before = row


def _in_brackets(token: str) -> str:
    blank = "▁" if token.startswith("▁") else ""
    return f"{blank}[{token.removeprefix('▁')}]"
