"""Scores over labels, along runs and by two kinds of scorers."""

from collections import Counter

import numpy as np
import pytest
import torch
import transformers
from scipy.special import log_softmax, softmax

from conftest import TEXTS, VOCABULARY
from crafted_run import crafted_run
from glauber.foundation.errors import GlauberError
from glauber.runs.embedding import Embedder
from glauber.runs.snapshots import snapshots
from glauber.sampling.sample import sample
from glauber.studies.landscape.entailment import ABOUT, EXAMPLE, FEELING, entailment_scores
from glauber.studies.landscape.labels import (
    DESCRIPTIONS,
    SENTIMENTS,
    TOPICS,
    calibration_passages,
    held_out_passages,
    sentences,
)
from glauber.studies.landscape.scorers import (
    Scorer,
    check_labels,
    evaluate_scorer,
    fit_temperature,
    held_out_sentences,
    load_scorer,
    read_labels,
    similarity_scorer,
    topic_scores,
)
from glauber.studies.landscape.topics import topics
from tiny_nli import make_nli

CAT, DOG, BIRD = (VOCABULARY.index(word) for word in ("cat", "dog", "bird"))
LABELS = ("cat", "dog", "bird")


def shares(texts):
    """A third of a count each, so that a text of the three words scores what it holds."""
    counts = np.array([[text.split().count(label) + 0.5 for label in LABELS] for text in texts])
    return counts / counts.sum(axis=1, keepdims=True)


SCORER = Scorer("shares", LABELS, shares)


def bags(texts):
    """A unit vector for the letters of each text."""
    vectors = np.array(
        [[text.lower().count(chr(97 + i)) + 0.1 for i in range(26)] for text in texts]
    )
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


LETTERS = Embedder("letters", bags)


def test_scores_along_a_run(tmp_path):
    start = [[CAT, CAT, DOG], [BIRD, DOG, DOG]]
    sites, tokens = [[0, 1, 2, 0], [0, 0, 1, 2]], [[DOG, DOG, BIRD, CAT], [CAT, CAT, CAT, CAT]]
    run = crafted_run(tmp_path / "run", start, sites, tokens)
    found = topic_scores(snapshots(run, every=2), SCORER)
    assert found.steps.tolist() == [0, 2, 4] and found.values.shape == (2, 3, 3)
    assert np.allclose(found.values[0, :, 0] * 4.5, [2.5, 0.5, 1.5])
    assert np.allclose(found.of("bird")[1] * 4.5, [1.5, 0.5, 0.5])
    assert np.allclose(found.values.sum(axis=2), 1) and found.baseline == pytest.approx(1 / 3)
    assert topic_scores(snapshots(run), SCORER).every == 1


def test_frozen_sites_need_not_be_read(tmp_path):
    run = crafted_run(tmp_path / "run", [[CAT, DOG, DOG]], [[1]], [[BIRD]])
    run.__dict__["free"] = np.array([[False, True, True]])
    read = topic_scores(snapshots(run, free_only=True), SCORER).values[0]
    assert np.allclose(read * 3.5, [[0.5, 2.5, 0.5], [0.5, 1.5, 1.5]])


def test_bad_input_is_refused_in_a_sentence(tmp_path, tiny_folder):
    with pytest.raises(GlauberError, match="at least two"):
        check_labels(["politics"])
    for listed in (["a", "a"], ["a", " "]):
        with pytest.raises(GlauberError, match="empty or given twice"):
            check_labels(listed)
    empty = sample(str(tiny_folder), ["the cat"], steps=0)
    with pytest.raises(GlauberError, match="no steps yet"):
        topics(empty, scorer=SCORER)
    brief = crafted_run(tmp_path / "brief", [[CAT]], [[0, 0]], [[DOG, CAT]])
    with pytest.raises(GlauberError, match="has 2 steps, but the snapshots are 5 steps apart"):
        topics(brief, scorer=SCORER, every=5)
    with pytest.raises(GlauberError, match="not among the labels"):
        topic_scores(snapshots(brief), SCORER).of("fish")


