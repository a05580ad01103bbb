"""A small call of the study that looks at the machine."""

import glauber

EXAMPLES = {
    "doctor": lambda at: glauber.doctor(quick=True),
}
