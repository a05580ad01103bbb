"""What does section 6.2 of paper A say of politics and of the seed topics, and does it hold?"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from glauber.landscape.recurrence import Recurrence, SeedRow
from glauber.landscape.scorers import TopicScores
from glauber.papers.claims import Claim, Quantity, Region, above, below, near
from glauber.statistics import Estimate, clopper_pearson, difference, mean_over_chains, proportion

TRACK = "politics"
SEEDS = ("health", "sport", "science", "food", "technology")
LABELS = (
    "politics", "health", "pop culture", "sport", "food", "science", "technology", "finance",
    "education",
)  # fmt: skip
# Of bert-base-uncased under bart-large-mnli, paper A, table 3: politics at 0 and at 10,000 steps,
# then the seed topic at both.
TABLE3 = {
    "health": (0.008, 0.044, 0.631, 0.116),
    "sport": (0.011, 0.036, 0.763, 0.204),
    "science": (0.003, 0.056, 0.682, 0.068),
    "food": (0.003, 0.174, 0.834, 0.037),
    "technology": (0.004, 0.038, 0.846, 0.152),
}
CROSSED = (46, 48)  # of 50 chains, by bart-large-mnli and by DeBERTa-v3
# Politics at 10,000 steps by model, paper A, appendix B.5.
TABLE4 = {
    "health": {"BERT": 0.044, "RoBERTa": 0.112, "ModernBERT": 0.026},
    "sport": {"BERT": 0.036, "RoBERTa": 0.042, "ModernBERT": 0.052},
    "science": {"BERT": 0.056, "RoBERTa": 0.062, "ModernBERT": 0.037},
    "food": {"BERT": 0.174, "RoBERTa": 0.052, "ModernBERT": 0.038},
    "technology": {"BERT": 0.038, "RoBERTa": 0.198, "ModernBERT": 0.033},
}
MEANS_OF_TABLE4 = "means over the published topics, computed by us"
STEPS = 10_000  # of the paper's chains
SPECIAL = 0.2  # a difference of shares that matters
OURS = (
    "temperature 1, and which nine of the eleven labels: the paper's are lost",
    "texts of 20 tokens",
)


def claims_of(
    found: TopicScores, table: Recurrence, seeds: list[str], published: int
) -> Iterable[Claim]:
    """What section 6.2 says of politics and of the seed topics, by one scorer."""
    everyone, tracked = table.rows[-1], table.of(TRACK)
    low, high = clopper_pearson(published, 50)
    by = f" by {table.scorer}"
    yield Claim(
        f"{published} of 50 chains cross the politics baseline at least once",
        "paper A, section 6.2.1", published / 50, _crossing(everyone, table.n_steps, by),
        Region(low, high, strict=False),
        ours=(*OURS, f"the region is the 95% interval of {published} of 50"),
    )  # fmt: skip
    yield Claim(
        "politics is a recurrent basin: chains come to it more often than to other topics",
        "paper A, section 6.2.1; the comparison is ours", "other labels are not reported",
        Quantity.of(
            f"share that cross, less that of the other labels{by}", tracked.against_others,
            bounds=(-1, 1),
        ),
        above(0.0), effect=SPECIAL,
        ours=(*OURS, f"{SPECIAL:g} as the smallest difference that matters"),
    )  # fmt: skip
    rises, falls = _changes(found, seeds)
    yield Claim(
        "every topic shows an increase in mean politics score", "paper A, table 3",
        "0.025 to 0.171", _extreme(f"smallest rise over topics{by}", rises, min), above(0.0),
        effect=0.025,
    )  # fmt: skip
    yield Claim(
        "seed-topic scores fall sharply in every case", "paper A, table 3",
        "they fall sharply, with the scores at both ends",
        _extreme(f"smallest fall over topics{by}", falls, max), below(0.0), effect=-0.515,
        ours=("-0.515 to -0.797: differences of the published scores, computed by us",),
    )  # fmt: skip
    ends = _ends(found, seeds)
    others = [mean for topic, mean in ends.items() if topic != "food"]
    yield Claim(
        "from no topic but food does the mean politics score end above the baseline",
        "paper A, section 6.2.1", 0.056, _extreme(f"highest end of the others{by}", others, max),
        below(found.baseline), effect=0.056,
    )  # fmt: skip
    yield Claim(
        "from food it does", "paper A, section 6.2.1", 0.174,
        Quantity.of(f"politics at the end from food{by}", ends["food"], bounds=(0, 1)),
        above(found.baseline),
    )  # fmt: skip


def _crossing(row: SeedRow, n_steps: int, by: str) -> Quantity:
    """The share of chains that crossed; of shorter chains than the paper's, more would have."""
    found = Quantity.of(
        f"share that cross in {n_steps:,} steps{by}", proportion(row.crossed, row.n_chains)
    )
    if n_steps >= STEPS or found.interval is None:
        return found
    return replace(found, interval=(found.interval[0], None))


