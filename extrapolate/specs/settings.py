"""The declaration of a setting: its type, default, bounds, and its flag on the command line."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field

from extrapolate.errors import UserError
from extrapolate.specs import LARGEST_WHOLE, kinds_of, truncate
from extrapolate.specs.arguments import FLAG, NUMBER, TEXT, WHOLE, Kind, check, several

Count = Annotated[int, Field(gt=0, le=LARGEST_WHOLE)]
F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S")
AUTO = "auto"
_KINDS: dict[Any, Kind] = {str: TEXT, float: NUMBER, int: WHOLE, bool: FLAG}


class Section(BaseModel):
    """Frozen, validated settings. Unknown names and numbers that are not finite raise an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True)
class Flag:
    """In the `Annotated` type of a setting or a public call's parameter, makes it a flag of the command.

    help: one line, with other parameters in backticks; `{probes}` stands for the registered names, see
    `cli.registered`. panel: the group in the help. name: the flag, if it is not named after the parameter. usual: the
    default in words, if it depends on something else. off: there is an opposite flag, `--no-NAME`. auto: "auto" is
    accepted too, and leaves the choice to the machine. envvar: the environment variable that sets it. least, most: the
    bounds of a number. whole: commas do not separate values; the flag is repeated. none: `off` stands for no values.
    """

    help: str
    panel: str
    name: str | None = None
    usual: str | None = None
    off: bool = False
    auto: bool = False
    envvar: str | None = None
    least: float | None = None
    most: float | None = None
    whole: bool = False
    none: bool = False


@dataclass(frozen=True)
class Flagged:
    """A parameter of a public call that is a flag of its command. `type` is text if it is slow to import."""

    name: str
    type: Any
    default: Any
    flag: Flag

    def kinds(self) -> list[Any]:
        """The types of its values, without None."""
        return [one for one in kinds_of(self.type) if one not in (NoneType, "None")]

    def checked(self, value: Any) -> Any:
        """Checks a value from Python or a study's file, and returns it. Raises UserError if it is not valid."""
        kind, name = self.kinds()[0], self.name
        if get_origin(kind) is tuple:
            return several(name, value, _KINDS[get_args(kind)[0]])
        if get_origin(kind) is Literal:
            if value not in get_args(kind):
                raise UserError(f"`{name}` must be {' or '.join(map(str, get_args(kind)))}, not {truncate(value)}")
        elif isinstance(value, Mapping) and len(self.kinds()) > 1:
            several(name, value, TEXT)
            several(name, value.values(), WHOLE)
            return dict(value)
        else:
            check(name, value, _KINDS[kind])
        if self.flag.least is not None and not value >= self.flag.least:
            raise UserError(f"`{name}` must be at least {self.flag.least}, not {truncate(value)}")
        if self.flag.most is not None and not value <= self.flag.most:
            raise UserError(f"`{name}` must be at most {self.flag.most}, not {truncate(value)}")
        return value


def flagged_fields(section: type) -> list[Flagged]:
    """The fields of a section or a dataclass that have a flag, as parameters.

    In a section, None leaves the value to a preset, and "auto" to the machine.
    """
    if dataclasses.is_dataclass(section):
        declared = ((field.name, field.type, field.default) for field in dataclasses.fields(section))
        return [one for each in declared if isinstance(one := _declared(*each), Flagged)]
    return [
        Flagged(name, Literal[(AUTO, *get_args(field.annotation))] if flag.auto else field.annotation, None, flag)
        for name, field in cast(type[Section], section).model_fields.items()
        for flag in field.metadata
        if isinstance(flag, Flag)
    ]


def _declared(name: str, annotation: Any, default: Any) -> Flagged | Any:
    """A declared parameter, or its type if it has no flag."""
    kind, *metadata = get_args(annotation) if get_origin(annotation) is Annotated else [annotation]
    kind = getattr(kind, "__forward_arg__", kind)  # the text of a type that `Annotated` has wrapped
    flag = next((one for one in metadata if isinstance(one, Flag)), None)
    return kind if flag is None else Flagged(name, kind, default, flag)


def settings_of(section: type[S], given: Mapping[str, Any]) -> S:
    """A dataclass of settings with the given values; None stands for the default.

    Raises UserError if a value has the wrong type or is below its bound.
    """
    known = flagged_fields(section)
    return section(**{one.name: one.checked(given[one.name]) for one in known if given.get(one.name) is not None})


def flags_of(call: Callable[..., Any]) -> list[Flagged]:
    """The flags of a call that `public` was applied to."""
    return cast(Any, call).flags


def public(*sections: type) -> Callable[[F], F]:
    """Returns a decorator for a public call, with the flags of its parameters and, as `**settings`, of sections.

    The signature of the call lists all of them, those of sections first, so that `help` and notebooks show them. Values
    of the call's own parameters are checked if they are plain numbers or text; the call checks all others.
    """

    def decorate(call: F) -> F:
        own = inspect.signature(call)
        positional: list[Parameter] = []
        named: list[Parameter] = []
        flags = [one for section in sections for one in flagged_fields(section)]
        plain: list[Flagged] = []  # parameters of the call itself with a value of one simple type
        for one in flags:
            default = AUTO if one.flag.auto else one.default
            kind = one.type if isinstance(one.type, str) or one.default is not None else one.type | None
            named.append(Parameter(one.name, Parameter.KEYWORD_ONLY, default=default, annotation=kind))
        for parameter in own.parameters.values():
            if parameter.kind == Parameter.VAR_KEYWORD:
                continue
            declared = _declared(parameter.name, parameter.annotation, parameter.default)
            if isinstance(declared, Flagged):
                flags.append(declared)
                if len(kinds := declared.kinds()) == 1 and kinds[0] in _KINDS:
                    plain.append(declared)
                parameter = parameter.replace(annotation=declared.type)
            (named if parameter.kind == Parameter.KEYWORD_ONLY else positional).append(parameter)
        signature = own.replace(parameters=[*positional, *named])

        @wraps(call)
        def checked(*arguments: Any, **settings: Any) -> Any:
            try:
                given = signature.bind(*arguments, **settings).arguments
            except TypeError as error:
                raise TypeError(f"{call.__name__}() {error}") from None
            for one in plain:
                if given.get(one.name) is not None:
                    one.checked(given[one.name])
            return call(*arguments, **settings)

        checked.__signature__ = signature  # type: ignore[attr-defined]
        checked.flags = sorted(flags, key=lambda one: list(signature.parameters).index(one.name))  # type: ignore[attr-defined]
        return cast(F, checked)

    return decorate
