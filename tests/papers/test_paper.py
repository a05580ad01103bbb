"""The study `paper` on toy pieces: shares chains, resumes to the same bits, pools seeds."""

import json
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from conftest import TEXTS
from glauber import paper
from glauber.foundation.errors import GlauberError
from glauber.foundation.statistics import Estimate
from glauber.papers import paper_a
from glauber.papers.claims import Quantity, above
from glauber.papers.paper import pieces, read_seeds
from glauber.papers.piece import Piece, Published, Reproduction, columns
from glauber.papers.work import FLAGS, Chains, Request, make_chains
from glauber.sampling import sample as sampling
from run_bytes import contents

COUNTED = []  # the temperatures whose parts were computed


def toy_piece(model, temperatures):
    """Chains at each temperature, a slow part that reads them, and a claim about the seed."""

    def chains(s):
        return [
            Chains(s.model, tuple(TEXTS[:2]), s.steps, s.chains, temperature=t, seed=s.seed)
            for t in temperatures
        ]

    def count(s, run):
        COUNTED.append(run.temperature)
        return [s.run(run).text(step=run.steps), 0.1 + 0.2]

    def ask(s):
        return {
            "counts": [
                s.part("count", {"of": run.digest}, lambda run=run: count(s, run))
                for run in chains(s)
            ]
        }

    return Piece(
        "a toy",
        "{steps} steps of {chains} chains",
        small=dict(model=model, temperature=1.0, chains=4, steps=40),
        published=dict(chains=30),
        not_in_paper=("temperature", "model", "steps"),
        chains=chains,
        ask=ask,
        table=lambda a: [{"counts": a.counts}],
        differs=("all of it",),
        claims=[
            Published(
                "seeds are positive",
                "nowhere",
                2,
                "the seed of {chains} chains",
                lambda a: Quantity("", float(a.settings.seed), (-1.0, 9.0), n=4),
                above(-2),
                effect=1.0,
            )
        ],
    )


@pytest.fixture
def toys(monkeypatch, tiny_folder):
    """Two pieces that need the same chains, one of them others too."""
    COUNTED.clear()
    both = {"A-toy1": (0.5,), "A-toy2": (0.5, 1.0)}
    made = {name: toy_piece(str(tiny_folder), at) for name, at in both.items()}
    monkeypatch.setattr(paper_a, "PIECES", made)
    monkeypatch.setattr("glauber.papers.paper.MODULES", ("paper_a",))


def stored(folder):
    """The files of a folder without the locks."""
    return {name: data for name, data in contents(folder).items() if not name.endswith(".lock")}


def test_pieces_share_chains_and_parts(toys, tmp_path):
    paper("A-toy1", out=tmp_path)
    before = contents(tmp_path / "chains")
    paper("A-toy2", out=tmp_path)
    assert len(list((tmp_path / "chains").glob("[!.]*"))) == 2
    assert before.items() <= contents(tmp_path / "chains").items()
    assert COUNTED == [0.5, 1.0]  # the part of the first piece is not computed again
    paper("A-toy2", out=tmp_path)
    assert COUNTED == [0.5, 1.0]
    paper("A-toy2", steps=30, out=tmp_path)
    assert COUNTED == [0.5, 1.0, 0.5, 1.0]


def test_a_killed_piece_resumes_to_the_same_bits(toys, tmp_path, monkeypatch):
    """Killed in the chains, then in the second part; the folder ends as one never stopped."""
    complete, advance = paper("A-toy2", out=tmp_path / "whole"), sampling.advance_chains

    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    def killed_at_1(planned, folder, **options):
        cold = planned.spec.temperature == 0.5
        return advance(planned, folder, **options) if cold else killed()

    for version in (killed, killed_at_1):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(sampling, "advance_chains", version)
            paper("A-toy2", out=tmp_path / "killed")
    assert len(list((tmp_path / "killed" / "parts").glob("*.json"))) == 1
    assert paper("A-toy2", out=tmp_path / "killed").to_dict() == complete.to_dict()
    assert stored(tmp_path / "killed") == stored(tmp_path / "whole")


def test_seeds_are_pooled(toys, tmp_path):
    one, four = paper("A-toy1", seeds=3, out=tmp_path), paper("A-toy1", seeds="0-3", out=tmp_path)
    assert [row["seed"] for row in four.rows] == [0, 1, 2, 3] and "seed" not in one.rows[0]
    assert four.rows[3]["counts"] == one.rows[0]["counts"]
    (claim,) = four.claims
    assert claim.quantity.value == 1.5 and claim.quantity.n == 4 and claim.seeds == (0, 1, 2, 3)
    assert [seed.value for seed in claim.quantity.each] == [0, 1, 2, 3]
    assert str(four).index("AGREES: seeds are positive") < str(four).index("40 steps of 4 chains")


