"""A masked model as a model of lm-evaluation-harness.

A masked model has no log p(continuation | context), which the harness asks for; it has these:

pll          sum over the continuation's tokens of log pi(token | all others), each hidden alone and
             the context visible. Exact up to rounding, and not the logarithm of a distribution.
within-word  the same with the later pieces of a token's word hidden too.
bound        a lower bound on log p(continuation | context), where p writes the tokens of the
             continuation in a random order (masked diffusion): exact for up to five tokens, else
             an estimate.
exact        of an autoregressive model: log p itself, from left to right.

They are computed by the functions that `glauber.score(model, texts, given=contexts)` calls, so that
the numbers are the same.
"""

import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.utils import simple_parse_args_string
from torch import Tensor

from glauber.dynamics.unmasking import Unmasking
from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.foundation.progress import Advance, check_count, check_seed, say, track
from glauber.foundation.study import counted, model_parts, one_of, signature
from glauber.models.base import PAD, Conditionals, Model, mask_token_of
from glauber.models.causal_lm import CausalLM
from glauber.models.load import load
from glauber.sampling.generate import plan_generation, rows_of, write
from glauber.studies.compatibility.likelihood_bound import (
    SAMPLES,
    random_order_likelihoods,
    row_count,
)
from glauber.studies.compatibility.pseudo_likelihood import likeliest, pseudo_likelihood
from glauber.texts.continuations import (
    Continuation,
    cut_contexts,
    keys_of,
    laid_out,
    read_continuations,
    room,
    windows,
    words_of,
)

SCORES = {
    "pll": "pseudo-log-likelihood, each token hidden alone: exact up to rounding, and no "
    "log-likelihood",
    "within-word": "pseudo-log-likelihood, each token hidden with the later pieces of its word: "
    "exact up to rounding, and no log-likelihood",
    "bound": "lower bound on the log-likelihood of writing in a random order: exact for up to five "
    "tokens, else an estimate with a standard error",
    "exact": "log-likelihood from left to right, exact up to rounding",
}
GREEDY = (
    "each token is the likeliest one where it and all later ones of the continuation are hidden: "
    "filling from left to right with the likeliest token writes the continuation"
)
BATCH = 512  # texts in one pass, by default


@dataclass(frozen=True)
class Answer:
    """The score of one text after its context, in nats."""

    value: float
    kind: str  # exact or estimate
    standard_error: float | None  # of an estimate
    tokens: int  # that were scored
    greedy: bool


def sum_answers(answers: Sequence[Answer]) -> Answer:
    """The sum over parts of one text, whose errors are independent."""
    errors = [part.standard_error for part in answers if part.standard_error is not None]
    return Answer(
        sum(part.value for part in answers),
        "estimate" if any(part.kind == "estimate" for part in answers) else "exact",
        math.hypot(*errors) if errors else None,
        sum(part.tokens for part in answers),
        all(part.greedy for part in answers),
    )


NOTHING = Answer(0.0, "exact", None, 0, True)  # a text without tokens has probability 1


