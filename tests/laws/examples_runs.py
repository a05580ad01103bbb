"""Small calls of the studies that make, read and hand on runs."""

import glauber


def _sweep(at):
    return glauber.sweeps.sample(
        at.model.name, at.texts, out=at.folder / "sweep", temperatures=[0.5, 2], lengths=[4],
        chains=2, steps=6, device="cpu",
    )  # fmt: skip


EXAMPLES = {
    "sample": lambda at: glauber.sample(
        at.model, at.texts, steps=12, length=6, temperature=[0.5, 1, 1.5, 2], out=at.folder / "run"
    ),
    "resume": lambda at: glauber.resume(at.run),
    "extend": lambda at: glauber.extend(
        glauber.sample(at.model, at.texts[:2], steps=5, out=at.folder / "run"), steps=9
    ),
    "show": lambda at: glauber.show(at.run, rows=4),
    "export": lambda at: glauber.export(at.run, to="text", out=at.folder / "texts.txt"),
    "verify": lambda at: glauber.verify(at.run),
    "repair": lambda at: glauber.repair(
        glauber.sample(at.model, at.texts[:2], steps=5, out=at.folder / "run")
    ),
    "cite": lambda at: glauber.cite(at.run),
    "sweeps.sample": _sweep,
    "sweeps.status": lambda at: glauber.sweeps.status(_sweep(at).sweep),
    "sweeps.resume": lambda at: glauber.sweeps.resume(_sweep(at).sweep),
}
