"""Proteins: mutants, designs, and inverse folding as a family of models."""

from typing import TYPE_CHECKING

from glauber.models.shelf import FAMILIES, Family, Options

if TYPE_CHECKING:
    from glauber.models.base import Model


def _on_backbone(name: str) -> bool:
    return name.partition(":")[0] == "proteinmpnn"


def _inverse_folding(name: str, options: Options) -> "Model":
    from glauber.studies.proteins.inverse_folding import load

    return load(name, options)


FAMILIES.append(Family(_on_backbone, _inverse_folding))
