"""`glauber mutate` against plain computations, and what it says to bad input."""

import csv
import gzip
import json

import numpy as np
import pandas
import pytest
import torch
import transformers

from conftest import SIZES
from glauber.dynamics.constrained import constrain
from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Joint, Table
from glauber.studies.proteins.positions import (
    apply_mutations,
    differences,
    read_mutations,
    read_positions,
    spell_mutations,
)
from glauber.studies.proteins.single_mutants import scan_mutations
from glauber.studies.proteins.variants import mutate
from glauber.studies.proteins.weights import residue_tokenizer
from glauber.texts.read import read_texts

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
PARENT = "EVQLVESGGA"


@pytest.fixture(scope="module")
def protein():
    """A tiny BERT with random weights that reads residues."""
    torch.manual_seed(3)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *RESIDUES]
    config = transformers.BertConfig(**SIZES | {"vocab_size": len(words)})
    model = transformers.BertForMaskedLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(std=0.2)
    names = {one: f"[{one.upper()}]" for one in ("pad", "unk", "cls", "sep", "mask")}
    return MaskedLM(model, residue_tokenizer(words, names, 38), name="tiny")


class Lettered:
    """A rule over the letters A, C, D."""

    vocabulary, vocab_size = "ACD", 3

    def __init__(self, rule):
        self.rule, self.length, self.hidden_token = rule, rule.length, rule.hidden_token

    def scores(self, tokens, sites, candidates=None):
        return self.rule.scores(tokens, sites, candidates)


def plainly(model, sequence, hidden):
    """Log-probabilities of all tokens at each hidden position, by transformers alone."""
    tokenizer = model.vocabulary.tokenizer
    read = tokenizer(sequence, return_tensors="pt")["input_ids"]
    read[0, hidden] = tokenizer.mask_token_id
    with torch.no_grad():
        return torch.log_softmax(model.model(input_ids=read).logits[0].double(), dim=-1)


def one_hot(letter):
    return (torch.arange(25) == 5 + RESIDUES.index(letter)).double()


def test_single_mutants_are_what_transformers_says(protein):
    found = scan_mutations(protein, PARENT)
    assert found.scores.shape == (10, 20) and found.letters == list(RESIDUES)
    for position, old in enumerate(PARENT, 1):
        law = plainly(protein, PARENT, [position])[position]
        expected = [float(law[5 + RESIDUES.index(one)]) for one in RESIDUES]
        ours = np.array(expected) - expected[RESIDUES.index(old)]
        np.testing.assert_allclose(found.scores[position - 1], ours, atol=1e-5)
    assert len(found.frame()) == 190 and found.frame().score.is_monotonic_decreasing
    part = scan_mutations(protein, PARENT, positions="9-10,2")
    np.testing.assert_allclose(part.scores, found.scores[[1, 8, 9]], atol=1e-6)


def test_conventions_are_what_transformers_says(protein):
    found = mutate(protein, PARENT, "V2A:L4C:A10D").variants[0]
    mutant = "EAQCVESGGD"
    token = {one: 5 + RESIDUES.index(one) for one in RESIDUES}
    changed = [(2, "V", "A"), (4, "L", "C"), (10, "A", "D")]
    wild, filled = (
        sum(
            float(plainly(protein, sequence, [i])[i] @ (one_hot(new) - one_hot(old)))
            for i, old, new in changed
        )
        for sequence in (PARENT, mutant)
    )
    law = plainly(protein, PARENT, [2, 4, 10])
    hidden = sum(float(law[i][token[new]] - law[i][token[old]]) for i, old, new in changed)
    pll = [
        sum(float(plainly(protein, one, [i])[i][token[one[i - 1]]]) for i in range(1, 11))
        for one in (mutant, PARENT)
    ]
    expected = {
        "wild_type_fill": wild,
        "mutant_fill": filled,
        "all_hidden": hidden,
        "pll": pll[0] - pll[1],
    }
    assert found.scores == pytest.approx(expected, abs=1e-5)
    # From left to right, by the chain rule.
    forward = 0.0
    for sign, sequence in ((1, mutant), (-1, PARENT)):
        for behind in ([2, 4, 10], [4, 10], [10]):
            law = plainly(protein, sequence, behind)[behind[0]]
            forward += sign * float(law[token[sequence[behind[0] - 1]]])
    study = mutate(protein, PARENT, "V2A:L4C:A10D")
    assert study.every_order and np.abs(study.along[0] - forward).min() < 1e-5
    assert found.exact and found.orders == 6