@dataclass(frozen=True)
class ContinuationScorer:
    """A score of a model; the answers depend on each text alone."""

    model: Model
    name: str  # of SCORES
    samples: int = SAMPLES
    seed: int = 0
    batch_size: int | None = None

    def __call__(
        self, continuations: Sequence[Continuation], *, whole_texts: bool = False
    ) -> list[Answer]:
        """The answer of each, in batches of similar length.

        Whole texts are averaged over and not compared: their noise is independent, and whether
        they are greedy is not computed.
        """
        n = len(continuations)
        if empty := sum(not text.own for text in continuations):
            message = f"{empty} of {counted(n, 'text')} without tokens: the score is 0."
            warnings.warn(message, GlauberWarning, stacklevel=3)
        order = [number for number, text in enumerate(continuations) if text.own]
        order.sort(key=lambda number: len(continuations[number].pieces))
        answers = dict.fromkeys(range(n), NOTHING)
        rows = sum(self._rows(continuations[number]) for number in order)
        size = self.batch_size or BATCH
        say(f"{counted(len(order), 'text')}: {rows:,} rows through {self.model.name}")
        with track("rows", rows) as advance:
            for first in range(0, len(order), size):
                numbers = order[first : first + size]
                batch = [continuations[number] for number in numbers]
                answers |= zip(numbers, self._batch(batch, whole_texts, advance), strict=True)
        return [answers[number] for number in range(n)]

    def _rows(self, text: Continuation) -> int:
        """Rows through the model that the score takes."""
        if self.name == "bound":
            free = torch.ones(1, len(text.own), dtype=torch.bool)
            return row_count(free, samples=self.samples, orders=0)
        return 1 if self.name == "exact" else len(text.own)

    def _batch(
        self, texts: list[Continuation], whole_texts: bool, advance: Advance
    ) -> Iterator[Answer]:
        """The answers of texts that go through the model together."""
        tokens, free = laid_out(self.model, texts)
        if self.name == "exact":
            yield from self._exact(tokens, free)
            advance(len(texts))
            return
        greedy = [False] * len(texts) if whole_texts else is_greedy(self.model, tokens, free)
        if self.name == "bound":
            keys = keys_of(texts, of="texts" if whole_texts else "contexts")
            scores = self._bounds(keys, tokens, free, advance)
        else:
            scores = self._pseudo(texts, tokens, free, advance)
        for (value, error, kind), scored, best in zip(scores, free, greedy, strict=True):
            yield Answer(value, kind, error, int(scored.sum()), best)

    def _pseudo(
        self, texts: list[Continuation], tokens: Tensor, free: Tensor, advance: Advance
    ) -> Iterator[tuple[float, float | None, str]]:
        word_numbers = words_of(self.model, texts, free) if self.name == "within-word" else None
        log_probs = pseudo_likelihood(self.model, tokens, free, words=word_numbers, advance=advance)
        for row, scored in zip(log_probs, free, strict=True):
            yield sum(row[scored].tolist()), None, "exact"

    def _bounds(
        self, keys: Tensor, tokens: Tensor, free: Tensor, advance: Advance
    ) -> Iterator[tuple[float, float | None, str]]:
        likelihoods = random_order_likelihoods(
            self.model,
            tokens,
            free,
            samples=self.samples,
            orders=0,
            seed=self.seed,
            keys=keys,
            advance=advance,
        )
        for likelihood in likelihoods:
            bound = likelihood.bound
            yield -bound.value, bound.standard_error, bound.kind

    def _exact(self, tokens: Tensor, free: Tensor) -> Iterator[Answer]:
        assert isinstance(self.model, CausalLM)  # others have no exact score
        log_probs, best = self.model.token_log_probs(tokens)
        for each, largest, scored in zip(log_probs, best, free, strict=True):
            if bool(each[scored].isnan().any()):
                raise GlauberError(
                    f"{self.model.name} has no opening token: a text without a context has no "
                    "likelihood."
                )
            greedy = bool(largest[scored].all())
            yield Answer(sum(each[scored].tolist()), "exact", None, int(scored.sum()), greedy)


def is_greedy(model: Conditionals, tokens: Tensor, free: Tensor) -> list[bool]:
    """Whether filling the free sites from left to right with the likeliest token writes the text.

    tokens and free (rows, length). Site after site, as long as the text is the one written.
    """
    column = torch.arange(free.shape[1])
    n = free.sum(dim=1)
    sites = (~free).long().argsort(dim=1, stable=True).masked_fill(column >= n[:, None], PAD)
    greedy = torch.ones(len(tokens), dtype=torch.bool)
    for number in range(int(n.max())):
        rows = (greedy & (n > number)).nonzero()[:, 0]
        if len(rows):
            greedy[rows] = likeliest(model, tokens, rows, sites[rows, number : int(n.max())])
    return greedy.tolist()


def choose_score(model: Model, name: str) -> str:
    """The score of that name, if the model has it; auto: pll or exact."""
    causal = isinstance(model, CausalLM)
    if not causal and not model.whole_vocabulary:
        raise GlauberError(f"{model.name} does not score the whole vocabulary at a hidden site.")
    chosen = ("exact" if causal else "pll") if name == "auto" else name
    if causal and chosen != "exact":
        raise GlauberError(
            f"{model.name} is autoregressive: its log-likelihood is exact, and {name} is for "
            "masked models."
        )
    if chosen == "exact" and not causal:
        raise GlauberError(
            f"{model.name} is masked and has no exact log-likelihood: take pll, within-word or "
            "bound."
        )
    return chosen


LOG = logging.getLogger("lm_eval.models.glauber")  # lm_eval's own, which shows it
ORDERS = ("left-to-right", "confidence", "margin", "entropy")  # in which nothing is drawn
MAX_NEW_TOKENS = 64  # where neither a task nor the user gives a number
Response = TypeVar("Response")


