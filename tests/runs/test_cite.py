"""A run is cited, and the printed command makes it again, byte for byte."""

import json
import shlex
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
import transformers
import yaml

import glauber as package
from conftest import SIZES
from glauber.conditionals.table import Table
from glauber.proteins.weights import residue_tokenizer
from glauber.runs.again import again, start_texts
from glauber.runs.cite import AUTHORS, PAPERS, TITLE, bibtex, read_signature
from glauber.runs.run import Run
from glauber.sampling.advance import Session
from run_bytes import contents

ROOT = Path(__file__).parents[2]
CAT = ["the cat sat on the mat ."]
SAMPLED = {
    "texts of a file": ("--steps", 12, "--seed", 4),
    "length, chains, float64": ("--length", 4, "--chains", 7, "--batch-size", 2, "--steps", 6,
                                "--dtype", "float64"),
    "block, freeze": ("--scan", "block:2", "--within", "product", "--fill", "gumbel-max",
                      "--freeze", "0-1,3", "--steps", 6),
    "everywhere, prefix": ("--scan", "everywhere", "--prefix", "they will be", "--length", 3,
                           "--steps", 3),
    "temperatures, forbid": ("--temperature", "0.1,1.2345678901234,2", *CAT, "--chains", 3,
                             "--steps", 6, "--forbid", "cat,dog", "--special-tokens"),
    "allow, bias, budget": ("--allow", "1:cat|dog", "--bias", "2:sat=1.5|ran=-0.1",
                            "--max-changes", 3, *CAT, "--chains", 2, "--steps", 8),
    "ties": ("--tie", "0=4", *CAT, "--steps", 8),
    "adaptive": ("--scan", "adaptive:entropy:2", *CAT, "--chains", 2, "--steps", 6),
}  # fmt: skip
WRITTEN = {
    "generate": ("generate", "--length", "5-9", "--prefix", "the", "--suffix", "old .", "--chains",
                 4, "--order", "random", "--count", 2, "--temperature", 0.7, "--top-k", 9),
    "corrected": ("generate", "--length", 6, "--chains", 2, "--correct", 1, "--correct-between"),
    "infill": ("infill", "the [MASK:2] sat on [MASK] mat .", "a [MASK] dog", "--chains", 2,
               "--temperature", 1, "--seed", 3),
}  # fmt: skip


def typed(glauber, lines):
    """Types printed commands as a shell would read them."""
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "glauber"
        code, _, err = glauber(*words)
        assert code == 0, err


def same(first, second):
    """Every byte of two runs."""
    one, two = contents(Path(first)), contents(Path(second))
    return one.keys() == two.keys() and all(one[name] == two[name] for name in one)


@pytest.mark.parametrize("kind", SAMPLED)
def test_the_printed_command_makes_the_run_again(
    kind, glauber, tiny_folder, source, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    how = SAMPLED[kind]
    texts = () if set(CAT) & set(map(str, how)) else ("--from", source)
    typed_first = (
        "sample",
        "--model",
        tiny_folder,
        *texts,
        *how,
        "--device",
        "cpu",
        "--out",
        "run",
    )
    assert glauber(*typed_first)[0] == 0
    told = json.loads(glauber("cite", "run", "--json")[1])
    assert told["left_open"] == []
    typed(glauber, told["commands"])
    assert Run("run").steps and same("run", "run-again")


@pytest.mark.parametrize("kind", WRITTEN)
def test_the_printed_command_writes_the_texts_again(
    kind, glauber, tiny_folder, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    study, *how = WRITTEN[kind]
    assert glauber(study, "--model", tiny_folder, *how, "--device", "cpu", "--out", "run")[0] == 0
    told = json.loads(glauber("cite", "run", "--json")[1])
    assert told["left_open"] == [] and told["study"] == study
    typed(glauber, told["commands"])
    assert same("run", "run-again")


@pytest.fixture
def protein_folder(tmp_path):
    """A tiny BERT with random weights that reads residues."""
    torch.manual_seed(3)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"ACDEFGHIKLMNPQRSTVWY"]
    config = transformers.BertConfig(**SIZES | {"vocab_size": len(words)})
    names = {one: f"[{one.upper()}]" for one in ("pad", "unk", "cls", "sep", "mask")}
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path / "protein")
    residue_tokenizer(words, names, 38).save_pretrained(tmp_path / "protein")
    return tmp_path / "protein"