def test_a_joint_law_has_no_spread_and_a_table_has():
    variants = ["A1C:C2D:D3A", "A1D:C2A:A4C", "D3C:A4D"]
    joint = mutate(Lettered(Joint.random(3, 4, 1)), "ACDA", variants)
    assert (
        joint.order_sd.value < 1e-9
        and joint.flagged_pairs["count"] == 0
        and joint.flagged_pairs["of"] == 3
    )
    assert all(one.highest_order - one.lowest_order < 1e-9 for one in joint.variants)
    table = mutate(Lettered(Table.random(3, 4, 1)), "ACDA", variants)
    assert table.order_sd.value > 0.1 and table.every_order
    assert table.flagged_pairs["count"] == len(table.pairs) > 0
    shares = [one["contrary_orders"] for one in table.pairs]
    assert shares == sorted(shares, reverse=True) and shares[-1] > 0.05


def test_a_variant_given_again_is_no_evidence():
    """Each variant five times: the correlations and the agreement are those of one copy each."""
    rule, variants = Lettered(Table.random(3, 4, 1)), ["A1C:C2D", "A1D:C2A", "C2D:D3A", "D3C:A4C"]
    once, often = (mutate(rule, "ACDA", variants * copies) for copies in (1, 5))
    assert often.correlations == once.correlations and often.order_agreement == once.order_agreement


def test_few_orders_are_estimates_near_the_exact_figures():
    rule = Lettered(Table.random(3, 6, 2))
    variants = ["A1C:C2D:D3A:A4C:C5D:D6A", "A1D:C2A:D3C:A4D:C5A:D6C"]
    exact = {one.name: one for one in mutate(rule, "ACDACD", variants).variants}
    few = mutate(rule, "ACDACD", variants, orders=10, seed=4)
    assert not few.every_order and few.along.shape == (2, 10)
    for one in few.variants:
        truth = exact[one.name]
        assert truth.exact and truth.orders == 720 and not one.exact and one.orders == 10
        assert abs(
            one.mean_over_orders.value - truth.mean_over_orders.value
        ) < 5 * truth.order_sd.value / np.sqrt(10)
        assert truth.lowest_order <= one.lowest_order <= one.highest_order <= truth.highest_order
        assert (
            one.mean_over_orders.interval[0]
            < one.mean_over_orders.value
            < one.mean_over_orders.interval[1]
        )
        assert one.scores == pytest.approx(truth.scores)
    again = mutate(rule, "ACDACD", variants[::-1], orders=10, seed=4)
    assert np.array_equal(again.along, few.along)


def test_variants_from_every_kind_of_file_and_out_again(protein, tmp_path):
    spelled = ["V2A:L4C", "E1D"]
    table = tmp_path / "them.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([["name", "variant"], ["one", spelled[0]], ["two", spelled[1]]])
    records = tmp_path / "them.fa.gz"
    records.write_bytes(gzip.compress(b">one\nEAQCVESGGA\n>two\nDVQLVESGGA\n"))
    parent = tmp_path / "parent.fasta"
    parent.write_text(f">wild type\n{PARENT}\n")
    answers = [
        mutate(protein, parent, given, pll=False)
        for given in (table, str(records), ",".join(spelled), spelled)
    ]
    dicts = [
        {one["mutations"]: one | {"name": ""} for one in answer.to_dict()["variants"]}
        for answer in answers
    ]
    assert dicts[0] == dicts[1] == dicts[2] == dicts[3]
    assert {one.name for one in answers[0].variants} == {"one", "two"}
    assert {one.name for one in answers[2].variants} == set(spelled)
    written = read_texts(answers[0].write(tmp_path / "out.fasta")).rows
    best = answers[0].variants[0]
    assert written[0].text == best.sequence
    assert written[0].id.startswith(
        f"{best.name} score={best.mean_over_orders.value:.4f} order_sd="
    )
    assert read_texts(answers[0].write(tmp_path / "out.fa.gz")).rows == written
    stored = pandas.read_parquet(answers[0].write(tmp_path / "out.parquet"))
    assert stored.mean_over_orders.tolist() == [
        one.mean_over_orders.value for one in answers[0].variants
    ]
    assert len(read_texts(scan_mutations(protein, PARENT).write(tmp_path / "all.fasta"))) == 190
    with pytest.raises(GlauberError, match="exists already"):
        answers[0].write(tmp_path / "out.fasta")


def test_mutations_are_read_applied_and_found_again():
    read = read_mutations("Y5F:A2G")
    assert spell_mutations(read) == "A2G:Y5F"
    mutant = apply_mutations("MACDY", read)
    assert "".join(mutant) == "MGCDF" and differences("MACDY", mutant, "it") == read
    assert read_positions("9-11,3", "A" * 20) == [3, 9, 10, 11]
    assert read_positions([4, 2], ["the", "cat", "sat", "."]) == [2, 4]
    assert read_positions("2-4", ["the", "cat", "sat", "."]) == [2, 3, 4]


