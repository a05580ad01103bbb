"""How was the small English masked LM that ships with glauber made?

Four steps, each a file here: a smaller vocabulary, training, a mean of the weights before and
after, figures on held-out text.

    python -m recipes.english_mlm prepare --data english --init english-mlm --out english-init
    python -m recipes.english_mlm train --data english --init english-init --out english-small
    python -m recipes.english_mlm average --init english-init --trained english-small --out english
    python -m recipes.english_mlm evaluate --data english --models english-mlm english

`--data` is a folder of *.txt.xz, one passage per line; files with "valid" or "test" in their
name are never trained on. Training wants one GPU and takes `--seconds` after start-up.
Needs torch, transformers, tokenizers, safetensors and numpy, nothing else.
"""
