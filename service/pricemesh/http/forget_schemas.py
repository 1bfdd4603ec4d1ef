"""The bodies of /admin/forget."""

from pydantic import BaseModel, Field

from pricemesh.http.schemas import RequestBody, Subject


class ForgetRequest(RequestBody):
    subject: Subject


class ForgetResult(BaseModel):
    decisions: int = Field(description="From how many the subject was removed.")
