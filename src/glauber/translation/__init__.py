"""Translation of a sentence in a few parallel passes (paper B, PaDIR).

An encoder-decoder without causal mask that predicts every position in each pass, and the
autoregressive model that it is compared with.
"""
