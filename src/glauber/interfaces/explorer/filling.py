"""Films of blanks being filled and of sentences being translated, pass by pass.

The texts are those of `glauber.infill` and `glauber.translate` for the same parameters. A frame is
a pass; sweeps of correction after the last pass are frames too.
"""

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.foundation.study import counted
from glauber.interfaces.explorer.conditional import Shown
from glauber.interfaces.explorer.models import Models
from glauber.interfaces.explorer.questions import Answer
from glauber.models.vocabulary import Vocabulary
from glauber.runs.film import Begin, Film, Spelling, film_of
from glauber.sampling.generate import GeneratedTexts
from glauber.sampling.infill import BLANK, infill
from glauber.translation.data import SubwordVocabulary, load_vocabulary
from glauber.translation.decoding import Decoding, Translation
from glauber.translation.model import MASK
from glauber.translation.translate import translate, translator_folder

CHARACTERS = 20_000
CALLS = 2000  # of the model that one answer may take
OPTIONS = set(["order", "count", "passes", "block", "remask", "temperature", "top_k", "top_p"])
OPTIONS |= {"correct", "correct_block", "seed"}
DEFAULTS: dict[str, str | float] = {"count": "1", "temperature": 1.0}  # unlike those of `infill`


class Filling:
    """Texts that are filled in and translated; each method answers one question of a page."""

    def __init__(self, models: Models) -> None:
        self.models = models
        self._vocabulary = cache(lambda: load_vocabulary(translator_folder(None)))

    def fill(self, model: str, text: str, **options: object) -> Answer:
        """The passes that fill the blanks of a text; options are parameters of `infill`."""
        unknown = sorted(options.keys() - OPTIONS)
        if unknown:
            raise GlauberError(f"the question fill: got an unexpected argument {unknown[0]!r:.40}.")
        _check_blanks(text, options.get("correct", 0))
        with self.models.lock, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", GlauberWarning)
            loaded = self.models[self.models.check(model)]
            generation = infill(loaded, [text], **DEFAULTS | options)  # type: ignore[arg-type]
        written = generation.written
        begin = np.where(written.begin[0], written.hidden_token, written.tokens[0])
        shown = Shown.of(loaded.vocabulary, begin, written.begin[0])
        hidden = (np.flatnonzero(written.begin[0]) - shown.first).tolist()
        film = _film_of_passes(written, begin, shown, loaded.vocabulary)
        drawn = (film.token != written.hidden_token) & (film.frame <= written.passes[0])
        return {
            "film": film.to_dict(),
            "hidden": hidden,
            # the passes in which each hidden site was filled: several, if it was hidden again
            "order": [film.frame[drawn & (film.site == site)].tolist() for site in hidden],
            "passes": int(written.passes[0]),
            "text": generation.texts[0],
            "log_prob": None if generation.without_path else float(generation.log_probs[0]),
            "fill_log_prob": float(generation.rows[0]["fill_log_prob"]),
            "signature": generation.signature,
            "notes": [str(warning.message) for warning in caught],
        }

    def translate(
        self,
        text: str,
        steps: int = Decoding.n_steps,
        decoder: str = Decoding.decoder,
        lengths: int = Decoding.n_lengths,
        remask: float = Decoding.remask,
        remask_repeats: bool = Decoding.remask_repeats,
        judge: str = Decoding.judge,
        seed: int = 0,
    ) -> Answer:
        """The passes of a translation; parameters as in `translate`."""
        _check_text(text)
        decoding = Decoding(
            decoder,
            steps,
            lengths,
            remask_repeats=remask_repeats,
            remask=remask,
            judge=judge,
            seed=seed,
        )
        decoding.check()
        if decoder == "ar":
            raise GlauberError("the decoder ar writes word by word: it has no passes to show.")
        if steps * lengths > CALLS:
            raise GlauberError(f"{steps} passes over {lengths} lengths are too many for a page.")
        with self.models.lock:
            answer = translate(
                [text],
                decoder=decoder,
                steps=steps,
                lengths=lengths,
                remask=remask,
                remask_repeats=remask_repeats,
                judge=judge,
                seed=seed,
            )
            vocabulary = self._vocabulary()
        (sentence,) = answer.translations
        return {
            "film": _film_of_translation(sentence.decoded, vocabulary).to_dict(),
            "source_text": text,
            "text": sentence.translation,
            "score": sentence.score,
            "passes": sentence.passes,
            "signature": answer.signature,
            "notes": _notes(decoding, sentence.decoded),
        }


