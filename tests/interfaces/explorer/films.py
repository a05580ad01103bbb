"""Films as a page plays them: columns decoded, states put together frame by frame."""

import base64
import gzip

import numpy as np


def numbers(column):
    """The values of a column, of a saved page's too."""
    packed = column.get("gzip")
    raw = base64.b64decode(packed or column["data"])
    return np.frombuffer(gzip.decompress(raw) if packed else raw, np.dtype(column["dtype"]))


def states(film):
    """Of each chain the tokens (1 + count, sites) and log-probabilities (1 + count, sites)."""
    found = []
    frame, chain = numbers(film["frame"]), numbers(film["chain"])
    assert (np.diff(frame) >= 0).all() and (frame >= 1).all() and (frame <= film["count"]).all()
    for number, begin in enumerate(film["begin"]):
        tokens = np.tile(np.array(begin), (1 + film["count"], 1))
        sure = np.tile(numbers(film["begin_log_prob"][number]), (1 + film["count"], 1))
        for event in np.flatnonzero(chain == number):
            at, site = frame[event], numbers(film["site"])[event]
            tokens[at:, site] = numbers(film["token"])[event]
            sure[at:, site] = numbers(film["log_prob"])[event]
        found.append((tokens, sure))
    return found


def played(living, trails, first, last, count=40):
    """The tokens (1 + last - first, sites) of each trail, asked for in films of so many frames."""
    source, parts, at = {"trails": trails}, [], first
    while True:
        film = living.film(source, at, min(count, last - at))
        if "replayed" in film:
            assert film["count"] == 0
            continue
        assert film["first"] == at
        parts.append([tokens for tokens, _ in states(film)])
        at += film["count"]
        if at == last:
            break
    rows = []
    for number in range(len(trails)):
        whole = [part[number][1:] for part in parts]
        rows.append(np.concatenate([parts[0][number][:1], *whole]))
    return rows
