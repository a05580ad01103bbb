"""How are many short rows of mixed length scored at full speed, each row's bits still its own?

Rows of any length lie end to end in one list of PACKED tokens, filled up with dummies, so that
every matrix product has the same shape whatever the rows are; only attention looks at rows one by
one. Nothing is measured per length and no call is small. Whether a row's place in the list matters
on this machine is measured once; where it does, this way is not taken.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from glauber.conditionals.batching import lengths_of
from glauber.conditionals.encoder import Encoder, Layer
from glauber.threads import side_by_side

PACKED = 1024  # tokens of one call
LONGEST = 128  # rows beyond this waste too much of a call
HEAD_ROWS = 64  # rows of one product with the head


class PackedRows:
    """log pi(x_site | the other tokens) of one hidden site per row."""

    def __init__(
        self, encoder: Encoder, read: Callable[[Tensor], Tensor], hidden_token: int
    ) -> None:
        self.encoder = encoder
        self.read = read  # states (HEAD_ROWS, 1, d) -> scores (HEAD_ROWS, 1, vocab)
        self.hidden_token = hidden_token
        self.vocab_size = len(encoder.embeddings.word_embeddings.weight)
        self._places_matter: bool | None = None

    def log_probs(self, tokens: Tensor, sites: Tensor, *, temperature: float = 1.0) -> Tensor:
        """(rows,) float64, for tokens (rows, length up to LONGEST) with PAD behind, sites (rows,).

        The token at the site is the one that is asked about; the model does not see it.
        """
        asked = tokens.gather(1, sites[:, None])
        visible = tokens.scatter(1, sites[:, None], self.hidden_token)
        states = self._states(visible, sites)
        found = side_by_side(
            lambda part: self._at(states[part], asked[part], temperature),
            list(torch.arange(len(tokens)).split(HEAD_ROWS)),
        )
        return torch.cat(found)

    def usable(self) -> bool:
        """Whether a row gives the same bits at any place of a call, on this machine."""
        if self._places_matter is None:
            generator = torch.Generator().manual_seed(0)
            positions = len(self.encoder.embeddings.position_embeddings.weight)
            length = min(23, positions - self.encoder.first_position)
            tokens = torch.randint(self.vocab_size, (PACKED // length, length), generator=generator)
            sites = torch.randint(length, (len(tokens),), generator=generator)
            here = self.log_probs(tokens, sites)
            there = self.log_probs(tokens.flip(0), sites.flip(0)).flip(0)
            few = torch.cat([self.log_probs(tokens[:3], sites[:3]), here[3:]])
            self._places_matter = not (torch.equal(here, there) and torch.equal(here, few))
        return not self._places_matter

    def _at(self, states: Tensor, asked: Tensor, temperature: float) -> Tensor:
        filled = F.pad(states, (0, 0, 0, HEAD_ROWS - len(states)))
        scores = self.read(filled[:, None])[: len(states), 0].double() / temperature
        return scores.gather(1, asked)[:, 0] - scores.logsumexp(dim=1)

    def _states(self, tokens: Tensor, sites: Tensor) -> Tensor:
        """Hidden states (rows, d) of the last layer at the sites."""
        lengths = lengths_of(tokens)
        order = lengths.argsort(stable=True)
        calls = _cut(order, lengths[order].tolist())
        answers = side_by_side(
            lambda rows: self._call(tokens[rows], sites[rows], lengths[rows].tolist()), calls
        )
        states = answers[0].new_empty(len(tokens), answers[0].shape[-1])
        states[torch.cat(calls)] = torch.cat(answers)
        return states

    def _call(self, tokens: Tensor, sites: Tensor, lengths: list[int]) -> Tensor:
        """One call of the encoder: rows in order of length, PACKED tokens at most."""
        runs = [(length, lengths.count(length)) for length in sorted(set(lengths))]
        there = torch.arange(tokens.shape[1]) < torch.tensor(lengths)[:, None]
        begins = torch.tensor([0, *lengths[:-1]]).cumsum(0)
        first, last = self.encoder.layers[0], self.encoder.layers[-1]
        states, together = self._bottom(first, tokens[there], there.nonzero()[:, 1])
        for layer in self.encoder.layers[:-1]:
            if layer is not first:
                together = F.linear(states, *layer.queries_keys_values)
            states = self.encoder.finish(layer, states, self._attend(together, runs))
        return self._last(last, states, begins + sites, runs)

    def _bottom(self, layer: Layer, tokens: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings (PACKED, d) of tokens at places, with queries, keys and values (PACKED, 3 d).

        Here a token knows only itself and its place, and the rows of one text share most of
        theirs, so each pair is worked out once.
        """
        both = F.pad(places * self.vocab_size + tokens, (0, PACKED - len(tokens)))
        distinct, which = both.unique(return_inverse=True)
        filled = F.pad(distinct, (0, -len(distinct) % HEAD_ROWS)).split(HEAD_ROWS)
        blocks = [
            self.encoder.embed_at(part % self.vocab_size, part // self.vocab_size)
            for part in filled
        ]
        together = [F.linear(block, *layer.queries_keys_values) for block in blocks]
        return torch.cat(blocks)[which], torch.cat(together)[which]

    def _attend(self, together: Tensor, runs: list[tuple[int, int]]) -> Tensor:
        """Attention within each row, (PACKED, 3 d) -> (PACKED, d); zeros behind the last row."""
        mixed = together.new_zeros(len(together), together.shape[1] // 3)
        begin = 0
        for length, count in runs:
            end = begin + length * count
            parts = together[begin:end].unflatten(0, (count, length)).chunk(3, dim=-1)
            mixed[begin:end] = self.encoder.attend(*parts).flatten(0, 1)
            begin = end
        return mixed

    def _last(
        self, layer: Layer, states: Tensor, hidden: Tensor, runs: list[tuple[int, int]]
    ) -> Tensor:
        """The last layer at the places hidden (rows,) of states (PACKED, d): (rows, d)."""
        width = states.shape[-1]
        weight, bias = layer.queries_keys_values
        there = _blocks(states[hidden])
        queries = torch.cat([F.linear(block, weight[:width], bias[:width]) for block in there])
        together = F.linear(states, weight[width:], bias[width:])
        mixed, begin, row = [], 0, 0
        for length, count in runs:
            end = begin + length * count
            parts = together[begin:end].unflatten(0, (count, length)).chunk(2, dim=-1)
            mixed.append(self.encoder.attend(queries[row : row + count, None], *parts)[:, 0])
            begin, row = end, row + count
        pairs = zip(there, _blocks(torch.cat(mixed)), strict=True)
        return torch.cat([self.encoder.finish(layer, *pair) for pair in pairs])[: len(hidden)]


def _blocks(rows: Tensor) -> list[Tensor]:
    """The rows in blocks of HEAD_ROWS, the last one filled up with zeros."""
    return list(F.pad(rows, (0, 0, 0, -len(rows) % HEAD_ROWS)).split(HEAD_ROWS))


def _cut(order: Tensor, lengths: list[int]) -> list[Tensor]:
    """The rows in calls of at most PACKED tokens."""
    calls, begin, total = [], 0, 0
    for place, length in enumerate(lengths):
        if total + length > PACKED:
            calls.append(order[begin:place])
            begin, total = place, 0
        total += length
    return [*calls, order[begin:]]
