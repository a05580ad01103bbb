"""glauber score: how well texts fit a model's own conditionals."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from glauber.cli import options

if TYPE_CHECKING:
    from glauber.compatibility.score import Score


def score(
    texts: Annotated[list[str] | None, typer.Argument(help="Texts, each in quotes.")] = None,
    source: options.From = None,
    model: options.Model = "bundled:english",
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    json: options.Json = False,
) -> None:
    """Score texts by pseudo-log-likelihood, original and within-word left-to-right."""
    from glauber.cli.reading import refuse_int8
    from glauber.conditionals.starts import read_texts
    from glauber.errors import GlauberError

    given = [*(texts or []), *(read_texts(source) if source is not None else [])]
    if not given:
        raise GlauberError("there is no text to score: give one in quotes, or a file with --from.")
    from glauber.compatibility.score import score_texts
    from glauber.conditionals.masked_lm import MaskedLM

    refuse_int8(dtype)
    loaded = MaskedLM.load(model, device=device, dtype=dtype)
    scores = score_texts(loaded, given)
    from glauber.cli.screen import emit, out

    if json:
        how = {"model": model, "weights": loaded.fingerprint, "dtype": dtype, "unit": "nats"}
        emit(how | {"kind": "exact", "scores": [_plain(one) for one in scores]})
        return
    out.print("  original  within-word  tokens  text", highlight=False)
    for one in scores:
        figures = f"{one.original:10.3f}  {one.within_word:11.3f}  {len(one.pieces):6}"
        out.print(f"{figures}  {one.text}", markup=False, highlight=False, soft_wrap=True)


def _plain(one: "Score") -> dict[str, Any]:
    return {
        "text": one.text,
        "original": one.original,
        "within_word": one.within_word,
        "tokens": len(one.pieces),
        "pieces": one.pieces,
        "log_probs": one.log_probs,
        "log_probs_within_word": one.log_probs_within_word,
    }
