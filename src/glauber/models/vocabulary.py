"""How tokens are spelled, which text they make, and which of them may be proposed.

`open_tokenizer` reads tokenizer.json by the tokenizers library alone, since importing transformers
is slow: it does what transformers' own class would do with the folder, or is not used.
"""

import json
import random
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import parse_json
from glauber.models.base import PAD
from glauber.models.forward.checkpoint import Config
from glauber.models.weights import quiet

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from glauber.models.weights import PreTrainedConfig, PreTrainedTokenizerBase

# Rows of the embedding that training never met, as the field's vocabularies spell them.
UNUSED = re.compile(r"\[unused\d+\]|<unused_?\d+>|madeupword\d+|<null_\d+>|<extra_id_\d+>")
UNKNOWN = re.compile(r"[\[<]\|?unk\|?[\]>]", re.IGNORECASE)
SHOWN = re.compile(r"[\[<].*(mask|unk).*[\]>]", re.IGNORECASE)  # special tokens that texts show
# How a token is spelled that is no part of a text, such as <eos>, [CLS] or <|endoftext|>.
BRACKETED = re.compile(r"<.*>|\[.*\]|\|.*\|")
ROLES = ("bos", "eos", "pad", "cls", "sep", "unk", "mask", "decoder_start")
RESIDUES = set("ACDEFGHIKLMNPQRSTVWY")  # the standard amino acids
OTHER_RESIDUES = set("BJOUXZ.-*?")  # ambiguous, rare, gaps and stops, as protein models spell them
PROBES = 12  # rows of tokens that tell how a text is spelled

Joiner = Callable[[list[int]], str]

AS_STORED = ("PreTrainedTokenizerFast", "TokenizersBackend")  # what tokenizer.json says counts
BERT = ("BertTokenizer", "BertTokenizerFast")  # made anew from the vocabulary and the options
TOKENIZER_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
# What a config may say besides the special tokens without changing how texts are read.
OPTIONS = {
    *("tokenizer_class", "model_max_length", "do_lower_case", "strip_accents", "backend"),
    *("is_local", "tokenize_chinese_chars", "clean_up_tokenization_spaces", "padding_side"),
    *("truncation_side", "local_files_only", "name_or_path", "model_input_names"),
}
OTHER_FILES = ("special_tokens_map.json", "added_tokens.json", "chat_template.jinja")
UNBOUNDED = 10**30  # of a tokenizer that names no longest text, as transformers has it


