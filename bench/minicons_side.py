"""What does minicons say of these texts? Run by bench.pseudo_likelihood in minicons' environment.

Reads one JSON object per line, {"metric", "batch_size"}, and answers each with one line,
{"seconds", "totals"}. The first line of all is {"model", "threads", "texts"}.
"""

import json
import sys
import time

import torch
from minicons.scorer import MaskedLMScorer

first = json.loads(sys.stdin.readline())
torch.set_num_threads(first["threads"])
scorer = MaskedLMScorer(first["model"], "cpu")
texts = first["texts"]
for line in sys.stdin:
    asked = json.loads(line)
    size, totals = asked["batch_size"], []
    begun = time.perf_counter()
    for i in range(0, len(texts), size):
        totals += scorer.sequence_score(
            texts[i : i + size], reduction=lambda x: x.sum(0).item(), PLL_metric=asked["metric"]
        )
    answer = {"seconds": time.perf_counter() - begun, "totals": totals}
    print(json.dumps(answer), flush=True)
