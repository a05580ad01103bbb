"""What comes out of making a table or figure again?"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from glauber.errors import GlauberError
from glauber.figures.page import write_picture
from glauber.runs.spec import versions, write_json

if TYPE_CHECKING:
    import plotly.graph_objects as go

Scale = Literal["small", "paper"]


@dataclass(frozen=True)
class Reproduction:
    """Our figures with the published ones beside them, row by row, and the pictures."""

    name: str
    scale: Scale
    how: str  # the protocol in one sentence
    rows: list[dict[str, Any]]
    seed: int
    pictures: dict[str, "go.Figure"] = field(default_factory=dict)

    def told(self) -> dict[str, Any]:
        """In one JSON object."""
        made = {"name": self.name, "scale": self.scale, "how": self.how, "seed": self.seed}
        return made | {"rows": self.rows, "versions": versions()}

    def write(self, folder: Path) -> list[Path]:
        """Writes the JSON and each picture as a page of its own; the files written."""
        files = [folder / f"{self.name}.json"]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_json(files[0], self.told())
            for name, figure in self.pictures.items():
                files.append(folder / f"{self.name}-{name}.html")
                write_picture(figure, path=files[-1])
        except OSError as error:
            raise GlauberError(f"{folder} cannot be written: {error.strerror or error}.") from error
        return files
