"""Designs keep to what was asked, are new and apart, and are ranked as the exact law does."""

import itertools
import json
import math

import numpy as np
import pandas
import pytest
import torch
import transformers

import glauber as package
from conftest import SIZES
from glauber.foundation.errors import GlauberError
from glauber.models.table import Joint, Table
from glauber.studies.proteins.design import (
    N_TEMPERATURES,
    STAGE_SWEEPS,
    ChainHistory,
    count_designs,
    design,
    most_apart,
    read_temperatures,
)
from glauber.studies.proteins.weights import residue_tokenizer
from glauber.texts.read import read_texts

LETTERS, PARENT = "ACDE", "ACDEA"
EVERY = ["".join(letters) for letters in itertools.product(LETTERS, repeat=len(PARENT))]


class Law:
    """A rule over five sites and four letters."""

    vocab_size, vocabulary, length = 4, LETTERS, 5

    def __init__(self, table):
        self.table = table

    def scores(self, tokens, sites):
        return self.table.scores(tokens, sites)


JOINT = Joint.random(4, 5, seed=1)
LAW, OTHER = Law(JOINT), Law(Table.random(4, 5, seed=2))


def apart(one, other):
    return sum(a != b for a, b in zip(one, other, strict=True))


def found_by(answer):
    return [one.sequence for family in answer.families for one in family.designs]


def within(sequence):
    """What `ASKED` allows, written down once more."""
    changed = [i for i, (a, b) in enumerate(zip(sequence, PARENT, strict=True), 1) if a != b]
    return (
        0 < len(changed) <= 3
        and 4 not in changed
        and all(sequence[i - 1] != "C" for i in changed)
        and (5 not in changed or sequence[4] in "DE")
        and (1 not in changed or sequence[0] == "E")
    )


ASKED = dict(free="1-3,5", omit="C", allow="5:DE,1:CE", max_mutations=3, temperature=3.0)


def test_all_of_a_small_space_is_found_and_nothing_else():
    possible = {sequence for sequence in EVERY if within(sequence)}
    answer = design(OTHER, PARENT, **ASKED, designs=len(possible), chains=8)
    assert answer.families[0].design_space == len(possible) == len(found_by(answer))
    assert set(found_by(answer)) == possible
    assert PARENT not in found_by(answer) and not answer.notes


def test_a_residue_that_is_omitted_may_stay_but_never_comes_in():
    answer = design(OTHER, "CCCAC", omit="C", designs=100, chains=8, temperature=3.0)
    found = np.array([list(sequence) for sequence in found_by(answer)])
    assert (found[:, 3] != "C").all()
    assert (found[:, :3] == "C").any() and (found[:, :3] != "C").any()


@pytest.mark.parametrize("distance", [2, 3])
def test_designs_are_apart_from_each_other(distance):
    answer = design(OTHER, PARENT, designs=12, min_distance=distance, temperature=3.0)
    found = found_by(answer)
    pairs = [apart(*pair) for pair in itertools.combinations(found, 2)]
    assert len(found) == 12 and min(pairs) >= distance
    family = answer.families[0]
    assert family.pairs_by_distance == np.bincount(pairs, minlength=6).tolist()
    assert math.isclose(family.mean_distance, np.mean(pairs))
    for one in family.designs:
        others = [apart(one.sequence, other) for other in found if other != one.sequence]
        assert (one.changes, one.nearest) == (apart(one.sequence, PARENT), min(others))


def test_the_ranking_is_that_of_the_joint_law():
    answer = design(LAW, PARENT, max_mutations=4, designs=60, temperature=2.0)
    exact = {
        sequence: float(JOINT.log_weights[tuple(map(LETTERS.index, sequence))])
        for sequence in EVERY
    }
    for one in answer.families[0].designs:
        assert abs(one.mean_over_orders.value - exact[one.sequence] + exact[PARENT]) < 1e-9
        assert one.order_sd.value < 1e-9 and one.mean_over_orders.kind == "exact"
        pairs = enumerate(zip(PARENT, one.sequence, strict=True), 1)
        spelled = [f"{a}{i}{b}" for i, (a, b) in pairs if a != b]
        assert one.mutations == ":".join(spelled)
    ranked = found_by(answer)
    assert ranked == sorted(ranked, key=exact.get, reverse=True)
    assert [one.rank for one in answer.families[0].designs] == list(range(1, 61))


