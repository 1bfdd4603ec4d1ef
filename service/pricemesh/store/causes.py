"""Why a call to the database failed, as one of a few causes; whether its transaction may have happened."""

import errno
import sqlite3

from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError

from pricemesh.errors import NotStarted, SchemaChanged, StorageCause

_OF_ERRNO = {
    errno.ENOSPC: StorageCause.DISK_FULL,
    errno.EDQUOT: StorageCause.DISK_FULL,
    errno.EROFS: StorageCause.READ_ONLY,
    errno.EACCES: StorageCause.READ_ONLY,
    errno.EPERM: StorageCause.READ_ONLY,
    errno.EIO: StorageCause.IO_ERROR,
    errno.ENOENT: StorageCause.GONE,
    errno.ETIMEDOUT: StorageCause.TIMEOUT,
}
_OF_SQLITE = {
    sqlite3.SQLITE_FULL: StorageCause.DISK_FULL,
    sqlite3.SQLITE_READONLY: StorageCause.READ_ONLY,
    sqlite3.SQLITE_PERM: StorageCause.READ_ONLY,
    sqlite3.SQLITE_CORRUPT: StorageCause.CORRUPT,
    sqlite3.SQLITE_NOTADB: StorageCause.CORRUPT,
    sqlite3.SQLITE_CANTOPEN: StorageCause.GONE,
    sqlite3.SQLITE_IOERR: StorageCause.IO_ERROR,
    sqlite3.SQLITE_BUSY: StorageCause.TIMEOUT,
    sqlite3.SQLITE_LOCKED: StorageCause.TIMEOUT,
    sqlite3.SQLITE_ERROR: StorageCause.GONE,  # our statements are correct, so a table or column is missing
}
_OF_SQLSTATE = {
    "53100": StorageCause.DISK_FULL,
    "25006": StorageCause.READ_ONLY,  # a standby, or default_transaction_read_only
    "42501": StorageCause.READ_ONLY,  # privileges were withdrawn
    "XX001": StorageCause.CORRUPT,
    "XX002": StorageCause.CORRUPT,
    "58030": StorageCause.IO_ERROR,
    "58P01": StorageCause.IO_ERROR,  # a file of the server is missing
    "57014": StorageCause.TIMEOUT,
    "55P03": StorageCause.TIMEOUT,
    "3D000": StorageCause.GONE,
    "3F000": StorageCause.GONE,
    "42P01": StorageCause.GONE,
    "42703": StorageCause.GONE,
    "57P01": StorageCause.CONNECTION_LOST,
    "57P02": StorageCause.CONNECTION_LOST,
    "57P03": StorageCause.GONE,  # the server is starting or stopping
}


def cause_of(fault: BaseException) -> StorageCause:
    """The cause that the driver or the operating system gives. A driver's exception may state its own."""
    origin = fault.orig if isinstance(fault, DBAPIError) else fault
    if isinstance(cause := getattr(origin, "cause", None), StorageCause):
        return cause
    if isinstance(origin, NotStarted):  # the connection was lost, and cannot be made anew
        return StorageCause.OTHER_TERMS if isinstance(origin, SchemaChanged) else StorageCause.GONE
    if isinstance(origin, OSError):
        return _OF_ERRNO.get(origin.errno or 0, StorageCause.OTHER)
    if (code := getattr(origin, "sqlite_errorcode", None)) is not None:
        if code == sqlite3.SQLITE_READONLY_DBMOVED:
            return StorageCause.GONE
        return _OF_SQLITE.get(code & 0xFF, _by_kind(fault))
    if isinstance(fault, DBAPIError) and hasattr(fault.orig, "sqlstate"):
        return _of_postgres(fault, getattr(fault.orig, "sqlstate", None))
    return StorageCause.OTHER


def _of_postgres(fault: DBAPIError, sqlstate: str | None) -> StorageCause:
    if sqlstate is not None and sqlstate in _OF_SQLSTATE:
        return _OF_SQLSTATE[sqlstate]
    if fault.connection_invalidated:
        return StorageCause.CONNECTION_LOST
    if sqlstate is None and isinstance(fault, OperationalError):
        return StorageCause.GONE  # no connection could be made
    return _by_kind(fault)


def _by_kind(fault: BaseException) -> StorageCause:
    """A fault that is not operational comes from what the command holds."""
    is_refusal = isinstance(fault, DBAPIError) and not isinstance(fault, OperationalError | ProgrammingError)
    return StorageCause.REFUSED if is_refusal else StorageCause.OTHER


def was_rolled_back(fault: BaseException) -> bool:
    """Whether a COMMIT that failed like this has certainly not happened.

    A server that reports an error and stays has rolled back; one that is lost may have committed. SQLite
    writes the commit record, then syncs it: after an I/O error the record may be in the WAL, where a start
    after a crash would find it.
    """
    if not isinstance(fault, DBAPIError):
        return False
    if (code := getattr(fault.orig, "sqlite_errorcode", None)) is not None:
        return bool(code & 0xFF != sqlite3.SQLITE_IOERR)
    return getattr(fault.orig, "sqlstate", None) is not None and not fault.connection_invalidated
