"""The page docs/coverage.md is what its data say, and every place that it names exists."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from website.coverage import STATES, Item, Paper, exists, faults, link, page, read

ROOT = Path(__file__).parent.parent
PAPERS = read(ROOT / "docs" / "coverage")


def test_every_item_is_there_once_and_every_place_exists():
    assert [paper.letter for paper in PAPERS] == ["A", "B"]
    assert list(faults(PAPERS, ROOT)) == []


def test_the_page_is_what_the_data_say():
    text = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
    assert text == page(PAPERS), "make docs"
    listed = [
        len(re.findall(rf"^\| \d+ \|.*\| {state}(?:<br>| \|)", text, re.M)) for state in STATES
    ]
    counts = re.findall(r"^\| all \| (.+) \|$", text, re.M)
    sums = [sum(map(int, column)) for column in zip(*(c.split(" | ") for c in counts), strict=True)]
    assert listed == sums[:-1] and sums[-1] == sum(sums[:-1])


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        ("command: rectangles --count 300", "command: rectangles --cuont 300"),
        ("command: ising fit --k 2", "command: ising fitt"),
        ("command: sample", "command: ising"),
        ("piece: A-table1", "piece: A-table9"),
        ("python: glauber.exact.space.Space", "python: glauber.exact.space.Spice"),
        ("python: glauber.traps", "python: glauber.trips"),
        (
            "python: glauber.papers.claims.Quantity.kind",
            "python: glauber.papers.claims.Quantity.no",
        ),
        ("python: glauber.dynamics.kernel.State.temperature", "python: glauber.dynamics.colonel"),
        ("python: glauber.exact.models.Clique.all_ones", "python: numpy.no_such_function"),
        (
            "test: tests/test_docs_coverage.py::test_a_place_that_is_not_there_is_noticed",
            "test: tests/test_docs_coverage.py::test_a_place",
        ),
        (
            "test: tests/exact/test_space.py::test_conditionals",
            "test: tests/exact/test_spaces.py::x",
        ),
        ("docs: papers.md#adding-a-piece", "docs: papers.md#adding-two-pieces"),
        ("docs: papers.md", "docs: paper.md"),
        ("file: recipes/translation.py", "file: recipes/transition.py"),
        ("file: docs", "somewhere: docs"),
    ],
)
def test_a_place_that_is_not_there_is_noticed(place, wrong):
    assert exists(place, ROOT) and not exists(wrong, ROOT)


def test_mistakes_in_the_numbers_and_states_are_noticed():
    first = Item(1, "an item", "what is said", "covered", ("command: sample",))
    items = [
        first,
        first,
        replace(first, number=2, state="done"),
        replace(first, number=4, places=()),
        replace(first, number=5, state="missing"),
        replace(first, number=6, places=("piece: A-table9",)),
    ]
    assert list(faults([Paper("A", "a paper", {"a part": items})], ROOT)) == [
        "A-1 is there 2 times",
        "A-3 is there 0 times",
        "A-2: 'done' is no state",
        "A-4 is covered and has no place",
        "A-5 is missing and does not say why",
        "A-6: piece: A-table9 does not exist",
    ]


def test_links_lead_from_the_docs_to_the_file():
    """Relative to docs/, so that they work in the repository; the site leads them to its pages."""
    for paper in PAPERS:
        for place in {place for item in paper.items for place in item.places}:
            target = re.search(r"\]\(([^)#]+)(?:#[^)]*)?\)$", link(place))
            assert target and (ROOT / "docs" / target[1]).exists(), place
    at = link("command: ising fit --k 2")
    assert at == "[`glauber ising fit --k 2`](commands.md#glauber-ising-fit)"
    study = link("python: glauber.studies.mixing.influence.contraction_temperature")
    assert study.endswith("](../src/glauber/studies/mixing/influence.py)")