def test_the_same_seed_gives_the_same_designs_in_any_batch():
    asked = dict(designs=25, chains=5, max_mutations=3)
    whole, parts = (design(OTHER, PARENT, **asked, batch_size=size).to_dict() for size in (None, 2))
    assert parts["families"] == whole["families"]
    other = design(OTHER, PARENT, **asked, seed=1)
    assert set(found_by(other)) != {one["sequence"] for one in whole["families"][0]["designs"]}


def test_an_annealing_takes_designs_at_its_cold_end_within_the_budget():
    asked = dict(temperature=[3.0, 1.0, 0.7], max_mutations=2, designs=30, chains=4)
    answer = design(OTHER, PARENT, **asked)
    walk, stage = answer.families[0].history, STAGE_SWEEPS * len(PARENT)
    assert walk.temperatures == [3.0, 1.0, 0.7] and walk.steps > 3 * stage
    assert walk.kept.min() >= 1 - 2 / 5 - 1e-12  # also where a stage went on from another's end
    for one in answer.families[0].designs:
        assert (one.step - 1) // stage % 3 == 2 and one.changes <= 2
    assert read_temperatures((4.0, 1.0))[:: N_TEMPERATURES - 1] == pytest.approx([4.0, 1.0])
    ratios = np.divide(read_temperatures((4.0, 1.0))[1:], read_temperatures((4.0, 1.0))[:-1])
    assert np.allclose(ratios, 4 ** (-1 / (N_TEMPERATURES - 1)))


def test_a_kept_run_is_the_one_that_sample_makes(tmp_path):
    answer = design(
        OTHER, PARENT, free="2-4", allow={3: "AE"}, max_mutations=2, designs=8, chains=4,
        seed=3, keep_run=tmp_path / "run",
    )  # fmt: skip
    run = package.Run(tmp_path / "run")
    again = package.sample(
        OTHER, PARENT, freeze="0,4", allow={2: [0, 2, 3]}, max_changes=2, chains=4, seed=3,
        steps=run.steps, temperature=1.0,
    )  # fmt: skip
    assert run.finished and run.spec.constraints == again.spec.constraints
    assert (run.read("token") == again.read("token")).all()
    walk = answer.families[0].history
    changed = again.read("changed").any(axis=2).mean(axis=1)
    assert np.allclose(walk.changed_by_chain, changed)
    states = np.stack([tokens for _, tokens in again.states(every=3)], axis=1)
    same = (states == again.tokens(0)[:, None])[:, :, 1:4].mean(axis=2)
    assert np.allclose(walk.kept, same)


def test_several_parents_have_their_own_designs(tmp_path):
    path = tmp_path / "two.fasta"
    path.write_text(f">first one\n{PARENT}\n>second\nEEEEE\n")
    answer = design(OTHER, path, free="1-2", designs=6, chains=4, temperature=2.0)
    assert [family.name for family in answer.families] == ["first one", "second"]
    for family, parent in zip(answer.families, (PARENT, "EEEEE"), strict=True):
        assert len(family.designs) == 6
        assert all(one.sequence[2:] == parent[2:] for one in family.designs)
    assert set(answer.frame()["parent"]) == {"first one", "second"}
    assert {"logo-1", "logo-2"} <= set(answer.figures())


def test_parents_without_names_get_numbers():
    answer = design(OTHER, [PARENT, "EEEEE"], free="1-2", designs=2, chains=2, temperature=2.0)
    assert [family.name for family in answer.families] == ["parent1", "parent2"]
    with pytest.raises(GlauberError, match="4 designs of parent1 were asked for"):
        design(OTHER, [PARENT, "EEEEE"], free="1", designs=4)


