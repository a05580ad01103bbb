"""Every public study answers wrong values in one sentence, at once, and leaves nothing behind."""

import inspect
import math
import shutil
import signal
import tempfile
import time
import types
import typing
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import pytest

import glauber
from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.foundation.progress import quiet

LIMIT = 1.0  # seconds of work for one answer
PATIENCE = 120  # seconds after which a call is stopped, however busy the machine is
SURROGATE = "the \udcff cat"  # what a byte that is not UTF-8 becomes in an argument
LONG = {"report"}  # a right answer takes seconds: only what must be refused is asked

# Small values, so that a study that takes a wrong value for a right one ends soon.
SMALL = {
    "steps": 2, "pairs": 1, "samples": 2, "replacements": 2, "chains": 2, "count": 1, "length": 4,
    "levels": 1, "top": 5, "sweeps": 1, "states": 5, "first": 1, "last": 2, "lag": 1,
    "temperatures": (1.0,), "lengths": (4,), "rectangles": 2, "embedder": "tokens",
    "token": "the", "text": "the cat sat on the mat .", "parent": "the cat sat",
    "device": "cpu", "batch_size": 8,
}  # fmt: skip
CHOICES = {
    "device", "dtype", "scan", "fill", "within", "coupling", "detector", "variant", "scale",
    "piece", "decoder", "judge", "method", "token", "text", "to", "order", "remask",
}  # fmt: skip
GREEDY = {"generate", "infill"}  # temperature 0 takes the likeliest token
NEGATIVE = {"first", "field"}  # numbers that may be below zero


class Bad(NamedTuple):
    """A value, whether it must be refused, and whether its Python type is wrong already."""

    value: object
    refused: bool = True
    wrong_type: bool = False


def studies():
    for group in glauber.STUDIES.values():
        for name, home in group.items():
            found = getattr(import_module(f"glauber.{home}"), name)
            if hasattr(found, "__wrapped__"):
                yield name, found


STUDIES = dict(studies())
CASES = [
    (name, parameter)
    for name, study in STUDIES.items()
    for parameter in inspect.signature(study).parameters
]


def kinds(hint):
    """The plain types of a parameter: int, float, str, …, with `[int]` for a sequence of them."""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return kinds(typing.get_args(hint)[0])
    if origin in (typing.Union, types.UnionType):
        return set().union(*(kinds(one) for one in typing.get_args(hint)))
    if origin is Literal:
        return {str}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        inner = kinds(typing.get_args(hint)[0])
        return {f"[{one.__name__}]" for one in inner if isinstance(one, type)}
    return {hint}


def bad_values(parameter, found, places):
    """What is wrong for a parameter of these kinds."""
    if parameter == "seed":
        return [Bad(-1), Bad(2**70), Bad(1.5), Bad("x", wrong_type=True)]
    if parameter in ("temperature", "temperatures"):
        numbers = [math.nan, -1.0, 0.0, math.inf]
        if float not in found:
            return [Bad((one,)) for one in numbers] + [Bad(()), Bad("hot", wrong_type=True)]
        refused = [Bad(one) for one in numbers] + [Bad("hot", wrong_type=True)]
        return [*refused, Bad(1e-320)]
    if parameter == "texts":
        texts = [SURROGATE, [SURROGATE], "", [], [""], Path("/no/such/file")]
        return [*map(Bad, texts), Bad(["the cat", 3], wrong_type=True), Bad(3, wrong_type=True)]
    if parameter == "run":
        names = ("", "/", places["file"], places["empty"], "no\0name", "\udcff")
        return [Bad(one) for one in names]
    if parameter == "out":
        inside = places["run"] / "answer.html"
        return [Bad(one) for one in (places["file"], "/", inside, places["file"] / "below")]
    if parameter in ("model", "models"):
        names = ["", "no-such-model", "\udcff", "no\0name", "bundled:nothing"]
        return [Bad([one, one] if parameter == "models" else one) for one in names]
    listed = []
    if int in found and float not in found:
        listed += [Bad(-1, refused=parameter not in NEGATIVE), Bad(2.5), Bad(math.nan)]
        listed += [Bad(one, refused=False) for one in (0, 10**12, 10**30)]
    if float in found:
        listed += [Bad(math.nan), Bad(math.inf, refused=False), Bad(1e-320, refused=False)]
    if found & {int, float} and str not in found:
        listed += [Bad("many", wrong_type=True), Bad([], wrong_type=True)]
    if found & {"[int]", "[float]"}:
        listed += [Bad((math.nan,)), Bad(("x",), wrong_type=True)]
    if str in found and bool not in found:
        listed += [Bad(SURROGATE), Bad("no-such-thing", refused=parameter in CHOICES)]
        listed += [Bad(3.5, wrong_type=True)]
        if parameter != "embedder":  # the package's own one, which takes seconds to load
            listed.append(Bad("", refused=parameter in CHOICES))
        if not any(isinstance(one, str) for one in found):
            listed.append(Bad(["the", "cat"], wrong_type=True))
    return listed