def test_the_temperature_that_made_the_labels_is_found():
    rng = np.random.default_rng(0)
    cosines, temperature = rng.uniform(-1, 1, (4000, 5)), 0.2
    laws = softmax(cosines / temperature, axis=1)
    truth = (laws.cumsum(axis=1) < rng.random((4000, 1))).sum(axis=1)
    # Fisher information of the inverse temperature: the summed variance of the cosine drawn.
    means = (laws * cosines).sum(axis=1, keepdims=True)
    error = 1 / np.sqrt((laws * (cosines - means) ** 2).sum())
    assert abs(1 / fit_temperature(cosines, truth) - 1 / temperature) < 4 * error


def test_similarity_is_a_softmax_of_cosines_to_mean_directions():
    scorer = similarity_scorer(LETTERS, ["politics", "sport", "food"])
    texts = ["the senate votes", "", "a goal in the second half"]
    found = scorer.score(texts)
    assert found.shape == (3, 3) and np.allclose(found.sum(axis=1), 1)
    labels = [bags(DESCRIPTIONS[label]).astype(float).mean(axis=0) for label in scorer.labels]
    cosines = bags(["the senate votes"]) @ np.stack([v / np.linalg.norm(v) for v in labels]).T
    temperature = float(scorer.name.rsplit(" ", 1)[1])
    expected = log_softmax(cosines / temperature, axis=1)
    assert np.allclose(
        np.log(found[0]), expected, rtol=2e-2, atol=1e-3
    )  # four decimals in the name


def test_labels_without_descriptions_stand_for_themselves():
    scorer = similarity_scorer(LETTERS, ["zebra", "fjord"])
    assert (scorer.score(["zebra", "fjord"]).argmax(axis=1) == [0, 1]).all()
    everything = similarity_scorer(LETTERS, list(TOPICS))
    assert scorer.name == everything.name  # the temperature of all topics


def test_no_passage_both_calibrates_and_judges():
    first, second = calibration_passages(), held_out_passages()
    assert not {each.text for each in first} & {each.text for each in second}
    counts = Counter(each.label for each in second)
    assert all(counts[topic] == 10 for topic in TOPICS)
    assert all(counts[feeling] == 7 for feeling in SENTIMENTS)
    assert all(len(sentences(each.text)) == 2 for each in first if each.label in TOPICS)
    bundled = {each.text for each in [*first, *second]}
    phrases = [phrase for each in DESCRIPTIONS.values() for phrase in each if len(phrase) > 20]
    assert not any(phrase in text for phrase in phrases for text in bundled)


def test_a_scorer_is_judged_beside_chance():
    texts = held_out_sentences(["food", "art"])
    known = {each.text: each.label for each in texts}

    def score(asked):
        right = np.array([known[text] == "art" for text in asked])
        right[:2] = ~right[:2]  # two mistakes
        return np.stack([np.where(right, 0.2, 0.8), np.where(right, 0.8, 0.2)], axis=1)

    found = evaluate_scorer(Scorer("oracle", ("food", "art"), score), texts)
    assert found.n_texts == 20 and found.accuracy == pytest.approx(0.9)
    assert found.log_loss.value == pytest.approx(-(18 * np.log(0.8) + 2 * np.log(0.2)) / 20)
    assert found.chance == 0.5 and found.chance_log_loss == pytest.approx(np.log(2))
    assert found.interval[0] < 0.9 < found.interval[1]
    with pytest.raises(GlauberError, match="no labelled text"):
        evaluate_scorer(SCORER)


def test_entailment_logits_of_each_pair_by_itself(tmp_path):
    folder = make_nli(tmp_path / "nli")
    scorer = load_scorer(str(folder), LABELS, device="cpu")
    texts = [
        "the cat sat on the mat .",
        "a big dog ran under the old tree and flew",
        "the cat sat on the mat .",
    ]
    found = scorer.score(texts)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    for row, text in zip(found, texts, strict=True):
        pairs = [tokenizer(text, ABOUT.format(label), return_tensors="pt") for label in LABELS]
        with torch.no_grad():
            logits = [float(model(**pair).logits[0, 2]) for pair in pairs]
        assert np.allclose(row, softmax(logits), atol=1e-5)
    assert np.ptp(found) > 0.01  # the labels are unknown words but for cat, dog and bird


