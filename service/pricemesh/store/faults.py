"""The reason of a database fault in the driver's words, without SQL or values."""

from sqlalchemy.exc import DBAPIError


def reason(fault: BaseException) -> str:
    """One line."""
    cause = fault.orig if isinstance(fault, DBAPIError) else fault
    text = str(cause).strip()
    return text.splitlines()[0] if text else type(cause).__name__
