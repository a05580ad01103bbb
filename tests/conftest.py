"""Tiny random models and a tiny vocabulary, made anew for each session of tests."""

import atexit
import os
import shutil
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: no test asks the hub
os.environ["GLAUBER_CACHE"] = tempfile.mkdtemp(prefix="glauber-cache-")  # nothing of this machine's
atexit.register(shutil.rmtree, os.environ["GLAUBER_CACHE"], ignore_errors=True)
if "PYTEST_XDIST_WORKER" in os.environ:  # before torch is imported: workers share the cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from waiting import MILLISECONDS

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = """
a the cat dog bird sat ran flew on under over mat tree sky red blue green old new big small and or
but not is was will be to of in it they we . , ! ##s ##ed ##ing
""".split()  # noqa: SIM905
VOCABULARY = [*SPECIAL, "[unused0]", "[unused1]", *WORDS]
SIZES = dict(
    vocab_size=len(VOCABULARY),
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=40,
    max_position_embeddings=40,
    pad_token_id=0,
)


def make_tokenizer() -> transformers.PreTrainedTokenizerFast:
    backend = Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(VOCABULARY)}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=38,
    )


def make_config(shape: str) -> transformers.PreTrainedConfig:
    """A tiny configuration of each architecture that the engine names."""
    plain = SIZES | {"hidden_dropout_prob": 0.0}
    configs: dict[str, Callable[[], transformers.PreTrainedConfig]] = {
        "bert": lambda: transformers.BertConfig(**plain),
        "roberta": lambda: transformers.RobertaConfig(**plain),
        "xlm-roberta": lambda: transformers.XLMRobertaConfig(**plain),
        "electra": lambda: transformers.ElectraConfig(**plain, embedding_size=16),
        "distilbert": lambda: transformers.DistilBertConfig(
            vocab_size=len(VOCABULARY), dim=32, n_layers=2, n_heads=2, hidden_dim=40,
            max_position_embeddings=40,
        ),
        "albert": lambda: transformers.AlbertConfig(**plain, embedding_size=16),
        "deberta-v2": lambda: transformers.DebertaV2Config(
            **plain, relative_attention=True, position_buckets=8, pos_att_type=["p2c", "c2p"],
            position_biased_input=False, legacy=True,
        ),
        "deberta-v3": lambda: transformers.DebertaV2Config(
            **plain, relative_attention=True, position_buckets=8, pos_att_type=["p2c", "c2p"],
            position_biased_input=False, share_att_key=True, norm_rel_ebd="layer_norm",
            legacy=False,
        ),
        "mpnet": lambda: transformers.MPNetConfig(**plain),
        "modernbert": lambda: transformers.ModernBertConfig(
            **SIZES, cls_token_id=2, bos_token_id=2, sep_token_id=3, eos_token_id=3,
            local_attention=8, global_attn_every_n_layers=2,
        ),
        "esm": lambda: transformers.EsmConfig(
            **SIZES, mask_token_id=4, position_embedding_type="rotary", token_dropout=True,
            emb_layer_norm_before=False,
        ),
    }  # fmt: skip
    return configs[shape]()


def make_model(shape: str = "bert", scale: float = 8.0) -> torch.nn.Module:
    """A tiny masked LM with random weights, scaled up so that its conditionals are peaked."""
    torch.manual_seed(7)
    model = transformers.AutoModelForMaskedLM.from_config(make_config(shape))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1:
                weight.normal_(std=0.02 * scale)
            elif name.endswith("bias"):
                weight.normal_(std=0.1)
    return model.eval()


@pytest.fixture(scope="session", autouse=True)
def bundled_models_are_read_once() -> Iterator[None]:
    """And their batching measured once: reading is not what makes one study differ from another."""
    from glauber.models.masked_lm import MaskedLM
    from read_once import reading_once

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MaskedLM, "load", reading_once())
        yield


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with random weights, as a folder that `--model` accepts."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    make_model("bert").save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tokenizer() -> transformers.PreTrainedTokenizerFast:
    return make_tokenizer()


TEXTS = [
    "the cat sat on the mat .",
    "a big dog ran under the old tree and the bird flew over it .",
    "they will be in the sky",
    "is it red or blue !",
    "the small bird was not old but new .",
]


@pytest.fixture
def texts() -> list[str]:
    return list(TEXTS)


@pytest.fixture
def source(tmp_path: Path, texts: list[str]) -> Path:
    """A file of the texts, one a line, with an empty line behind them."""
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(texts) + "\n\n")
    return path


@pytest.fixture
def glauber(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in this process: (exit code, stdout, stderr)."""
    from glauber.interfaces.cli import main

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["glauber", *(str(word) for word in words)])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        code = end.value.code
        return (code if isinstance(code, int) else 0), said.out, said.err

    return call


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A real browser, for the tests marked `browser`; its pages wait as a busy machine needs."""
    from playwright.sync_api import Browser, expect, sync_playwright

    def with_long_limits(opening: Callable[..., Any]) -> Callable[..., Any]:
        def open_and_set(*args: Any, **options: Any) -> Any:
            page = opening(*args, **options)
            page.set_default_timeout(MILLISECONDS)
            return page

        return open_and_set

    expect.set_options(timeout=MILLISECONDS)
    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as patch:
        for name in ("new_page", "new_context"):
            patch.setattr(Browser, name, with_long_limits(getattr(Browser, name)))
        with playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        ) as browser:
            yield browser


@cache
def int8_works() -> bool:
    """Whether this machine has exact 8-bit products."""
    from glauber.foundation.errors import GlauberError
    from glauber.models.forward.encoder_int8 import check_machine

    try:
        check_machine()
    except GlauberError:
        return False
    return True


def pytest_configure(config: pytest.Config) -> None:
    """Only tests marked `cuda` see a GPU: the others give the same answers on any machine."""
    if "not cuda" in config.option.markexpr:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Tests marked `int8` must end in the documented refusal where int8 is not available."""
    from glauber.foundation.errors import GlauberError
    from glauber.models.forward.encoder_int8 import NOT_AVAILABLE

    if pyfuncitem.get_closest_marker("int8") is None or int8_works():
        return (yield)
    with pytest.raises(GlauberError) as refusal:
        yield
    assert str(refusal.value) == NOT_AVAILABLE
    return True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that two workers end together."""
    longest = (
        "test_readme.py", "test_examples.py", "test_smollm2.py", "test_papers.py",
        "test_sweeps.py", "test_package.py", "test_faults.py", "test_site.py", "test_resume.py",
        "test_antibody.py", "test_commands.py",
    )  # fmt: skip
    order = {name: place for place, name in enumerate(longest)}
    items.sort(key=lambda item: order.get(item.path.name, len(longest)))
