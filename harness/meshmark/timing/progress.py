# SPDX-License-Identifier: Apache-2.0
"""Shows the progress of a benchmark run on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from meshmark.core.progress import spell_rest
from meshmark.timing.bench import Progress


@contextmanager
def shown(total: int) -> Iterator[Callable[[Progress], None]]:
    """Show progress on stderr: a bar on a terminal if rich is installed, otherwise a line from time to time."""
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
        )
        from rich.progress import Progress as Bar
    except ImportError:
        Console = None  # type: ignore[assignment, misc]
    if Console is None or not sys.stderr.isatty():
        last = [time.monotonic()]

        def tell(progress: Progress) -> None:
            if time.monotonic() - last[0] > 10:
                last[0] = time.monotonic()
                print(
                    f"{progress.done} of {progress.cells} cells{spell_rest(progress.rest())}",
                    file=sys.stderr,
                    flush=True,
                )

        yield tell
        return
    columns = (
        TextColumn("timing"), BarColumn(), MofNCompleteColumn(), TextColumn("cells"),
        TimeElapsedColumn(), TextColumn("{task.description}"),
    )  # fmt: skip
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda progress: bar.update(
            task,
            completed=progress.done,
            total=progress.cells,
            description=spell_rest(progress.rest()).lstrip(", "),
        )