def test_what_is_written_can_be_read_again(tmp_path):
    answer = design(OTHER, PARENT, designs=7, chains=4)
    folder = answer.write(tmp_path / "all")
    records = read_texts(folder / "designs.fasta").rows
    assert [one.text for one in records] == found_by(answer)
    first = answer.families[0].designs[0]
    assert records[0].id == (
        f"parent-1 score={first.mean_over_orders.value:.4f} order_sd={first.order_sd.value:.4f} "
        f"distance={first.changes} mutations={first.mutations}"
    )
    table = pandas.read_parquet(folder / "designs.parquet")
    assert list(table["sequence"]) == found_by(answer)
    assert list(pandas.read_csv(folder / "result.csv")["rank"]) == list(range(1, 8))
    told = json.loads((folder / "result.json").read_text())
    assert told["families"][0]["design_space"] == 4**5 - 1
    assert b"Residues of the designs" in (folder / "page.html").read_bytes()


def test_the_logo_stacks_to_one_and_frequencies_are_shares():
    answer = design(OTHER, PARENT, designs=40, free="1-4", temperature=2.0)
    family, logo = answer.families[0], answer.figures()["logo"]
    heights = np.zeros(4)
    for trace in logo.data:
        np.add.at(heights, np.array(trace.x), np.array(trace.y))
    assert np.allclose(heights, 1)
    counted = sum(sequence[0] == "E" for sequence in found_by(answer)) / 40
    assert math.isclose(family.shares[0, family.alphabet.index("E")], counted)


def test_fewer_designs_than_asked_are_kept_with_a_note():
    answer = design(OTHER, PARENT, designs=1000, chains=2, steps=20)
    assert 0 < len(found_by(answer)) < 1000
    assert "designs of parent were met in 20 steps" in answer.notes[0]
    assert answer.notes[0] in str(answer)


def test_a_chain_that_never_moves_is_told_and_leaves_nothing(tmp_path):
    best = "".join(LETTERS[i] for i in np.unravel_index(int(JOINT.log_weights.argmax()), (4,) * 5))
    with pytest.raises(GlauberError, match="2 chains met no design in 30 steps"):
        design(LAW, best, temperature=0.01, chains=2, steps=30, keep_run=tmp_path / "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("still", "told"), [(1, 20), (2, None)])
def test_chains_that_stand_still_have_not_forgotten(still, told):
    """By hand: kept falls from 1 to 0.5 by the second look and stays; half of four is too many."""
    changed = np.ones((4, 80), bool)
    changed[:still, 30:] = False
    kept = np.tile([1.0, 0.9, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], (4, 1))
    walk = ChainHistory(
        kept=kept, changed=changed, steps_between_looks=10, temperatures=[1.0], looked_at=32
    )
    assert walk.steps_until_parent_forgotten == told and walk.trapped_chains == still


# ---- how many there are


@pytest.mark.parametrize("choices", [[1], [2, 0, 3], [3, 1, 2, 2]])
@pytest.mark.parametrize("budget", [1, 2, 4])
def test_designs_are_counted_as_by_enumeration(choices, budget):
    every = itertools.product(*(range(count + 1) for count in choices))
    assert count_designs(choices, budget) == sum(0 < sum(map(bool, x)) <= budget for x in every)


@pytest.mark.parametrize(("choices", "budget"), [([1, 1, 1], 2), ([2, 2], 2), ([1, 2, 0, 1], 1)])
@pytest.mark.parametrize("distance", [1, 2, 3, 4])
def test_no_set_of_designs_is_larger_than_the_bound(choices, budget, distance):
    every = itertools.product(*(range(count + 1) for count in choices))
    designs = [x for x in every if 0 < sum(map(bool, x)) <= budget]

    def largest(left):
        if not left:
            return 0
        first, *rest = left
        far = [x for x in rest if apart(x, first) >= distance]
        return max(1 + largest(far), largest(rest))

    assert largest(designs) <= most_apart(choices, budget, distance)
    if distance == 1:
        assert largest(designs) == most_apart(choices, budget, distance)


# ---- what is refused


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (dict(parents="ACXEA"), "'X' at position 3"),
        (dict(parents="acdea"), "lower-case"),
        (dict(parents=">b\n\n>c\n"), "'b' has no sequence"),
        (dict(parents=None), "a parent is needed"),
        (dict(free="4-9"), "residues 4-9 are not there: the sequence has residues 1 to 5"),
        (dict(free="0-2"), "residues 0-2 are not there"),
        (dict(allow="9:A"), "residues 9 are not there"),
        (dict(allow="1:Z"), "allow names 'Z'"),
        (dict(omit="Z"), "omit names 'Z'"),
        (dict(omit=3), "omit is 3, but it must be letters"),
        (dict(allow={1: 3}), "allow is 3, but it must be letters"),
        (dict(allow=3), "such as 30-35:ST"),
        (dict(allow="1"), "such as 30-35:ST"),
        (dict(allow="1:A,1-2:C"), "position 1 twice"),
        (dict(allow="4:A", free="1-3"), "position 4 has allowed residues, but it is not free"),
        (dict(allow="1:C", omit="C"), "position 1 may change to C only, which is omitted"),
        (dict(omit="ACDE"), "no free position of the parent may take another residue"),
        (dict(max_mutations=0), "max mutations is 0"),
        (dict(designs=0), "designs is 0"),
        (dict(designs=1024), "1,024 designs of the parent were asked for, but .* allow 1,023 only"),
        (dict(free="1", designs=4), "allow 3 only"),
        (dict(min_distance=6, designs=2), "no more than 1 can differ from each other at 6"),
        (dict(min_distance=3, max_mutations=1, designs=2), "no more than 1 can differ"),
        (dict(min_distance=5, designs=9), "no more than 4 can differ"),
        (dict(temperature=(0.5, 2.0)), "fall from hot to cold"),
        (dict(temperature=0.0), "temperature"),
        (dict(temperature=(2.0, 0.5), keep_run="somewhere"), "one parent at one temperature"),
    ],
)
def test_bad_input_is_refused_in_a_sentence_before_anything_is_made(asked, said, tmp_path):
    given = {"parents": PARENT, "keep_run": None, "designs": 3} | asked
    if given["keep_run"] is not None:
        given["keep_run"] = tmp_path / given["keep_run"]
    with pytest.raises(GlauberError, match=said) as refused:
        design(LAW, **given)
    assert "\n" not in str(refused.value) and not list(tmp_path.iterdir())


