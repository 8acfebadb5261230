"""The declaration of a setting: its type, default, bounds, and its flag on the command line."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any, Literal, TypeVar, cast, get_args

from pydantic import BaseModel, ConfigDict, Field

from extrapolate.specs import LARGEST_WHOLE

Count = Annotated[int, Field(gt=0, le=LARGEST_WHOLE)]
F = TypeVar("F", bound=Callable[..., Any])
AUTO = "auto"


class Section(BaseModel):
    """Frozen settings, validated. Unknown names and numbers that are not finite are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True)
class Flag:
    """Put into the `Annotated` type of a section's field or a public call's parameter, makes it a flag of the command.

    help: one line, which names other parameters in backticks; `{probes}` stands for the registered names, see
    `cli.registered`. panel: its group in the help. name: the flag, if it is not named after the parameter. usual: the
    default in words, if it depends on something else. off: the flag has an opposite, `--no-` before its name. auto:
    "auto" is accepted too, and leaves the choice to the machine. envvar: the environment variable that sets it. least:
    the smallest number that the command line accepts.
    """

    help: str
    panel: str
    name: str | None = None
    usual: str | None = None
    off: bool = False
    auto: bool = False
    envvar: str | None = None
    least: int | None = None


@dataclass(frozen=True)
class Flagged:
    """A parameter of a public call that is a flag of its command. `type` is text if importing it takes long."""

    name: str
    type: Any
    default: Any
    flag: Flag


def flagged_fields(section: type[Section]) -> list[Flagged]:
    """The fields of a section that have a flag, as parameters: None, or "auto", leaves the value undecided."""
    return [
        Flagged(name, Literal[(AUTO, *get_args(field.annotation))] if flag.auto else field.annotation, None, flag)
        for name, field in section.model_fields.items()
        for flag in field.metadata
        if isinstance(flag, Flag)
    ]


def flags_of(call: Callable[..., Any]) -> list[Flagged]:
    """The flags of a call that `public` was applied to."""
    return cast(Any, call).flags


def public(*sections: type[Section]) -> Callable[[F], F]:
    """Turns a function into a public call, with the flags of its parameters and, as `**settings`, those of sections.

    Its signature lists them all, the sections' first, so that `help` and notebooks show them.
    """

    def decorate(call: F) -> F:
        own = inspect.signature(call)
        positional: list[Parameter] = []
        named: list[Parameter] = []
        flags = [one for section in sections for one in flagged_fields(section)]
        for one in flags:
            default = AUTO if one.flag.auto else None
            named.append(Parameter(one.name, Parameter.KEYWORD_ONLY, default=default, annotation=one.type | None))
        for parameter in own.parameters.values():
            if parameter.kind == Parameter.VAR_KEYWORD:
                continue
            kind, *metadata = get_args(parameter.annotation) or [parameter.annotation]
            kind = getattr(kind, "__forward_arg__", kind)  # `Annotated` wraps a type that is given as text
            if metadata and isinstance(metadata[0], Flag):
                flags.append(Flagged(parameter.name, kind, parameter.default, metadata[0]))
                parameter = parameter.replace(annotation=kind)
            (named if parameter.kind == Parameter.KEYWORD_ONLY else positional).append(parameter)
        signature = own.replace(parameters=[*positional, *named])

        @wraps(call)
        def checked(*arguments: Any, **settings: Any) -> Any:
            try:
                signature.bind(*arguments, **settings)
            except TypeError as error:
                raise TypeError(f"{call.__name__}() {error}") from None
            return call(*arguments, **settings)

        checked.__signature__ = signature  # type: ignore[attr-defined]
        checked.flags = sorted(flags, key=lambda one: list(signature.parameters).index(one.name))  # type: ignore[attr-defined]
        return cast(F, checked)

    return decorate
