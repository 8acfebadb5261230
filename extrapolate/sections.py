"""What every section of settings is."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Frozen settings, validated. A name that it does not know is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")
