"""python -m glauber.evaluation: lm_eval's own command line, which then knows `--model glauber`."""

import sys
from importlib import import_module

from glauber.errors import GlauberError
from glauber.extras import need
from glauber.result import visible


def main() -> None:
    """Registers the model and hands over; a mistake in the input ends in one sentence."""
    try:
        need("harness", "python -m glauber.evaluation")
        import_module("glauber.evaluation.harness")  # which registers `glauber`
        import_module("lm_eval.__main__").cli_evaluate()
    except GlauberError as error:
        print(f"glauber: {visible(str(error))}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
