"""Record files: the names that other rooms use of the definition, of reading and of writing."""

from meshmark.records.definition import KINDS, SCHEMA
from meshmark.records.reading import LONGEST, TORN, Judged, RecordError, Records, opened, read
from meshmark.records.writing import Writer, dumps

__all__ = [
    "KINDS",
    "LONGEST",
    "SCHEMA",
    "TORN",
    "Judged",
    "RecordError",
    "Records",
    "Writer",
    "dumps",
    "opened",
    "read",
]