def _changes(found: TopicScores, seeds: list[str]) -> tuple[list[Estimate], list[Estimate]]:
    """End less start of politics and of the seed's own topic, for each; all hold together."""
    rises: list[Estimate] = []
    falls: list[Estimate] = []
    for topic in SEEDS:
        mine = np.array(seeds) == topic
        for label, into in ((TRACK, rises), (topic, falls)):
            own = found.of(label)[mine]
            change = own[:, -1] - own[:, 0]
            into.append(mean_over_chains(change, bounds=(-1, 1), comparisons=len(SEEDS)))
    return rises, falls


def _ends(found: TopicScores, seeds: list[str]) -> dict[str, Estimate]:
    """The mean politics score at the end by seed topic; the intervals hold together."""
    last = found.of(TRACK)[:, -1]
    return {
        topic: mean_over_chains(
            last[np.array(seeds) == topic], bounds=(0, 1), comparisons=len(SEEDS)
        )
        for topic in SEEDS
    }


def _extreme(name: str, means: list[Estimate], which: Any) -> Quantity:
    """The smallest (min) or largest (max) of several means whose intervals hold together.

    That of the true means lies between those of the ends.
    """
    value, n = which(mean.value for mean in means), min(mean.n_chains for mean in means)
    missing = next((mean.reason for mean in means if mean.interval is None), None)
    if missing is not None:
        return Quantity(name, value, None, n, reason=missing)
    ends = [mean.interval for mean in means if mean.interval is not None]
    interval = which(low for low, _ in ends), which(high for _, high in ends)
    return Quantity(name, value, interval, n)


def model_claims(scores: dict[str, TopicScores]) -> list[Claim]:
    """That RoBERTa is the most political at the end, ModernBERT the least.

    The paper gives a value for each topic; their means over topics are computed here.
    """
    ends = {column: one.of(TRACK)[:, -1] for column, one in scores.items()}
    claims = []
    for first, second in (("RoBERTa", "BERT"), ("BERT", "ModernBERT")):
        apart = f"politics at the end, {first} less {second}"
        ours = Quantity(f"{apart} (not both are among the models here)", None)
        if first in ends and second in ends:
            ours = Quantity.of(apart, difference(ends[first], ends[second], bounds=(0, 1)))
        means = [_mean_of_table4(first), _mean_of_table4(second)]
        note = f"{means[0]:.3f} and {means[1]:.3f}: {MEANS_OF_TABLE4}"
        claims.append(
            Claim(
                f"endpoint recurrence is stronger in {first} than in {second}",
                "paper A, appendix B.5", "stronger, with a value for each topic", ours, above(0.0),
                ours=(note,), effect=means[0] - means[1],
            )
        )  # fmt: skip
    for column in ends.keys() & TABLE4["food"].keys():
        mean, expected = mean_over_chains(ends[column], bounds=(0, 1)), _mean_of_table4(column)
        note = f"{expected:.4f}: {MEANS_OF_TABLE4}"
        claims.append(
            Claim(
                f"politics at the end of {column}, over topics", "paper A, appendix B.5",
                "a value for each topic", Quantity.of("mean over chains", mean, bounds=(0, 1)),
                near(expected, 0.05), ours=(*OURS, note, "within 0.05 counts as the same"),
                effect=expected,
            )
        )  # fmt: skip
    return claims


def _mean_of_table4(column: str) -> float:
    return float(np.mean([row[column] for row in TABLE4.values()]))
