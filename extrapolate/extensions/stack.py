"""Extensions applied together at inference, and their text: `pi`, `yarn:factor=8 + log-n`."""

import copy
import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from extrapolate import specs
from extrapolate.encodings.base import Encoding
from extrapolate.encodings.plan import LAYERS, PLAIN, Plan
from extrapolate.errors import UserError
from extrapolate.extensions.base import SCALE, Extension, extensions
from extrapolate.specs import user_files
from extrapolate.specs.user_files import described

if TYPE_CHECKING:
    from extrapolate.model.language_model import LanguageModel

LAYERS_ARGUMENT = "layers"  # an argument that every extension has
T = TypeVar("T")
LARGEST = 1e30  # factor in a plan; float32 ends at 3e38


@dataclass(frozen=True)
class UserFile:
    """A user's file with its content as it was read."""

    path: Path
    content: bytes

    @property
    def sha256(self) -> str:
        """The hash of its content."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True)
class ExtensionStack:
    """Extensions whose slots differ, applied together.

    text: the normalised spec, so that equal extensions have equal texts: arguments in the order of the class, without
    defaults, and users' files without their folders. files: these files.
    """

    text: str
    parts: tuple[Extension, ...]
    files: tuple[UserFile, ...] = ()

    def label(self) -> str:
        """The name in tables: `YaRN(8) + log-n`."""
        return " + ".join(part.label() for part in self.parts)

    def plan(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        """The joined plans of the parts. Raises UserError if one cannot reach this length, or changes the encoding."""
        plan = PLAIN
        for part in self.parts:
            of_user = not type(part).__module__.startswith("extrapolate.extensions.")
            given = copy.deepcopy(encoding) if of_user else encoding
            try:
                made = guarded(type(part), f"plan at {length} tokens", partial(part.applied, given, seq_len, length))
            except UserError:
                raise
            except (ArithmeticError, ValueError):  # too large, divided by 0, or the logarithm of 0
                raise _out_of_range(part, length) from None
            if not isinstance(made, Plan):
                raise UserError(
                    f"{part.display}: plan returned {made!r}; expected Plan(...), of extrapolate.encodings.plan"
                )
            if changed := _changed(given, encoding):
                raise UserError(
                    f"{part.display}: plan at {length} tokens changes the encoding's {changed}, and with it all other "
                    "rows: return what is to change in the Plan"
                )
            if made.window is not None and made.window < 1:
                raise UserError(f"{part.display}: plan at {length} tokens has window={made.window}: give at least 1")
            if made.pairs is not None and "__dataclass_params__" not in vars(type(made.pairs)):
                name = type(made.pairs).__name__
                raise UserError(f"{part.display}: {name} needs @dataclass(frozen=True), so that equal plans are alike")
            plan = plan.joined(made)
            for one in (plan, *(only for _, only in plan.only)):
                numbers = (one.position_scale, one.value_scale, one.logit_scale, *one.frequency_scale)
                if not all(abs(number) <= LARGEST for number in numbers):
                    raise _out_of_range(part, length)
        return plan

    def joined(self, other: "ExtensionStack") -> "ExtensionStack":
        """Both stacks in one. Raises UserError if they clash."""
        text, parts = f"{self.text} + {other.text}", (*self.parts, *other.parts)
        _check_joins(text, parts)
        return ExtensionStack(text, parts, (*self.files, *other.files))

    def sha256(self) -> str | None:
        """The hashes of the users' files in their order, joined by `+`; None if there are none."""
        return "+".join(file.sha256 for file in self.files) or None

    @property
    def to_fit(self) -> Extension | None:
        """The part with a constant to fit to held-out text, or None."""
        return next((part for part in self.parts if part.unfitted()), None)

    def fitted(self, value: float) -> "ExtensionStack":
        """The stack with that constant."""
        assert self.to_fit is not None
        return self.with_part(self.to_fit.fitted(value).with_layers(self.to_fit.for_layers))

    def with_part(self, new: Extension) -> "ExtensionStack":
        """The stack with the part to fit replaced."""
        return replace(self, parts=tuple(new if part.unfitted() else part for part in self.parts))


def _out_of_range(part: Extension, length: int) -> UserError:
    return UserError(
        f"{part.label()} scales positions, frequencies or scores at {length} tokens by a number that float32 does not "
        "have: give arguments nearer to 1"
    )


