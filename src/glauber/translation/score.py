"""Quality and stutter of translations, and paired differences of two systems."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.errors import GlauberError
from glauber.foundation.extras import need
from glauber.foundation.statistics import Estimate, Floats, jackknife, proportion
from glauber.foundation.study import internal, one_of
from glauber.translation.data import Example

REPEATED = re.compile(r"\b(\w+)(?=\s+\1\b)")
CHINESE = "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]"  # one character
REPEATED_CHINESE = re.compile(f"({CHINESE}{{1,4}}?)(?=\\1)")  # up to 4 characters, twice
TOKENIZERS = ("13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab", "flores200")  # of BLEU
TOKENIZER = "13a"
NEAR = 10.0  # chrF below another translation of a sentence, at most, to be as reasonable
COMET = "Unbabel/wmt22-comet-da"  # default checkpoint of COMET
# Learned metrics need gigabytes of weights of their own, which this package does not contain.
MISSING = {
    "comet": "COMET is not installed: pip install unbabel-comet, and let it load its weights.",
    "bleurt": "BLEURT is not installed: install bleurt of google-research and name a checkpoint "
    "folder.",
}


@dataclass(frozen=True)
class Quality:
    """Corpus scores with sacrebleu's signatures; each is an estimate on these sentences."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str
    stutter: float
    n_sentences: int
    reference_stutter: float  # share of repeated words in the first references
    kind: str = "estimate"


def check_tokenizer(name: str) -> None:
    """Refuses a tokenizer that BLEU does not have, or whose dependencies are missing."""
    need("translation", "BLEU")
    one_of("the tokenizer of BLEU", name, TOKENIZERS)
    from sacrebleu.metrics import BLEU

    try:
        BLEU(tokenize=name)
    except (RuntimeError, OSError, ImportError) as problem:  # a missing dependency
        lines = str(problem).strip().splitlines()
        message = lines[0] if lines else type(problem).__name__
        raise GlauberError(f"the tokenizer {name} of BLEU is not available: {message}") from problem


def check_learned(metric: str, weights: str | None = None) -> None:
    """Refuses a learned metric that is unknown, or whose package or checkpoint is missing."""
    one_of("the learned metric", metric, MISSING)
    if find_spec(metric) is None:
        raise GlauberError(MISSING[metric])
    if metric == "bleurt" and weights is None:
        raise GlauberError("BLEURT needs the folder of a checkpoint, such as BLEURT-20.")


def quality(
    outputs: Sequence[str], examples: Sequence[Example], *, tokenizer: str = TOKENIZER
) -> Quality:
    """BLEU, chrF and stutter of outputs against all references of each sentence."""
    check_tokenizer(tokenizer)
    from sacrebleu.metrics import BLEU, CHRF

    if not outputs or len(outputs) != len(examples):
        raise GlauberError(f"{len(outputs)} outputs cannot be scored on {len(examples)} sentences.")
    most = max(len(sentence.references) for sentence in examples)
    # One stream for each number of a reference; sacrebleu skips those that are None.
    streams = [
        [sentence.references[k] if k < len(sentence.references) else None for sentence in examples]
        for k in range(most)
    ]
    bleu, chrf = BLEU(tokenize=tokenizer), CHRF()
    return Quality(
        bleu=float(bleu.corpus_score(list(outputs), streams).score),
        chrf=float(chrf.corpus_score(list(outputs), streams).score),
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
        stutter=stutter_rate(outputs, examples),
        n_sentences=len(outputs),
        reference_stutter=repeat_rate([sentence.references[0] for sentence in examples]),
    )


def first_references(examples: Sequence[Example], count: int | None) -> list[Example]:
    """The sentences with at most so many of their references; None: all."""
    return [replace(sentence, references=sentence.references[:count]) for sentence in examples]


def stutter_rate(outputs: Sequence[str], examples: Sequence[Example]) -> float:
    """Share of output words that repeat their left neighbour more often than any reference does.

    A repetition is a word twice with nothing but a blank between, in small or capital letters:
    "casa casa." has one, "no, no" and "Tom. Tom" have none. It counts where the output has more
    repetitions of that word than each of the references. Words are separated by blanks. Chinese is
    written without: there each character is a word, and one to four characters that follow
    themselves directly are a repetition. Other scripts without blanks (kana, Thai) have to be
    separated beforehand.
    """
    return stutter_of(stutter_counts(outputs, examples).sum(0))


