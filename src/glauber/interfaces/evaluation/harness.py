"""A masked model as a model of lm-evaluation-harness.

`answers.py` defines its scores; `glauber.score(model, texts, given=contexts)` gives the same.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.utils import simple_parse_args_string

from glauber.dynamics.unmasking import Unmasking
from glauber.foundation.errors import GlauberError
from glauber.foundation.progress import check_count, check_seed
from glauber.foundation.study import model_parts, one_of, signature
from glauber.interfaces.evaluation.answers import (
    BATCH,
    GREEDY,
    SCORES,
    Answer,
    ContinuationScorer,
    choose_score,
    sum_answers,
)
from glauber.models.base import Conditionals, mask_token_of
from glauber.models.load import load
from glauber.sampling.generate import plan_generation, rows_of, write
from glauber.studies.compatibility.likelihood_bound import SAMPLES
from glauber.texts.continuations import cut_contexts, read_continuations, room, windows

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
        first, ends = len(self.model.vocabulary.text.around[0]), self.model.vocabulary.ends
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
