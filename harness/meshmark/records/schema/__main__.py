# SPDX-License-Identifier: Apache-2.0
"""Write the published JSON Schema: `python -m meshmark.records.schema`."""

from __future__ import annotations

from meshmark.records import schema

if __name__ == "__main__":
    schema.FILE.write_text(schema.read_schema(), encoding="utf-8")
    print(schema.FILE)