def stutter_counts(outputs: Sequence[str], examples: Sequence[Example]) -> NDArray[np.int64]:
    """Of each sentence: the number of counted repetitions, and of words."""
    rows = []
    for output, sentence in zip(outputs, examples, strict=True):
        excused: Counter[str] = Counter()
        for reference in sentence.references:
            excused |= Counter(_repeated_words(reference))
        rows.append(((Counter(_repeated_words(output)) - excused).total(), n_words(output)))
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def stutter_of(total: Floats | NDArray[np.int64]) -> float:
    return float(total[0] / max(1, total[1]))


def repeat_rate(texts: Sequence[str]) -> float:
    """Share of the words of texts that repeat their left neighbour."""
    return sum(len(_repeated_words(text)) for text in texts) / max(1, sum(map(n_words, texts)))


def n_words(text: str) -> int:
    """Number of words between blanks; each Chinese character is one."""
    characters = len(re.findall(CHINESE, text))
    if not characters:
        return len(text.split())
    return characters + len(re.findall(r"\w+", re.sub(CHINESE, " ", text)))


def _repeated_words(text: str) -> list[str]:
    """The words that follow themselves directly."""
    return REPEATED.findall(text.lower()) + REPEATED_CHINESE.findall(text)


@dataclass(frozen=True)
class Difference:
    """A score of one system less that of another on the same sentences.

    The interval is over sentences, each translated by both systems; there is none if the two never
    differ, or if there are too few. It does not include the variation between trainings.
    """

    value: float
    interval: tuple[float, float] | None
    standard_error: float | None
    n_sentences: int
    kind: str = "estimate"

    @property
    def word(self) -> str:
        """Its direction, if the interval excludes 0."""
        if self.interval is None or self.interval[0] <= 0 <= self.interval[1]:
            return "cannot tell"
        return "higher" if self.value > 0 else "lower"


def bleu_difference(
    outputs: Sequence[str],
    others: Sequence[str],
    examples: Sequence[Example],
    *,
    tokenizer: str = TOKENIZER,
) -> Difference:
    """BLEU of outputs less BLEU of others, with its paired interval over sentences.

    BLEU is a function of sums over sentences, so each is scored once and only the sums change.
    """
    _check_pairs(outputs, others, examples)
    left, right = (bleu_counts(texts, examples, tokenizer) for texts in (outputs, others))
    return paired_difference(left, right, bleu_of)


def stutter_difference(
    outputs: Sequence[str],
    others: Sequence[str],
    examples: Sequence[Example],
    *,
    times: float = 1.0,
) -> Difference:
    """The stutter rate of outputs less so many times that of others, with its paired interval."""
    _check_pairs(outputs, others, examples)
    return paired_difference(
        stutter_counts(outputs, examples), stutter_counts(others, examples), stutter_of, times
    )


def _check_pairs(
    outputs: Sequence[str], others: Sequence[str], examples: Sequence[Example]
) -> None:
    if not examples or not len(outputs) == len(others) == len(examples):
        raise GlauberError("only outputs for the same sentences can be compared.")


def paired_difference(
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    score: Callable[[Floats | NDArray[np.int64]], float],
    times: float = 1.0,
) -> Difference:
    """The score of the sums of left less that of right; rows are the same sentences in both."""

    def difference(weights: Floats) -> Floats:
        return np.array([score(weights @ left) - times * score(weights @ right)])

    if times == 1 and (left == right).all():
        return Difference(0.0, None, None, len(left))
    result = jackknife(difference, len(left)).item(0)
    return Difference(result.value, result.interval, result.standard_error, len(left))


def bleu_counts(
    outputs: Sequence[str], examples: Sequence[Example], tokenizer: str = TOKENIZER
) -> NDArray[np.int64]:
    """Of each sentence: matches and n-grams of orders 1 to 4, own length, reference's length."""
    from sacrebleu.metrics import BLEU

    # The effective order changes sentence scores only, and sacrebleu warns where it is off.
    bleu = BLEU(tokenize=tokenizer, effective_order=True)
    scores = [
        bleu.sentence_score(output, list(sentence.references))
        for output, sentence in zip(outputs, examples, strict=True)
    ]
    return np.array([[*s.counts, *s.totals, s.sys_len, s.ref_len] for s in scores], dtype=np.int64)


def bleu_of(total: Floats | NDArray[np.int64]) -> float:
    """BLEU of summed counts (10,)."""
    from sacrebleu.metrics import BLEU

    sums = [round(float(count)) for count in total]
    score = BLEU.compute_bleu(sums[:4], sums[4:8], sums[8], sums[9], smooth_method="exp")
    return float(score.score)


# Other BLEUs of the same texts: preprocessing raises it, so that numbers cannot be compared (paper
# B, appendix L.3).


def without_diacritics(text: str) -> str:
    """Letters without accents."""
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def marks_apart(text: str) -> str:
    """Blanks around every punctuation mark and symbol."""
    return re.sub(r"([^\w\s]|_)", r" \1 ", text)