@pytest.mark.parametrize(
    ("parent", "variants", "said"),
    [
        (PARENT, "V3A", "about 'V' at position 3, but the parent has 'Q' there"),
        (PARENT, "V12A", "position 12, but the parent has positions 1 to 10"),
        (PARENT, "V0A", "position 0, but the parent has positions 1 to 10"),
        (PARENT, "V2A:V2C", "changes position 2 twice"),
        (PARENT, "V2V", "the mutation V2V changes nothing"),
        (PARENT, "V2", "'V2' in the variant 'V2' is no mutation such as S31T"),
        (PARENT, "V2X", "'X' is not a single token"),
        (PARENT, [PARENT + "E"], "variant 1 has 11 letters, but the parent has 10"),
        (PARENT, ">short\nEVQ\n", "the variant 'short' has 3 letters"),
        (PARENT, ">odd\nEVQLVESGGX\n", "the variant 'odd' has 'X' at position 10"),
        (PARENT, ">none\n\n>b\n\n", "the record 'none' has no sequence"),
        ("EVqLV", None, "the parent has the lower-case letter 'q' at position 3"),
        (">wt\nEV1LV\n", None, "'1' is no letter of a sequence"),
        ("EVJLV", None, "the parent has 'J' at position 3"),
        (">a\nEV\n>b\nEV\n", None, "one parent is needed, but 2 sequences were given"),
        (None, None, "a parent is needed"),
        ("nothing.fasta", None, "nothing.fasta cannot be read"),
    ],
)
def test_bad_input_is_one_sentence(protein, parent, variants, said):
    with pytest.raises(GlauberError) as error:
        if variants is None:
            scan_mutations(protein, parent)
        else:
            mutate(protein, parent, variants)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_bad_positions_columns_and_files(protein, tmp_path):
    for positions, said in (
        ("0-3", "residues 0-3 are not there"),
        ("9-11", "residues 9-11 are not there"),
        ("5-2", "residues 5-2 are not there"),
        ("", "names no residues"),
        ([0], "position 0"),
        ([], "no position"),
        ([2.5], "no position"),
    ):
        with pytest.raises(GlauberError, match=said):
            scan_mutations(protein, PARENT, positions=positions)
    with pytest.raises(GlauberError, match="scan_mutations scores all single mutants"):
        mutate(protein, PARENT)
    table = tmp_path / "t.csv"
    table.write_text("first,second\nV2A,a\n")
    with pytest.raises(GlauberError, match=r"say which column contains .* first, second"):
        mutate(protein, PARENT, table)
    assert mutate(protein, PARENT, table, column="first", pll=False).variants[0].name == "V2A"
    with pytest.raises(GlauberError, match="has no column 'third'"):
        mutate(protein, PARENT, table, column="third")
    table.write_text("variant,second\n,1\n")
    with pytest.raises(GlauberError, match="text 1 is empty"):
        mutate(protein, PARENT, table)


def test_bad_variants_are_left_out_and_reported(protein, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("variant,id\nV2A,a\nV2,b\n,c\nG8A:G9A,d\nW2A,e\n")
    with pytest.warns(GlauberWarning) as warned:
        answer = mutate(protein, PARENT, table, pll=False)
    assert {variant.name for variant in answer.variants} == {"a", "d"}
    assert sorted(row.id for row in answer.skipped) == ["b", "c", "e"]
    assert [row["number"] for row in answer.record()["skipped"]] == [2, 3, 5]
    assert len(warned) == 3


def test_words_are_letters_too(tiny_folder, glauber, tmp_path):
    found = mutate(str(tiny_folder), "the cat sat .", ["cat2dog:sat3ran", "the dog sat ."])
    assert {one.sequence for one in found.variants} == {"the dog ran .", "the dog sat ."}
    with pytest.raises(GlauberError, match="these are words"):
        found.write(tmp_path / "words.fasta")
    code, out, _ = glauber(
        "mutate", "the cat sat .", "cat2dog:sat3ran", "--model", tiny_folder, "--json"
    )
    assert code == 0
    (one,) = json.loads(out)["variants"]
    same = next(each for each in found.variants if each.name == "cat2dog:sat3ran")
    assert one["mean_over_orders"]["value"] == pytest.approx(same.mean_over_orders.value, abs=1e-6)
    assert one["mean_over_orders"]["kind"] == "exact"


def test_what_has_no_log_ratio_is_refused(protein):
    entries = Table.random(3, 4, 1).entries
    entries[..., 2] = -torch.inf
    rule = Lettered(Table(entries))
    for refused in (lambda: scan_mutations(rule, "ACAA"), lambda: mutate(rule, "ACAA", "A1D:C2A")):
        with pytest.raises(GlauberError, match="no chance at all"):
            refused()
    with pytest.raises(GlauberError, match="give it without constraints"):
        scan_mutations(constrain(protein, allow="1:AV"), PARENT)


def test_a_large_vocabulary_needs_variants():
    with pytest.raises(GlauberError, match="too many for a map of all single mutants"):
        scan_mutations("bundled:english", "the cat sat on the mat .")
