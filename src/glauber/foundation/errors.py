"""The exceptions and the one warning whose words are written for the person at the keyboard."""


class GlauberError(Exception):
    """A mistake in the input, or a limit of the machine, said in one plain sentence."""


class DamagedRun(GlauberError):
    """A stored run of which a part cannot be read."""


class TooLong(GlauberError):
    """Work that would take days; `early` if hardly anything of it was done."""

    early = True


class GlauberWarning(UserWarning):
    """Something was repaired, left out or replaced: said in one plain sentence."""
