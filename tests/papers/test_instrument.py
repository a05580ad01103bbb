"""A piece has settings and a folder: it shares chains, resumes to the same bits, pools seeds."""

import json
import subprocess
import sys
from dataclasses import asdict

import pytest

from conftest import TEXTS
from glauber import paper
from glauber.errors import GlauberError
from glauber.papers import rectangles
from glauber.papers.claims import Claim, Quantity, above
from glauber.papers.paper import Reproduction, read_seeds
from glauber.papers.settings import Chains, Piece, Settings, make_chains
from glauber.sampling import sample as sampling
from run_bytes import contents

TAKES = ("model", "temperature", "chains", "steps", "device")
MADE = []  # the temperatures whose parts were made, each time


def toy_piece(model, temperatures):
    """Chains at each temperature, a slow part that reads them, and a claim about the seed."""

    def needs(settings):
        given = settings.over({"model": model, "steps": 40, "chains": 4})
        return [
            Chains(**given, texts=tuple(TEXTS[:2]), temperature=one, seed=settings.seed)
            for one in temperatures
        ]

    def count(settings, chains):
        MADE.append(chains.temperature)
        return [settings.run(chains).text(step=chains.steps), 0.1 + 0.2]

    def make(settings):
        found = [
            settings.part(
                "count", {"of": chains.digest}, lambda chains=chains: count(settings, chains)
            )
            for chains in needs(settings)
        ]
        ours = Quantity("the seed", float(settings.seed), (-1.0, 9.0), n=4)
        claim = Claim("seeds are positive", "nowhere", 2, ours, above(-2), effect=1.0)
        return Reproduction.of(
            settings, "by hand", [{"counts": found}], claims=[claim], differs=["all of it"]
        )

    return Piece("a toy", make, TAKES, needs)


@pytest.fixture
def toys(monkeypatch, tiny_folder):
    """Two pieces that need the same chains, one of them others too."""
    MADE.clear()
    both = {"A-toy1": (0.5,), "A-toy2": (0.5, 1.0)}
    made = {name: toy_piece(str(tiny_folder), at) for name, at in both.items()}
    monkeypatch.setattr(rectangles, "PIECES", made)
    monkeypatch.setattr("glauber.papers.paper.SUBJECTS", ("rectangles",))


def kept(folder):
    """What a folder keeps, without the locks."""
    return {name: data for name, data in contents(folder).items() if not name.endswith(".lock")}


def test_pieces_share_chains_and_parts(toys, tmp_path):
    paper("A-toy1", out=tmp_path)
    before = contents(tmp_path / "chains")
    paper("A-toy2", out=tmp_path)
    assert len(list((tmp_path / "chains").glob("[!.]*"))) == 2
    assert before.items() <= contents(tmp_path / "chains").items()
    assert MADE == [0.5, 1.0]  # the part of the first piece is not made again
    paper("A-toy2", out=tmp_path)
    assert MADE == [0.5, 1.0]
    paper("A-toy2", steps=30, out=tmp_path)
    assert MADE == [0.5, 1.0, 0.5, 1.0]


