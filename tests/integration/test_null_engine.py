"""Goal: what the engine that measures gives is kept nowhere.

`storage.engine: null` gives zeros, which are good bytes to formats such as raw.
"""

from __future__ import annotations

import numpy as np
import pytest
from pictures import write_folder

import feedwater

RECORDS = 64
PIPELINE = f"""version: 1
dataset: {{format: raw, root: data, path: r.bin, record_bytes: {RECORDS}}}
sampler: {{shuffle: full, seed: 1}}
batch: {{size: 8}}
outputs: [data]
"""


def values(daemon) -> set[int]:
    """Return the values of all bytes of an epoch."""
    with feedwater.Loader("raw", address=daemon.address, output="numpy") as loader:
        return {int(value) for batch in loader for value in np.unique(batch[0])}


def test_what_the_null_engine_gives_is_not_kept_on_disk(make_daemon):
    daemon = make_daemon(
        config='cpus: 1\nmemory: 1GiB\ncache: {ram: 0, disk: 64MiB}\nstorage: {engine: "null"}\n'
    )
    (daemon.data / "r.bin").write_bytes(b"\7" * RECORDS * RECORDS)
    daemon.add_pipeline("raw", PIPELINE + "cache: {kind: bytes}\n")
    text = daemon.config.read_text()
    daemon.config.write_text(text.replace('"null"', "auto"))
    daemon.start()
    assert values(daemon) == {7}
    assert daemon.stop() == 0
    blocks = {path: path.read_bytes() for path in daemon.folder.rglob("segment-*")}
    assert blocks, "what was kept before"

    daemon.config.write_text(text)
    daemon.start()
    assert values(daemon) <= {0, 7}
    assert daemon.stop() == 0
    assert "gives zeros" in daemon.tail(100_000)
    assert {path: path.read_bytes() for path in daemon.folder.rglob("segment-*")} == blocks

    daemon.config.write_text(text.replace('"null"', "auto"))
    daemon.start()
    assert values(daemon) == {7}
    assert daemon.stop() == 0


def test_a_first_run_with_the_null_engine_leaves_no_zeros(make_daemon):
    daemon = make_daemon(
        config='cpus: 1\nmemory: 1GiB\ncache: {ram: 0, disk: 64MiB}\nstorage: {engine: "null"}\n'
    )
    (daemon.data / "r.bin").write_bytes(b"\7" * RECORDS * RECORDS)
    daemon.add_pipeline("raw", PIPELINE + "cache: {kind: bytes}\n")
    daemon.start()
    values(daemon)
    assert daemon.stop() == 0
    assert not list(daemon.folder.rglob("segment-*"))
    daemon.config.write_text(daemon.config.read_text().replace('"null"', "auto"))
    daemon.start()
    assert values(daemon) == {7}
    assert daemon.stop() == 0


def test_zeros_are_no_bad_samples_of_the_next_daemon(make_daemon):
    daemon = make_daemon(config='cpus: 1\nmemory: 1GiB\nstorage: {engine: "null"}\n')
    write_folder(daemon.data / "pictures", 8)
    daemon.add_pipeline(
        "pictures",
        "version: 1\ndataset: {format: image_folder, root: data, path: pictures}\n"
        "graph:\n  - decode: {}\n  - resize: {size: [8, 8]}\nbatch: {size: 4}\noutputs: [image]\n",
    )
    daemon.start()
    with feedwater.Loader("pictures", address=daemon.address, output="numpy") as loader:
        with pytest.raises(feedwater.BadSample):
            next(iter(loader))
    assert daemon.stop() == 0
    report = daemon.folder / "state/bad_samples.jsonl"
    assert not report.exists() or report.read_text() == ""
