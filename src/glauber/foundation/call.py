"""The call that made a result: study, every argument, and what was opened, by fingerprint.

It is stored with the result and in a run, so that `cite` can print it, and its one-line form is the
result's signature.
"""

import hashlib
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

LONGEST_ARGUMENT = 100_000  # characters of JSON; longer ones are stored as their digest
LONGEST_PART = 60  # characters of a signature's part; longer ones are given by their digest


class Opened(Protocol):
    """What `load` records: a model."""

    @property
    def name(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...


class Recorded(Protocol):
    """What `Run.of` records: a run."""

    @property
    def signature(self) -> str: ...


Model = TypeVar("Model", bound=Opened)
Run = TypeVar("Run", bound=Recorded)


@dataclass
class Inputs:
    """What a study opened while it ran."""

    models: list[Opened] = field(default_factory=list)
    runs: list[Recorded] = field(default_factory=list)


_inputs: ContextVar[Inputs | None] = ContextVar("inputs", default=None)
_call: ContextVar["Call | None"] = ContextVar("call", default=None)


@dataclass(frozen=True)
class Call:
    """A call of a study with all its arguments, as JSON can hold them."""

    study: str
    arguments: dict[str, object]

    def to_dict(self) -> dict[str, object]:
        return {"study": self.study, "arguments": self.arguments}

    def signature(self, inputs: Inputs) -> str:
        """One line that identifies the answer: runs, study, arguments, weights and versions."""
        from importlib.metadata import version

        from glauber import __version__

        fields: dict[str, object] = {"study": self.study} | self.arguments
        if inputs.runs:
            fields.pop("run", None)
        models = list(dict.fromkeys(map(_model_part, inputs.models)))
        if models:
            for name in ("model", "models"):
                fields.pop(name, None)
            fields["model"] = ",".join(models)
        if not inputs.runs:
            fields |= {"glauber": __version__, "torch": version("torch")}
        spelled = {name: _spelling(value) for name, value in fields.items() if value is not None}
        own = "|".join(f"{name}:{value}" for name, value in spelled.items())
        return "|".join(dict.fromkeys([*(run.signature for run in inputs.runs), own]))


def current_call() -> Call | None:
    """The call of the study that is running, such as a run stores."""
    return _call.get()


@contextmanager
def recording(call: Call) -> Iterator[Inputs]:
    """Collects the models and runs that are opened inside, for the signature of that call."""
    inputs = Inputs()
    tokens = _inputs.set(inputs), _call.set(call)
    try:
        yield inputs
    finally:
        _inputs.reset(tokens[0])
        _call.reset(tokens[1])


def record_model(model: Model) -> Model:
    """The model, noted as one that the running study opened."""
    inputs = _inputs.get()
    if inputs is not None and all(model is not other for other in inputs.models):
        inputs.models.append(model)
    return model


def record_run(run: Run) -> Run:
    """The run, noted as one that the running study opened."""
    inputs = _inputs.get()
    if inputs is not None and all(run is not other for other in inputs.runs):
        inputs.runs.append(run)
    return run


def call_of(study: str, bound: inspect.BoundArguments) -> Call:
    """The call with these arguments; those with the default None or False are left out."""
    bound.apply_defaults()
    parameters = bound.signature.parameters
    arguments = {
        name: _argument(value)
        for name, value in bound.arguments.items()
        if not (value is None or (value is False and parameters[name].default is False))
    }
    return Call(study, arguments)


def _argument(value: object) -> object:
    """The value as JSON holds it; a model or a run by its name, what is too long by its digest."""
    if value is None or isinstance(value, bool | int | float | str):
        stored: object = value
    elif isinstance(value, Path):
        stored = str(value)
    elif isinstance(value, Mapping):
        stored = {str(name): _argument(part) for name, part in value.items()}
    elif isinstance(value, Sequence):
        stored = [_argument(part) for part in value]
    else:
        stored = str(getattr(value, "name", type(value).__name__))
    content = json.dumps(stored, ensure_ascii=False)
    if len(content) > LONGEST_ARGUMENT:
        count = len(stored) if isinstance(stored, list | dict) else 1
        return {"sha256": _digest(content), "count": count}
    return stored


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _spelling(value: object) -> str:
    """A part of a signature, without the marks that separate parts."""
    if isinstance(value, list):
        text = ",".join(map(_spelling, value))
    elif isinstance(value, dict):
        text = ",".join(f"{name}={_spelling(part)}" for name, part in value.items())
    else:
        text = str(value)
    if len(text) <= LONGEST_PART and not set(text) & set("|\n\r"):
        return text
    count = f"{len(value)}@" if isinstance(value, list) else ""
    return f"{count}sha256={_digest(text)[:12]}"


def _model_part(model: Opened) -> str:
    """A model by name, weights, device and dtype."""
    device = getattr(getattr(model, "device", None), "type", "cpu")
    weights = model.fingerprint[:12] or "unknown"
    return f"{model.name}@{weights}/{device}/{getattr(model, 'dtype', 'float32')}"
