"""The one exception whose message is written for the person at the keyboard."""


class GlauberError(Exception):
    """A mistake in the input, or a limit of the machine, said in one plain sentence."""