def test_differences_from_the_paper_follow_from_the_settings(toys, tmp_path):
    """What is not in the paper is a choice of ours; given settings count as well."""
    made = paper("A-toy1", chains=5, out=tmp_path)
    assert made.differs == ("chains: 5 in place of 30", "all of it")
    (note,) = made.ours
    assert note.startswith("temperature: 1.0, model: ") and note.endswith("our copy of the paper)")
    (claim,) = made.claims
    assert (claim.differs, claim.ours) == (made.differs, made.ours)
    assert claim.quantity.name == "the seed of 5 chains" and made.how == "40 steps of 5 chains"
    request = Request("A-table5", "small", 0, tmp_path, {"embedder": "bundled", "steps": 7})
    settings = paper_a.TABLE_5.settings(request)
    assert (settings.embedder, settings.steps, settings.length) == (None, 7, 12)


def test_disagreements_come_first_wherever_claims_are_listed(toys, tmp_path):
    """In JSON, text and on the page; answers keep the order of the declaration for pooling."""
    first = paper_a.PIECES["A-toy1"]
    wrong = replace(first.claims[0], sentence="seeds are large", agrees=above(100))
    paper_a.PIECES["A-toy1"] = replace(first, claims=[*first.claims, wrong])
    made = paper("A-toy1", seeds="0-4", out=tmp_path)
    assert [claim.sentence for claim in made.claims] == ["seeds are positive", "seeds are large"]
    words = [claim["verdict"] for claim in made.to_dict()["claims"]]
    assert words == ["disagrees", "agrees"]
    assert str(made).startswith("DISAGREES: seeds are large")
    shown = (tmp_path / "A-toy1.html").read_text()
    assert shown.index("seeds are large") < shown.index("seeds are positive")


def test_columns_keep_the_names_of_the_study():
    mean = Estimate(0.5, (0.25, 0.75))
    assert columns([{"a": mean, "b": 1, "c": 2}], "b", "a", kind="estimate") == [
        {"b": 1, "a": [0.5, 0.25, 0.75], "kind": "estimate"}
    ]
    assert columns([mean], "value", "interval") == [{"value": 0.5, "interval": (0.25, 0.75)}]


def test_seeds_are_read():
    assert read_seeds("0-3,7") == (0, 1, 2, 3, 7) and read_seeds([4, 2, 4]) == (4, 2)
    for wrong in ("a", "3-1", "", "-1", ["x"], "0-99999"):
        with pytest.raises(GlauberError, match="seeds"):
            read_seeds(wrong)


def test_all_pieces_make_a_page(toys, tmp_path, glauber):
    code, out, _ = glauber("paper", "all", "--out", tmp_path / "site", "--json")
    found = json.loads(out)
    found.pop("call", None)
    assert code == 0 and [one["piece"] for one in found["verdicts"]] == ["A-toy1", "A-toy2"]
    assert json.loads((tmp_path / "site" / "index.json").read_text()) == found
    shown = (tmp_path / "site" / "index.html").read_text()
    assert shown.index("Verdicts") < shown.index("seeds are positive") < shown.index("40 steps")
    assert "differs from the paper: chains: 4 in place of 30; all of it" in shown
    assert "http:" not in shown.split("plotly")[0]


