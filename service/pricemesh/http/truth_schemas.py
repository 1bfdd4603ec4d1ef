"""What a demonstration tells of the truth: `POST /lab/truth`."""

from typing import Annotated

from pydantic import BaseModel, Field

from pricemesh.city.addresses import CITY_NAME
from pricemesh.http.schemas import RequestBody


class Regret(RequestBody):
    decisions: Annotated[int, Field(ge=0, le=2**53)]
    regret: Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-1e12, le=1e12)]


class CityTruth(RequestBody):
    city: Annotated[str, Field(pattern=f"^{CITY_NAME}$")]
    together: Regret
    alone: Regret | None = Field(default=None, description="The same city and customers without peers.")


class TruthRequest(RequestBody):
    cities: list[CityTruth] = Field(min_length=1, max_length=64)


class TruthReceipt(BaseModel):
    cities: int
