"""python -m glauber.interfaces.evaluation: the command line of lm_eval, with `--model glauber`."""

import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path

from glauber.foundation.errors import GlauberError
from glauber.foundation.extras import need
from glauber.foundation.study import one_line, shorten


def main() -> None:
    """Registers the model and hands over; a mistake in the input ends in one sentence."""
    try:
        need("harness", "python -m glauber.interfaces.evaluation")
        _check_tasks(sys.argv[1:])
        import_module("glauber.interfaces.evaluation.harness")  # which registers `glauber`
        import_module("lm_eval.__main__").cli_evaluate()
    except GlauberError as error:
        print(f"glauber: {shorten(one_line(str(error)))}", file=sys.stderr)
        sys.exit(2)


def _check_tasks(arguments: list[str]) -> None:
    """Refuses a folder of tasks that is not there, which lm_eval passes over in silence."""
    for flag, folder in pairwise(arguments):
        if flag == "--include_path" and not Path(folder).is_dir():
            raise GlauberError(f"there is no folder {folder}, which --include_path names.")


if __name__ == "__main__":
    main()
