"""One record, one sample, one rank: what there is once is not counted in the plural."""

from __future__ import annotations

import re

import pytest
from command_line import run
from pictures import write_folder

import feedwater

PIPELINE = (
    "version: 1\ndataset: {format: image_folder, root: data, path: pictures}\n"
    "sampler: {shuffle: none, last: drop}\ngraph:\n  - decode: {in: data, out: image}\n"
    "  - resize: {size: [96, 96]}\nbatch: {size: 1}\noutputs: [image]\n"
)
PLURAL = re.compile(r"\b1 (records|samples|batches|ranks|steps|classes|slots)\b")


def test_one_is_never_plural(make_daemon):
    daemon = make_daemon()
    write_folder(daemon.data / "pictures", 1)
    daemon.add_pipeline("one", PIPELINE)
    daemon.start()
    with feedwater.Loader("one", address=daemon.address, output="numpy", slots=1) as loader:
        held = next(iter(loader))  # the only slot: no other sample is made
        status = run("--address", daemon.address, "status").out
        del held
    assert ", 1 sample, 0 bad" in status
    with pytest.raises(feedwater.InvalidArgument) as refused:
        feedwater.Loader("one", address=daemon.address, output="numpy", batch_size=2)
    assert "an epoch of 1 record has no whole step" in str(refused.value)

    file = daemon.pipelines / "one.yaml"
    config = ("--config", daemon.config)
    drawn = run("graph", file, *config).out
    checked = run("validate", file, *config).out
    assert "1 record<" in drawn and "an epoch: 1 step, 0 of 1 sample left out" in checked
    daemon.stop()
    daemon.start()  # its index is saved by now
    with feedwater.Loader("one", address=daemon.address, output="numpy"):
        pass
    log = daemon.log.read_text()
    assert "1 record, 1 class, index of" in log and "1 record from the saved index" in log
    for text in (status, str(refused.value), drawn, checked, log):
        assert not PLURAL.search(text), PLURAL.search(text)
