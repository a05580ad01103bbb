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
from glauber.models.table import Table
from glauber.runs.cite import AUTHORS, PAPERS, TITLE, bibtex
from glauber.runs.export import start_texts
from glauber.runs.run import Run
from glauber.sampling.advance import Session
from glauber.studies.proteins.weights import residue_tokenizer
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
    typed(glauber, told.commands)
    first, second = (pandas.read_parquet(Path(name) / "events") for name in ("run", "run-again"))
    assert first.equals(second) and Run("run").spec.names and not Run("run-again").spec.names


def test_a_rule_of_ones_own_is_made_again_in_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rule = Table.random(3, 4, seed=1)
    package.sample(rule, ["0120", "2210"], steps=20, temperature=1.5, allow={1: [1, 2]}, out="run")
    told = package.cite("run")
    assert told.commands == [] and "in Python" in str(told)
    lines = [line for line in told.python if not line.startswith("model =")]
    assert len(lines) == len(told.python) - 1
    exec("\n".join(lines), {"model": rule})
    assert same("run", "run-again")


def test_what_no_command_can_spell_is_said_in_python(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    how = dict(steps=5, allow={6: [".", ","]}, device="cpu", out="run")
    package.sample(str(tiny_folder), CAT, **how)
    citation = package.cite("run")
    assert citation.commands == []
    exec("\n".join(citation.python), {})
    assert same("run", "run-again")


def test_an_extended_run_is_made_again_with_its_last_number_of_steps(tiny_folder, tmp_path):
    run = package.sample(str(tiny_folder), CAT, steps=3, device="cpu", out=tmp_path / "run")
    run = package.extend(run, steps=7)
    assert "--steps 7" in package.cite(run).commands[0]
    assert package.cite(package.Run(tmp_path / "run")).commands == package.cite(run).commands


def test_texts_that_are_too_long_to_be_stored(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("glauber.foundation.call.LONGEST_ARGUMENT", 10)
    run = package.sample(str(tiny_folder), CAT, steps=3, device="cpu", out=tmp_path / "run")
    citation = package.cite(run)
    assert any("texts are not stored" in note for note in citation.left_open)
    with pytest.raises(package.GlauberError, match="does not contain the texts"):
        package.export(run, to="texts", out=tmp_path / "texts.txt")


def test_the_default_passages_need_no_texts(tmp_path):
    model = package.load("bundled:english", device="cpu")
    run = package.sample(model, steps=1, chains=3, length=5, out=tmp_path / "run")
    (command,) = package.cite(run).commands
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
                 "“they”", "1 site frozen"):  # fmt: skip
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
    assert "--steps 1000000" in package.cite(run).commands[0]


def test_a_result_and_its_json_give_the_same_call(tiny_folder, tmp_path):
    result = package.margins(str(tiny_folder), CAT[0], temperature=0.5)
    (tmp_path / "result.json").write_text(json.dumps(result.record()))
    for citation in (package.cite(result), package.cite(tmp_path / "result.json")):
        assert citation.study == "margins" and "--temperature 0.5" in citation.commands[0]
        assert f"glauber.margins(model={str(tiny_folder)!r}" in citation.python[-1]
        assert package.__version__ in citation.bibtex and citation.figures()


def test_a_study_of_a_run_is_called_with_its_folder(tiny_folder, tmp_path):
    run = package.sample(str(tiny_folder), CAT, steps=40, chains=2, out=tmp_path / "run")
    result = package.traps(run, detector="hamming", shortest=9)
    (command,) = package.cite(result).commands
    assert command == f"glauber traps {tmp_path / 'run'} --detector hamming --shortest 9"


@pytest.mark.parametrize("content", ["nonsense", "[]", '{"call": 3, "signature": 4}', "{}"])
def test_a_file_that_is_no_result_ends_in_a_sentence(content, tmp_path):
    (tmp_path / "result.json").write_text(content)
    if content.startswith('{"call'):
        assert package.cite(tmp_path / "result.json").left_open == ["the call is not stored."]
        return
    with pytest.raises(package.GlauberError, match="is not the JSON of a result"):
        package.cite(tmp_path / "result.json")


@pytest.mark.parametrize("text", ["nonsense", "", "no/run", "model:x|seed:0|glauber:0.2.0"])
def test_what_is_no_run_ends_in_a_sentence(text):
    with pytest.raises(package.GlauberError, match=r"(is not a run|signature).*\.$"):
        package.cite(text)


def test_starts_are_exported_without_the_prefix(tiny_folder, tmp_path):
    run = package.sample(
        str(tiny_folder), [*CAT, "they will be in the sky"], prefix="is it", steps=3, device="cpu",
        out=tmp_path / "run",
    )  # fmt: skip
    package.export(run, to="starts", out=tmp_path / "starts.txt")
    lines = (tmp_path / "starts.txt").read_text().splitlines()
    assert lines == start_texts(run) and lines[1] == "they will be in the sky"
    assert run.text(1, 0).startswith("is it") and np.all(run.tokens(0)[:, 1] == run.tokens(0)[0, 1])


def test_unknown_tokens_are_left_open(tiny_folder):
    texts = package.read_texts(["the zebra sat on"], unknown="token")
    with pytest.warns(package.GlauberWarning, match="unknown tokens"):
        run = package.sample(str(tiny_folder), texts, steps=2, device="cpu")
    assert any("unknown tokens" in note for note in package.cite(run).left_open)
