"""Translations of sentences, with the draft after each pass."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from glauber.conditionals.starts import called, read_texts, skip
from glauber.conditionals.texts import Corpus, Row
from glauber.conditionals.weights import choose_device
from glauber.errors import GlauberError
from glauber.parameters import Device, Seed
from glauber.progress import track
from glauber.result import Result, plain, report_skipped, signature, study
from glauber.translation.data import SubwordVocabulary, load_vocabulary
from glauber.translation.decoding import Decoding, Translation, translate_texts
from glauber.translation.model import BUNDLED, Translator, load

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

TranslatorModel = Annotated[
    str | Path | None, "Folder of a translator (default: the bundled one, English to Spanish)."
]
Lengths = Annotated[int, "Number of lengths tried in parallel; the best translation is returned."]
Ratio = Annotated[float, "With length=ratio: target tokens per source token."]
Initial = Annotated[
    str | None, "First draft: mask or random (default: random for sundae, else mask)."
]
Remask = Annotated[
    float, "refine-remask: fraction of least confident tokens hidden after a pass; decreasing."
]
RemaskRepeats = Annotated[bool, "refine, refine-remask: hide repeats between passes."]
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
    ] = Decoding.decoder,
    steps: Annotated[int, "Passes over the sentence."] = Decoding.n_steps,
    lengths: Lengths = Decoding.n_lengths,
    length: Annotated[str, "Tried lengths: predicted or ratio."] = Decoding.length,
    ratio: Ratio = Decoding.ratio,
    initial: Initial = None,
    remask: Remask = Decoding.remask,
    remask_repeats: RemaskRepeats = Decoding.remask_repeats,
    hypotheses: Annotated[int, "sundae: drafts of each length."] = Decoding.n_hypotheses,
    judge: Annotated[
        str, "Model that chooses among the drafts: itself or teacher (one pass more)."
    ] = Decoding.judge,
    beams: Annotated[int, "ar only: number of hypotheses; 1 is greedy."] = Decoding.n_beams,
    seed: Seed = 0,
    trace: Annotated[bool, "Show the sentence at every pass."] = False,
    device: Device = "cpu",
) -> "Translations":
    """Translate English into Spanish, all words at once in a few passes.

    The parallel refinement of paper B (PaDIR, `refine`): every position is predicted again in each
    pass, and what repeats its left neighbour is hidden from the next one. `refine-remask`
    hides the least confident tokens as well, which the paper does not. mask-predict, easy-first and
    sundae are those of its table 2, here by a student trained for refinement; `ar` writes word by
    word.
    """
    decoding = Decoding(
        decoder,
        steps,
        lengths,
        beams,
        length,
        ratio,
        initial,
        remask_repeats,
        remask,
        n_hypotheses=hypotheses,
        seed=seed,
        judge=judge,
    )
    decoding.check()
    if length == "oracle":
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
        _sentence(row, translation, vocabulary)
        for row, translation in zip(rows, translations, strict=True)
    ]
    return Translations(sentences, trace, signature_of(folder, translator, decoding, len(rows)))


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
                    raise GlauberError(f"{called(row)} {reason}.") from error
                break
        if reason:
            skipped.append(skip(row, reason))
        else:
            rows.append(row)
    report_skipped(skipped, len(rows) + len(skipped))
    return rows


@dataclass(frozen=True)
class Sentence:
    """One sentence: its translation, and the words with their confidence at every pass.

    tokens and log_probs are (passes, tokens), as the vocabulary spells them; an autoregressive
    model has one row. drafts: the text after each pass.
    """

    number: int  # of the sentence in the input, from 1
    id: str  # in its source
    source: str
    text: str
    score: float  # mean log-probability of a token, by the judge
    n_passes: int
    tokens: list[list[str]]
    log_probs: list[list[float]]
    drafts: list[str]


@dataclass(frozen=True, eq=False)
class Translations(Result):
    """Sentences in the other language."""

    sentences: list[Sentence]
    trace: bool  # whether the passes are shown
    signature: str

    @property
    def texts(self) -> list[str]:
        """The translations alone."""
        return [sentence.text for sentence in self.sentences]

    def to_dict(self) -> dict[str, Any]:
        rows = []
        for sentence in self.sentences:
            row = _columns(sentence) | {"score": plain(sentence.score), "kind": "estimate"}
            rows.append(row | ({"trace": sentence.drafts} if self.trace else {}))
        return {"translations": rows, "signature": self.signature}

    def lines(self) -> Iterable[str]:
        """The translations, one per line; with the trace, the draft after each pass."""
        for sentence in self.sentences:
            if self.trace:
                yield from _passes(sentence.tokens)
            yield sentence.text

    def frame(self) -> "pandas.DataFrame":
        """One row per sentence."""
        import pandas

        rows = [
            _columns(sentence) | {"tokens": len(sentence.tokens[-1]) if sentence.tokens else 0}
            for sentence in self.sentences
        ]
        return pandas.DataFrame(rows)

    def figures(self) -> "dict[str, go.Figure]":
        """The confidence of each word at every pass, of the first sentences."""
        from glauber.figures.translation import plot_passes

        return {
            f"passes-{number}": plot_passes(sentence)
            for number, sentence in enumerate(self.sentences[:SHOWN], 1)
        }


def translator_folder(model: str | Path | None) -> Path:
    """The folder of a translator; None is the bundled one."""
    return BUNDLED if model is None else Path(model)


def _columns(sentence: Sentence) -> dict[str, Any]:
    return {
        "number": sentence.number,
        "id": sentence.id,
        "source": sentence.source,
        "translation": sentence.text,
        "score": sentence.score,
        "passes": sentence.n_passes,
    }


def _sentence(row: Row, translation: Translation, vocabulary: SubwordVocabulary) -> Sentence:
    passes = translation.trace or (translation.tokens,)
    return Sentence(
        number=row.number,
        id=row.id,
        source=row.text,
        text=translation.text,
        score=translation.score,
        n_passes=translation.n_passes,
        tokens=[[vocabulary.spell(token) for token in tokens] for tokens in passes],
        log_probs=[list(row) for row in translation.confidence],
        drafts=[vocabulary.decode(list(row)) for row in translation.trace],
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


def signature_of(folder: Path, model: Translator, decoding: Decoding, n_texts: int) -> str:
    parallel = decoding.decoder != "ar"
    return signature(
        study="translate",
        translator=folder.name,
        device=model.device.type,
        decoder=decoding.decoder,
        steps=decoding.n_steps if parallel else None,
        lengths=decoding.n_lengths if parallel else None,
        beams=None if parallel else decoding.n_beams,
        judge=decoding.judge if decoding.n_drafts > 1 else None,
        remask=decoding.remask if decoding.decoder == "refine-remask" else None,
        seed=decoding.seed,
        texts=n_texts,
    )
