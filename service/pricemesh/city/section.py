"""What all sections of a configuration have in common."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """`examples` of a required key are what an error tells the reader to write."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def split_by_comma(value: Any) -> Any:
    """A variable may list its values with commas."""
    if not isinstance(value, str):
        return value
    return [item.strip() for item in value.split(",") if item.strip()]
