"""Options, declared once: default, type, range and meaning of each in one line.

A class of options is a frozen dataclass derived from `Options` whose fields are declared by `size`, `count`, `rate`,
`number`, `flag`, `choice`, `text` and `texts`. Defaults, checks, `--help`, model cards and documentation are derived
from these lines. This module needs only the standard library, so reading the options of a model does not import Keras.

Example:
    >>> from dataclasses import dataclass
    >>> from zoo.options import Options, rate, size
    >>> @dataclass(frozen=True, kw_only=True)
    ... class CellOptions(Options):
    ...     units: int = size(256, "Size of the state.")
    ...     dropout: float = rate(0.3, "Rate of dropout on the inputs.")
    >>> CellOptions(units=8)
    CellOptions(units=8, dropout=0.3)
    >>> CellOptions(units=0)
    Traceback (most recent call last):
    zoo.errors.InputError: `units` must be a positive integer. Received: units=0.
"""

import dataclasses
import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from typing import Any, ClassVar, Self

from zoo.errors import InputError, unknown_name

LARGEST = 2**31 - 1
"""The largest integer of an option, because libraries use 32 bits."""

LONGEST_SHOWN = 200
"""Maximum number of characters of an invalid value in a message."""

_KINDS = {int: "integer", float: "number", bool: "true or false", str: "text", list: "list of texts"}
_TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclasses.dataclass(frozen=True)
class Option:
    """The declaration of one option.

    Attributes:
        default: Its default; `MISSING` if it is required.
        kind: `int`, `float`, `bool`, `str` or `list` (of strings).
        meaning: Its description, one or two sentences.
        minimum: Smallest value.
        maximum: Largest value.
        above: Exclusive lower bound.
        below: Exclusive upper bound.
        choices: All allowed values; empty for any.
        forms: Forms of further values, such as `"file:PATH"`; values begin with the same prefix and colon.
        synonyms: Other names of values, and the values.
        automatic: Whether `None` is allowed, which means that the value depends on the data or the machine.
        derived: Whether the value is computed from the data and cannot be set.
    """

    default: Any
    kind: type
    meaning: str = ""
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    synonyms: Mapping[str, str] = dataclasses.field(default_factory=dict)
    automatic: bool = False
    derived: bool = False

    @classmethod
    def like(cls, value: Any) -> "Option":
        """Returns an option of the type of a default value, for models that declare no options."""
        return cls(value, str if value is None else type(value), automatic=value is None)

    @property
    def type_name(self) -> str:
        """The type in the help of a command, such as `"integer"` or `"constant, cosine"`."""
        return ", ".join((*self.choices, *self.forms)) or _KINDS[self.kind]

    def expected(self) -> str:
        """Returns a description of valid values, such as `"a positive integer"`."""
        if self.choices:
            *most, last = *self.choices, *self.forms
            return f"{', '.join(most)} or {last}"
        name = {int: "integer", float: "number"}.get(self.kind)
        if name is None:
            return {bool: "true or false", str: "a text", list: "a list of texts"}[self.kind]
        if self.maximum is not None and self.kind is int:
            return f"an integer from {self.minimum} to {self.maximum}"
        highest = self.below if self.maximum is None else self.maximum
        if highest is not None:
            opening, closing = "(["[self.minimum is not None], ")]"[self.maximum is not None]
            return f"in {opening}{self.minimum or self.above or 0:g}, {highest:g}{closing}"
        if self.above == 0 or (self.minimum == 1 and self.kind is int):
            return f"a positive {name}"
        article = "an" if self.kind is int else "a finite"
        return f"{article} {name}{f' of {self.minimum:g} or more' if self.minimum is not None else ''}"

    def checked(self, name: str, value: Any) -> Any:
        """Converts a value of Python or NumPy to the option's type; the name is for the message.

        Raises:
            InputError: If it is of another type or out of range.
        """
        if value is None and self.automatic:
            return None
        if isinstance(value, str):
            value = self.synonyms.get(value, value)
        if not self._fits(value):
            short, shown = name.rpartition(".")[2], repr(value)
            shown = shown if len(shown) <= LONGEST_SHOWN else f"{shown[:LONGEST_SHOWN]}…"
            limit = f", at most {LARGEST}" if self.maximum is None and self._is_too_large(value) else ""
            raise InputError(f"`{name}` must be {self.expected()}{limit}. Received: {short}={shown}.")
        return list(value) if self.kind is list else self.kind(value)

    def _fits(self, value: Any) -> bool:
        if self.kind is list:
            return isinstance(value, list | tuple) and all(isinstance(member, str) for member in value)
        if self.kind in (bool, str):
            is_choice = not self.choices or value in self.choices
            return isinstance(value, self.kind) and (is_choice or self._has_form(str(value)))
        expected = numbers.Integral if self.kind is int else numbers.Real
        if not isinstance(value, expected) or isinstance(value, bool) or self._is_too_large(value):
            return False
        if not math.isfinite(value):
            return False
        number: Any = value
        return (
            (self.minimum is None or number >= self.minimum)
            and (self.maximum is None or number <= self.maximum)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )

    def _has_form(self, value: str) -> bool:
        prefixes = (form.partition(":")[0] + ":" for form in self.forms)
        return any(value.startswith(prefix) and value != prefix for prefix in prefixes)

    def _is_too_large(self, value: Any) -> bool:
        return self.kind is int and isinstance(value, numbers.Integral) and not -LARGEST - 1 <= int(value) <= LARGEST

    def read(self, name: str, value: Any) -> Any:
        """Converts a value of a command line (a text) or of TOML, YAML or JSON to the option's type.

        Raises:
            InputError: If it cannot be converted, or is out of range.
        """
        if isinstance(value, bool) and "on" in self.choices:
            value = "on" if value else "off"  # YAML reads on and off as booleans
        elif isinstance(value, float) and self.kind is int and value.is_integer():
            value = int(value)  # such as 1e3 in TOML
        elif isinstance(value, str) and self.automatic and self.kind is not str and value in ("auto", "none"):
            value = None
        elif isinstance(value, str) and self.kind in (int, float):
            try:
                value = self.kind(value)
            except ValueError:
                pass  # `checked` raises with the expected type
        elif isinstance(value, str) and self.kind is bool:
            value = _TRUTH.get(value.lower(), value)
        return self.checked(name, value)


