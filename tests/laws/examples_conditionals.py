"""A small call of each public study of the conditionals."""

import glauber

EXAMPLES = {"models": lambda at: glauber.models()}
