"""extrapolate bench"""

from typing import Annotated

import typer


def bench(preset: Annotated[str, typer.Option()] = "tiny") -> None:
    """x"""