@dataclass(frozen=True)
class Preprocessing:
    """A tokenizer of BLEU, and what is done to outputs and references before."""

    tokenizer: str = TOKENIZER
    changes: tuple[Callable[[str], str], ...] = ()

    def counts(self, outputs: Sequence[str], examples: Sequence[Example]) -> NDArray[np.int64]:
        """What `bleu_of` takes, of each sentence."""
        prepared = [
            Example(sentence.source, tuple(map(self.apply, sentence.references)))
            for sentence in examples
        ]
        return bleu_counts([self.apply(output) for output in outputs], prepared, self.tokenizer)

    def apply(self, text: str) -> str:
        for change in self.changes:
            text = change(text)
        return text


PREPROCESSING = {
    "13a": Preprocessing(),
    "intl": Preprocessing("intl"),
    "lower case": Preprocessing(changes=(str.lower,)),
    "no diacritics": Preprocessing(changes=(without_diacritics,)),
    "words as they are": Preprocessing("none"),
    "marks apart": Preprocessing("none", (marks_apart,)),
    "all three": Preprocessing("none", (str.lower, without_diacritics, marks_apart)),
}


def preprocessed_bleus(outputs: Sequence[str], examples: Sequence[Example]) -> dict[str, float]:
    """BLEU of the same outputs after each preprocessing; `13a` is SacreBLEU's own."""
    return {
        name: bleu_of(how.counts(outputs, examples).sum(0)) for name, how in PREPROCESSING.items()
    }


def preprocessing_difference(
    outputs: Sequence[str], examples: Sequence[Example], name: str, less: str = "13a"
) -> Difference:
    """BLEU after one preprocessing less BLEU after another one, with its interval."""
    left, right = (PREPROCESSING[each].counts(outputs, examples) for each in (name, less))
    return paired_difference(left, right, bleu_of)


def share_near(
    outputs: Sequence[str],
    others: Sequence[str],
    examples: Sequence[Example],
    margin: float = NEAR,
) -> Estimate:
    """Share of sentences whose chrF is at most `margin` below that of the others' translation."""
    _check_pairs(outputs, others, examples)
    from sacrebleu.metrics import CHRF

    chrf = CHRF()
    scores = [
        [chrf.sentence_score(text, list(sentence.references)).score for text in pair]
        for *pair, sentence in zip(outputs, others, examples, strict=True)
    ]
    return proportion(sum(own >= other - margin for own, other in scores), len(scores))


@dataclass(frozen=True)
class Learned:
    """The mean score of a learned metric, on its own scale."""

    metric: str
    weights: str
    score: float
    n_sentences: int
    scores: tuple[float, ...] = internal(default=())  # of each sentence
    kind: str = "estimate"


def learned_score(
    outputs: Sequence[str],
    examples: Sequence[Example],
    *,
    metric: str = "comet",
    weights: str | None = None,
) -> Learned:
    """The metric's mean over the sentences, each against its first reference.

    `weights`: a checkpoint file or a name on the hub (COMET), a checkpoint folder (BLEURT).
    """
    one_of("the learned metric", metric, MISSING)
    scorer = _comet if metric == "comet" else _bleurt
    name, scores = scorer(outputs, examples, weights)
    return Learned(metric, name, sum(scores) / len(scores), len(scores), tuple(scores))


def _comet(
    outputs: Sequence[str], examples: Sequence[Example], weights: str | None
) -> tuple[str, list[float]]:
    try:
        from comet import download_model, load_from_checkpoint
    except ImportError as missing:
        raise GlauberError(MISSING["comet"]) from missing
    name = weights or COMET
    try:
        path = name if name.endswith(".ckpt") else download_model(name)
        model = load_from_checkpoint(path)
    except (OSError, KeyError, ValueError) as problem:
        raise GlauberError(f"the weights {name} of COMET are not available.") from problem
    rows = [
        {"src": sentence.source, "mt": output, "ref": sentence.references[0]}
        for output, sentence in zip(outputs, examples, strict=True)
    ]
    return name, [float(score) for score in model.predict(rows, gpus=0).scores]


def _bleurt(
    outputs: Sequence[str], examples: Sequence[Example], weights: str | None
) -> tuple[str, list[float]]:
    try:
        from bleurt.score import BleurtScorer
    except ImportError as missing:
        raise GlauberError(MISSING["bleurt"]) from missing
    if weights is None:
        raise GlauberError("BLEURT needs the folder of a checkpoint, such as BLEURT-20.")
    references = [sentence.references[0] for sentence in examples]
    scores = BleurtScorer(weights).score(references=references, candidates=list(outputs))
    return weights, [float(score) for score in scores]
