"""A checkpoint's config.json, read field by field."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extrapolate.errors import UserError
from extrapolate.specs import LARGEST_WHOLE


@dataclass(frozen=True)
class Fields:
    """What a configuration says, and where it is."""

    path: Path
    values: Mapping[str, Any]

    def whole(self, name: str) -> int:
        """A field's positive whole number. Raises UserError if it is missing, or none."""
        value = self.values.get(name)
        if value is None:
            raise UserError(f"{self.path} has no {name}")
        if type(value) is not int or not 1 <= value <= LARGEST_WHOLE:
            raise self.error(f"{name} is {short(value)}, not a positive whole number")
        return value

    def number(self, name: str, usual: float | None = None) -> float:
        """A field's positive number, `usual` where it is missing. Raises UserError if it is none."""
        value = usual if self.values.get(name) is None else self.values[name]
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 3.4e38:
            raise self.error(f"{name} is {short(value)}, not a positive number")
        return float(value)

    def flag(self, name: str) -> bool:
        """Whether a field is true, which it is not where it is missing. Raises UserError if it is neither."""
        value = self.values.get(name)
        if value not in (None, False, True):
            raise self.error(f"{name} is {short(value)}, neither true nor false")
        return bool(value)

    def error(self, text: str) -> UserError:
        """What is wrong with the configuration."""
        return UserError(f"{self.path}: {text}")

    def unmatched(self, name: str, value: Any) -> UserError:
        """A field asks for a scaling that no extension here reproduces."""
        return self.error(f"{name} is {short(value)}, which no extension here reproduces")


def short(value: Any) -> str:
    """A value in a message."""
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
