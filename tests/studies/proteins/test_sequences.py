"""Names go from FASTA through a run and out again; gzip is read; what is wrong has its place."""

import gzip
import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.models.own import Own
from glauber.models.table import normals
from glauber.runs.export import export
from glauber.sampling.sample import sample
from glauber.studies.proteins.sequences import read_sequences
from glauber.texts.read import Row, fasta, read_texts
from glauber.texts.starts import named_starts, starts

RECORDS = ">heavy chain\nEVQL\nVESG\n>light\nDIQMTQSP\n"


class Independent:
    """Residues that do not depend on each other."""

    vocab_size, vocabulary = 20, "ACDEFGHIKLMNPQRSTVWY"

    def scores(self, tokens, sites):
        return normals((1, 1, 20), 0).expand(*sites.shape, 20)


@pytest.fixture
def packed(tmp_path):
    path = tmp_path / "two.fasta.gz"
    path.write_bytes(gzip.compress(RECORDS.encode()))
    return path


def test_gzip_is_read_like_the_plain_file(packed, monkeypatch):
    assert [row[:2] for row in read_texts(packed).rows] == [
        ("EVQLVESG", "heavy chain"),
        ("DIQMTQSP", "light"),
    ]
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(packed.read_bytes())))
    assert list(read_texts(Path("-"))) == ["EVQLVESG", "DIQMTQSP"]


def test_damaged_and_huge_gzip_is_refused(packed, monkeypatch):
    whole = packed.read_bytes()
    packed.write_bytes(whole[:-12])
    with pytest.raises(GlauberError, match=r"two\.fasta\.gz cannot be read: it is damaged gzip"):
        read_texts(packed)
    packed.write_bytes(gzip.compress(b"A" * 2000))
    monkeypatch.setattr("glauber.texts.read.LARGEST", 1000)
    with pytest.raises(GlauberError, match="holds more than"):
        read_texts(packed)


def test_fasta_is_read_as_it_was_written(tmp_path):
    records = [Row("ACDEFGHIKL" * 17, "long one score=-1.5"), Row("AC", "b")]
    path = tmp_path / "out.fasta"
    path.write_text(fasta(records))
    assert [row[:2] for row in read_texts(path).rows] == [row[:2] for row in records]
    assert max(map(len, path.read_text().splitlines())) == 80


def test_an_unknown_residue_is_named_with_its_record_and_place(packed):
    model = Own(Independent())
    texts = ">heavy\nEVQ\n>light\nDIX\n"
    with pytest.warns(GlauberWarning, match="the record 'light' has 'X' at character 3"):
        assert named_starts(model, texts).names == ["heavy"]
    with pytest.raises(GlauberError, match="the record 'light' has 'X' at character 3"):
        starts(model, read_texts(texts, unknown="error"))


def test_names_go_through_a_run_and_out_again(packed, tmp_path):
    run = sample(Independent(), packed, steps=30, chains=3, out=tmp_path / "run")
    assert run.spec.names == ["heavy chain", "light", "heavy chain"]
    assert (
        json.loads((tmp_path / "run" / "run.json").read_text())["spec"]["names"] == run.spec.names
    )
    export(run, to="fasta", out=tmp_path / "last.fasta")
    found = read_texts(tmp_path / "last.fasta").rows
    assert [row.id for row in found] == [
        f"{name} chain={chain} step=30" for chain, name in enumerate(run.spec.names)
    ]
    assert [one.text for one in found] == [run.text(chain) for chain in range(3)]
    export(run, to="jsonl", out=tmp_path / "run.jsonl", every=30)
    first = json.loads((tmp_path / "run.jsonl").read_text().splitlines()[1])
    assert first["name"] == "light" and first["text"] == "DIQMTQSP"


def test_texts_that_are_left_out_take_their_names_along():
    given = ">a\nEVQLV\n>b\nEV\n>c\nEVQLVQ\n"
    with pytest.warns(GlauberWarning, match="left out: text 2"):
        begun = named_starts(Own(Independent()), given, length=5)
    assert begun.names == ["a", "c"]
    assert named_starts(Own(Independent()), ["EVQLV"]).names == []


def test_a_run_of_words_has_no_fasta(tiny_folder, tmp_path):
    run = sample(str(tiny_folder), ["the cat sat ."], steps=4, out=tmp_path / "run")
    assert "names" not in json.loads((tmp_path / "run" / "run.json").read_text())["spec"]
    with pytest.raises(GlauberError, match="tokens of this run are words"):
        export(run, to="fasta", out=tmp_path / "x.fasta")
    assert not (tmp_path / "x.fasta").exists()


def test_a_file_is_read_whatever_its_name_ends_in(tmp_path, monkeypatch):
    """Not taken for a sequence that is spelled like the file's name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parents").write_text(RECORDS)
    (tmp_path / "packed.gz").write_bytes(gzip.compress(RECORDS.encode()))
    assert read_sequences("parents") == read_sequences("packed.gz") != read_sequences("EVQL")
