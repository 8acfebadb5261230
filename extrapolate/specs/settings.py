"""What every section of settings is."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from extrapolate.specs import LARGEST_WHOLE

Count = Annotated[int, Field(gt=0, le=LARGEST_WHOLE)]


class Section(BaseModel):
    """Frozen settings, validated. A name that it does not know is refused, and so is a number that is not finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
