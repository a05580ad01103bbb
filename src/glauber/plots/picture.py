"""How does a figure become a file?"""

from pathlib import Path

import plotly.graph_objects as go

from glauber.errors import GlauberError

WIDTH, SHARPNESS = 1000, 2  # of a PNG: pixels across, and how many of them for each


def write_picture(*figures: go.Figure, path: Path) -> None:
    """Writes figures as one page that needs no network; to a name with .png, as PNG.

    Of several figures a PNG file each: name.png, name-2.png, …
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".png":
            _write_png(figures, path)
        else:
            path.write_text(_page(figures), encoding="utf-8")
    except OSError as error:
        raise GlauberError(f"{path} cannot be written: {error.strerror or error}.") from error


def _page(figures: tuple[go.Figure, ...]) -> str:
    parts = [
        figure.to_html(
            full_html=False,
            include_plotlyjs=number == 0,
            config={"displayModeBar": False, "responsive": True},
        )
        for number, figure in enumerate(figures)
    ]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    return f"<!doctype html><html><head>{head}</head><body>{''.join(parts)}</body></html>"


def _write_png(figures: tuple[go.Figure, ...], path: Path) -> None:
    for number, figure in enumerate(figures, 1):
        name = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        try:
            figure.write_image(name, width=WIDTH, height=figure.layout.height, scale=SHARPNESS)
        except (ImportError, ValueError, RuntimeError) as error:
            raise GlauberError(
                "a PNG needs kaleido and a Chrome or Chromium: pip install 'glauber[png]', or "
                "write to a name with .html."
            ) from error
