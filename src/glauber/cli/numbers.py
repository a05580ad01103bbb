"""Lists of numbers as they are typed: 0.5,1,2."""

from glauber.errors import GlauberError


def numbers(listed: str, what: str, *, whole: bool = False) -> list[float]:
    """The numbers of a list with commas; `what` names them in the error."""
    try:
        return [int(x) if whole else float(x) for x in listed.split(",") if x.strip()]
    except ValueError:
        example = "6,10,16" if whole else "0.5,1,2"
        raise GlauberError(f"{listed!r} is not a list of {what} such as {example}.") from None