def _check_text(text: object) -> None:
    if not isinstance(text, str) or not text.strip():
        raise GlauberError("the text is empty.")
    if len(text) > CHARACTERS:
        raise GlauberError(f"the text has {len(text):,} characters: give at most {CHARACTERS:,}.")


def _check_blanks(text: str, correct: object) -> None:
    """Refuses blanks of several lengths, of which a film could show one only."""
    _check_text(text)
    lengths = [blank.group(1) or "1" for blank in BLANK.finditer(text)]
    ranges = [length for length in lengths if "-" in length]
    if ranges:
        raise GlauberError(
            f"the blank [MASK:{ranges[0]}] may have several lengths, but a film shows one: write "
            "[MASK:2], say."
        )
    tokens = sum(int(length) for length in lengths if length.isdecimal())
    sweeps = correct if isinstance(correct, int) else 0
    if tokens * (1 + sweeps) > CALLS:
        raise GlauberError(
            f"{counted(tokens, 'hidden token')} with {counted(sweeps, 'sweep')} would take up to "
            f"{tokens * (1 + sweeps):,} passes, but a page shows at most {CALLS:,}."
        )


# ---- films of passes


def _film_of_passes(
    written: GeneratedTexts, begin: NDArray[np.int64], shown: Shown, vocabulary: Vocabulary
) -> Film:
    """A frame for each pass, and for each sweep of correction after the last one."""
    trace, passes, span = written.trace, int(written.passes[0]), slice(shown.first, shown.last)
    frame = np.where(trace.part == 0, trace.step + 1, passes + trace.part)
    drawn = trace.token != written.hidden_token
    return _film(
        begin[span],
        written.begin[0, span],
        vocabulary.text,
        count=max([passes, *frame.tolist()]),
        frame=frame,
        site=trace.site - shown.first,
        token=trace.token,
        log_prob_new=np.where(drawn, trace.log_prob, np.nan),
    )


class Pieces(NamedTuple):
    """The spellings of a translator's tokens, with a blank before where a word begins."""

    vocabulary: SubwordVocabulary

    def parts(self, tokens: Sequence[int]) -> list[str]:
        return [self.vocabulary.spell(token).replace("▁", " ") for token in tokens]


def _film_of_translation(translation: Translation, vocabulary: SubwordVocabulary) -> Film:
    """A frame for each pass; an event where a token or its probability is another one."""
    tokens, log_probs = np.array(translation.trace), np.array(translation.confidence)
    before = np.vstack([np.full_like(tokens[:1], MASK), tokens[:-1]])
    known = np.vstack([np.full_like(log_probs[:1], np.nan), log_probs[:-1]])
    step, site = np.nonzero((tokens != before) | (log_probs != known))
    return _film(
        before[0],
        np.ones(len(before[0]), np.bool_),
        Pieces(vocabulary),
        count=len(tokens),
        frame=step + 1,
        site=site,
        token=tokens[step, site],
        log_prob_new=log_probs[step, site],
    )


def _film(
    tokens: NDArray[np.integer[Any]],
    free: NDArray[np.bool_],
    vocabulary: Spelling,
    *,
    count: int,
    **events: NDArray[np.generic],
) -> Film:
    """The film of one text from its hidden sites on."""
    begin = Begin(0, vocabulary, tokens, np.full(len(tokens), np.nan, np.float32), free)
    events |= {
        "chain": np.zeros(len(events["frame"]), np.int32),
        "entropy": np.full(len(events["frame"]), np.nan, np.float32),
    }
    return film_of([begin], events, first=0, count=count, every=1, end=count)


def _notes(decoding: Decoding, translation: Translation) -> list[str]:
    notes = []
    if decoding.random_start:
        notes.append("The first draft is random words, which are shown as hidden.")
    if translation.trace and tuple(translation.trace[-1]) != translation.tokens:
        notes.append("Words that repeat their neighbour are dropped after the last pass.")
    return notes
