"""How does a figure become a file?"""

from pathlib import Path

import plotly.graph_objects as go

from glauber.errors import GlauberError


def write_picture(*figures: go.Figure, path: Path) -> None:
    """Writes figures, one below the other, as one page that needs no network to be looked at."""
    parts = [
        figure.to_html(
            full_html=False,
            include_plotlyjs=number == 0,
            config={"displayModeBar": False, "responsive": True},
        )
        for number, figure in enumerate(figures)
    ]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    page = f"<!doctype html><html><head>{head}</head><body>{''.join(parts)}</body></html>"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise GlauberError(f"{path} cannot be written: {error.strerror or error}.") from error
