"""Files of texts: what is read, what is refused, and what a batch does with bad rows."""

import csv
import gzip
import io
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest

import glauber as package
from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.models.table import Table
from glauber.texts.read import Corpus, read_rows, read_texts
from glauber.texts.starts import named_starts

TABLE = pandas.DataFrame(
    {
        "id": ["a", "b", "c"],
        "sentence": ["the cat sat", 'a "big" dog, ran', "the cats\nsat"],
        "label": [1, 0, 1],
    }
)


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> Any:
    return package.load(str(tiny_folder), device="cpu")


def write_table(folder: Path, suffix: str) -> Path:
    """The table in one of the formats that pandas writes."""
    path = folder / f"table{suffix}"
    match suffix:
        case ".csv":
            TABLE.to_csv(path, index=False)
        case ".tsv":
            TABLE.to_csv(path, index=False, sep="\t")
        case ".jsonl":
            TABLE.to_json(path, orient="records", lines=True)
        case ".json":
            TABLE.to_json(path, orient="records")
        case ".parquet":
            TABLE.to_parquet(path, index=False)
        case ".csv.gz" | ".csv.xz":
            TABLE.to_csv(path, index=False)
    return path


SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".csv.gz", ".csv.xz")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("known_suffix", [True, False])
def test_tables_are_read_as_pandas_wrote_them(
    suffix: str, known_suffix: bool, tmp_path: Path
) -> None:
    path = write_table(tmp_path, suffix)
    if not known_suffix:  # by the content alone
        path = path.rename(tmp_path / "table.txt")
    corpus = read_texts(path, column="sentence")
    assert list(corpus) == TABLE["sentence"].to_list()
    assert corpus.ids == ["a", "b", "c"]
    assert read_texts(path, column="sentence", id_column="label").ids == ["1", "0", "1"]
    # The only column of strings that is no id needs no name.
    assert list(read_texts(path)) == TABLE["sentence"].to_list()


