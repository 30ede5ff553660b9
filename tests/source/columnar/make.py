"""Make the files of this folder again, with pyarrow (scripts/setup --parquet); tests have them as
they are here, so that they need no pyarrow beside its libraries.

Usage: make.py
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def table(first: int, count: int) -> pa.Table:
    """Rows as Hugging Face's Image feature writes them, with a list of floats."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "image": pa.array(
                [{"bytes": b"flip %d" % i + b"." * (3 * i), "path": f"{i}.jpg"} for i in numbers],
                IMAGE,
            ),
            "label": pa.array(numbers, pa.int64()),
            "boxes": pa.array(
                [[i + k / 2 for k in range(i % 3)] for i in numbers], pa.list_(pa.float32())
            ),
        }
    )


def every_type() -> pa.Table:
    """A column of every type that is read; the last row holds nulls."""

    def column(kind: pa.DataType, *values: object) -> pa.Array:
        return pa.array([*values, None], kind)

    words = pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.int8()), ["no", "yes"])
    return pa.table(
        {
            "bool": column(pa.bool_(), True, False),
            "uint8": column(pa.uint8(), 255, 1),
            "int8": column(pa.int8(), -128, 1),
            "uint16": column(pa.uint16(), 65535, 1),
            "int16": column(pa.int16(), -32768, 1),
            "uint32": column(pa.uint32(), 2**32 - 1, 1),
            "int32": column(pa.int32(), -(2**31), 1),
            "uint64": column(pa.uint64(), 2**63 - 1, 2**63),
            "int64": column(pa.int64(), -(2**63), 1),
            "half": column(pa.float16(), 0.5, 1.0),
            "float": column(pa.float32(), 0.5, 1.0),
            "double": column(pa.float64(), 0.1, 1.0),
            "day": column(pa.date32(), 20000, 1),
            "time": column(pa.timestamp("us"), 1_700_000_000_000_000, 1),
            "text": column(pa.string(), "äöü", ""),
            "large_text": column(pa.large_string(), "long", "x"),
            "view": column(pa.string_view(), "a text of more than twelve bytes", "x"),
            "blob": column(pa.large_binary(), b"\0\1\2", b""),
            "fixed": column(pa.binary(4), b"abcd", b"wxyz"),
            "word": words,
            "list": column(pa.list_(pa.int16()), [1, 2, 3], []),
            "large_list": column(pa.large_list(pa.uint32()), [7], [8, 9]),
            "pair": column(pa.list_(pa.float32(), 2), [1.5, 2.5], [3.5, 4.5]),
            "pairs": column(pa.list_(pa.list_(pa.int32(), 2)), [[1, 2], [3, 4]], []),
            "holes": column(pa.list_(pa.int64()), [1, None], [2]),
            "deep": column(
                pa.struct([("a", pa.struct([("b", pa.int32())]))]),
                {"a": {"b": 5}},
                {"a": None},
            ),
        }
    )


def stream(table: pa.Table, path: Path, batch_rows: int) -> None:
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=batch_rows)


def template(rows: int) -> pa.Table:
    """Rows whose bytes tests/integration/dataset_kinds/rows.py replaces where they stand."""
    return pa.table(
        {
            "image": pa.array([b"\xa5" * 20] * rows, pa.binary(20)),
            "label": pa.array([0x1122334455667788] * rows, pa.int64()),
        }
    )


def moments(unit: str, zone: str | None, moment: int) -> pa.Table:
    """One moment in a unit of its own, alone and in a list."""
    kind = pa.timestamp(unit, zone)
    return pa.table(
        {"time": pa.array([moment], kind), "times": pa.array([[moment]], pa.list_(kind))}
    )


def main() -> None:
    plain = {
        "compression": "none",
        "use_dictionary": False,
        "write_statistics": False,
        "store_schema": False,
    }
    pq.write_table(table(0, 3), HERE / "a.parquet", row_group_size=2, **plain)
    pq.write_table(table(3, 2), HERE / "b.parquet", **plain)
    stream(table(0, 3), HERE / "a.arrow", 2)
    with pa.ipc.new_file(HERE / "b.arrow", table(3, 2).schema) as writer:
        writer.write_table(table(3, 2))
    for rows in (5, 6):
        pq.write_table(template(rows), HERE / f"template-{rows}.parquet", **plain)
        stream(template(rows), HERE / f"template-{rows}.arrow", rows)
    types = every_type()
    stream(types, HERE / "types.arrow", 2)
    # Parquet has no views of its own.
    types = types.set_column(
        types.column_names.index("view"), "view", types["view"].cast(pa.string())
    )
    pq.write_table(types, HERE / "types.parquet", compression="zstd")
    refused = pa.table(
        {
            "label": pa.array([1, 2], pa.int64()),
            "lists": pa.array([[[1], [2, 3]], []], pa.list_(pa.list_(pa.int64()))),
            "names": pa.array([["a"], []], pa.list_(pa.string())),
            "money": pa.array([1, 2], pa.decimal128(10, 2)),
            "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32())),
            "nothing": pa.array([None, None], pa.null()),
        }
    )
    stream(refused, HERE / "refused.arrow", 2)
    for name, unit, zone, moment in (
        ("seconds", "s", None, 1_700_000_000),
        ("micros", "us", None, 1_700_000_000_000_000),
        ("berlin", "us", "Europe/Berlin", 1_700_000_000_000_000),
        ("utc", "us", "UTC", 1_700_000_000_000_000),
    ):
        stream(moments(unit, zone, moment), HERE / f"time-{name}.arrow", 1)
    # Names of 3,000 bytes that are escaped, and more columns than a note names.
    names = ["label", *(f"{i}" + "\1" * 3000 for i in range(8))]
    lists = pa.array([[[1]]], pa.list_(pa.list_(pa.int64())))
    stream(pa.table([pa.array([1]), *[lists] * 8], names=names), HERE / "many-refused.arrow", 1)
    pq.write_table(
        pa.table({"x": pa.array([0x1122334455667788, 2], pa.int64())}),
        HERE / "checksums.parquet",
        write_page_checksum=True,
        **plain,
    )


if __name__ == "__main__":
    main()
