"""Do the parts of the time add up, and do the factors of the speed-up?"""

import itertools

import numpy as np
import pytest

from glauber import time_translator
from glauber.foundation.errors import GlauberError
from glauber.translation import timing
from glauber.translation.data import VOCABULARY, load_vocabulary, read_pairs, write_pairs
from glauber.translation.decoding import Decoding, translate_texts
from glauber.translation.model import Translator, load, save
from glauber.translation.timing import (
    FACTORS,
    PARTS,
    REFINED,
    SEARCHED,
    UNCACHED,
    TranslatorTimes,
)
from tiny_translation import tiny, toy_pairs, toy_vocabulary


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path, vocabulary = tmp_path_factory.mktemp("timed"), toy_vocabulary()
    (path / VOCABULARY).write_bytes(vocabulary.serialized)
    for name, kind in (("student", "refine"), ("teacher", "ar")):
        save(tiny(kind, vocabulary.size), path, name)
    write_pairs(path / "pairs.tsv", toy_pairs(12, seed=9))
    return path


def of_parts(**decoder: list[float]) -> TranslatorTimes:
    """Two seconds for everything but the decoder."""
    names = {"refined": REFINED, "searched": SEARCHED, "uncached": UNCACHED}
    fixed = {"tokens": 0.25, "encoder": 1.0, "lengths": 0.5, "text": 0.25}
    seconds = {
        names[system]: {
            part: list(values) if part == "decoder" else [fixed[part]] * len(values)
            for part in PARTS
        }
        for system, values in decoder.items()
    }
    n = len(decoder["refined"])
    passes = {REFINED: [4] * n, SEARCHED: [30] * n, UNCACHED: [30] * n}
    return TranslatorTimes("toy", "toy", list(range(20, 20 + n)), passes, seconds)


def test_factors_by_hand():
    """12 s of refinement and 18 of search with 2 s of fixed costs each; 60 without the cache."""
    times = of_parts(refined=[8.0, 12.0], searched=[16.0, 16.0], uncached=[60.0, 60.0])
    value = {name: ratio.value for name, ratio in times.ratios.items()}
    assert value["passes"] == pytest.approx(7.5)
    assert value["time"] == pytest.approx(36 / 24)
    assert value["fixed costs"] == pytest.approx((32 / 20) / (36 / 24))
    assert value["cache"] == pytest.approx(120 / 32)
    assert value["cost of a pass"] == pytest.approx((20 / 8) / (120 / 60))
    product = np.prod([value[name] for name in FACTORS if name != "passes"])
    assert product == pytest.approx(value["passes"])
    row = times.table()[0]
    assert row["ms"].value == pytest.approx(12_000) and row["ms of a pass"].value == 2500


def test_slopes_are_those_of_the_lines():
    tokens = np.arange(20.0, 50.0)
    jitter = np.where(np.arange(30) % 2, 0.001, -0.001)
    refined, searched = 0.1 + 0.002 * tokens + jitter, 0.1 + 0.01 * tokens - jitter
    times = of_parts(refined=refined, searched=searched, uncached=searched)
    slopes = times.ms_per_token
    assert slopes[REFINED].value == pytest.approx(np.polyfit(tokens, 1000 * refined, 1)[0])
    assert slopes["difference"].value == pytest.approx(8, abs=0.1)
    assert slopes["difference"].interval[0] < 8 < slopes["difference"].interval[1]
    same = TranslatorTimes("", "", [30] * 30, times.passes, times.seconds)
    assert same.ms_per_token == {}
    few = of_parts(refined=[1.0, 2.0, 4.0], searched=[3.0, 3.0, 3.0], uncached=[3.0, 3.0, 3.0])
    few = TranslatorTimes("", "", [20, 20, 30], few.passes, few.seconds)
    slope = few.ms_per_token[REFINED]  # without the third sentence there is none
    assert slope.value == pytest.approx(250) and slope.interval is None and slope.reason
    assert times.median_ratio.value == pytest.approx(
        np.sort(times.total(SEARCHED))[14] / np.sort(times.total(REFINED))[14]
    )


def test_every_second_belongs_to_a_part(folder, monkeypatch):
    """A clock that advances by one at each reading: one second for each part."""
    clock = itertools.count()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: float(next(clock)))
    times = time_translator(folder / "pairs.tsv", model=folder, long=0, limit=5, beams=2)
    assert all(times.seconds[REFINED][part] == [1.0] * 5 for part in PARTS)
    for system in (SEARCHED, UNCACHED):
        assert times.seconds[system]["lengths"] == [0.0] * 5
        assert times.total(system).tolist() == [4.0] * 5
    assert TranslatorTimes.of(times.to_dict()).to_dict()["ratios"] == times.to_dict()["ratios"]


def test_what_is_timed_is_what_translate_writes(folder):
    times = time_translator(folder / "pairs.tsv", model=folder, long=0, beams=3, steps=3)
    vocabulary, pairs = load_vocabulary(folder), read_pairs(folder / "pairs.tsv")
    texts = [source for source, _ in pairs]
    for system, name, decoding in (
        (REFINED, "student", Decoding("refine", 3, 5, judge="itself")),
        (SEARCHED, "teacher", Decoding("ar", n_beams=3)),
    ):
        alone = translate_texts(load(folder, name), vocabulary, texts, decoding=decoding)
        assert times.passes[system] == [translation.n_passes for translation in alone]
    lengths = [len(vocabulary.encode(target)) + 1 for _, target in pairs]
    assert times.target_tokens == lengths and times.mean_target_tokens.value == np.mean(lengths)
    assert "ms for a further token" in str(times) and "jackknife" not in str(times)


def test_without_the_cache_every_step_reads_all_tokens_so_far(folder, monkeypatch):
    read, follow = [], Translator.follow

    def noted(self, tokens, memory, cache=None):
        read.append(tokens.shape[1])
        return follow(self, tokens, memory, cache)

    monkeypatch.setattr(Translator, "follow", noted)
    for cached in (True, False):
        read.clear()
        (translation,) = translate_texts(
            load(folder, "teacher"),
            load_vocabulary(folder),
            ["the cat sees the dog."],
            decoding=Decoding("ar", n_beams=2, cached=cached),
        )
        assert read == ([1] * len(read) if cached else list(range(1, len(read) + 1)))
        assert len(read) >= translation.n_passes > 1


def test_a_translator_that_is_not_there_is_refused(folder):
    with pytest.raises(GlauberError, match="decoder is 'ar'"):
        time_translator(folder / "pairs.tsv", model=folder, decoder="ar")
    with pytest.raises(GlauberError, match="no vocabulary"):
        time_translator(model="nowhere")