def test_texts_of_words_are_refused(tiny_folder):
    with pytest.raises(GlauberError, match="design counts residues, one letter each, but"):
        design(str(tiny_folder), "the cat sat", designs=2)


# ---- as a command


@pytest.fixture(scope="module")
def protein_folder(tmp_path_factory):
    """A tiny BERT with random weights that reads residues."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"ACDEFGHIKLMNPQRSTVWY"]
    torch.manual_seed(3)
    config = transformers.BertConfig(**SIZES | {"vocab_size": len(words)})
    folder = tmp_path_factory.mktemp("models") / "residues"
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    names = {one: f"[{one.upper()}]" for one in ("pad", "unk", "cls", "sep", "mask")}
    residue_tokenizer(words, names, 38).save_pretrained(folder)
    return folder


def test_the_command_writes_ranked_fasta_or_nothing(glauber, protein_folder, tmp_path):
    out = tmp_path / "designs.fasta"
    words = ["design", "EVQLVESGGA", "--model", protein_folder, "--chains", 4, "--out", out]
    code, _, err = glauber(*words, "--free", "3-12", "--json")
    assert code == 2 and "residues 3-12" in err and not out.exists()
    few = ["--free", "3-6,9", "--omit", "C", "--allow", "9:ST", "--max-mutations", 2]
    code, said, _ = glauber(*words, *few, "--designs", 12, "--temperature", "2,1.5,1", "--json")
    assert code == 0
    told = json.loads(said)["families"][0]["designs"]
    records = read_texts(out).rows
    assert [one.text for one in records] == [one["sequence"] for one in told]
    assert len({one.text for one in records}) == 12
    scores = [float(one.id.split("score=")[1].split()[0]) for one in records]
    assert scores == sorted(scores, reverse=True)
    for one in records:
        assert one.text[:2] + one.text[6:8] + one.text[9] == "EV" + "SG" + "A"
        assert "C" not in one.text and one.text[8] in "GST" and apart(one.text, "EVQLVESGGA") <= 2
