"""MindRecord files written in Python, for tests: version 3.0, a page of blobs and one of rows.

After mindspore/ccsrc/minddata/mindrecord/io/shard_writer.cc; tests/formats/test_mindrecord.py
reads what that writer itself wrote.
"""

from __future__ import annotations

import json
import struct


def _packed(value: int | str | dict) -> bytes:
    """Return a value as MessagePack."""
    if isinstance(value, int):
        return b"\xd3" + struct.pack(">q", value)
    if isinstance(value, str):
        return b"\xdb" + struct.pack(">I", len(value.encode())) + value.encode()
    entries = b"".join(_packed(key) + _packed(entry) for key, entry in value.items())
    return b"\xdf" + struct.pack(">I", len(value)) + entries


def mindrecord(
    schema: dict, rows: list[tuple[dict, list[bytes]]], names: list[str], shard: int
) -> bytes:
    """Return file `shard` of a set: each row's map, and its blobs in the order of the schema."""
    raw = blob = b""
    for row, blobs in rows:
        data = _packed(row)
        raw += struct.pack("<Q", len(data)) + data
        several = len(blobs) > 1
        data = b"".join((struct.pack(">Q", len(one)) if several else b"") + one for one in blobs)
        blob += struct.pack("<Q", len(data)) + data
    page_size = max(len(raw), len(blob))
    page = {"shard_id": shard, "page_type_id": 0, "row_group_ids": [{"id": 0, "offset": 0}]}
    blob_page = {"page_type": "BLOB_DATA", "page_id": 0, "page_size": len(blob)}
    raw_page = {"page_type": "RAW_DATA", "page_id": 1, "page_size": len(raw)}
    header = {
        "header_size": 4096,
        "index_fields": [],
        "page": [
            page | blob_page | {"start_row_id": 0, "end_row_id": len(rows)},
            page | raw_page | {"start_row_id": 0, "end_row_id": 0},
        ],
        "page_size": page_size,
        "schema": [
            {
                "blob_fields": [name for name, told in schema.items() if told["type"] == "bytes"],
                "desc": "",
                "schema": schema,
            }
        ],
        "shard_addresses": names,
        "shard_id": shard,
        "statistics": None,
        "version": "3.0",
    }
    text = json.dumps(header).encode()
    head = (struct.pack("<Q", len(text)) + text).ljust(4096, b"\0")
    return head + blob.ljust(page_size, b"\0") + raw
