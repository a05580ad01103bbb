"""What does PyDTMC say of this matrix? Run by bench.exact in PyDTMC's environment."""

import json
import sys
import time
from pathlib import Path

import numpy as np
from pydtmc import MarkovChain

folder = Path(sys.argv[1])
matrix = np.load(folder / "matrix.npy")
MarkovChain([[0.5, 0.5], [0.5, 0.5]])  # what is loaded on first use is not counted
begun = time.perf_counter()
chain = MarkovChain(matrix)
gap = chain.spectral_gap
mixing_time = chain.mixing_time()
seconds = time.perf_counter() - begun
np.save(folder / "law.npy", chain.pi[0])
print(json.dumps({"seconds": seconds, "gap": gap, "mixing_time": mixing_time}))
