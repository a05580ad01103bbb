"""What is this text in the other language, and how did the sentence come about?"""

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
from glauber.translation.data import Vocabulary, load_vocabulary
from glauber.translation.decoding import Decoding, Translation, translate_texts
from glauber.translation.model import BUNDLED, Translator, load

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

TranslatorModel = Annotated[
    str | Path | None, "Folder of a translator (default: the bundled one, English to Spanish)."
]
Lengths = Annotated[int, "Lengths tried in parallel; the best is kept."]
Ratio = Annotated[float, "length=ratio: target tokens for a source token."]
Initial = Annotated[
    str | None, "First draft: mask or random (default: random for sundae, else mask)."
]
Remask = Annotated[
    float, "refine-remask: fraction hidden again after a pass, the least sure; less each time."
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
    length: Annotated[str, "Lengths around what: predicted or ratio."] = Decoding.length,
    ratio: Ratio = Decoding.ratio,
    initial: Initial = None,
    remask: Remask = Decoding.remask,
    remask_repeats: RemaskRepeats = Decoding.remask_repeats,
    hypotheses: Annotated[int, "sundae: drafts of each length."] = Decoding.n_hypotheses,
    judge: Annotated[
        str, "Who chooses among the drafts: itself or teacher (one pass more)."
    ] = Decoding.judge,
    beams: Annotated[int, "ar only: hypotheses kept; 1 is greedy."] = Decoding.n_beams,
    seed: Seed = 0,
    trace: Annotated[bool, "Show the sentence at every pass."] = False,
    device: Device = "cpu",
) -> "Translations":
    """Translate English into Spanish, all words at once in a few passes.

    The parallel refinement of paper B (PaDIR, `refine`): every position is predicted again in each
    pass, and what repeats its left neighbour is hidden from the next one. `refine-remask` hides
    what is least sure as well, which the paper does not. mask-predict, easy-first and sundae are
    those of its table 2, here by a student trained for refinement; `ar` writes word by word.
    """
    decoding = Decoding(
        decoder, steps, lengths, beams, length, ratio, initial, remask_repeats, remask,
        n_hypotheses=hypotheses, seed=seed, judge=judge,
    )  # fmt: skip
    decoding.check()
    if length == "oracle":
        raise GlauberError("the length oracle needs references: use evaluate-translator.")
    if texts is None:
        raise GlauberError("no text was given: there is nothing to translate.")
    corpus, folder = read_texts(texts), translator_folder(model)
    vocabulary, on = load_vocabulary(folder), str(choose_device(device))
    translator = load(folder, "teacher" if decoder == "ar" else "student", device=on)
    teacher = load(folder, "teacher", device=on) if decoding.asks_teacher else None
    rows = _legible(corpus, vocabulary, translator.shape.max_length)
    with track("sentences", len(rows)) as advance:
        made = translate_texts(
            translator, vocabulary, [row.text for row in rows], decoding=decoding, teacher=teacher,
            confidence=True, advance=advance, unknown=corpus.unknown,
        )  # fmt: skip
    sentences = [_sentence(row, one, vocabulary) for row, one in zip(rows, made, strict=True)]
    return Translations(sentences, trace, signature_of(folder, translator, decoding, len(rows)))


def _legible(corpus: Corpus, vocabulary: Vocabulary, max_length: int) -> list[Row]:
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

    tokens and log_probs are (passes, tokens), as the vocabulary spells them; the words of an
    autoregressive model are one row. drafts: the text after each pass.
    """

    number: int  # of the sentence among those given, from 1
    id: str  # that its source gives it
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
        return [one.text for one in self.sentences]

    def to_dict(self) -> dict[str, Any]:
        return {
            "translations": [self._row(one) for one in self.sentences],
            "signature": self.signature,
        }

    def _row(self, one: Sentence) -> dict[str, Any]:
        found = {
            "number": one.number,
            "id": one.id,
            "source": one.source,
            "translation": one.text,
            "score": plain(one.score),
            "passes": one.n_passes,
            "kind": "estimate",
        }
        return found | ({"trace": one.drafts} if self.trace else {})

    def lines(self) -> Iterable[str]:
        """The translations, one a line; with the trace, what stood there after each pass."""
        for one in self.sentences:
            if self.trace:
                yield from _passes(one.tokens)
            yield one.text

    def frame(self) -> "pandas.DataFrame":
        """One row per sentence."""
        import pandas

        rows = [
            {
                "number": one.number,
                "id": one.id,
                "source": one.source,
                "translation": one.text,
                "score": one.score,
                "passes": one.n_passes,
                "tokens": len(one.tokens[-1]) if one.tokens else 0,
            }
            for one in self.sentences
        ]
        return pandas.DataFrame(rows)

    def figures(self) -> "dict[str, go.Figure]":
        """How sure each word was at every pass, of the first sentences."""
        from glauber.figures.translation import plot_passes

        return {
            f"passes-{number}": plot_passes(one)
            for number, one in enumerate(self.sentences[:SHOWN], 1)
        }


def translator_folder(model: str | Path | None) -> Path:
    """The folder of a translator; None is the bundled one."""
    return BUNDLED if model is None else Path(model)


def _sentence(row: Row, one: Translation, vocabulary: Vocabulary) -> Sentence:
    passes = one.trace or (one.tokens,)
    return Sentence(
        number=row.number,
        id=row.id,
        source=row.text,
        text=one.text,
        score=one.score,
        n_passes=one.n_passes,
        tokens=[[vocabulary.spell(token) for token in tokens] for tokens in passes],
        log_probs=[list(row) for row in one.confidence],
        drafts=[vocabulary.decode(list(row)) for row in one.trace],
    )


def _passes(rows: list[list[str]]) -> Iterable[str]:
    """A line for each pass; words that changed since the pass before stand in brackets."""
    before = rows[0] if rows else []
    for number, row in enumerate(rows, 1):
        marked = [
            token if token == old else _bracketed(token)
            for token, old in zip(row, before, strict=True)
        ]
        yield f"{number:>4} {''.join(marked).replace('▁', ' ').strip()}"
        before = row


def _bracketed(token: str) -> str:
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
