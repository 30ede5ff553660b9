"""A user's own op in a real daemon's graph: between other ops, on batches, with its generator."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import numpy as np
import own_datasets as own
import pytest
from own_processes import PATIENCE_S, processes_of, wait_for
from pictures import center, write_folder

import feedwater
from feedwater import Loader, Pipeline, errors, ops

RECORDS = 36


@pytest.fixture(params=["none", "process"])
def daemon(request, make_daemon):
    """An isolated job's decoders have no way out: their workers call for them."""
    daemon = make_daemon(config=f"isolation: {request.param}\n")
    write_folder(daemon.data / "pictures", RECORDS)
    daemon.start()
    return daemon


@pytest.fixture
def serve(daemon):
    """Serve ops; no process is left in the end."""
    served = []

    def start(name, fn, **options):
        served.append(feedwater.serve_op(name, fn, workers=2, address=daemon.address, **options))
        return served[-1]

    yield start
    for one in served:
        one.close()
    wait_for(lambda: processes_of(os.getpid()) in ([], [daemon.process.pid]), "no process is left")


def images(daemon, *graph, batch=None, **options) -> np.ndarray:
    """Return the images of an epoch, in the records' order."""
    pipeline = Pipeline(
        dataset={"format": "image_folder", "root": "data", "path": "pictures"},
        sampler={"shuffle": "full", "seed": 1},
        graph=[ops.decode(), ops.center_crop(8), *graph],
        batch={"size": 6, **({"graph": batch} if batch else {})},
        outputs=["image", "sample_id"],
        **options,
    )
    with Loader(pipeline, address=daemon.address, output="numpy") as loader:
        found = {}
        for image, ids in loader:
            found.update(zip(ids.tolist(), image.copy()))
    return np.array([found[record] for record in sorted(found)])


def widen(image: np.ndarray) -> np.ndarray:
    """Return many more bytes than came."""
    return np.resize(image, (256, 1024))


CENTERS = np.array([center(record) for record in range(RECORDS)])


def test_an_op_stands_between_others(daemon, serve):
    serve("invert", own.invert)
    got = images(daemon, ops.python("invert"), ops.random_horizontal_flip(p=1.0))
    assert (got == 255 - CENTERS[:, :, ::-1]).all()


def test_several_ops_with_other_types_and_shapes(daemon, serve):
    serve("mean", own.mean)
    serve("plus", own.plus)
    op = {"name": "mean", "in": "image", "out": "image", "dtype": "float32", "shape": [3]}
    got = images(daemon, {"python": op}, {"python": {"name": "plus"}})
    wanted = CENTERS.astype(np.float32).mean(axis=(1, 2)) + 1
    assert got.dtype == np.float32 and np.allclose(got, wanted)


def test_an_op_works_on_whole_batches(daemon, serve):
    serve("invert", own.invert)
    got = images(daemon, batch=[ops.python("invert")])
    assert (got == 255 - CENTERS).all()
    got = images(daemon, {"python": {"name": "invert", "batch": True}})
    assert (got == 255 - CENTERS).all()


def test_what_an_op_draws_does_not_depend_on_processes(daemon, serve):
    op = ops.python("jitter", dtype="float32", random=True)
    served = serve("jitter", own.jitter)
    one = images(daemon, op)
    assert (one == images(daemon, op)).all()
    served.close()
    serve("jitter", own.jitter)
    assert (one == images(daemon, op)).all()
    noise = (one - CENTERS).reshape(RECORDS, -1)
    assert (
        np.ptp(noise, axis=1).max() < 0.01 and len({round(float(n), 3) for n in noise[:, 0]}) > 30
    )


def test_an_op_that_raises_makes_bad_samples(daemon, serve):
    serve("picky", own.picky)
    op = {"python": {"name": "picky"}}
    with pytest.raises(errors.BadSample, match="RuntimeError: too dark"):
        images(daemon, op)
    got = images(daemon, op, on_bad_sample="substitute")
    dark = [record for record in range(RECORDS) if CENTERS[record][0, 0, 0] < own.DARK]
    assert 0 < len(dark) < RECORDS / 2
    assert (got == np.delete(CENTERS, dark, axis=0)).all()


def test_what_is_not_as_the_graph_says_is_an_error_with_both(daemon, serve):
    serve("mean", own.mean)
    with pytest.raises(errors.Error, match=r"float32"):
        images(daemon, {"python": {"name": "mean", "dtype": "uint8", "shape": [3]}})


def test_another_number_of_outputs_is_told_with_both_and_the_cure(daemon, serve):
    serve("pair", own.pair)
    text = r"op 'pair': 2 values came, and 1 is expected; cure: return what `out` of the graph has"
    with pytest.raises(errors.BadSample, match=text):
        images(daemon, {"python": {"name": "pair"}})


def test_an_op_that_is_not_said_to_be_random_gets_no_generator(daemon, serve):
    serve("needs", own.needs_rng)
    with pytest.raises(errors.BadSample, match="say 'random: true' in the graph"):
        images(daemon, {"python": {"name": "needs"}})
    assert (images(daemon, ops.python("needs", random=True)) == CENTERS + 1).all()


def test_another_version_is_another_pipeline(daemon, serve):
    pipeline = Pipeline(
        dataset={"format": "image_folder", "root": "data", "path": "pictures"},
        graph=[ops.decode(), ops.center_crop(8), ops.python("invert")],
        batch=6,
        outputs=["image"],
    )
    states = []
    for version in ("1", "2", "1"):
        served = serve("invert", own.invert, version=version)
        with Loader(pipeline, address=daemon.address, output="numpy") as loader:
            states.append(loader.state_dict()["pipeline"])
        served.close()
    assert states[0] == states[2] != states[1]


