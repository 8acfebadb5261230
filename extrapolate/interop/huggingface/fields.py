"""A checkpoint's config.json, read field by field."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extrapolate.errors import UserError


@dataclass(frozen=True)
class Fields:
    """What a configuration says, and where it is."""

    path: Path
    values: Mapping[str, Any]

    def whole(self, name: str) -> int:
        """A field's positive whole number. Raises UserError where it is missing, or none."""
        value = self.values.get(name)
        if value is None:
            raise UserError(f"{self.path} has no {name}")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.error(f"{name} is {short(value)}, not a positive whole number")
        return value

    def number(self, name: str, usual: float | None = None) -> float:
        """A field's positive number, `usual` where it is missing. Raises UserError where it is none."""
        value = usual if self.values.get(name) is None else self.values[name]
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 3.4e38:
            raise self.error(f"{name} is {short(value)}, not a positive number")
        return float(value)

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