def parse(text: str, copies: Sequence[Path] = ()) -> ExtensionStack:
    """A stack from its text. Raises UserError on unknown names, arguments or values, or parts that clash.

    copies: a run's copies of the users' files in the text, in their order, to read instead.
    """
    texts = [part.strip() for part in specs.split_outside_parentheses(text, "+")]
    if not texts:
        raise UserError("an extension must be named: extrapolate extensions lists them")
    parts: list[Extension] = []
    files: list[UserFile] = []
    tidied = []
    for part in texts:
        spec = specs.parse(part)
        own_file, _, class_name = spec.name.rpartition(":")
        copied = own_file and len(files) < len(copies)
        cls, file = find(f"{copies[len(files)]}:{class_name}" if copied else spec.name)
        given = dict(spec.arguments)
        layers = None if LAYERS_ARGUMENT in specs.parameters(cls) else given.pop(LAYERS_ARGUMENT, None)
        arguments = specs.convert_arguments(cls, given, owner=spec.name)
        made = guarded(cls, "__init__", partial(cls, **arguments))
        told = {
            name: _plainly(arguments[name])
            for name, usual in specs.parameters(cls).items()
            if name in arguments and arguments[name] != usual.default
        }
        if layers is not None:
            if layers not in LAYERS:
                raise UserError(f"{spec.name}: layers={specs.truncate(layers)} is not {' or '.join(LAYERS)}")
            if layers != made.for_layers:
                made, told = made.with_layers(layers), told | {LAYERS_ARGUMENT: layers}
        parts.append(made)
        files += [file] if file else []
        short = f"{Path(own_file).name}:{cls.__name__}" if file else spec.name
        tidied.append(specs.spell(short, told))
    _check_joins(text, parts)
    return ExtensionStack(" + ".join(tidied), tuple(parts), tuple(files))


def _plainly(value: Any) -> Any:
    """Turns 2.0 into 2, so that equal numbers have equal texts."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_joins(text: str, parts: Sequence[Extension]) -> None:
    for at, part in enumerate(parts):
        for other in parts[:at]:
            if _identity(part) == _identity(other):
                raise UserError(f"'{specs.truncate(text)}' cannot be joined: {part.display} is there twice")
            if part.slot == other.slot != SCALE:
                both = f"{other.display} and {part.display} both change the {part.slot}"
                raise UserError(f"'{specs.truncate(text)}' cannot be joined: {both}")


def _identity(part: Extension) -> tuple[str, str]:
    """Identifies a class by name, since a user's file is read again for every stack."""
    return type(part).__module__, type(part).__qualname__


def joins(stack: ExtensionStack, name: str) -> bool:
    """Whether an extension can be joined to a stack."""
    try:
        stack.joined(parse(name))
    except ValueError:
        return False
    return True


def reason_against(part: Extension, model: "LanguageModel") -> str | None:
    """Why an extension does not apply to a model, or None if it does."""
    label = model.encoding.display
    if part.clashes_with_ssmax and model.ssmax:
        return f"clashes with the SSMax that {label} was trained with: both scale by the logarithm of the keys in sight"
    refusal = part.refusal(model.encodings)
    return None if refusal is None else f"does not apply to {label}: {refusal}"


def applicable(model: "LanguageModel") -> list[str]:
    """The names of the extensions that apply to a model."""
    return [name for name in extensions.names() if reason_against(extensions[name](), model) is None]


def check_applies(stack: ExtensionStack, model: "LanguageModel") -> None:
    """Raises UserError if a part does not apply to the model, with the reason and what does apply."""
    for text, part in zip(specs.split_outside_parentheses(stack.text, "+"), stack.parts, strict=True):
        if reason := reason_against(part, model):
            name = specs.parse(text).name
            raise UserError(f"{name} {reason}; what applies: {', '.join(applicable(model)) or 'no extension'}")


def find(name: str) -> tuple[type[Extension], UserFile | None]:
    """The class called `name`, a registered name or `path/to/file.py:Class`, and its file. Raises UserError."""
    # mypy wants a concrete class wherever a type is given; this one is compared with, and never made.
    cls, path = user_files.find_class(name, extensions, Extension)  # type: ignore[type-abstract]
    if path is None:
        return cls, None
    class_name = cls.__name__
    if inspect.isabstract(cls):
        raise UserError(f"{path}: {class_name} needs def plan(self, encoding, seq_len, length), which returns a Plan")
    meanings = {
        "display": f'which is its name in tables: write display = "{class_name}"',
        "slot": 'what of a plan it fills: write slot = "positions", for example',
        "needs": "what an encoding must accept: write needs = POSITIONS, for example (of extrapolate.encodings.base)",
    }
    for attribute, meaning in meanings.items():
        if not isinstance(getattr(cls, attribute, None), str):
            raise UserError(f"{path}: {class_name} has no {attribute}, {meaning}")
    return cls, UserFile(path, path.read_bytes())


def _changed(given: Encoding, encoding: Encoding) -> str | None:
    """An attribute, parameter or buffer that differs between an encoding and its copy, by name; None if none does."""
    if given is encoding:
        return None
    mine, theirs = (
        {**vars(one), **dict(one.named_parameters()), **dict(one.named_buffers())} for one in (given, encoding)
    )
    for name, value in mine.items():
        other = theirs.get(name)
        if isinstance(value, Tensor) and isinstance(other, Tensor):
            same = torch.equal(value, other)
        else:
            same = name in theirs and (not isinstance(value, int | float | str | None) or value == other)
        if not same:
            return name
    return None


def guarded(cls: type[Extension], what: str, call: Callable[[], T]) -> T:
    """Calls an extension's code; an error in a user's file becomes a UserError that names the file."""
    if not cls.__module__.startswith(specs.USER_MODULE):
        return call()
    file = Path(inspect.getfile(cls))

    def wrong(error: BaseException) -> BaseException:
        return error if isinstance(error, UserError) else UserError(f"{file}: {what} failed: {described(error, file)}")

    return user_files.of_user(call, wrong)
