"""Many rows with one hidden site each, on a CPU: packed end to end.

That is what a pseudo-log-likelihood needs: each token of each text hidden in turn. Rows lie end to
end in calls of a fixed number of tokens, so that matrix products have few shapes and no row is
padded; only attention, and what else depends on places, looks at rows one by one.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from glauber.foundation.threads import side_by_side
from glauber.models.batching import lengths_of
from glauber.models.forward.description import Layer
from glauber.models.forward.encoder import PRODUCTS, Encoder, normalise

PACKED = 1024  # tokens of one packed call
SHORT = 128  # rows up to this length share calls with rows of other lengths
LONGEST = 1024  # rows beyond this are not packed
BLOCK = 64  # rows of one product with the head or the bottom; calls of long rows are multiples


class PackedRows:
    """log pi(x_site | the other tokens) of one hidden site per row.

    Rows of up to SHORT tokens and of any length fill calls of PACKED tokens; a longer one goes
    with others of its length, in a call that is a little longer than they are. What is left is
    filled up with dummies, so the shape of every matrix product follows from the row's own length.
    Whether a row's place in a call matters on this machine is measured once for each such shape;
    where it does, this way is not taken.
    """

    def __init__(
        self, encoder: Encoder, read: Callable[[Tensor], Tensor], hidden_token: int
    ) -> None:
        self.encoder = encoder
        self.read = read  # states (BLOCK, 1, d) -> scores (BLOCK, 1, vocab)
        self.hidden_token = hidden_token
        self.vocab_size = len(encoder.described.embedding.words)
        self._usable: dict[int, bool] = {}  # by the tokens of a call

    @property
    def work(self) -> int:
        """Multiplications of one token on its way through the layers, attention apart."""
        return sum(
            getattr(layer, product).weight.numel()
            for layer in self.encoder.layers
            for product in PRODUCTS
        )

    def log_probs(self, tokens: Tensor, sites: Tensor, *, temperature: float = 1.0) -> Tensor:
        """(rows,) float64, for tokens (rows, length up to LONGEST), PAD at the end, sites (rows,).

        The token at the site is the one that is asked about; the model does not see it.
        """

        def log_prob(scores: Tensor, token: Tensor) -> Tensor:
            scores = scores / temperature
            return scores.gather(1, token)[:, 0] - scores.logsumexp(dim=1)

        return self._read_at(tokens, sites, log_prob)

    def likeliest(self, tokens: Tensor, sites: Tensor) -> Tensor:
        """Whether no token is likelier at the site than the one that is asked about, (rows,)."""
        return self._read_at(
            tokens, sites, lambda scores, token: scores.gather(1, token)[:, 0] >= scores.amax(dim=1)
        )

    def _read_at(
        self, tokens: Tensor, sites: Tensor, read: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        """What is read (rows,) from the scores (some rows, vocab) and the tokens at the sites."""
        current = tokens.gather(1, sites[:, None])
        visible = tokens.scatter(1, sites[:, None], self.hidden_token)
        states = self._states(visible, sites)
        answers = side_by_side(
            lambda rows: read(self._scores(states[rows]), current[rows]),
            list(torch.arange(len(tokens)).split(BLOCK)),
        )
        return torch.cat(answers)

    def takes(self, lengths: Tensor) -> Tensor:
        """Which rows of these lengths (rows,) may be packed, on this machine: (rows,) bool."""
        packs = torch.zeros_like(lengths, dtype=torch.bool)
        for length in lengths.unique().tolist():
            if length <= LONGEST:
                packs[lengths == length] = self.usable(length)
        return packs

    def usable(self, length: int = 1) -> bool:
        """Whether rows of that length give the same bits at any place of a call, on this machine.

        Of the short lengths, which share their calls, two are tried.
        """
        room = _room(length)
        if room not in self._usable:
            longest = self.encoder.described.places
            tried = [length] if length > SHORT else [min(23, longest), min(57, longest)]
            self._usable[room] = self._measure(tried, room)
        return self._usable[room]

    def _measure(self, lengths: list[int], room: int) -> bool:
        generator = torch.Generator().manual_seed(0)
        each = max(1, room // sum(lengths))
        tokens = torch.randint(
            self.vocab_size, (each * len(lengths), max(lengths)), generator=generator
        )
        of_rows = torch.tensor(lengths).repeat(each)[:, None]
        tokens = tokens.masked_fill(torch.arange(max(lengths)) >= of_rows, -1)
        sites = torch.randint(min(lengths), (len(tokens),), generator=generator)
        expected = self.log_probs(tokens, sites)
        flipped = self.log_probs(tokens.flip(0), sites.flip(0)).flip(0)
        few = self.log_probs(tokens[-3:], sites[-3:])
        return torch.equal(expected, flipped) and torch.equal(expected[-3:], few)

    def _scores(self, states: Tensor) -> Tensor:
        """The head on states (up to BLOCK rows, d): (rows, vocab) float64."""
        filled = F.pad(states, (0, 0, 0, BLOCK - len(states)))
        return self.read(filled[:, None])[: len(states), 0].double()

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
        """One call of the encoder: rows in order of length, all that fit it."""
        runs = [(length, lengths.count(length)) for length in sorted(set(lengths))]
        *layers, last = self.encoder.layers
        states, projected = self._bottom(self.encoder.layers[0], tokens, lengths)
        for number, layer in enumerate(layers):
            if number:
                projected = self.encoder.queries_keys_values(layer, states)
            states = self.encoder.finish(layer, states, self._attend(layer, projected, runs))
        return self._last(last, states, sites, runs)

    def _bottom(
        self, layer: Layer, tokens: Tensor, lengths: list[int]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Embeddings (room, d) of all tokens, and their queries, keys and values.

        Here a token knows only itself and, in some models, its place or the hidden share of its
        row. The rows of one text have most of that in common, so each is worked out once.
        """
        table = self.encoder.described.embedding
        is_text = torch.arange(tokens.shape[1]) < torch.tensor(lengths)[:, None]
        row, place_of_token = is_text.nonzero(as_tuple=True)
        shares, of_row = self._shares(tokens, lengths)
        n_places = 1 if table.places is None else tokens.shape[1]
        known = (of_row[row] * n_places + place_of_token % n_places) * self.vocab_size
        known = known + tokens[is_text]
        filled = F.pad(known, (0, _room(lengths[-1]) - len(known)), value=int(known[0]))
        distinct, which = filled.unique(return_inverse=True)
        blocks = []
        for block in F.pad(distinct, (0, -len(distinct) % BLOCK), value=int(known[0])).split(BLOCK):
            first, token = block // self.vocab_size, block % self.vocab_size
            states = self.encoder.embed_at(token, first % n_places, shares[first // n_places])
            blocks.append((states, *self.encoder.queries_keys_values(layer, states)))
        states, *projected = (torch.cat(column)[which] for column in zip(*blocks, strict=True))
        return states, tuple(projected)

    def _shares(self, tokens: Tensor, lengths: list[int]) -> tuple[Tensor, Tensor]:
        """The distinct hidden shares of rows, and which of them is each row's (rows,).

        Of models that do not ask for it, one for all.
        """
        if self.encoder.described.embedding.hidden_token is None:
            return torch.zeros(1), torch.zeros(len(tokens), dtype=torch.int64)
        hidden = (tokens == self.hidden_token).sum(dim=1)
        shares, of_row = (hidden / torch.tensor(lengths)).unique(return_inverse=True)
        return shares, of_row

    def _attend(
        self,
        layer: Layer,
        projected: tuple[Tensor, ...],
        runs: list[tuple[int, int]],
        sites: Tensor | None = None,
    ) -> Tensor:
        """Attention within each row, with queries at every place (room, d) -> (room, d).

        With sites (rows,) the queries are those of one site per row: (rows, d) -> (rows, d).
        Zeros follow the last row.
        """
        queries, keys, values = projected
        mixed = torch.zeros_like(queries, memory_format=torch.contiguous_format)
        begin = row = 0
        for length, count in runs:
            here, rows = slice(begin, begin + length * count), slice(row, row + count)
            asking = here if sites is None else rows
            attended = self.encoder.attend(
                layer,
                queries[asking].unflatten(0, (count, -1)),
                keys[here].unflatten(0, (count, length)),
                values[here].unflatten(0, (count, length)),
                sites=None if sites is None else sites[rows, None],
            )
            mixed[asking] = attended.flatten(0, 1)
            begin, row = here.stop, rows.stop
        return mixed

    def _last(
        self, layer: Layer, states: Tensor, sites: Tensor, runs: list[tuple[int, int]]
    ) -> Tensor:
        """The last layer at the sites (rows,) of states (room, d), and the norm after it."""
        width = states.shape[-1]
        lengths = torch.tensor([length for length, count in runs for _ in range(count)])
        at_sites = _blocks(states[lengths.cumsum(0) - lengths + sites])
        product = layer.queries_keys_values
        query, others = product.rows(0, width), product.rows(width, 3 * width)
        queries = torch.cat([query(normalise(layer.norm_before, block)) for block in at_sites])
        keys, values = others(normalise(layer.norm_before, states)).chunk(2, dim=-1)
        projected = normalise(layer.norm_queries, queries), normalise(layer.norm_keys, keys), values
        mixed = _blocks(self._attend(layer, projected, runs, sites))
        pairs = zip(at_sites, mixed, strict=True)
        last = torch.cat([self.encoder.finish(layer, *pair) for pair in pairs])
        return normalise(self.encoder.described.norm, last)[: len(sites)]


def _blocks(rows: Tensor) -> list[Tensor]:
    """The rows in blocks of BLOCK, the last one filled up with zeros."""
    return list(F.pad(rows, (0, 0, 0, -len(rows) % BLOCK)).split(BLOCK))


def _room(length: int) -> int:
    """Tokens of a call with rows of that length."""
    if length <= SHORT:
        return PACKED
    return -(-max(1, PACKED // length) * length // BLOCK) * BLOCK


def _cut(order: Tensor, lengths: list[int]) -> list[Tensor]:
    """The rows in calls that have room for them; long ones only with others of their length."""
    calls, begin, total = [], 0, 0
    for index, length in enumerate(lengths):
        apart = index > 0 and length > SHORT and length != lengths[index - 1]
        if apart or total + length > _room(length):
            calls.append(order[begin:index])
            begin, total = index, 0
        total += length
    return [*calls, order[begin:]]
