"""What does a page of the API say about a parameter or a field? Read from the sources by griffe.

A parameter's help stands in its type, `Annotated[int, "Pairs of chains."]`; a field's in the
comment behind it. Both become rows of a table here, so nothing is written twice.
"""

import ast
import re
from collections.abc import Iterator
from importlib import import_module

import griffe


class Descriptions(griffe.Extension):
    """Gives each function a table of its parameters and each class a table of its fields."""

    def on_package(self, *, pkg: griffe.Module, loader: object, **_: object) -> None:
        for one in walk(pkg):
            if one.docstring:
                one.docstring.value = markdown(one.docstring.value)
            if isinstance(one, griffe.Function) and one.docstring:
                rows = list(parameters(pkg, one))
                if any(row.description for row in rows):
                    _add(one, griffe.DocstringSectionParameters(rows))
        helps = help_of_results(pkg)
        for one in walk(pkg):
            if isinstance(one, griffe.Class) and one.docstring:
                told = [
                    (field, describe(pkg, field, helps.get(one.path, {}))) for field in fields(one)
                ]
                rows = [_row(field, text) for field, text in told if text]
                if rows:
                    _add(one, griffe.DocstringSectionAttributes(rows, title="Fields:"))


def markdown(text: str) -> str:
    """A docstring as Markdown: `name  meaning` in columns is a list, and a star is a star."""
    listed = re.sub(r"^(\w+) {2,}(?=\S)", r"- `\1`: ", text, flags=re.M)
    apart = re.sub(r"^(?!- )(\S.*)\n(?=- `)", r"\1\n\n", listed, flags=re.M)
    parts = re.split(r"(`[^`]*`|^ {4}.*$)", apart, flags=re.M)
    return "".join(
        part if place % 2 else part.replace("*", r"\*") for place, part in enumerate(parts)
    )


def walk(module: griffe.Object) -> Iterator[griffe.Object]:
    """Everything that is defined in a module, its submodules and its classes."""
    for member in module.members.values():
        if not member.is_alias:
            yield member
            yield from walk(member)


def found(pkg: griffe.Module, path: str) -> griffe.Object | None:
    """The object of a path such as glauber.runs.run.Run, however it was imported."""
    try:
        one = pkg[path.removeprefix("glauber.")] if path.startswith("glauber.") else None
        return one.final_target if one is not None and one.is_alias else one
    except (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError):
        return None


def parameters(
    pkg: griffe.Module, function: griffe.Function
) -> Iterator[griffe.DocstringParameter]:
    """Each parameter with its plain type and its help; the types are changed in place too."""
    for one in function.parameters:
        if one.name in ("self", "cls"):
            continue
        one.annotation, text = plain_type(pkg, one.annotation)
        yield griffe.DocstringParameter(
            one.name, annotation=one.annotation, description=text, value=one.default
        )


def plain_type(pkg: griffe.Module, annotation: object) -> tuple[object, str]:
    """`Annotated[int, "Pairs."]`, or a name that stands for it, as (int, "Pairs.")."""
    if isinstance(annotation, griffe.ExprName):
        named = found(pkg, annotation.canonical_path)
        value = named.value if isinstance(named, griffe.Attribute) else None
        shown, text = plain_type(pkg, value) if isinstance(value, griffe.Expr) else ("", "")
        return (shown, text) if text else (annotation, "")
    if isinstance(annotation, griffe.ExprSubscript) and str(annotation.left) == "Annotated":
        inner, *notes = annotation.slice.elements
        shown, text = plain_type(pkg, inner)
        texts = [note for note in notes if not is_check(note)]
        return shown, spoken(pkg, texts[0]) if texts else text
    return annotation, ""


def is_check(note: object) -> bool:
    """Whether a note of an annotation is a check, such as `Whole(2)`, rather than help."""
    return isinstance(note, griffe.ExprCall) and isinstance(note.function, griffe.ExprName)


def spoken(pkg: griffe.Module, text: object) -> str:
    """A help text; one that is put together, f"Of {COUNTS}.", from the constants that it names."""
    parts = list(text.iterate()) if isinstance(text, griffe.Expr) else []
    named = [part for part in parts if isinstance(part, griffe.ExprName)]
    paths = {str(part): part.canonical_path for part in named}
    known = {name: constant(pkg, path) for name, path in paths.items() if "glauber." in path}
    return str(eval(str(text), {"__builtins__": {}}, known))