def _declare(option: Option) -> Any:
    return dataclasses.field(default=option.default, metadata={"option": option})


def _field(default: Any, kind: type, meaning: str, **limits: Any) -> Any:
    return _declare(Option(default, kind, meaning, **limits))


def size(default: Any, meaning: str, **limits: Any) -> Any:
    """Declares an option that is a positive integer; see `Option` for the arguments."""
    return _field(default, int, meaning, **{"minimum": 1, **limits})


def count(default: Any, meaning: str, **limits: Any) -> Any:
    """Declares an option that is an integer of 0 or more; see `Option` for the arguments."""
    return _field(default, int, meaning, **{"minimum": 0, **limits})


def rate(default: Any, meaning: str, **limits: Any) -> Any:
    """Declares an option that is a number in [0, 1); see `Option` for the arguments."""
    return _field(default, float, meaning, **{"minimum": 0, "below": 1, **limits})


def number(default: Any, meaning: str, **limits: Any) -> Any:
    """Declares an option that is a number, positive unless there are `limits`; see `Option` for the arguments."""
    return _field(default, float, meaning, **(limits or {"above": 0}))


def flag(default: Any, meaning: str, **limits: Any) -> Any:
    """Declares an option that is true or false; see `Option` for the arguments."""
    return _field(default, bool, meaning, **limits)


def choice(default: Any, choices: Sequence[str], meaning: str, **limits: Any) -> Any:
    """Declares an option that is one of a few names; see `Option` for the arguments."""
    return _field(default, str, meaning, choices=tuple(choices), **limits)


def text(default: Any, meaning: str, **limits: Any) -> Any:
    """Declares an option that is any text; see `Option` for the arguments."""
    return _field(default, str, meaning, **limits)


