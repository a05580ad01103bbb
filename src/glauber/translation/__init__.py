"""Can a sentence be translated all at once and refined, instead of word by word?

Paper B, PaDIR: an encoder-decoder without causal mask that predicts every position in each of a few
passes, beside the autoregressive model that it is measured against.
"""