def test_a_protein_run_is_made_again(glauber, protein_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("some.fasta").write_text(">one\nMKTAYIAK\n>two\nMKVLAAGIV\n")
    words = ("--model", protein_folder, "--from", "some.fasta", "--chains", 3, "--steps", 9)
    assert glauber("sample", *words, "--device", "cpu", "--out", "run")[0] == 0
    told = package.cite("run")
    typed(glauber, told.again.commands)
    first, second = (pandas.read_parquet(Path(name) / "events") for name in ("run", "run-again"))
    assert first.equals(second) and Run("run").spec.names and not Run("run-again").spec.names


def test_a_rule_of_ones_own_is_made_again_in_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rule = Table.random(3, 4, seed=1)
    package.sample(rule, ["0120", "2210"], steps=20, temperature=1.5, allow={1: [1, 2]}, out="run")
    told = package.cite("run")
    assert told.again.commands == [] and "in Python" in str(told)
    lines = [line for line in told.again.python if not line.startswith("model =")]
    assert len(lines) == len(told.again.python) - 1
    exec("\n".join(lines), {"model": rule})
    assert same("run", "run-again")


def test_what_no_command_can_spell_is_said_in_python(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    how = dict(steps=5, allow={6: [".", ","]}, device="cpu", out="run")
    package.sample(str(tiny_folder), CAT, **how)
    told = package.cite("run")
    assert told.again.commands == []
    exec("\n".join(told.again.python), {})
    assert same("run", "run-again")


def test_starts_that_do_not_read_back_are_named(tiny_folder, tmp_path, monkeypatch):
    """A token that a tokenizer never makes of its own spelling."""
    run = package.sample(
        str(tiny_folder), ["the cats sat on the mat", *CAT], length=6, steps=2, device="cpu",
        out=tmp_path / "run",
    )  # fmt: skip
    assert again(run).notes == ()
    tokens, moved = run.tokens, run.tokens(0)
    moved[0, 1] = moved[0, 3]  # ##s: a piece of a word where the text begins
    monkeypatch.setattr(run, "tokens", lambda step=None: moved if step == 0 else tokens(step))
    assert start_texts(run)[0].startswith("##s")
    (note,) = again(run).notes
    assert "starting texts of 1 chain (0)" in note


def test_the_default_passages_need_no_texts(tmp_path, monkeypatch):
    """Those of the package, as a vocabulary reads them: no model is asked."""
    model = package.load("bundled:english", device="cpu")
    run = package.sample(model, steps=1, chains=3, length=5, out=tmp_path / "run")
    (command,) = again(run).commands
    assert "--from" not in command and shlex.split(command)[-1] == "run-again"
    assert "--chains 3 --length 5" in command


def test_a_sentence_and_bibtex_for_a_paper(tiny_folder, tmp_path):
    run = package.sample(
        str(tiny_folder), CAT, steps=4, chains=3, temperature=[0.5, 1, 1], seed=7, prefix="they",
        freeze="0", scan="block:2", device="cpu", out=tmp_path / "run",
    )  # fmt: skip
    told = package.cite(run)
    for part in ("3 chains", "4 steps each", "2 sites a step", "temperature 0.5, 1,", "seed 7",
                 "on cpu in float32", run.spec.fingerprint[:12], f"glauber {package.__version__}",
                 "“they”", "1 site held"):  # fmt: skip
        assert part in told.sentence, part
    assert told.bibtex.count("@") == 3 and told.bibtex.count("{") == told.bibtex.count("}")
    assert f"version = {{{package.__version__}}}" in told.bibtex
    assert "Li, Yuchen and Kirchmeyer, Alexandre" in told.bibtex


def test_the_facts_are_those_of_the_citation_file():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["title"], [one["name"] for one in cited["authors"]]) == (TITLE, [*AUTHORS])
    assert f"license = {{{cited['license']}}}" in bibtex("1")
    for paper, known in zip(cited["references"], PAPERS.values(), strict=True):
        names = [f"{one['given-names']} {one['family-names']}" for one in paper["authors"]]
        assert (paper["title"], paper["year"]) == (known["title"], known["year"])
        assert names == [*known["author"]] and paper["url"].endswith(known["eprint"])
        assert paper.get("collection-title") == known.get("booktitle")


def test_an_unfinished_run_says_so(tiny_folder, tmp_path):
    session = Session()
    session.report = lambda now: setattr(session, "stopping", True)
    run = package.sample(
        str(tiny_folder), CAT, steps=10**6, device="cpu", out=tmp_path / "run", session=session
    )
    assert "not finished" in package.cite(run).left_open[0]
    assert "--steps 1000000" in package.cite(run).again.commands[0]


def test_a_signature_is_read_back(tiny_folder, tmp_path):
    run = package.sample(
        str(tiny_folder), CAT, steps=4, length=5, prefix="they will", freeze="1,2", forbid="cat",
        temperature=0.25, seed=3, max_changes=4, device="cpu", out=tmp_path / "run",
    )  # fmt: skip
    told = package.cite(run.signature)
    words = shlex.split(told.again.commands[0])
    asked = dict(zip(words[2::2], words[3::2], strict=True))
    assert words[:2] == ["glauber", "sample"] and asked["--model"] == str(tiny_folder)
    assert (asked["--prefix"], asked["--freeze"], asked["--forbid"]) == ("they will", "1-2", "cat")
    assert (asked["--temperature"], asked["--length"], asked["--steps"]) == ("0.25", "5", "4")
    said = " ".join(told.left_open)
    assert "texts are not in a signature" in said and "constraints are named" in said
    assert "budget=4" in said and told.parts["weights"] == run.spec.fingerprint[:12]
    wrapped = run.signature.replace("|scan", "|\n  scan")  # as a terminal or a mail breaks it
    assert package.cite(wrapped).parts.keys() == told.parts.keys()


def test_a_studys_signature_gives_its_command(tiny_folder):
    found = package.margins(str(tiny_folder), CAT[0], temperature=0.5)
    told = package.cite(found.signature)
    assert told.again.study == "margins"
    assert "glauber margins" in told.again.commands[0] and "0.5" in told.again.commands[0]


@pytest.mark.parametrize(
    "text",
    ["nonsense", "", "model:x", "a|b|c", "model:x|seed:0", "seed:0|seed:1|glauber:0.2.0", "no/run"],
)
def test_what_is_no_signature_ends_in_a_sentence(text):
    with pytest.raises(package.GlauberError, match=r"signature.*\.$"):
        package.cite(text)


def test_a_signature_without_its_study_says_what_it_fixes():
    told = package.cite("model:bert|pairs:3|prefix:this | that|glauber:0.1.0|torch:2.11")
    assert told.again is None and "does not say which study" in told.left_open[0]
    assert told.parts["prefix"] == "this | that" and "0.1.0" in told.bibtex
    assert read_signature("study:doctor|glauber:1")["study"] == "doctor"


def test_starts_are_exported_without_the_prefix(tiny_folder, tmp_path):
    run = package.sample(
        str(tiny_folder), [*CAT, "they will be in the sky"], prefix="is it", steps=3, device="cpu",
        out=tmp_path / "run",
    )  # fmt: skip
    package.export(run, to="starts", out=tmp_path / "starts.txt")
    lines = (tmp_path / "starts.txt").read_text().splitlines()
    assert lines == start_texts(run) and lines[1] == "they will be in the sky"
    assert run.text(1, 0).startswith("is it") and np.all(run.tokens(0)[:, 1] == run.tokens(0)[0, 1])


def test_the_signature_of_a_study_of_a_run_names_both(tiny_folder, tmp_path):
    text = ["the cat sat on the mat ."]
    run = package.sample(str(tiny_folder), text, steps=40, chains=2, out=tmp_path / "run")
    found = package.cite(package.traps(run, detector="hamming", shortest=9).signature)
    assert "read by traps, detector hamming, shortest 9." in found.sentence
    assert found.again.study == "sample" and "--chains 2" in found.again.commands[-1]
    assert found.notes[0].endswith("glauber traps --detector hamming --shortest 9 FOLDER")
    assert package.cite(package.diagnose(run, burn_in=5).signature).parts["burn_in"] == "5"