@pytest.mark.parametrize("factor", [2, 3])
def test_an_op_that_was_edited_while_the_daemon_was_away_is_refused(
    make_daemon, folder, monkeypatch, factor
):
    """Else the rest of the epoch would be made by the new code: no digest has what an op does."""
    daemon = make_daemon()
    write_folder(daemon.data / "pictures", RECORDS)
    daemon.start()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    module = folder / "edited_scale.py"

    def serve(factor: int):
        module.write_text(f"def scale(image): return image // {factor}\n")
        fn = importlib.import_module("edited_scale").scale
        return feedwater.serve_op("scale", fn, workers=1, address=daemon.address)

    pipeline = Pipeline(
        dataset={"format": "image_folder", "root": "data", "path": "pictures"},
        graph=[ops.decode(), ops.center_crop(8), ops.python("scale")],
        batch=6,
        outputs=["image"],
    )
    first = serve(2)
    try:
        with Loader(pipeline, address=daemon.address, output="numpy", slots=2) as loader:
            batches = iter(loader)
            got = [image.copy() for (image,) in [next(batches)]]
            daemon.kill()
            first.close()
            daemon.start()
            with serve(factor):
                if factor == 2:
                    got += [image.copy() for (image,) in batches]
                    assert (np.concatenate(got) == CENTERS // 2).all()
                else:
                    text = r"another own_identity: op scale: pickle \w+ instead of op scale: pickle"
                    with pytest.raises(errors.FailedPrecondition, match=text):
                        list(batches)
    finally:
        first.close()
        sys.modules.pop("edited_scale", None)


EXPERIMENT = """
import sys, feedwater
def aug(image):
    return image // {}
if __name__ == "__main__":
    try:
        with feedwater.serve_op("aug", aug, workers=1, address=sys.argv[1]):
            print("serves", flush=True)
            sys.stdin.readline()
    except feedwater.AlreadyExists as error:
        print(error)
"""


def test_another_function_of_the_same_name_is_refused(make_daemon, folder):
    daemon = make_daemon()
    daemon.start()

    def start(name: str, divisor: int) -> subprocess.Popen:
        (folder / name).mkdir()
        script = folder / name / "train.py"
        script.write_text(EXPERIMENT.format(divisor))
        return subprocess.Popen(
            [sys.executable, script, daemon.address],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip

    first = start("exp1", 2)
    assert first.stdout.readline() == "serves\n"
    others = [start("exp2", 3), start("a copy", 2)]
    said = [other.communicate("\n", timeout=PATIENCE_S)[0] for other in others]
    assert "another function of the same kind is served there" in said[0]
    assert said[1] == "serves\n"
    first.communicate("\n", timeout=PATIENCE_S)


def test_a_batch_that_no_call_takes_is_refused_when_it_is_opened(daemon, serve):
    """By the file's batch size and by the loader's, before any memory is taken for it."""
    serve("whole", own.invert)
    op = {"python": {"name": "whole", "batch": True, "shape": [1048528]}}  # and 192 bytes go in

    def opened(size: int, **options) -> Loader:
        pipeline = Pipeline(
            dataset={"format": "image_folder", "root": "data", "path": "pictures"},
            graph=[ops.decode(), ops.center_crop(8)],
            batch={"size": size, "graph": [op]},
            outputs=["image"],
        )
        return Loader(pipeline, address=daemon.address, output="numpy", slots=1, **options)

    for size, options in ((513, {}), (4, {"batch_size": 513})):
        with pytest.raises(
            errors.InvalidArgument, match=r"op 'python' of the batch.*513.*at most 511 fits"
        ):
            opened(size, **options)
    opened(513, batch_size=4).close()


def test_a_batch_that_an_op_makes_larger_than_a_slot_is_refused_when_it_is_opened(make_daemon):
    daemon = make_daemon(config="limits: {max_slot: 1MiB}\n")
    write_folder(daemon.data / "pictures", RECORDS)
    daemon.start()
    with feedwater.serve_op("widen", widen, workers=1, address=daemon.address):
        op = ops.python("widen", shape=[256, 1024])  # 256 KiB of 192 bytes
        with pytest.raises(errors.InvalidArgument, match=r"over the limit of 1\.0 MiB; make the"):
            images(daemon, op)  # batches of 6
        pipeline = Pipeline(
            dataset={"format": "image_folder", "root": "data", "path": "pictures"},
            graph=[ops.decode(), ops.center_crop(8), op],
            batch=3,
            outputs=["image"],
        )
        with Loader(pipeline, address=daemon.address, output="numpy") as loader:
            assert {image.shape for (image,) in loader} == {(3, 256, 1024)}


def test_an_op_that_nobody_serves_is_refused(daemon):
    with pytest.raises(errors.NotServed, match="nobody"):
        images(daemon, {"python": {"name": "nobody"}}, max_bad_fraction=0.1)


def test_an_op_that_nobody_serves_any_more_is_no_lost_daemon(daemon, serve):
    served = serve("invert", own.invert)
    pipeline = Pipeline(
        dataset={"format": "image_folder", "root": "data", "path": "pictures"},
        graph=[ops.decode(), ops.center_crop(8), ops.python("invert")],
        batch={"size": 6},
        outputs=["image"],
    )
    with Loader(pipeline, address=daemon.address, output="numpy", slots=2) as loader:
        batches = iter(loader)
        next(batches)
        served.close()
        with pytest.raises(errors.NotServed, match="no process serves op 'invert'") as raised:
            list(batches)
        assert raised.value.state == loader.state_dict()