def test_a_killed_piece_resumes_to_the_same_bits(toys, tmp_path, monkeypatch):
    """Killed in the chains, then in the second part; the folder ends as one never stopped."""
    whole = paper("A-toy2", out=tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(sampling, "advance_chains", killed)
        paper("A-toy2", out=tmp_path / "killed")
    begun = sampling.advance_chains
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(sampling, "advance_chains", lambda *a, **k: _second(begun, *a, **k))
        paper("A-toy2", out=tmp_path / "killed")
    assert len(list((tmp_path / "killed" / "parts").glob("*.json"))) == 1
    resumed = paper("A-toy2", out=tmp_path / "killed")
    assert resumed.to_dict() == whole.to_dict()
    assert kept(tmp_path / "killed") == kept(tmp_path / "whole")


def killed(*args, **kwargs):
    raise KeyboardInterrupt


def _second(begun, planned, folder, **options):
    """Makes the chains at 0.5 and is killed over those at 1."""
    return begun(planned, folder, **options) if planned.spec.temperature == 0.5 else killed()


def test_seeds_are_pooled(toys, tmp_path):
    one, four = paper("A-toy1", seeds=3, out=tmp_path), paper("A-toy1", seeds="0-3", out=tmp_path)
    assert [row["seed"] for row in four.rows] == [0, 1, 2, 3] and "seed" not in one.rows[0]
    assert four.rows[3]["counts"] == one.rows[0]["counts"]
    (claim,) = four.claims
    assert claim.quantity.value == 1.5 and claim.quantity.n == 4 and claim.seeds == (0, 1, 2, 3)
    assert claim.differs == ("all of it",)
    assert [one.value for one in claim.quantity.each] == [0, 1, 2, 3]
    printed = str(four)
    assert printed.index("AGREES: seeds are positive") < printed.index("by hand")


def test_seeds_are_read():
    assert read_seeds("0-3,7") == (0, 1, 2, 3, 7) and read_seeds([4, 2, 4]) == (4, 2)
    for wrong in ("a", "3-1", "", "-1", [True and "x"], "0-99999"):
        with pytest.raises(GlauberError, match="seeds"):
            read_seeds(wrong)


def test_all_pieces_make_a_page(toys, tmp_path, glauber):
    code, out, _ = glauber("paper", "all", "--out", tmp_path / "site", "--json")
    found = json.loads(out)
    assert code == 0 and [one["piece"] for one in found["verdicts"]] == ["A-toy1", "A-toy2"]
    assert json.loads((tmp_path / "site" / "index.json").read_text()) == found
    shown = (tmp_path / "site" / "index.html").read_text()
    assert shown.index("Verdicts") < shown.index("seeds are positive") < shown.index("by hand")
    assert "differs from the paper: all of it" in shown and "http:" not in shown.split("plotly")[0]


def test_the_cost_and_the_place_are_said(toys, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr("glauber.papers.making.say", told.append)
    paper("all", out=tmp_path)
    assert "2 pieces x 1 seeds" in told[0] and "2 to make, which need 2 runs" in told[0]
    assert "2 to make with 320 steps of chains" in told[0]  # 4 chains x 40 steps, two runs
    assert told[1:] == [
        "piece 1 of 2, A-toy1, seed 0 (1 of 1): to make",
        "piece 2 of 2, A-toy2, seed 0 (1 of 1): to make",
    ]
    paper("all", out=tmp_path)
    assert "0 to make, which need 2 runs, of them 0 to make with 0 steps" in told[3]
    assert told[4].endswith("kept")


def test_what_cannot_be_made_is_said_and_the_rest_goes_on(toys, tmp_path, monkeypatch):
    absent = toy_piece(str(tmp_path / "absent"), (0.5,))
    monkeypatch.setitem(rectangles.PIECES, "A-absent", absent)
    made = paper("all", out=tmp_path / "site")
    assert [one.name for one in made.pieces] == ["A-toy1", "A-toy2"]
    assert list(made.missing) == ["A-absent"] and "A-absent cannot be made" in str(made)
    assert "A-absent" in (tmp_path / "site" / "index.html").read_text()
    with pytest.raises(GlauberError, match="absent"):
        paper("A-absent", out=tmp_path / "site")


def test_another_embedder_takes_its_own_options_along(tmp_path):
    given = Settings("A-toy", "small", 0, tmp_path, embedder="bundled", steps=7)
    asked = {"embedder": "a/name", "how": {"task": "matching"}, "steps": 5, "chains": 2}
    assert given.over(asked) == {"embedder": None, "how": {}, "steps": 7, "chains": 2}


def test_what_a_piece_does_not_take_is_refused(toys, tmp_path, glauber):
    for words, told in (
        (["A-toy1", "a text"], "A-toy1 does not take --from: it takes --model"),
        (["all", "a text"], "no piece takes --from"),
        (["A-toy1", "--chains", "0"], "number of chains is 0"),
        (["A-toy1", "--temperature", "-1"], "temperature"),
        (["A-toy1", "--until", "dawn"], "answers, chains, plan"),
        (["A-toy1", "--out", "page.html"], "give a folder"),
        (["A-toy1", "--out", str(tmp_path)], "holds no pieces"),
    ):
        (tmp_path / "other").write_text("")
        code, _, err = glauber("paper", *words)
        assert code == 2 and told in err and err.count("\n") == 1


def test_chains_are_made_where_little_is_installed(toys, tmp_path, tiny_folder):
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
        "from glauber.papers.settings import make_chains\n"
        f"make_chains({str(there)!r}, device='cpu')\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)
    assert all(row["made"] for row in paper("A-toy2", until="chains", out=there).rows)
    assert paper("A-toy2", out=there).to_dict() == paper("A-toy2", out=here).to_dict()
    with pytest.raises(GlauberError, match="no list of chains"):
        make_chains(tmp_path)


@pytest.mark.parametrize(
    ("key", "changed", "said"),
    [
        ("../kept", {}, "is not ours"),
        ("0" * 16, {"trust_remote_code": True}, "is not ours"),
        ("0" * 16, {"texts": 3}, "is damaged"),
        ("0" * 16, {"stepz": 3}, "is damaged"),
    ],
)
def test_a_list_of_somebody_else_reaches_no_other_place(key, changed, said, tmp_path, tiny_folder):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("")
    given = asdict(Chains(str(tiny_folder), steps=2)) | changed
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / "chains.json").write_text(json.dumps({key: given}))
    with pytest.raises(GlauberError, match=said):
        make_chains(tmp_path / "plan")
    assert (tmp_path / "kept" / "file").exists()
    assert [path.name for path in (tmp_path / "plan").iterdir()] == ["chains.json"]


def test_digests_know_the_weights_and_not_the_place(tiny_folder, tmp_path):
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for path in tiny_folder.iterdir():
        (moved / path.name).write_bytes(path.read_bytes())
    one = Chains(str(tiny_folder), steps=5)
    assert one.digest == Chains(str(moved), steps=5).digest
    assert one.digest != Chains(str(moved), steps=6).digest
    (other,) = moved.glob("*.safetensors")
    data = bytearray(other.read_bytes())
    data[-1] ^= 1
    (tmp_path / "changed").mkdir()
    for path in moved.iterdir():
        (tmp_path / "changed" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "changed" / other.name).write_bytes(data)
    assert one.digest != Chains(str(tmp_path / "changed"), steps=5).digest


def test_several_processes_give_the_same_bits(tmp_path):
    here, shared = tmp_path / "here", tmp_path / "shared"
    alone = paper("B-lemma3", seeds="0-1", out=here)
    spread = paper("B-lemma3", seeds="0-1", out=shared, on="processes", workers=1)
    assert spread.to_dict() == alone.to_dict()
    assert kept(here / "answers") == kept(shared / "answers")