class HarnessLM(LM):  # type: ignore[misc]
    """A masked, diffusion or autoregressive model for `lm_eval.simple_evaluate(model=…)`.

    pretrained  a name, a folder, or an object, as `glauber.load` takes it
    score       pll, within-word or bound; exact for an autoregressive model; auto: pll, or exact
    samples     of the bound: pairs of random hidden sets a text, two rows each
    seed        of the bound; its noise depends on the context (of whole texts, on the text) alone
    order       in which `generate_until` fills: left-to-right, confidence, margin or entropy
    batch_size  requests in one pass; changes nothing else
    answers     of the last call of each kind, request by request, with standard errors
    """

    def __init__(
        self,
        pretrained: str | Conditionals = "bundled:english",
        *,
        score: str = "auto",
        samples: int = SAMPLES,
        seed: int = 0,
        order: str = "left-to-right",
        max_gen_toks: int = MAX_NEW_TOKENS,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        device: str = "auto",
        dtype: str = "float32",
        trust_remote_code: bool = False,
        mask_token: str | int | None = None,
    ) -> None:
        super().__init__()
        one_of("the score", score, ("auto", *SCORES))
        one_of("the order", order, ORDERS)
        check_count("number of samples", samples)
        check_count("number of tokens to write", max_gen_toks)
        check_seed(seed)
        size = _batch_size(batch_size)
        self.model = load(
            pretrained,
            device=device,
            dtype=dtype,
            trust_remote_code=trust_remote_code,
            mask_token=mask_token,
            exact=True,
        )
        chosen = choose_score(self.model, score)
        self.score = ContinuationScorer(self.model, chosen, samples, seed, size)
        self.order, self.max_gen_toks = order, max_gen_toks
        self.answers: dict[str, list[Answer]] = {}

    @classmethod
    def create_from_arg_obj(
        cls, arg_dict: Mapping[str, Any], additional_config: Mapping[str, Any] | None = None
    ) -> "HarnessLM":
        """As lm_eval makes a model: its `--model_args`, which win, and its other flags.

        Its own defaults are left out: a batch of 1, and a GPU that the machine does not have.
        """
        defaults = {"batch_size": 1, "device": None if torch.cuda.is_available() else "cuda:0"}
        options = {
            name: value
            for name, value in (additional_config or {}).items()
            if value not in (None, defaults.get(name))
        }
        return cls(**{**options, **arg_dict})

    @classmethod
    def create_from_arg_string(
        cls, arg_string: str, additional_config: Mapping[str, Any] | None = None
    ) -> "HarnessLM":
        """The same from `pretrained=bundled:english,score=bound`."""
        return cls.create_from_arg_obj(simple_parse_args_string(arg_string), additional_config)

    @property
    def tokenizer_name(self) -> str:
        """What lm_eval calls the tokenizer where it keeps requests."""
        return str(self.model.name).replace("/", "__")

    @property
    def signature(self) -> str:
        """One line that says how the figures were made."""
        score = self.score
        noise = {"samples": score.samples, "seed": score.seed} if score.name == "bound" else {}
        return signature(**model_parts(self.model), score=score.name, **noise)

    def get_model_info(self) -> dict[str, object]:
        """What lm_eval writes next to its results: what the numbers are, and their error."""
        answers = [answer for listed in self.answers.values() for answer in listed]
        errors = [answer.standard_error for answer in answers if answer.standard_error is not None]
        return {
            "loglikelihood_is": SCORES[self.score.name],
            "is_greedy_is": GREEDY,
            "loglikelihoods": len(answers),
            "loglikelihoods_estimated": sum(answer.kind == "estimate" for answer in answers),
            "mean_standard_error_of_an_estimate": sum(errors) / len(errors) if errors else None,
            "signature": self.signature,
        }

    def loglikelihood(
        self, requests: Sequence[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """The score of each continuation given its context, in nats, and whether it is greedy."""
        contexts = [request.args[0] for request in requests]
        texts = [request.args[1] for request in requests]
        continuations = read_continuations(self.model, contexts, texts)
        answers = self.score(cut_contexts(self.model, continuations))
        self._log("loglikelihood", answers)
        scores = [(answer.value, answer.greedy) for answer in answers]
        return self._cache("loglikelihood", requests, scores)

    def loglikelihood_rolling(
        self, requests: Sequence[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """The score of each whole text, in nats: the sum over its windows, where it is long."""
        texts = [request.args[0] for request in requests]
        continuations = read_continuations(self.model, [""] * len(texts), texts)
        cut = [windows(text, room(self.model)) for text in continuations]
        scores = iter(self.score([window for text in cut for window in text], whole_texts=True))
        answers = [sum_answers([next(scores) for _ in text]) for text in cut]
        self._log("loglikelihood_rolling", answers)
        return self._cache("loglikelihood_rolling", requests, [answer.value for answer in answers])

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        """So many tokens after each context, filled greedily, cut where a stop is written."""
        if self.score.name == "exact":
            raise GlauberError(
                f"{self.model.name} is autoregressive: let lm_eval's own `--model hf` generate."
            )
        limits = [_generation(self.max_gen_toks, request.args[1]) for request in requests]
        contexts, counts = [request.args[0] for request in requests], [n for n, _ in limits]
        prompts = read_continuations(self.model, [""] * len(contexts), contexts)
        rows = [self._hidden(text.pieces, n) for text, n in zip(prompts, counts, strict=True)]
        texts = self._fill_rows(rows, counts) if rows else []
        texts = [_until(text, stops) for text, (_, stops) in zip(texts, limits, strict=True)]
        return self._cache("generate_until", requests, texts)

    def _log(self, name: str, answers: list[Answer]) -> None:
        """Keeps the answers, and says in lm_eval's log what they are."""
        self.answers[name] = answers
        message, info = f"{name} is a {SCORES[self.score.name]}", self.get_model_info()
        if info["loglikelihoods_estimated"]:
            error = info["mean_standard_error_of_an_estimate"]
            message += f"; {info['loglikelihoods_estimated']} of {info['loglikelihoods']} are "
            message += "estimates" + ("" if error is None else f", standard error {error:.3g} nats")
        LOG.info(message)

    def _cache(
        self, name: str, requests: Sequence[Instance], responses: list[Response]
    ) -> list[Response]:
        """The answers, kept in lm_eval's cache where it has one."""
        for request, response in zip(requests, responses, strict=True):
            self.cache_hook.add_partial(name, request.args, response)
        return responses

    def _hidden(self, pieces: list[int], n: int) -> list[int]:
        """So many hidden tokens after as much of the context as fits."""
        most = room(self.model)
        if n > most:
            raise GlauberError(
                f"{n} tokens are to be written, but {self.model.name} reads at most {most}: ask "
                "for fewer (max_gen_toks)."
            )
        context = pieces[max(0, len(pieces) + n - most) :]
        return [*context, *[mask_token_of(self.model)] * n]

    def _fill_rows(self, rows: list[list[int]], counts: list[int]) -> list[str]:
        """What is written at the last tokens of each row, so many, one token a pass."""
        tokens = rows_of(self.model, rows)
        order = Unmasking(order=self.order)
        plan = plan_generation(self.model, order, tokens, temperature=0.0, seed=self.score.seed)
        written = write(plan, batch_size=self.score.batch_size or BATCH).tokens
        first, ends = len(self.model.vocabulary.text.boundary_tokens[0]), self.model.vocabulary.ends
        texts = []
        for row, hidden, n in zip(written, rows, counts, strict=True):
            new = row[first : first + len(hidden)][-n:].tolist()
            stop = next((site for site, token in enumerate(new) if token in ends), n)
            texts.append(self.model.vocabulary.decode(new[:stop]))
        return texts


register_model("glauber")(HarnessLM)


def _batch_size(value: int | str | None) -> int | None:
    """A number, or None: lm_eval also says `auto`, and numbers as text."""
    if value is None or str(value).startswith("auto"):
        return None
    if not str(value).isdecimal():
        raise GlauberError(f"the batch size is {value!r}, but it must be a number or auto.")
    check_count("batch size", int(value))
    return int(value)


def _generation(most: int, requested: Mapping[str, Any] | None) -> tuple[int, list[str]]:
    """How many tokens to write, and where to stop; drawing is refused."""
    options = dict(requested or {})
    if options.get("do_sample") or float(options.get("temperature") or 0) > 0:
        raise GlauberError("texts are written greedily here: leave out do_sample and temperature.")
    stops, n = options.get("until") or [], options.get("max_gen_toks", most)
    check_count("number of tokens to write", n)
    return n, [stops] if isinstance(stops, str) else list(stops)


def _until(text: str, stops: list[str]) -> str:
    for stop in stops:
        text = text.split(stop)[0] if stop else text
    return text