def constant(pkg: griffe.Module, path: str) -> object:
    """The value of a module's constant; of one that is computed, by importing the module."""
    try:
        return ast.literal_eval(str(getattr(found(pkg, path), "value", None)))
    except ValueError:
        module, _, name = path.rpartition(".")
        return getattr(import_module(module), name)


def help_of_results(pkg: griffe.Module) -> dict[str, dict[str, str]]:
    """For each class that a study returns, the help of the study's parameters."""
    helps: dict[str, dict[str, str]] = {}
    for one in walk(pkg):
        if (
            isinstance(one, griffe.Function)
            and one.docstring
            and isinstance(one.returns, griffe.Expr)
        ):
            sections = [part for part in one.docstring.parsed if part.kind.value == "parameters"]
            own = {row.name: row.description for part in sections for row in part.value}
            for path in classes_named(one.returns):
                helps.setdefault(path, {}).update(own)
    return helps


def classes_named(annotation: object) -> list[str]:
    """The paths of the names in a type, such as both of `Scores | Likelihoods`."""
    if isinstance(annotation, griffe.ExprName):
        return [annotation.canonical_path]
    if not isinstance(annotation, griffe.Expr):
        return []
    return [
        part.canonical_path for part in annotation.iterate() if isinstance(part, griffe.ExprName)
    ]


def members(one: griffe.Class) -> dict[str, griffe.Object]:
    """The public members of a class and of those that it stands on, but for what is told elsewhere.

    What every result can do is told once, at `Result`.
    """
    above = list(reversed(one.mro()))
    told = [name for base in above if base.name == "Result" for name in base.members]
    every = {name: member for base in [*above, one] for name, member in base.members.items()}
    return {
        name: member
        for name, member in every.items()
        if not (name.startswith("_") or name in told or member.is_alias)
    }


def fields(one: griffe.Class) -> list[griffe.Attribute]:
    """The fields among them; properties are methods here."""
    return [
        member
        for member in members(one).values()
        if isinstance(member, griffe.Attribute) and "property" not in member.labels
    ]


def methods(one: griffe.Class) -> list[griffe.Object]:
    """The methods and properties among them."""
    plain = [field.name for field in fields(one)]
    return [member for name, member in members(one).items() if name not in plain]


def describe(pkg: griffe.Module, field: griffe.Attribute, helps: dict[str, str]) -> str:
    """A field's docstring or comment, or those of a class above; else the help of the study's
    parameter of that name; else the first line about the class that it holds."""
    above = field.parent.mro() if isinstance(field.parent, griffe.Class) else []
    for place in [
        field,
        *(base.members[field.name] for base in above if field.name in base.members),
    ]:
        if place.docstring:
            return place.docstring.value
        comment = place.lines[-1].partition("  # ")[2] if place.lines else ""
        if comment and not comment.startswith(("type:", "noqa", "fmt:")):
            return comment
    if helps.get(field.name):
        return helps[field.name]
    held = [found(pkg, path) for path in classes_named(field.annotation)]
    told = [one.docstring.value for one in held if isinstance(one, griffe.Class) and one.docstring]
    return told[0].splitlines()[0] if told else ""


def undocumented(
    pkg: griffe.Module, one: griffe.Object, helps: dict[str, dict[str, str]]
) -> list[str]:
    """The public names of an object, itself included, of which nothing is said."""
    bare = [] if one.docstring else [one.path]
    if isinstance(one, griffe.Class):
        own = helps.get(one.path, {})
        prose = one.docstring.value if one.docstring else ""
        bare += [
            field.path
            for field in fields(one)
            if not describe(pkg, field, own) and not re.search(rf"\b{field.name}\b", prose)
        ]
        bare += [method.path for method in methods(one) if not method.docstring]
    return bare


def _row(field: griffe.Attribute, text: str) -> griffe.DocstringAttribute:
    return griffe.DocstringAttribute(field.name, annotation=field.annotation, description=text)


def _add(one: griffe.Object, section: griffe.DocstringSection) -> None:
    """Puts a table behind the text of a docstring, which is prose and is not parsed any further."""
    assert one.docstring is not None
    one.docstring.parsed = [griffe.DocstringSectionText(one.docstring.value), section]
