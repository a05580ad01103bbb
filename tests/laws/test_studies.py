"""Every public study: found by name, helped, the same as a command, its result complete."""

import inspect
import json
import pydoc
import typing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pandas
import plotly.graph_objects as go
import pytest

import glauber
from glauber.foundation.study import Result
from glauber.interfaces.cli.command import command, spellings
from glauber.interfaces.cli.group import MORE, ROOMS, panels, summary

TOP = {name: home for group in glauber.STUDIES.values() for name, home in group.items()}
LABORATORY = {
    f"{room}.{name.replace('-', '_')}": home
    for room in ROOMS.values()
    for name, home in getattr(glauber, room).STUDIES.items()
}
HOMES = TOP | LABORATORY
EXAMPLES = {
    name: call
    for path in sorted(Path(__file__).parent.glob("examples_*.py"))
    for name, call in import_module(path.stem).EXAMPLES.items()
}


def the_study(name):
    found = getattr(import_module(f"glauber.{HOMES[name]}"), name.split(".")[-1])
    assert hasattr(found, "__wrapped__"), f"{name} is no @study"
    return found


@dataclass(frozen=True)
class At:
    """What an example may use."""

    model: glauber.MaskedLM
    texts: list[str]
    run: glauber.Run
    folder: Path


@pytest.fixture(scope="module")
def ground(tiny_folder, tmp_path_factory):
    from conftest import TEXTS

    texts = [text for text in TEXTS if "?" not in text]
    texts = (texts * 2)[:8]
    model = glauber.load(str(tiny_folder), device="cpu")
    out = tmp_path_factory.mktemp("runs") / "run"
    run = glauber.sample(model, texts[:4], steps=60, length=6, temperature=0.8, seed=1, out=out)
    return model, texts, run


@pytest.fixture
def at(ground, tmp_path):
    return At(*ground, tmp_path)


def test_every_study_has_an_example():
    assert set(EXAMPLES) == set(HOMES)


def test_the_package_shows_its_studies():
    assert set(TOP) <= set(dir(glauber)) and "load" in dir(glauber)
    with pytest.raises(AttributeError, match="did you mean 'couple'"):
        glauber.coupel  # noqa: B018


@pytest.mark.parametrize("name", HOMES)
def test_help_has_every_parameter(name):
    study = the_study(name)
    said = pydoc.render_doc(study, renderer=pydoc.plaintext)
    hints = typing.get_type_hints(study, include_extras=True)
    first = inspect.getdoc(study).split("\n")[0]
    assert first.endswith(".") and first == summary(HOMES[name], name.split(".")[-1])
    for parameter, declared in inspect.signature(study).parameters.items():
        assert parameter in said
        hint = hints.get(parameter, declared.annotation)
        helped = [note for note in getattr(hint, "__metadata__", ()) if note]
        assert helped and isinstance(helped[0], str), f"{name}: {parameter} has no help"


@pytest.mark.parametrize("name", HOMES)
def test_the_command_has_the_same_parameters_and_defaults(name):
    study = the_study(name)
    spelled, parameters = spellings(study), inspect.signature(study).parameters
    shown = inspect.signature(command(study)).parameters
    for one, parameter in parameters.items():
        if one not in spelled:  # only Python can say it: it needs a default
            assert parameter.default is None, f"{name}: {one} has no spelling and no default"
            continue
        assert one in shown
        if parameter.default is parameter.empty:
            assert spelled[one].default is ...
        elif one != "texts":
            default = spelled[one].default
            back = None if default is None else spelled[one].read(default)
            same = list(back) if isinstance(back, list | tuple) else back
            given = parameter.default
            assert same == (list(given) if isinstance(given, list | tuple) else given) or (
                str(same) == str(given) or same == ",".join(str(part) for part in given)
            ), f"{name}: {one}"


def test_the_groups_of_the_help_hold_every_study():
    listed = {command for group in panels().values() for command in group}
    more = {name for group in MORE.values() for name in group}
    assert {name.replace("_", "-") for name in TOP} | set(ROOMS) | more == listed


@pytest.mark.parametrize("name", HOMES)
def test_the_result_prints_tabulates_draws_and_survives_json(name, at):
    found = EXAMPLES[name](at)
    assert isinstance(found, Result)
    answer = found.to_dict()
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    assert isinstance(found.frame(), pandas.DataFrame) and len(found.frame().columns)
    pictures = found.figures()
    assert pictures and all(isinstance(one, go.Figure) for one in pictures.values())
    assert found.figure() is not None
    assert found.signature in str(found) and "\n" not in found.signature
    assert "glauber:" in found.signature
    assert "<table" in found._repr_html_()
    page = found.write(at.folder / "answer.html")
    assert 1000 < page.stat().st_size < 2e6  # no study needs the whole of Plotly


def test_a_misspelt_keyword_gets_a_suggestion():
    with pytest.raises(TypeError, match="did you mean 'temperature'"):
        glauber.couple(temprature=1.0)
