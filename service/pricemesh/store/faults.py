"""A database's fault in the driver's own words, without SQL or values."""

from sqlalchemy.exc import DBAPIError, SQLAlchemyError


def reason(fault: SQLAlchemyError) -> str:
    cause = fault.orig if isinstance(fault, DBAPIError) else fault
    return str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__
