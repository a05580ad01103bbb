"""A tokenizer from tokenizer.json by the tokenizers library alone: importing transformers is slow.

It does what transformers' own class would do with the folder, or is not used: `open_tokenizer` then
returns what transformers makes of it.
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from glauber.conditionals.weights import quiet
from glauber.json_text import parse_json

AS_STORED = ("PreTrainedTokenizerFast", "TokenizersBackend")  # what tokenizer.json says counts
BERT = ("BertTokenizer", "BertTokenizerFast")  # made anew from the vocabulary and the options
ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
# What a config may say besides the special tokens without changing how texts are read.
OPTIONS = {
    "tokenizer_class", "model_max_length", "do_lower_case", "strip_accents", "backend", "is_local",
    "tokenize_chinese_chars", "clean_up_tokenization_spaces", "padding_side", "truncation_side",
    "local_files_only", "name_or_path", "model_input_names",
}  # fmt: skip
OTHER_FILES = ("special_tokens_map.json", "added_tokens.json", "chat_template.jinja")
UNBOUNDED = 10**30  # of a tokenizer that names no longest text, as transformers has it


def open_tokenizer(folder: Path) -> Any:
    """The tokenizer of a folder, as transformers makes it or the same without transformers."""
    tokenizer = PlainTokenizer.open(folder)
    if tokenizer is not None:
        return tokenizer
    from transformers import AutoTokenizer

    with quiet():
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


class Encoding(dict[str, Any]):
    """The tokens of a text, and the word of each."""

    words: list[int | None]

    def word_ids(self) -> list[int | None]:
        return self.words


class PlainTokenizer:
    """The part of transformers' interface that the package uses."""

    is_fast = True

    def __init__(self, backend: Tokenizer, config: dict[str, Any]) -> None:
        self.backend_tokenizer, self.config = backend, config
        self.model_max_length = int(config.get("model_max_length") or UNBOUNDED)
        backend.no_truncation()
        backend.no_padding()

    @classmethod
    def open(cls, folder: Path) -> "PlainTokenizer | None":
        """None where transformers may read the folder otherwise."""
        path = folder / "tokenizer_config.json"
        files = (path, folder / "tokenizer.json")
        if not all(file.is_file() for file in files):
            return None
        if any((folder / name).exists() for name in OTHER_FILES):
            return None
        config = parse_json(path.read_text(encoding="utf-8"))
        stored = parse_json(files[1].read_text(encoding="utf-8"))
        if not isinstance(config, dict) or not isinstance(stored, dict):
            return None
        special = {f"{role}_token" for role in ROLES}
        spelled = [config[key] for key in special & set(config) if config[key] is not None]
        if set(config) - OPTIONS - special or not all(isinstance(one, str) for one in spelled):
            return None
        kind = config.get("tokenizer_class")
        if kind not in AS_STORED and not (kind in BERT and _is_berts(stored, config)):
            return None
        try:
            backend = Tokenizer.from_file(str(files[1]))
        except Exception:  # transformers says what is wrong
            return None
        known = {
            token.content for token in backend.get_added_tokens_decoder().values() if token.special
        }
        return cls(backend, config) if set(spelled) <= known else None

    def __call__(
        self,
        text: str,
        add_special_tokens: bool = True,
        return_offsets_mapping: bool = False,
        verbose: bool = True,
    ) -> Encoding:
        read = self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens)
        found = Encoding(input_ids=read.ids)
        found.words = read.word_ids
        if return_offsets_mapping:
            found["offset_mapping"] = read.offsets
        return found

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size(with_added_tokens=True))

    def __getattr__(self, name: str) -> int | None:
        """The number of the special token of a role: mask_token_id, pad_token_id, ..."""
        role = name.removesuffix("_token_id")
        if role == name or role not in ROLES:
            raise AttributeError(name)
        spelled = self.config.get(f"{role}_token")
        return None if spelled is None else self.backend_tokenizer.token_to_id(spelled)

    @property
    def all_special_ids(self) -> list[int]:
        numbers = (getattr(self, f"{role}_token_id") for role in ROLES)
        return [number for number in dict.fromkeys(numbers) if number is not None]

    def get_vocab(self) -> dict[str, int]:
        return dict(self.backend_tokenizer.get_vocab(with_added_tokens=True))

    def add_special_tokens(self, named: dict[str, str]) -> None:
        self.backend_tokenizer.add_special_tokens(list(named.values()))
        self.config = self.config | named

    def save_pretrained(self, folder: Path) -> None:
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.backend_tokenizer.save(str(folder / "tokenizer.json"))
        text = json.dumps(self.config, indent=2, sort_keys=True, ensure_ascii=False)
        (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def _is_berts(stored: dict[str, Any], config: dict[str, Any]) -> bool:
    """Whether tokenizer.json is what transformers makes of BERT's vocabulary and the options."""
    model = {key: value for key, value in (stored.get("model") or {}).items() if key != "vocab"}
    single = [
        {"SpecialToken": {"id": config.get("cls_token"), "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": config.get("sep_token"), "type_id": 0}},
    ]
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": config.get("tokenize_chinese_chars", True),
        "strip_accents": config.get("strip_accents"),
        "lowercase": config.get("do_lower_case", True),
    }
    return (
        stored.get("normalizer") == normalizer
        and stored.get("pre_tokenizer") == {"type": "BertPreTokenizer"}
        and (stored.get("post_processor") or {}).get("single") == single
        and stored.get("decoder") == {"type": "WordPiece", "prefix": "##", "cleanup": True}
        and model
        == {
            "type": "WordPiece",
            "unk_token": config.get("unk_token"),
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
        }
        and all(config.get(f"{role}_token") for role in ("unk", "sep", "pad", "cls", "mask"))
    )
