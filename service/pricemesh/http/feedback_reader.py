"""One feedback, read from its body by a decoder that takes a third of the model's time.

A body that the decoder refuses is read again by the model in `schemas`, which reports every fault; a property
test holds both to the same rules.
"""

import re
from typing import Annotated

import msgspec

from pricemesh.core.arrays import MAX_REWARD
from pricemesh.http import schemas
from pricemesh.http.problems import parsed

_DECODE_FAULTS = (msgspec.MsgspecError, ValueError, RecursionError)
_identifier = re.compile(schemas.IDENTIFIER).fullmatch


class FeedbackBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """As `schemas.FeedbackRequest`."""

    decision_id: str
    reward: Annotated[float, msgspec.Meta(ge=-MAX_REWARD, le=MAX_REWARD)]


_decode = msgspec.json.Decoder(FeedbackBody).decode


def read_feedback(body: bytes) -> FeedbackBody:
    try:
        feedback = _decode(body)
    except _DECODE_FAULTS:
        feedback = None
    if feedback is not None and _identifier(feedback.decision_id):
        return feedback
    request = parsed(schemas.FeedbackRequest, body)
    return FeedbackBody(request.decision_id, request.reward)