def test_the_cost_and_the_progress_are_reported(toys, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr("glauber.papers.paper.say", told.append)
    paper("all", out=tmp_path)
    assert "2 pieces x 1 seeds" in told[0] and "2 to make, which need 2 runs" in told[0]
    assert "2 to make with 320 steps of chains" in told[0]  # 4 chains x 40 steps, two runs
    assert told[1:] == [
        "piece 1 of 2, A-toy1, seed 0 (1 of 1): to make",
        "piece 2 of 2, A-toy2, seed 0 (1 of 1): to make",
    ]
    paper("all", out=tmp_path)
    assert "0 to make, which need 2 runs, of them 0 to make with 0 steps" in told[3]
    assert told[4].endswith("stored")


def test_what_cannot_be_made_is_reported_and_the_rest_goes_on(toys, tmp_path):
    paper_a.PIECES["A-absent"] = toy_piece(str(tmp_path / "absent"), (0.5,))
    made = paper("all", out=tmp_path / "site")
    assert [piece.name for piece in made.pieces] == ["A-toy1", "A-toy2"]
    assert list(made.missing) == ["A-absent"] and "A-absent cannot be made" in str(made)
    assert "A-absent" in (tmp_path / "site" / "index.html").read_text()
    with pytest.raises(GlauberError, match="absent"):
        paper("A-absent", out=tmp_path / "site")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["A-toy1", "a text"], "A-toy1 does not take --from: it takes --model"),
        (["all", "a text"], "no piece takes --from"),
        (["list", "--steps", "3"], "list takes no --steps"),
        (["A-toy1", "--chains", "0"], "number of chains is 0"),
        (["A-toy1", "--temperature", "-1"], "temperature"),
        (["A-toy1", "--until", "dawn"], "answers, chains, plan"),
        (["A-toy1", "--scale", "huge"], "small, paper"),
        (["A-toy9"], "did you mean"),
        (["A-toy1", "--out", "page.html"], "give a folder"),
        (["A-toy1", "--out", "."], "contains no pieces"),
    ],
)
def test_what_a_piece_does_not_take_is_refused(
    toys, glauber, words, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").write_text("")
    code, _, err = glauber("paper", *words)
    assert code == 2 and message in err and err.count("\n") == 1


def test_chains_are_made_where_little_is_installed(toys, tmp_path):
    """The plan is copied to a machine without pandas, plotly and the rest; the answer goes on."""
    here, there = tmp_path / "here", tmp_path / "there"
    planned = paper("A-toy2", until="plan", out=there)
    assert [row["made"] for row in planned.rows] == [False, False]
    script = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        if name in ('pandas', 'plotly', 'sklearn', 'sentence_transformers', 'jinja2',\n"
        "                    'typer', 'rich', 'deeptime', 'sacrebleu'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing)\n"
        "from glauber.papers.work import make_chains\n"
        f"make_chains({str(there)!r}, device='cpu')\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=600)
    assert all(row["made"] for row in paper("A-toy2", until="chains", out=there).rows)
    assert paper("A-toy2", out=there).to_dict() == paper("A-toy2", out=here).to_dict()
    with pytest.raises(GlauberError, match="no list of chains"):
        make_chains(tmp_path)


@pytest.mark.parametrize(
    ("key", "changed", "message"),
    [
        ("../kept", {}, "is not ours"),
        ("0" * 16, {"trust_remote_code": True}, "is not ours"),
        ("0" * 16, {"texts": 3}, "is damaged"),
        ("0" * 16, {"stepz": 3}, "is damaged"),
    ],
)
def test_a_list_of_somebody_else_reaches_no_other_path(
    key, changed, message, tmp_path, tiny_folder
):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("")
    record = asdict(Chains(str(tiny_folder), steps=2)) | changed
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / "chains.json").write_text(json.dumps({key: record}))
    with pytest.raises(GlauberError, match=message):
        make_chains(tmp_path / "plan")
    assert (tmp_path / "kept" / "file").exists()
    assert [path.name for path in (tmp_path / "plan").iterdir()] == ["chains.json"]


def test_digests_depend_on_the_weights_and_not_on_the_path(tiny_folder, tmp_path):
    def copy(name):
        (tmp_path / name).mkdir()
        for path in tiny_folder.iterdir():
            (tmp_path / name / path.name).write_bytes(path.read_bytes())
        return tmp_path / name

    one = Chains(str(tiny_folder), steps=5)
    assert one.digest == Chains(str(copy("elsewhere")), steps=5).digest
    assert one.digest != Chains(str(tiny_folder), steps=6).digest
    (weights,) = copy("changed").glob("*.safetensors")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert one.digest != Chains(str(tmp_path / "changed"), steps=5).digest


def test_several_processes_give_the_same_bits(tmp_path):
    here, shared = tmp_path / "here", tmp_path / "shared"
    alone = paper("B-lemma3", seeds="0-1", out=here)
    spread = paper("B-lemma3", seeds="0-1", out=shared, on="processes", workers=1)
    assert spread.to_dict() == alone.to_dict()
    assert stored(here / "answers") == stored(shared / "answers")


def test_every_piece_is_listed():
    listed = pieces()
    assert len(listed) == 36
    assert paper("list").rows == [{"piece": n, "shows": one.shows} for n, one in listed.items()]


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_every_piece_lists_its_chains_beforehand(scale, tmp_path):
    """Without a model: the list is what a machine with a GPU is given. Seeds share no chains."""
    for name, piece in pieces().items():
        assert set(piece.takes) <= set(FLAGS)
        listed = [
            {chains.digest for chains in piece.needs(Request(name, scale, seed, tmp_path))}
            for seed in range(3)
        ]
        assert not (listed[0] & listed[1] or listed[0] & listed[2] or listed[1] & listed[2])


def test_the_file_of_an_answer_says_how_it_was_made(tmp_path):
    made = Reproduction("A-table1", "small", "by hand", [{"mean": 0.5, "published": 0.644}], (3,))
    found = json.loads(made.write(tmp_path / "piece.json").read_text())
    assert found["rows"] == made.rows and found["seeds"] == [3] and "torch" in found["versions"]