@pytest.fixture(scope="module")
def ground(tiny_folder, tmp_path_factory):
    from conftest import TEXTS

    model = glauber.load(str(tiny_folder), device="cpu")
    texts = [text for text in TEXTS if "?" not in text]
    out = tmp_path_factory.mktemp("runs") / "run"
    glauber.sample(model, texts, steps=40, length=4, temperature=0.8, out=out)
    return model, texts, out


@pytest.fixture
def places(ground, tmp_path, monkeypatch):
    """An empty working folder, an empty temporary one, and a run that may be spoiled."""
    made = {name: tmp_path / name for name in ("work", "temporary", "run", "empty", "file")}
    for name in ("work", "temporary", "empty"):
        made[name].mkdir()
    made["file"].write_text("somebody else's")
    shutil.copytree(ground[2], made["run"])
    monkeypatch.chdir(made["work"])
    monkeypatch.setattr(tempfile, "tempdir", str(made["temporary"]))
    return made


def small(study, ground, places):
    """Right and small values of the parameters."""
    model, texts, _ = ground
    given = SMALL | {"model": model, "models": [model, model], "texts": texts}
    if study.__name__ == "infill":
        given["texts"] = [f"{text} [MASK]" for text in texts]
    given |= {"run": str(places["run"]), "out": places["work"] / "out", "to": "text"}
    known = inspect.signature(study).parameters
    found = {name: value for name, value in given.items() if name in known}
    if "pairs" in known and "glauber.translation" in study.__module__:  # a file of sentences
        found["pairs"] = str(places["file"])
    return found


def clear(folder):
    """Removes what an answer wrote."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def contents(places):
    return {
        path: path.stat().st_size if path.is_file() else None
        for path in sorted(places["run"].parent.rglob("*"))
    }


@pytest.mark.parametrize(("name", "parameter"), CASES, ids=lambda one: str(one))
def test_wrong_values_are_answered_in_a_sentence(name, parameter, ground, places):
    study = STUDIES[name]
    declared = inspect.signature(study).parameters[parameter].annotation
    hint = typing.get_type_hints(study, include_extras=True).get(parameter, declared)
    given = small(study, ground, places)
    before = contents(places)
    for bad in bad_values(parameter, kinds(hint), places):
        if (name in LONG and not bad.refused) or (name in GREEDY and bad.value == 0.0):
            continue
        said = answer(study, given | {parameter: bad.value}, bad)
        if said is None:  # it was no wrong value for this one
            assert not bad.refused, f"{name}({parameter}={bad.value!r}) was taken"
            clear(places["work"])
            before = contents(places)
            continue
        assert contents(places) == before, f"{name}({parameter}={bad.value!r}) left files behind"


def answer(study, given, bad):
    """What a study said to a wrong value; None if it took it."""

    def stop(*_):
        raise TimeoutError(f"{bad.value!r:.60} was not refused within {PATIENCE} seconds")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    begun = time.process_time()
    try:
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore", GlauberWarning)
            study(**given)
    except GlauberError as error:
        assert time.process_time() - begun < LIMIT, f"{bad.value!r:.60}: {error}"
        assert str(error).strip() and "\n" not in str(error).strip()
        return str(error)
    except TypeError as error:
        assert bad.wrong_type, f"{bad.value!r:.60}: {error!r}"
        return str(error)
    finally:
        signal.alarm(0)
    return None


def test_half_a_character_is_named_with_its_place(ground):
    with pytest.raises(GlauberError, match=r"texts is not valid text: character 5 of"):
        glauber.sample(ground[0], ["the cat", SURROGATE], steps=2)


def test_a_finished_run_is_not_resumed_with_another_model(ground, places):
    with pytest.raises(GlauberError, match="not the model that made"):
        glauber.resume(places["run"], model="bundled:english")
    assert glauber.resume(places["run"], model=ground[0], device="cpu").finished