def test_sentiments_are_asked_for_as_sentiments(tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr(
        "glauber.studies.landscape.scorers.entailment_scores", lambda *_, **how: asked.update(how)
    )
    load_scorer("any", ["positive", "negative"])
    assert asked["hypothesis"] == FEELING
    load_scorer("any", ["positive", "sport"])
    assert asked["hypothesis"] == ABOUT


def test_what_is_no_entailment_model(tmp_path):
    with pytest.raises(GlauberError, match="neither as a folder nor on the hub"):
        entailment_scores("nobody/nothing", LABELS)
    folder = make_nli(tmp_path / "other", {"good": 0, "bad": 1})
    with pytest.raises(GlauberError, match="its classes are bad, good"):
        entailment_scores(str(folder), LABELS)
    (tmp_path / "empty").mkdir()
    with pytest.raises(GlauberError, match="cannot be loaded"):
        entailment_scores(str(tmp_path / "empty"), LABELS)
    with pytest.raises(GlauberError, match="to put a label into"):
        entailment_scores(str(folder), LABELS, hypothesis="about")


@pytest.mark.weights
def test_the_default_scorer_is_worth_trusting():
    """Held-out sentences; the bounds are far below what it reaches and far above chance."""
    found = evaluate_scorer(load_scorer(device="cpu"))
    assert found.n_texts == 110 and found.interval[0] > 0.85 and found.chance < 0.1
    assert found.log_loss.value < 0.3 < found.chance_log_loss
    assert min(found.recall.values()) >= 0.7


def test_the_study_of_a_run_says_what_its_parts_say(tmp_path):
    start = [[CAT, CAT, DOG], [BIRD, DOG, DOG], [DOG, DOG, BIRD]]
    sites = [[0, 1, 2, 0], [0, 0, 1, 2], [0, 1, 2, 2]]
    tokens = [[DOG, DOG, BIRD, CAT], [CAT, CAT, CAT, CAT], [BIRD, CAT, CAT, DOG]]
    run = crafted_run(tmp_path / "run", start, sites, tokens)
    other = Scorer("even", LABELS, lambda texts: np.full((len(texts), 3), 1 / 3))
    found = topics(run, scorer=(SCORER, other), track="cat", seeds="dog,bird", every=1, judge=False)
    assert found.seeds == ["dog", "bird", "dog"] and found.run == str(run.folder)
    assert [row.seed for row in found.tables[0].rows] == ["dog", "bird", "all"]
    values = topic_scores(snapshots(run, every=1), SCORER).of("cat")
    above = values > 1 / 3
    crossed = int((~above[:, :-1] & above[:, 1:]).any(axis=1).sum())
    assert {row.label: row.crossed for row in found.tables[0].labels}["cat"] == crossed
    assert found.to_dict()["means"][0]["means"]["cat"] == pytest.approx(values.mean(axis=0))
    assert len(found.frame()) == 2 * 3 * 5 and len(found.figures()) == 6
    assert "|track:cat|" in found.signature and "|every:1|" in found.signature
    assert "name the same label" in str(found)


def test_a_start_that_is_no_topic_is_refused(tmp_path):
    run = crafted_run(tmp_path / "run", [[CAT, DOG]] * 3, [[0, 1]] * 3, [[DOG, CAT]] * 3)
    with pytest.raises(GlauberError, match="the topic of a start is nonsense, but it must be one"):
        topics(run, scorer=SCORER, seeds="dog,nonsense", every=1)
    with pytest.raises(GlauberError, match="topics is empty"):
        topics(run, scorer=SCORER, seeds=(), every=1)
    found = topics(run, scorer=SCORER, seeds=["politics", "cat"], every=1)  # a bundled topic too
    assert found.seeds == ["politics", "cat", "politics"]


def test_labels_are_a_list_a_text_or_a_bundled_name():
    assert read_labels("topics") == tuple(TOPICS) and read_labels("a, b") == ("a", "b")
    assert read_labels(["x", "y"]) == ("x", "y")


def test_residues_have_no_topics(tmp_path):
    from runs.test_snapshots import residues

    run = residues(tmp_path / "run", "ACDEFGHIKLMNPQRSTVWY")
    with pytest.raises(GlauberError, match=r"none for these texts .*single characters"):
        topics(run)


def test_scorers_by_name_with_commas(tmp_path):
    nli = make_nli(tmp_path / "nli")
    start = [[CAT, CAT, DOG], [BIRD, DOG, DOG]]
    run = crafted_run(tmp_path / "run", start, [[0, 1], [0, 1]], [[DOG, DOG], [CAT, CAT]])
    found = topics(run, labels=",".join(LABELS), scorer=f"{nli},{nli}", device="cpu")
    assert found.track == "cat" and found.agreement[0].same_label == 1
    assert found.tables[0] == found.tables[1]
    alone = crafted_run(tmp_path / "alone", start[:1], [[0, 1]], [[DOG, DOG]])
    with pytest.raises(GlauberError, match="one chain only"):
        topics(alone, scorer=SCORER)


def test_the_hypothesis_of_the_pipeline_gives_the_scores_of_the_pipeline(tmp_path):
    folder = str(make_nli(tmp_path / "nli"))
    texts = ["the cat sat on the mat .", "a big dog ran under the old tree"]
    scorer = load_scorer(folder, LABELS, hypothesis=EXAMPLE, device="cpu")
    pipeline = transformers.pipeline("zero-shot-classification", model=folder, device="cpu")
    for row, text in zip(scorer.score(texts), texts, strict=True):
        answer = pipeline(text, list(LABELS))
        score_of = dict(zip(answer["labels"], answer["scores"], strict=True))
        assert np.allclose(row, [score_of[label] for label in LABELS], atol=1e-5)
    default = load_scorer(folder, LABELS, device="cpu")
    assert np.abs(default.score(texts) - scorer.score(texts)).max() > 1e-3
    assert "This example is LABEL." in scorer.name and "This text is about" in default.name


def test_a_classifier_of_sentiment_scores_its_own_classes(tmp_path, tiny_folder):
    folder = str(make_nli(tmp_path / "sst", {"NEGATIVE": 0, "POSITIVE": 1, "Mixed": 2}))
    run = sample(str(tiny_folder), TEXTS[:3], steps=6, chains=3, length=4)
    found = topics(run, scorer=folder, every=3, judge=True)
    assert found.scores[0].labels == ("negative", "positive", "mixed")
    assert found.track == "negative" and found.accuracy[0].n_texts == 14  # two bundled feelings
    pipeline = transformers.pipeline("sentiment-analysis", model=folder, device="cpu", top_k=None)
    text = snapshots(run, every=3).texts[0][1]
    expected = {each["label"].lower(): each["score"] for each in pipeline([text])[0]}
    labels = found.scores[0].labels
    assert np.allclose(found.scores[0].values[0, 1], [expected[x] for x in labels], atol=1e-5)
    some = topics(run, scorer=folder, labels="positive,negative", track="negative", every=3)
    ratio = expected["positive"] / (expected["positive"] + expected["negative"])
    assert some.scores[0].of("positive")[0, 1] == pytest.approx(ratio, abs=1e-5)
    with pytest.raises(GlauberError, match="negative, positive, mixed, and neutral is none"):
        topics(run, scorer=folder, labels="sentiments", every=3)


def test_what_a_scorer_cannot_take_is_refused(tmp_path):
    folder = make_nli(tmp_path / "sst", {"NEGATIVE": 0, "POSITIVE": 1})
    run = crafted_run(tmp_path / "run", [[CAT, DOG]] * 3, [[0, 1]] * 3, [[DOG, CAT]] * 3)
    with pytest.raises(GlauberError, match="hypothesis is for an entailment model"):
        topics(run, scorer=SCORER, hypothesis=EXAMPLE, every=1)
    with pytest.raises(GlauberError, match="takes no hypothesis"):
        topics(run, scorer=str(folder), hypothesis=EXAMPLE, every=1)
    config = transformers.AutoConfig.from_pretrained(folder)
    config.problem_type = "multi_label_classification"
    config.save_pretrained(folder)
    with pytest.raises(GlauberError, match="do not exclude each other"):
        topics(run, scorer=str(folder), every=1)