class Text:
    """Tokens back to text, by a tokenizer of the tokenizers library (or a slower Python one).

    Texts are spelled so that they can be read again: where the tokenizer's own decoder puts
    blanks between letters that it cannot read, the letters are joined without them. The mask and
    unknown tokens stay visible, the other special tokens are left out.
    """

    def __init__(self, backend: "PreTrainedTokenizerBase") -> None:
        """backend: of transformers, or `tokenizers.Tokenizer`."""
        self._backend = backend
        self._fast = hasattr(backend, "get_added_tokens_decoder")  # ESM's has id_to_token too

    @classmethod
    def open(cls, folder: Path) -> "Text":
        """What `Vocabulary.save` wrote; avoids importing transformers where it can."""
        try:
            if (folder / "tokenizer.json").is_file():
                from tokenizers import Tokenizer

                return cls(Tokenizer.from_file(str(folder / "tokenizer.json")))
            from transformers import AutoTokenizer

            return cls(AutoTokenizer.from_pretrained(folder, trust_remote_code=False))
        except Exception as error:
            raise GlauberError(f"the tokenizer in {folder} cannot be read.") from error

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of one row of tokens; masks are shown, other special tokens are not."""
        row = [int(token) for token in tokens]
        return self._joiner([token for token in row if token not in self._left_out])

    def spell(self, token: int) -> str:
        """The token by itself, as the vocabulary spells it."""
        backend = self._backend
        name_of = backend.id_to_token if self._fast else backend.convert_ids_to_tokens
        name = name_of(int(token))
        return f"#{token}" if name is None else str(name)

    def parts(self, tokens: Iterable[int]) -> list[str]:
        """Each token as it is read in a text, with a blank before it where a word begins."""
        row = [int(token) for token in tokens]
        names = [self.spell(token) for token in row]
        if self._joiner == self._join_letters:
            return names
        if self._begins == "Ġ":  # byte-level BPE spells bytes, not letters
            return [self.decode([token]) for token in row]
        if self._begins == "▁":  # sentencepiece marks where a word begins
            return [name.replace("▁", " ") for name in names]
        return [name[2:] if name.startswith("##") else " " + name for name in names]

    @cached_property
    def _begins(self) -> str:
        """The sign that the vocabulary puts before tokens that begin a word; none in WordPiece."""
        signs = ("Ġ", "▁")
        count = {sign: sum(name.startswith(sign) for name in self._vocabulary) for sign in signs}
        likeliest = max(signs, key=lambda sign: count[sign])
        return likeliest if count[likeliest] > len(self._vocabulary) // 100 else ""

    def pieces(self, text: str) -> list[int]:
        """The tokens of a text, without the special ones around it."""
        if self._fast:
            return list(self._backend.encode(text, add_special_tokens=False).ids)
        return list(self._backend(text, add_special_tokens=False)["input_ids"])

    @cached_property
    def boundary_tokens(self) -> tuple[list[int], list[int]]:
        """The special tokens that stand before a text and behind it."""
        for letter in [self._own([token]) for token in self.normal[:50]] + ["a", ""]:
            inner = self.pieces(letter)
            outer = self._whole(letter)
            for first in range(len(outer) - len(inner) + 1):
                if outer[first : first + len(inner)] == inner and (inner or outer == []):
                    return outer[:first], outer[first + len(inner) :]
        return [], []

    @cached_property
    def special(self) -> set[int]:
        """Tokens that are no part of a text: those around it, padding, masks, unknown."""
        if self._fast:
            added = self._backend.get_added_tokens_decoder()
            return {int(token) for token, how in added.items() if how.special}
        return {int(token) for token in self._backend.all_special_ids}

    @cached_property
    def unknown_tokens(self) -> set[int]:
        """Tokens that stand for what the vocabulary cannot spell."""
        unknown = getattr(getattr(self._backend, "model", None), "unk_token", None)
        return {
            token
            for name, token in self._vocabulary.items()
            if UNKNOWN.fullmatch(name) or name == unknown
        }

    @cached_property
    def normal(self) -> list[int]:
        """Tokens that are neither special nor unused, in rising order."""
        names = self._vocabulary.items()
        used = {token for name, token in names if not UNUSED.fullmatch(name)}
        return sorted(used - self.special - self.unknown_tokens)

    @cached_property
    def letters(self) -> set[str]:
        """The spellings, if each normal token is one character; else nothing."""
        names = {self.spell(token) for token in self.normal}
        return names if names and all(len(name) == 1 for name in names) else set()

    @property
    def proteins(self) -> bool:
        """Whether the letters are amino acids."""
        return RESIDUES <= self.letters <= RESIDUES | OTHER_RESIDUES

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        return {str(name): int(token) for name, token in self._backend.get_vocab().items()}

    @cached_property
    def _left_out(self) -> set[int]:
        shown = {token for token in self.special if SHOWN.fullmatch(self.spell(token))}
        return (self.special - shown - self.unknown_tokens) | {PAD}

    def _whole(self, text: str) -> list[int]:
        """The tokens of a text with the special ones around it."""
        return list(self._backend.encode(text).ids if self._fast else self._backend.encode(text))

    def _own(self, row: list[int]) -> str:
        return str(self._backend.decode(row, skip_special_tokens=False))

    def _join_letters(self, row: list[int]) -> str:
        return "".join(self.spell(token) for token in row)

    def _join_with_blanks(self, row: list[int]) -> str:
        return " ".join(self.spell(token) for token in row)

    @cached_property
    def _joiner(self) -> Joiner:
        """The way to spell a row that can be read back; letters without blanks where that works.

        Tried on random rows of normal tokens, so that a stored run chooses as its model did. The
        tokenizer's own way is kept unless most rows are lost by it.
        """
        if self.letters and self._read_back(self._join_letters) == 1.0:
            return self._join_letters
        if self._read_back(self._own) >= 0.5:
            return self._own
        return max(self._own, self._join_letters, self._join_with_blanks, key=self._read_back)

    def _read_back(self, join: Joiner) -> float:
        """Share of random rows that, spelled this way, are read as tokens that spell the same."""
        draw = random.Random(0)
        rows = [draw.choices(self.normal, k=8) for _ in range(PROBES)] if self.normal else []
        good = 0
        for row in rows:
            once = self.pieces(join(row))
            same = once == row or self.pieces(join(once)) == once
            good += same and bool(once) and not self.unknown_tokens & set(once)
        return good / PROBES


class Vocabulary:
    """Text to tokens and back, through a transformers tokenizer.

    ends are special tokens that may be proposed all the same: where a text stops. The model's
    config names special tokens that the tokenizer may not name.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        size: int,
        *,
        ends: Sequence[int] = (),
        config: "PreTrainedConfig | None" = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.size = size
        self.ends = list(ends)
        self.config = config
        self.text = Text(getattr(tokenizer, "backend_tokenizer", None) or tokenizer)

    @classmethod
    def open(cls, folder: Path) -> "Vocabulary":
        """What `save` wrote, with all that texts are read by; runs no code of the folder."""
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        except Exception as error:
            raise GlauberError(f"the tokenizer in {folder} cannot be read.") from error
        return cls(tokenizer, len(tokenizer))

    def save(self, folder: Path) -> None:
        """Writes what `Text.open` reads."""
        self.tokenizer.save_pretrained(folder)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of one row of tokens; masks are shown, other special tokens are not."""
        return self.text.decode(tokens)

    def spell(self, token: int) -> str:
        """The token by itself, as the vocabulary spells it."""
        return self.text.spell(token)

    def pieces(self, text: str) -> list[int]:
        """The tokens of a text, without the special ones around it."""
        # Whether a text is too long is said elsewhere, in one sentence.
        read = self.tokenizer(text, add_special_tokens=False, verbose=False)
        return [int(token) for token in read["input_ids"]]

    def encode(self, texts: Sequence[str], *, length: int | None = None) -> tuple[Tensor, Tensor]:
        """Tokens (chains, longest) with PAD behind shorter texts, and their free sites (bool).

        length counts tokens without the special ones and cuts what is longer. The special tokens
        that the tokenizer adds around a text are not free. A text with characters that the
        vocabulary cannot spell is refused; `starts` repairs what can be repaired.
        """
        for number, text in enumerate(texts, start=1):
            self.check(text, f"text {number}")
        return self.rows([self.pieces(text)[:length] for text in texts])

    def rows(
        self, pieces: Sequence[Sequence[int]], *, before: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor]:
        """Tokens and free sites (rows, longest) of texts given by their tokens.

        The tokens in `before` are put in front of each text and are not free.
        """
        opening, closing = self.text.boundary_tokens
        head = [*opening, *before]
        longest = len(head) + max(len(row) for row in pieces) + len(closing)
        tokens = torch.full((len(pieces), longest), PAD)
        free = torch.zeros((len(pieces), longest), dtype=torch.bool)
        for i, row in enumerate(pieces):
            if not row:
                raise GlauberError(f"text {i + 1} is empty: there is no token to redraw.")
            tokens[i, : len(head) + len(row) + len(closing)] = torch.tensor([*head, *row, *closing])
            free[i, len(head) : len(head) + len(row)] = True
        return tokens, free

    def check(self, text: str, name: str) -> None:
        """Refuses a text with characters that the vocabulary cannot spell."""
        problem = self.strange(text)
        if problem is not None:
            index, piece = problem
            raise GlauberError(
                f"{name} has {piece!r} at character {index + 1}, which is not in the vocabulary."
            )

    def strange(self, text: str) -> tuple[int, str] | None:
        """Place (from 0) and spelling of the first thing that the vocabulary cannot spell."""
        halves = [i for i, letter in enumerate(text) if "\ud800" <= letter <= "\udfff"]
        if halves:  # bytes that were no UTF-8, which tokenizers cannot read
            return halves[0], ascii(text[halves[0]])
        if not self.tokenizer.is_fast:
            unknown = any(map(self._is_unknown, self.pieces(text)))
            return self._first_unknown(text, 0, len(text)) if unknown else None
        read = self.tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        covered: set[int] = set()
        for token, (begin, end) in zip(read["input_ids"], read["offset_mapping"], strict=True):
            if self._is_unknown(token):
                return self._first_unknown(text, begin, end)
            covered.update(range(begin, end))
        # Letters, digits, marks and symbols that no token covers were dropped by the tokenizer.
        lost = (i for i, letter in enumerate(text) if i not in covered and _counts(letter))
        first = next(lost, None)
        return None if first is None else self._first_unknown(text, 0, len(text), first)

    def _is_unknown(self, token: int) -> bool:
        return token in self.text.unknown_tokens or token >= self.size

    def _first_unknown(
        self, text: str, begin: int, end: int, lost: int | None = None
    ) -> tuple[int, str]:
        """The first character that is unknown or lost by itself; else what was given."""
        for index in range(begin, end):
            alone = self.pieces(text[index]) if _counts(text[index]) else [0]
            if not alone or any(map(self._is_unknown, alone)):
                return index, text[index]
        return (begin, text[begin:end]) if lost is None else (lost, text[lost])

    def words(self, texts: Sequence[str]) -> Tensor:
        """Which word of its text each token is a piece of, (texts, longest) as `encode` lays out.

        Words are those of the tokenizer's own first cut, and the letters themselves where the
        vocabulary has only letters; PAD at special tokens and behind the end.
        """
        if not self.tokenizer.is_fast and not self.text.letters:
            raise GlauberError("this tokenizer does not say which tokens make up one word.")
        opening, closing = (len(part) for part in self.text.boundary_tokens)
        rows = [[PAD] * opening + self._words(text) + [PAD] * closing for text in texts]
        table = torch.full((len(rows), max(len(row) for row in rows)), PAD)
        for i, row in enumerate(rows):
            table[i, : len(row)] = torch.tensor(row)
        return table

    def _words(self, text: str) -> list[int]:
        if self.text.letters:
            return list(range(self.count(text)))
        word_ids = self.tokenizer(text, add_special_tokens=False).word_ids()
        return [PAD if word is None else int(word) for word in word_ids]

    def count(self, text: str) -> int:
        """Number of tokens of a text, without the special ones."""
        return len(self.pieces(text))

    def token(self, name: str) -> int:
        """The token that is spelled so, as the vocabulary writes it or as a text by itself."""
        token, pieces = self.tokenizer.get_vocab().get(name), self.pieces(name)
        if token is None and len(pieces) == 1:
            token = pieces[0]
        if token is None or self._is_unknown(int(token)):
            raise GlauberError(f"{name!r} is not a single token of the vocabulary.")
        return int(token)

    def proposable(self, *, standard_only: bool = True, forbid: Iterable[str] = ()) -> Tensor:
        """Tokens that a chain may draw, (vocab,) bool: neither special nor unused nor forbidden.

        Of a protein alphabet only the twenty standard amino acids, unless standard_only is False:
        runs that were made before this rule draw from all of its letters. forbid names further
        tokens by their spelling.
        """
        allowed = torch.zeros(self.size, dtype=torch.bool)
        special = self._special()
        normal = [t for t in self.text.normal if t < self.size and t not in special]
        if standard_only and self.text.proteins:
            normal = [token for token in normal if self.text.spell(token) in RESIDUES]
        allowed[torch.tensor(normal + self.ends, dtype=torch.int64)] = True
        for name in [forbid] if isinstance(forbid, str) else forbid:
            allowed[self.token(name)] = False
        if not bool(allowed.any()):
            raise GlauberError("every token is forbidden, so nothing could ever be drawn.")
        return allowed

    def _special(self) -> set[int]:
        """Special tokens by the tokenizer, by its template, and by the config of the model.

        The defaults of a config may be numbers of ordinary tokens. So a token of the config counts
        if it is spelled in brackets and the tokenizer names no other one for the same role.
        """
        opening, closing = self.text.boundary_tokens
        special = {*self.tokenizer.all_special_ids, *opening, *closing}
        for role in ROLES:
            value = getattr(self.config, f"{role}_token_id", None)
            if getattr(self.tokenizer, f"{role}_token_id", None) is None:
                tokens = value if isinstance(value, list | tuple) else [value]
                special |= {
                    token
                    for token in tokens
                    if isinstance(token, int) and BRACKETED.fullmatch(self.spell(token))
                }
        return special


def _counts(letter: str) -> bool:
    """Whether a character says something: no blank, accent, control or formatting mark."""
    return unicodedata.category(letter)[0] in "LNPS"


# ---- tokenizers without transformers


def open_tokenizer(folder: Path) -> "PreTrainedTokenizerBase":
    """The tokenizer of a folder, as transformers makes it or the same without transformers."""
    tokenizer = PlainTokenizer.open(folder)
    if tokenizer is not None:
        return tokenizer
    from transformers import AutoTokenizer

    with quiet():
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


class Encoding(dict[str, list[int] | list[tuple[int, int]]]):
    """The tokens of a text, and the word of each."""

    words_of_tokens: list[int | None]

    def word_ids(self) -> list[int | None]:
        return self.words_of_tokens


class PlainTokenizer:
    """The part of transformers' interface that the package uses."""

    is_fast = True

    def __init__(self, backend: "Tokenizer", config: Config) -> None:
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
        special = {f"{role}_token" for role in TOKENIZER_ROLES}
        spellings = [config[key] for key in special & set(config) if config[key] is not None]
        if set(config) - OPTIONS - special or not all(isinstance(s, str) for s in spellings):
            return None
        kind = config.get("tokenizer_class")
        if kind not in AS_STORED and not (kind in BERT and _is_berts(stored, config)):
            return None
        from tokenizers import Tokenizer

        try:
            backend = Tokenizer.from_file(str(files[1]))
        except Exception:  # transformers says what is wrong
            return None
        known = {
            token.content for token in backend.get_added_tokens_decoder().values() if token.special
        }
        return cls(backend, config) if set(spellings) <= known else None

    def __call__(
        self,
        text: str,
        add_special_tokens: bool = True,
        return_offsets_mapping: bool = False,
        verbose: bool = True,
    ) -> Encoding:
        read = self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens)
        encoding = Encoding(input_ids=read.ids)
        encoding.words_of_tokens = read.word_ids
        if return_offsets_mapping:
            encoding["offset_mapping"] = read.offsets
        return encoding

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size(with_added_tokens=True))

    def __getattr__(self, name: str) -> int | None:
        """The number of the special token of a role: mask_token_id, pad_token_id, ..."""
        role = name.removesuffix("_token_id")
        if role == name or role not in TOKENIZER_ROLES:
            raise AttributeError(name)
        spelling = self.config.get(f"{role}_token")
        return None if spelling is None else self.backend_tokenizer.token_to_id(spelling)

    @property
    def all_special_ids(self) -> list[int]:
        numbers = (getattr(self, f"{role}_token_id") for role in TOKENIZER_ROLES)
        return [number for number in dict.fromkeys(numbers) if number is not None]

    def get_vocab(self) -> dict[str, int]:
        return dict(self.backend_tokenizer.get_vocab(with_added_tokens=True))

    def add_special_tokens(self, tokens: dict[str, str]) -> None:
        self.backend_tokenizer.add_special_tokens(list(tokens.values()))
        self.config = {**self.config, **tokens}

    def save_pretrained(self, folder: Path) -> None:
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.backend_tokenizer.save(str(folder / "tokenizer.json"))
        text = json.dumps(self.config, indent=2, sort_keys=True, ensure_ascii=False)
        (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def _is_berts(stored: Config, config: Config) -> bool:
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
