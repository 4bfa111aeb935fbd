"""A checkpoint of the Hugging Face hub: a folder with `config.json`, tensors and the files of a tokenizer."""

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from zoo.checkpoints.json_types import check_types, is_integer, is_number
from zoo.checkpoints.safetensors_file import SafetensorsFile
from zoo.errors import InputError, unknown_name
from zoo.workdir import checksum

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_PICKLED, _GENERATION = "pytorch_model.bin", "generation_config.json"
_POINTER = b"version https://git-lfs.github.com/spec/"
_ANY: Any = object()
_LARGEST = 2**31
"""The absolute value of a number that a family reads from `config.json` must be below this."""
_NEVER_NULL = {"activation_function", "d_model", "dim", "feed_forward_proj", "hidden_size", "max_position_embeddings"}
_NEVER_NULL |= {"n_embd", "num_attention_heads", "num_hidden_layers", "rotary_emb_base", "rotary_pct", "vocab_size"}


class Checkpoint:
    """A folder of a checkpoint, whose tensors are read one at a time.

    Attributes:
        path: The folder.
        config: The content of `config.json`.
        defaults: Values of options that `config.json` lacks, set by a family; they override the defaults of `option`.
        revision: The commit of the checkpoint; empty if it is unknown.
        files: The files of the weights.
        read_options: Keys of the configuration that have been read.
        left_out: Tensors that our model does not need, and why, by the prefix of their names.
        search: The default decoding of the checkpoint's own software, as decoding options of this project; empty if the
            family does not read it.
        not_followed: Values of `generation_config.json`, by key, that change what is decoded and have no option here.
        languages: The languages, by side, for which a multilingual translator is imported; see `language`.
        has_languages: Whether the family has read `language`.

    Args:
        path: The folder.
        revision: The commit, if it is known. Default: that of `config.json`.

    Raises:
        InputError: If it is not such a folder, or a file in it is missing or damaged.
    """

    def __init__(self, path: Path, revision: str = ""):
        self.path = path
        if not path.is_dir():
            raise InputError(f"{path} is not a folder. A checkpoint is a folder with config.json and its weights.")
        self._contents: dict[str, Any] = {}
        self.config: dict[str, Any] = self._configuration()
        self.defaults: Mapping[str, Any] = {}
        self.revision: str = revision or self.config.get("_commit_hash") or ""
        self._tensors: dict[str, tuple[Path, tuple[int, ...], Callable[[], np.ndarray]]] = {}
        self.files = self._open()
        self._used: set[str] = set()
        self.read_options: set[str] = set()
        self._parts: list[Checkpoint] = []
        self.left_out: dict[str, str] = {}
        self.search: dict[str, Any] = {}
        self.not_followed: dict[str, Any] = {}
        self.languages: dict[str, str] = {}
        self.has_languages = False

    @property
    def config_file(self) -> Path:
        """The file with the options."""
        return self.path / "config.json"

    def _configuration(self) -> dict[str, Any]:
        config: dict[str, Any] = self.json("config.json")
        return config

    def _open(self) -> list[Path]:
        if (self.path / _SINGLE).is_file():  # before others, as in `transformers`
            files = [self.path / _SINGLE]
        elif (self.path / _INDEX).is_file():
            names = self.json(_INDEX).get("weight_map")
            named: list[Any] = [*names.values()] if names and isinstance(names, dict) else [None]
            if not all(isinstance(file, str) and file == Path(file).name for file in named):
                raise InputError(
                    f"{self.path / _INDEX}: weight_map must have a file of this folder for each tensor. "
                    f"Received: {names!r:.100}."
                )
            files = [self.path / file for file in sorted({*named})]
        elif (self.path / _PICKLED).is_file():
            self._open_pickled(self.path / _PICKLED)
            return [self.path / _PICKLED]
        else:
            raise InputError(f"{self.path} has no weights: expected {_SINGLE}, {_INDEX} or {_PICKLED}.")
        for path in files:
            if not path.is_file():
                raise InputError(f"{path} is missing; {_INDEX} names it.")
            check_content(path)
            opened = SafetensorsFile(path)
            for name in opened.names():
                if name in self._tensors:
                    raise InputError(f"{path}: {name} is in {self._tensors[name][0].name}, too. Leave one of them out.")
                self._tensors[name] = path, opened.shape(name), functools.partial(opened.read, name)
        return files

    def _open_pickled(self, path: Path) -> None:
        """Opens a pickled file of PyTorch; since pickles can run programs, only tensors are read."""
        check_content(path)
        try:
            import torch
        except ImportError:
            raise InputError(
                f"{path} is a pickle, which only PyTorch reads safely: install torch, or convert it to {_SINGLE}."
            ) from None
        try:
            tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except Exception as error:  # pickles fail in many ways
            reason = str(error).partition("\n")[0]
            raise InputError(f"{path} is damaged, or refused because it contains more than tensors: {reason}") from None
        for name, tensor in tensors.items():
            self._tensors[name] = path, tuple(tensor.shape), functools.partial(_to_numpy, tensor)

    def json(self, name: str, kind: type[dict[str, Any]] | type[list[Any]] = dict) -> Any:
        """Returns the content of a JSON file of the folder; it is cached, so do not modify it.

        Args:
            name: The name of the file.
            kind: The type of its content.

        Raises:
            InputError: If it is missing, damaged or of another type.
        """
        if name in self._contents:
            return self._contents[name]
        path = self.path / name
        if path.is_file():
            check_content(path)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(f"{path} is missing.") from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is damaged: {error}.") from None
        if not isinstance(content, kind):
            described = "an object with keys" if kind is dict else "a list"
            raise InputError(f"{path} must contain {described}. Received: {content!r:.100}.")
        if isinstance(content, dict):
            check_types(path, content)
        self._contents[name] = content
        return content

    def file(self, name: str) -> Path:
        """Returns the path of a file of the folder.

        Raises:
            InputError: If it is missing.
        """
        path = self.path / name
        if not path.is_file():
            raise InputError(f"{path} is missing.")
        check_content(path)
        return path

    def option(self, name: str, default: Any = None, only: Any = _ANY) -> Any:
        """Returns an option of `config.json`.

        Args:
            name: The key.
            default: Its value where the file lacks it.
            only: The one value that is supported. Default: any.

        Raises:
            InputError: If the value is not the supported one, is of another type than the default or too large, or is
                required, but missing or null.
        """
        default = self.defaults.get(name, default)
        value = self._value(name, default)
        if value is None and name in _NEVER_NULL:
            raise InputError(f"{self.config_file}: {name} is missing or null.")
        if expected := _mistaken(value, default):
            raise InputError(f"{self.config_file}: {name} must be {expected}. Received: {value!r:.100}.")
        if only is not _ANY and value != only:
            raise InputError(f"{self.config_file}: {name} must be {only!r} to be imported. Received: {value!r}.")
        return value

    def _value(self, name: str, default: Any) -> Any:
        """Returns a value of `config.json`, without checks, and records its key in `read_options`."""
        self.read_options.add(name)
        return self.config.get(name, self.defaults.get(name, default))

    def ends(self, default: int | None = None) -> list[int]:
        """Returns the ids of the end tokens in their order, from `generation_config.json` if it has any.

        Args:
            default: The end token where neither file has one.

        Raises:
            InputError: If they are not ids.
        """
        file, value = self.config_file, self._value("eos_token_id", default)
        if (written := self._generation_value("eos_token_id")) is not None:
            file, value = self.path / _GENERATION, written
        ends = value if isinstance(value, list) else [value]
        if not ends or not all(map(is_integer, ends)):
            raise InputError(f"{file}: eos_token_id must be the id of a token, or several. Received: {value!r}.")
        return list(dict.fromkeys(ends))

    def start(self, end: int) -> int:
        """Returns the start token; models without one begin with their end token."""
        start: int | None = self.option("bos_token_id", end)
        return end if start is None else start

    def _generation_value(self, name: str) -> Any:
        """Returns a value of `generation_config.json`, or `None` if it is missing."""
        return self.json(_GENERATION).get(name) if (self.path / _GENERATION).is_file() else None

    def language(self, side: str) -> str | None:
        """Returns the language that the user requests for a side, `"source"` or `"target"`, or `None`."""
        self.has_languages = True
        return self.languages.get(side)

    def generation(self, name: str) -> Any:
        """Returns a value of `generation_config.json`, or of `config.json` if the folder has only that."""
        value = self.option(name)
        return self._generation_value(name) if (self.path / _GENERATION).is_file() else value

    @property
    def generation_file(self) -> Path:
        """The file from which `generation` reads."""
        return self.path / _GENERATION if (self.path / _GENERATION).is_file() else self.config_file

    def decoder_start(self, default: int) -> int:
        """Returns the token that the decoder of a translator begins with.

        Raises:
            InputError: If it is null, or `config.json` and `generation_config.json` differ: the first is used in
                training, the second in decoding.
        """
        start: int | None = self.option("decoder_start_token_id", default)
        if start is None:
            raise InputError(f"{self.config_file}: decoder_start_token_id must be the id of a token. Received: null.")
        written = self._generation_value("decoder_start_token_id")
        if written not in (None, start):
            raise InputError(
                f"{self.path / _GENERATION}: decoder_start_token_id must be that of config.json, {start!r}. "
                f"Received: {written!r}."
            )
        return start

    def end(self, default: int) -> int:
        """Returns the end token of a family whose models have one.

        Raises:
            InputError: If there are several; see `ends`.
        """
        ends = self.ends(default)
        if len(ends) > 1:
            raise InputError(f"{self.path}: eos_token_id must be a single token for this family. Received: {ends}.")
        return ends[0]

    def tied(self, default: bool, embeddings: str, logits: str) -> bool:
        """Returns whether embeddings and output projection are one matrix, `tie_word_embeddings`.

        Raises:
            InputError: If they are tied, but the checkpoint has a tensor for each and the two differ: which one is used
                depends on the library.
        """
        tied = bool(self.option("tie_word_embeddings", default))
        if tied and self.has(logits) and self.has(embeddings):
            shape = self.shape(embeddings)
            if self.shape(logits) != shape or not np.array_equal(
                self.read(logits, shape), self.read(embeddings, shape)
            ):
                raise InputError(
                    f"{self.config_file}: tie_word_embeddings is true, but {logits} differs from {embeddings}. "
                    "Remove one of the two."
                )
        return tied

    def has(self, name: str) -> bool:
        """Returns whether there is a tensor of this name."""
        return name in self._tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor.

        Raises:
            InputError: If there is no tensor of this name.
        """
        if not self.has(name):
            files = ", ".join(str(path) for path in self.files)
            raise InputError(f"{files}: {unknown_name('tensor', name, self._tensors)}")
        return self._tensors[name][1]

    def read(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Returns a tensor.

        Args:
            name: Its name.
            shape: The shape that it must have.

        Raises:
            InputError: If it is missing or has another shape, or its file is truncated.
        """
        if name not in self._tensors:
            files = ", ".join(str(path) for path in self.files)
            raise InputError(f"{files}: {unknown_name('tensor', name, self._tensors)} Expected shape: {shape}.")
        path, stored_shape, read = self._tensors[name]
        if stored_shape != shape:
            raise InputError(f"{path}: {name} must have the shape {shape}. Received: {stored_shape}.")
        self._used.add(name)
        return read()

    def ignore(self, *names: str) -> None:
        """Marks tensors as used: those that are not learned, such as masks, or that repeat another tensor."""
        self._used |= set(names)

    def leave_out(self, prefix: str, why: str) -> None:
        """Records why our model does not need the tensors whose names begin with a prefix."""
        if names := [name for name in self._tensors if name.startswith(prefix)]:
            self._used |= set(names)
            self.left_out[prefix] = why

    def part(self, name: str) -> "Checkpoint":
        """Returns the checkpoint in a subfolder that has its own `config.json` and weights.

        Raises:
            InputError: See `Checkpoint`.
        """
        self._parts.append(Checkpoint(self.path / name))
        return self._parts[-1]

    def unused(self) -> list[str]:
        """Returns the names of the tensors that have not been read, ignored or left out."""
        return [name for part in (self, *self._parts) for name in part._tensors if name not in part._used]

    def checksums(self) -> dict[str, str]:
        """Returns the SHA-256 sums of the files of the weights by their paths in the folder."""
        files = (path for part in (self, *self._parts) for path in part.files)
        return {path.relative_to(self.path).as_posix(): checksum(path) for path in files}

    def licence(self) -> str:
        """Returns the licence in the metadata of the folder's README.md."""
        path = self.path / "README.md"
        head = path.read_text(encoding="utf-8", errors="replace").split("---")[1:2] if path.is_file() else []
        lines = [line.split(": ", 1) for text in head for line in text.splitlines() if ": " in line]
        return dict(lines).get("license", "not stated in the checkpoint").strip("\"' ")


def _mistaken(value: Any, default: Any) -> str:
    """Returns in words what a value must be, by the type of its default; empty if it is valid, or null."""
    if is_number(value) and not abs(value) < _LARGEST:  # also for NaN
        return f"a number below {_LARGEST:,}"
    if value is None or default is None:
        return ""
    if isinstance(default, bool):
        return "" if isinstance(value, int) else "true or false"
    if isinstance(default, int):
        return "" if is_number(value) and value == int(value) else "a whole number"
    if isinstance(default, float):
        return "" if is_number(value) else "a number"
    return "" if not isinstance(default, str) or isinstance(value, str) else "a text"


def check_content(path: Path) -> None:
    """Checks that a file is not a pointer of Git LFS.

    Raises:
        InputError: If it is one.
    """
    with path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise InputError(f"{path} is a Git LFS pointer, not the file itself. Fetch the file: git lfs pull")


def _to_numpy(tensor: Any) -> np.ndarray:
    array: np.ndarray = tensor.float().numpy()
    return array
