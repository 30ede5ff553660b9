"""`feedwater describe dataset --guess` of data that no format reads: it says what lies below it, or
what the formats say whose files are usually called so, and nothing of the others.
"""

from __future__ import annotations

import os
import tarfile

from command_line import environment, run
from pictures import pixels, png
from test_cli_guess import tfrecord

ALONE = environment(FEEDWATER_ADDRESS="/nonexistent")


def told(data) -> str:
    done = run("describe", "dataset", data, "--guess", env=ALONE)
    assert done.status == 2 and "no format reads" in done.err, done.err
    return done.err


def test_of_a_folder_of_datasets_those_below_are_named(folder):
    for name in ("first", "second"):
        (folder / "in" / name).mkdir(parents=True)
        (folder / "in" / name / "a.tfrecord").write_bytes(tfrecord(1))
    (folder / "in/third/deep").mkdir(parents=True)
    (folder / "in/third/deep/b.data").write_bytes(tfrecord(1) + tfrecord(2))
    (folder / "in/third/deep/more").mkdir()
    (folder / "in/third/deep/more/rows.csv.gz").write_bytes(b"")
    text = told(folder / "in")
    assert "below it: 'first' (tfrecord), 'second' (tfrecord), 'third/deep' (tfrecord), " in text
    assert "'third/deep/more' (csv); cure: name one of these folders" in text
    assert "hold no images" not in text


def test_more_than_a_few_folders_are_counted(folder):
    for number in range(8):
        (folder / f"in/{number}").mkdir(parents=True)
        (folder / f"in/{number}/part-{number}.parquet").write_bytes(b"PAR1")
    text = told(folder / "in")
    assert "'4' (parquet) and 3 more; cure" in text and "'5'" not in text


def test_of_a_file_under_an_unknown_name_one_line_says_it(folder):
    (folder / "x.beton").write_bytes(b"abcd\0\1")
    text = told(folder / "x.beton")
    assert "as it is: no format's files are usually called so" in text
    assert "cifar10" not in text and "array_record" not in text
    assert len(text.splitlines()) == 2, text


def test_of_a_file_under_a_usual_name_its_format_alone_says_what_is_wrong(folder):
    (folder / "x.npy").write_bytes(b"no array")
    text = told(folder / "x.npy")
    assert "npy: " in text and "mindrecord" not in text and "cifar10" not in text


def test_a_link_that_leads_out_is_told_once(folder):
    (folder / "outside.png").write_bytes(png(pixels(0)))
    (folder / "in/cat").mkdir(parents=True)
    os.symlink(folder / "outside.png", folder / "in/cat/0.png")
    config = folder / "feedwater.yaml"
    config.write_text(f"version: 1\npipelines: []\nroots: {{data: {folder / 'in'}}}\n")
    done = run("describe", "dataset", folder / "in", "--guess", "--config", config)
    assert done.status == 2 and "no format reads" in done.err, done.err
    text = done.err
    assert text.count("0.png' of root") == 1, text
    assert "leads outside the root, or through an absolute link" in text


def test_the_pickles_of_cifar10_are_named_with_the_cure(folder):
    pickles = folder / "in/cifar-10-batches-py"
    pickles.mkdir(parents=True)
    for name in ("batches.meta", "data_batch_1", "test_batch"):
        (pickles / name).write_bytes(b"\x80\x02}q\x01")
    archive = folder / "in/cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(pickles, "cifar-10-batches-py")
    for data in (folder / "in", pickles, pickles / "data_batch_1", archive):
        text = told(data)
        assert "pickles" in text and "cifar-10-binary.tar.gz" in text, text
        assert "hold no images" not in text and "holds no records" not in text, text
