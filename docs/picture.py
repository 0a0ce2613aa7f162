"""Draw the end of a run as it shows in a terminal: python docs/picture.py RECORDS docs/summary.svg."""

import io
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from meshmark.devices.facts import Facts
from meshmark.records import files as records
from meshmark.report import summary

read = records.read(Path(sys.argv[1]))
lines = [
    "$ python -m pytest conformance",
    *Facts.from_json(read.runs[0]["facts"]).describe()[:2],
    "",
    *summary.closing(read.cases),
]
console = Console(record=True, width=max(map(len, lines)), file=io.StringIO())
for line in lines:
    console.print(Text(line))
console.save_svg(sys.argv[2], title="meshmark")