def texts(default: Any, meaning: str, **limits: Any) -> Any:
    """Declares an option that is a list of texts; see `Option` for the arguments."""
    return _field(default, list, meaning, **limits)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Base class of options, which are checked by the constructor and immutable.

    A subclass overrides `check` if some options must be consistent with others. A subclass may set the `group` of the
    options that it declares: each then also has the name `GROUP.NAME`, and `GROUP.SHORT` for its `short_names`.

    Raises:
        InputError: For a value of another type or out of range, and for inconsistent options.
    """

    group: ClassVar[str] = ""
    short_names: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        for name, declared in self.declared().items():
            object.__setattr__(self, name, declared.checked(name, getattr(self, name)))
        self.check()

    def check(self) -> None:
        """Checks that the options are consistent.

        Raises:
            InputError: If they are not.
        """

    @classmethod
    def declared(cls) -> dict[str, Option]:
        """Returns the declaration of each option by name, in order."""
        return {field.name: field.metadata["option"] for field in dataclasses.fields(cls)}

    @classmethod
    def groups(cls) -> dict[str, str]:
        """Returns the group of each option by name, `""` for no group."""
        groups = dict.fromkeys(cls.declared(), "")
        for base in cls.__mro__:
            for name in vars(base).get("__annotations__", {}):
                if name in groups and not groups[name]:
                    groups[name] = vars(base).get("group", "")
        return groups

    @classmethod
    def by_group(cls) -> dict[str, str]:
        """Returns the names of the options by their second names, `GROUP.NAME`."""
        names = {f"{group}.{name}": name for name, group in cls.groups().items() if group}
        for base in cls.__mro__:
            if group := vars(base).get("group"):
                names |= {f"{group}.{short}": name for short, name in vars(base).get("short_names", {}).items()}
        return {long: name for long, name in names.items() if name in cls.declared()}

    @classmethod
    def required(cls) -> tuple[str, ...]:
        """Returns the names of the options without a default."""
        return tuple(name for name, option in cls.declared().items() if option.default is MISSING)

    @classmethod
    def with_default(cls, name: str, default: Any) -> Any:
        """Declares an option of this class again in a subclass, with another default."""
        return _declare(dataclasses.replace(cls.declared()[name], default=default))

    @classmethod
    def describe(cls) -> str:
        """Returns the options as the section of a docstring: name, meaning and default of each."""
        lines = ["Args:"]
        for name, option in cls.declared().items():
            choices = f" One of {', '.join((*option.choices, *option.forms))}." if option.choices else ""
            default = "" if option.default is MISSING else f" Default: {option.default}."
            lines.append(f"    {name}: {option.meaning}{choices}{default}")
        return "\n".join(lines)

    @classmethod
    def read(cls, values: Mapping[str, Any], section: str) -> Self:
        """Returns options from a section of settings, whose values may be texts.

        Raises:
            InputError: For an unknown name (the message suggests similar ones), or an invalid value.
        """
        return cls(**read_values(cls.declared(), values, section))

    @classmethod
    def take(cls, arguments: Mapping[str, Any]) -> tuple[Self, dict[str, Any]]:
        """Returns the options among the keyword arguments of a constructor, and the other arguments."""
        own = {name: value for name, value in arguments.items() if name in cls.declared()}
        return cls(**own), {name: value for name, value in arguments.items() if name not in own}

    def to_dict(self) -> dict[str, Any]:
        """Returns the options by name."""
        return {name: getattr(self, name) for name in self.declared()}


def read_values(declared: Mapping[str, Option], values: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Converts the values of a section of settings, which may be texts, to the types of their options.

    Raises:
        InputError: For an unknown name (the message suggests similar ones), or an invalid value.
    """
    for name in values:
        if name not in declared:
            raise unknown_name("setting", f"{section}.{name}", [f"{section}.{known}" for known in declared])
    return {name: declared[name].read(f"{section}.{name}", value) for name, value in values.items()}
