"""Where did a run's chains get stuck, in which texts, and for how long?"""

from typing import Any

# Paper A: 30 chains of 10,000 steps. The longest is a row of fifteen periods.
PUBLISHED: dict[str, Any] = {
    "chains": 30,
    "steps": 10_000,
    "traps": 17,
    "perfect": 4,
    "mean_duration": 671,
    "shortest": 150,
    "longest": 4950,
    "better_predictor": "mean gap",
    "fifteen_periods": {"mean_gap": 9.14, "min_gap": 7.46, "duration": 4950},
}
