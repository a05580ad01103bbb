"""Which chains stand behind tables 3 and 4 of paper A, at both scales?

The paper scores nine labels and names eleven; here they are the first nine of its list. Its
temperature is lost from our text; it is 1 here. The starts are passages that no scorer was
calibrated on.
"""

from dataclasses import dataclass

from glauber.landscape.labelled import held_out_passages
from glauber.landscape.scorers import SIMILARITY
from glauber.papers.reproduction import Scale
from glauber.runs.run import Run
from glauber.sampling.sample import sample

TRACK = "politics"
SEEDS = ("health", "sport", "science", "food", "technology")
LABELS = (
    "politics", "health", "pop culture", "sport", "food", "science", "technology", "finance",
    "education",
)  # fmt: skip
EACH = 10  # chains of each seed topic
LENGTH = 20


@dataclass(frozen=True)
class Conditions:
    """One scale's models, scorers and sizes."""

    models: dict[str, str]  # a model by the name of its column
    scorers: tuple[str, ...]
    steps: int
    every: int


CONDITIONS: dict[Scale, Conditions] = {
    "small": Conditions({"bundled": "bundled:english"}, (SIMILARITY,), steps=300, every=10),
    "paper": Conditions(
        {
            "BERT": "bert-base-uncased",
            "RoBERTa": "roberta-base",
            "ModernBERT": "answerdotai/ModernBERT-base",
        },
        ("facebook/bart-large-mnli", "MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli"),
        steps=10_000,
        every=200,
    ),
}
# Of bert-base-uncased under bart-large-mnli, paper A, table 3: politics at 0 and at 10,000 steps,
# then the seed topic at both.
PUBLISHED = {
    "health": (0.008, 0.044, 0.631, 0.116),
    "sport": (0.011, 0.036, 0.763, 0.204),
    "science": (0.003, 0.056, 0.682, 0.068),
    "food": (0.003, 0.174, 0.834, 0.037),
    "technology": (0.004, 0.038, 0.846, 0.152),
}
CROSSED = "46 of 50 with bart-large-mnli, 48 of 50 with DeBERTa-v3"
# Politics at 10,000 steps by model, paper A, appendix B.5.
BY_MODEL = {
    "health": {"BERT": 0.044, "RoBERTa": 0.112, "ModernBERT": 0.026},
    "sport": {"BERT": 0.036, "RoBERTa": 0.042, "ModernBERT": 0.052},
    "science": {"BERT": 0.056, "RoBERTa": 0.062, "ModernBERT": 0.037},
    "food": {"BERT": 0.174, "RoBERTa": 0.052, "ModernBERT": 0.038},
    "technology": {"BERT": 0.038, "RoBERTa": 0.198, "ModernBERT": 0.033},
}


def how(found: Conditions) -> str:
    """The protocol in one sentence."""
    return (
        f"{len(SEEDS)} topics x {EACH} bundled passages of {LENGTH} tokens (the paper: MS MARCO) "
        f"at temperature 1, {found.steps:,} steps (the paper: 10,000), a look every "
        f"{found.every}, {len(LABELS)} labels"
    )


def seeds() -> list[str]:
    """The topic of each chain's start."""
    return [topic for topic in SEEDS for _ in range(EACH)]


def topic_run(model: str, found: Conditions, *, seed: int) -> Run:
    """All chains of one model, as one run."""
    by_topic = {topic: [each.text for each in held_out_passages() if each.label == topic][:EACH]
                for topic in SEEDS}  # fmt: skip
    texts = [text for topic in SEEDS for text in by_topic[topic]]
    return sample(model, texts, steps=found.steps, length=LENGTH, seed=seed)