def test_what_looks_like_a_table_is_never_read_as_prose(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("id,first,second\n1,the cat,the dog\n2,a dog,a cat\n")
    with pytest.raises(GlauberError, match=r"say which column .*its columns are id, first, second"):
        read_texts(path)
    path.write_text('{"first": "the cat", "second": "a dog"}\n{"first": "a", "second": "b"}\n')
    with pytest.raises(GlauberError, match="its columns are first, second"):
        read_texts(path)


@pytest.mark.parametrize(
    "prose",
    [
        "One, two, three.\nFour, five, six.\n",
        "He said, well, no.\nShe said, well, yes.\nThey said, oh, no.\n",
        "[MASK] is a city.\n[MASK] is a river.\n",
        "[1] A reference.\n[2] Another one.\n",
        '"Quoted," she said.\n"Again," he said.\n',
        "{x} is a set.\n{y} is another.\n",
        "a\u2028b\nc\x0bd\n",
        "Name, please.\nArthur, sir.\nAnd yours, lady.\n",
        "Text, she said\nWrite, he said\nLabel, they said\n",
    ],
)
def test_prose_stays_prose(prose: str, tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text(prose)
    assert list(read_texts(path)) == prose.strip("\n").split("\n")


def test_bad_rows_keep_their_place() -> None:
    folder = "id,text\n1,the cat\n2\n3,a dog,ran\n4,\n5,the end\n"
    rows = read_rows_of(folder, ".csv")
    assert [row.id for row in rows] == ["1", "2", "3", "4", "5"]
    assert [row.text for row in rows if not row.fault] == ["the cat", "the end"]
    lines = ['{"text": "a"}', "{broken", '{"text": 3}', "[]", '{"other": "b"}', '{"text": null}']
    rows = read_rows_of("\n".join(lines), ".jsonl")
    assert [row.number for row in rows if not row.fault] == [1]
    assert "not a JSON object" in rows[1].fault and "not a string" in rows[2].fault


def read_rows_of(content: str, suffix: str) -> Any:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"table{suffix}"
        path.write_text(content)
        return read_texts(path).rows


def test_an_open_quote_spoils_its_own_row_only(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    body = "".join(f"{i},text number {i}\n" for i in range(50))
    path.write_text('id,text\n7,"never closed\n' + body)
    rows = read_rows(path)
    assert rows[0].fault and len(rows) == 51 and not any(row.fault for row in rows[1:])


def _half_of_a_parquet_file(path: Path) -> Path:
    whole = io.BytesIO()
    TABLE.to_parquet(whole, index=False)
    path = path.with_suffix(".parquet")
    path.write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
    return path


def _written(suffix: str, content: bytes) -> Any:
    def write(path: Path) -> Path:
        path = path.with_name(path.name + suffix)
        path.write_bytes(content)
        return path

    return write


BAD_FILES = {
    "no such column": (_written(".csv", b"id,text\n1,a\n"), ["--column", "words"], "no column 'wo"),
    "no such id column": (
        _written(".jsonl", b'{"text": "the cat"}\n'),
        ["--id-column", "x"],
        "no column 'x'",
    ),
    "empty CSV": (_written(".csv", b""), [], "holds no text"),
    "CSV of names only": (_written(".csv", b"id,text\n"), [], "holds no text"),
    "half of Parquet": (_half_of_a_parquet_file, [], "it is not whole Parquet"),
    "Parquet by name": (_written(".parquet", b"the cat"), [], "it is not whole Parquet"),
    "JSON by name": (_written(".jsonl", b"the cat\n"), [], "cannot be read as JSON lines"),
    "half of xz": (_written(".txt.xz", lzma.compress(b"the cat" * 99)[:-20]), [], "damaged xz"),
    "half of gzip": (_written(".txt.gz", gzip.compress(b"the cat" * 99)[:-9]), [], "damaged gzip"),
    "latin-1": (_written(".csv", "id,text\n1,é\n".encode("latin-1")), [], "not UTF-8"),
    "binary": (_written(".txt", b"the\0cat"), [], "binary"),
    "column of prose": (_written(".txt", b"the cat"), ["--id-column", "x"], "no columns"),
    "deep JSON": (_written(".jsonl", b"[" * 100_000), [], "cannot be read as JSON lines"),
    "wrong unknown": (_written(".txt", b"the cat"), ["--unknown", "drop"], "unknown is drop"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_one_sentence(
    case: str, tmp_path: Path, tiny_folder: Path, glauber: Any
) -> None:
    write, options, words = BAD_FILES[case]
    path, out = write(tmp_path / "texts"), tmp_path / "run"
    code, printed, said = glauber(
        "sample", "--model", tiny_folder, "--steps", 2, "--out", out, "--from", path, *options
    )
    assert code == 2 and words in said and "Traceback" not in said and not printed
    assert not out.exists()


def test_a_corpus_with_odd_rows_is_read_and_reported(model: Any) -> None:
    texts = ["the cat sat", "the 杜 sat", "", "a dog ran .", "the " * 60, None]
    with pytest.warns(
        GlauberWarning, match=r"4 of 6 texts .*numbers 2, 3, 6, 5.*'杜' at character"
    ):
        begun = named_starts(model, texts)
    assert [row.number for row in begun.rows] == [1, 4] and begun.names == ["text 1", "text 4"]
    with pytest.raises(GlauberError, match="text 2 has '杜' at character 5"):
        named_starts(model, Corpus(read_texts(texts).rows, unknown="error"))
    with pytest.warns(GlauberWarning, match="read as unknown tokens in text 2"):
        begun = named_starts(model, read_texts(texts[:2], unknown="token"))
    assert model.vocabulary.text.unknown_tokens & set(begun.tokens[1].tolist())


@pytest.mark.filterwarnings("default::glauber.foundation.errors.GlauberWarning")
def test_scores_keep_number_and_id(tmp_path: Path, tiny_folder: Path, glauber: Any) -> None:
    path = tmp_path / "t.csv"
    rows = [("a", "the cat sat"), ("b", "cat"), ("c", "the 杜 sat"), ("d", "a dog ran .")]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("key", "sentence"), *rows])
    code, printed, said = glauber(
        "score",
        "--model",
        tiny_folder,
        "--from",
        path,
        "--column",
        "sentence",
        "--id-column",
        "key",
        "--json",
        "--device",
        "cpu",
    )
    answer = json.loads(printed)
    assert code == 0 and said.count("left out") == 2
    assert [(row["number"], row["id"], row["text"]) for row in answer["scores"]] == [
        (1, "a", "the cat sat"),
        (4, "d", "a dog ran ."),
    ]
    assert {row["id"]: row["reason"].split(",")[0] for row in answer["skipped"]} == {
        "b": "has a single token",
        "c": "has '杜' at character 5",
    }
    alone = package.score(str(tiny_folder), ["a dog ran ."], device="cpu").to_dict()
    assert answer["scores"][1]["log_probs"] == alone["scores"][0]["log_probs"]


@pytest.mark.parametrize(
    ("study", "settings"),
    [("score", {}), ("likelihood_bound", {"samples": 2, "orders": 2})],
)
def test_scores_do_not_depend_on_bad_rows(model: Any, study: str, settings: dict[str, Any]) -> None:
    """The answer of a text is that of its number, whatever happens to the others."""
    texts = ["the cat sat", "the old dog ran .", "a big cat sat on it"]
    score = getattr(package, study)
    whole = score(model, texts, **settings).frame()
    with pytest.warns(GlauberWarning, match="1 of 3 texts"):
        part = score(model, [texts[0], "the 杜", texts[2]], **settings).frame()
    assert part["number"].to_list() == [1, 3]
    for column in whole.columns:
        np.testing.assert_array_equal(part[column], whole[column][::2])  # nan equals nan here


def test_contexts_stay_with_their_texts(model: Any) -> None:
    texts, contexts = ["cat sat", "杜 ran", "dog ran ."], ["the ", "a ", "the old "]
    with pytest.warns(GlauberWarning, match="text 2 has '杜'"):
        part = package.score(model, texts, given=contexts)
    whole = package.score(model, texts[::2], given=contexts[::2])
    assert [score.original for score in part.scores] == [score.original for score in whole.scores]
    assert [score.number for score in part.scores] == [1, 3]


def test_infilling_goes_on_after_a_bad_row(model: Any) -> None:
    texts = ["the [MASK] sat", "no blank here", "the [MASK:3-1] sat", "", "a [MASK] ran ."]
    with pytest.warns(GlauberWarning, match=r"3 of 5 texts .*text 2 has no blank"):
        answer = package.infill(model, texts)
    frame = answer.frame()
    assert frame["number"].to_list() == [1, 5] and frame["input"].to_list() == texts[::4]
    assert [row.number for row in answer.skipped] == [2, 3, 4]
    assert all(len(alone.texts) == 1 for alone in [package.infill(model, texts[0])])


def test_allowed_tokens_fill_blanks(model: Any, tmp_path: Path) -> None:
    for word in ("cat", "dog"):
        (filled,) = package.infill(model, "the [MASK] sat", allow=f"1:{word}").texts
        assert filled.split()[1] == word
    answer = package.infill(model, "the [MASK] sat", allow={1: "cat|dog"}, chains=60, temperature=1)
    scores = model.scores(*_hidden(model, "the cat sat", 1))[0, 0]
    probs = scores[[model.vocabulary.token(word) for word in ("cat", "dog")]].softmax(0)
    share = sum("cat" in text for text in answer.texts) / 60
    assert abs(share - float(probs[0])) < 4 * (0.25 / 60) ** 0.5
    with pytest.raises(GlauberError, match="variable length"):
        package.infill(model, "the [MASK:1-2] sat", allow="1:cat")
    with pytest.raises(GlauberError, match="does not record"):
        package.infill(model, "the [MASK] sat", allow="1:cat", out=tmp_path / "run")


def _hidden(model: Any, text: str, site: int) -> tuple[Any, Any]:
    import torch

    tokens, free = model.vocabulary.encode([text])
    column = int(free[0].nonzero()[site, 0])
    return tokens, torch.tensor([[column]])


def test_a_single_text_may_be_read_with_unknown_tokens(model: Any) -> None:
    with pytest.raises(GlauberError, match="text 1 has '杜'"):
        package.parallel_cost(model, "the 杜 sat", sites="0,2")
    with pytest.warns(GlauberWarning, match="read as unknown tokens"):
        answer = package.parallel_cost(model, "the 杜 sat", sites="0,2", unknown="token")
    assert len(answer.to_dict()["hidden"]) == 2


@pytest.mark.filterwarnings("default::glauber.foundation.errors.GlauberWarning")
def test_a_sweep_keeps_what_was_asked_of_unknown_characters(
    tiny_folder: Path, tmp_path: Path, glauber: Any
) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("the 杜 sat on it\na big dog ran .\n")
    code, _, said = glauber(
        "sweep",
        "sample",
        "--model",
        tiny_folder,
        "--from",
        path,
        "--unknown",
        "token",
        "--steps",
        2,
        "--chains",
        2,
        "--lengths",
        3,
        "--temperatures",
        1,
        "--out",
        tmp_path / "sweep",
    )
    assert code == 0 and "read as unknown tokens in text 1" in said
    (run,) = (tmp_path / "sweep" / "runs").iterdir()
    unknown = model_unknown(tiny_folder)
    assert unknown & set(package.Run(run).tokens(0)[0].tolist())


def model_unknown(folder: Path) -> set[int]:
    return set(package.load(str(folder)).vocabulary.text.unknown_tokens)


def test_several_streams_of_xz_are_one_file(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt.xz"
    path.write_bytes(lzma.compress(b"the cat\n") + lzma.compress(b"a dog\n"))
    assert list(read_texts(path)) == ["the cat", "a dog"]


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        (".csv", "1,the cat sat\n2,a dog ran\n"),
        (".csv", "the old cat sat on it .\na dog ran and ran again .\n"),
        (".txt", "1\tthe cat sat\tx\n2\ta dog ran\ty\n"),
    ],
)
def test_a_table_without_column_names_is_refused(suffix: str, content: str, tmp_path: Path) -> None:
    path = tmp_path / f"table{suffix}"
    path.write_text(content)
    with pytest.raises(GlauberError, match="without a line of column names"):
        read_texts(path)


def test_quotes_in_a_file_with_tabs_and_long_fields_are_read(tmp_path: Path) -> None:
    path = tmp_path / "table.tsv"
    long = "word " * 40_000
    path.write_text(f'id\ttext\n1\t"Yes," he said\n2\t{long}\n')
    assert list(read_texts(path)) == ['"Yes," he said', long]


@pytest.mark.parametrize("unknown", ["skip", "token"])
def test_half_a_character_is_a_fault_whatever_the_policy(
    model: Any, tmp_path: Path, unknown: str
) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text(
        '{"id": "a", "text": "the cat sat"}\n{"id": "\\ud800", "text": "the \\ud800 sat"}\n'
    )
    with pytest.warns(GlauberWarning, match="1 of 2 texts is left out .*half a character"):
        answer = package.score(model, read_texts(path, unknown=unknown))
    answer.write(tmp_path / "answer.json")
    assert [text.id for text in answer.skipped] == ["\\ud800"]


def test_short_texts_are_listed_too(model: Any) -> None:
    with pytest.warns(GlauberWarning, match="fewer than 4 tokens"):
        run = package.sample(model, ["the cat", "a big dog ran ."], steps=2, length=4)
    assert [(text.number, text.reason) for text in run.skipped] == [(1, "has fewer than 4 tokens")]


@pytest.mark.filterwarnings("default::glauber.foundation.errors.GlauberWarning")
def test_a_sweep_keeps_numbers_and_ids(tiny_folder: Path, tmp_path: Path, glauber: Any) -> None:
    path = tmp_path / "texts.csv"
    path.write_text("id,text\na,\nb,the 杜 sat on it\nc,a big dog ran .\nd,the cat sat on it\n")
    code, printed, _ = glauber(
        "sweep",
        "sample",
        "--model",
        tiny_folder,
        "--from",
        path,
        "--steps",
        2,
        "--chains",
        2,
        "--lengths",
        3,
        "--temperatures",
        1,
        "--out",
        tmp_path / "sweep",
        "--json",
    )
    skipped = json.loads(printed)["skipped"]
    assert code == 0 and [(text["number"], text["id"]) for text in skipped] == [(1, "a"), (2, "b")]
    (run,) = (tmp_path / "sweep" / "runs").iterdir()
    assert package.Run(run).spec.names == ["c", "d"]


def test_infill_names_the_text(model: Any) -> None:
    texts = ["the [MASK] sat", "the 杜 [MASK] sat"]
    with pytest.raises(GlauberError, match=r"^text 2 has '杜' at character 5, .*vocabulary\.$"):
        package.infill(model, read_texts(texts, unknown="error"))
    with pytest.warns(GlauberWarning, match="read as unknown tokens in text 2"):
        package.infill(model, read_texts(texts, unknown="token"))
    with pytest.raises(GlauberError, match="no text has a blank there"):
        package.infill(model, "the [MASK] sat", allow="0:the")


def test_a_model_without_an_unknown_token_says_so() -> None:
    texts = read_texts(["000", "0x1"], unknown="token")
    with pytest.warns(GlauberWarning, match="no unknown token"):
        run = package.sample(Table.random(vocab_size=3, length=3, seed=0), texts, steps=4)
    assert run.n_chains == 1


MARCO = [
    ("7", '"Yes," he said'),
    ("12", '"a big dog'),
    ("13", "ran away, and" + ' so"'),
    ("900", "the cat sat on it ."),
]


@pytest.mark.parametrize("packed", [False, True])
def test_the_files_of_ms_marco(tmp_path: Path, packed: bool) -> None:
    """collection.tsv has ids, no column names, and quotes that are part of the text."""
    lines = "".join(f"{name}\t{text}\n" for name, text in MARCO).encode()
    path = tmp_path / ("collection.tsv.gz" if packed else "collection.tsv")
    path.write_bytes(gzip.compress(lines) if packed else lines)
    corpus = read_texts(path)
    assert list(zip(corpus.ids, corpus, strict=True)) == MARCO
    with pytest.raises(GlauberError, match="list of ids and texts, which has no columns"):
        read_texts(path, column="text")


def test_a_collection_that_is_cut(tmp_path: Path) -> None:
    """Cut after an id the rest is read; a compressed file that is cut is refused."""
    lines = "".join(f"{name}\t{text}\n" for name, text in MARCO).encode()
    (tmp_path / "cut.tsv").write_bytes(lines[: lines.index(b"900") + 2])
    with pytest.warns(GlauberWarning, match="record '90' has 1 field instead of 2"):
        assert read_texts(tmp_path / "cut.tsv").sound().ids == ["7", "12", "13"]
    (tmp_path / "cut.tsv.gz").write_bytes(gzip.compress(lines * 99)[:-30])
    with pytest.raises(GlauberError, match=r"^[^\n]*it is damaged gzip\.$"):
        read_texts(tmp_path / "cut.tsv.gz")


def test_the_parquet_of_ms_marco_has_lists_of_passages(tmp_path: Path) -> None:
    passages = pyarrow.array(
        [
            {"is_selected": [0, 1], "passage_text": ["the cat sat", "a dog"], "url": ["x", "y"]},
            {"is_selected": [0], "passage_text": ["a bird flew ."], "url": ["z"]},
        ]
    )
    table = pyarrow.table(
        {"answers": [["no"], []], "passages": passages, "query": ["a", "b"], "query_id": [4, 9]}
    )
    path = tmp_path / "validation.parquet"
    pyarrow.parquet.write_table(table, path)
    corpus = read_texts(path)
    assert list(corpus) == ["the cat sat", "a dog", "a bird flew ."]
    assert corpus.ids == ["4", "4", "9"]
    assert list(read_texts(path, column="passages.url")) == ["x", "y", "z"]
    assert list(read_texts(path, column="query")) == ["a", "b"]
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(GlauberError, match=r"^[^\n]*not whole Parquet\.$"):
        read_texts(path)
    passage = pyarrow.table({"pid": [3], "passage": ["the cat"], "docid": ["D1"]})
    pyarrow.parquet.write_table(passage, path)
    assert list(read_texts(path)) == ["the cat"] and read_texts(path).ids == ["3"]
