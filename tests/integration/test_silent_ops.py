"""Goal: an op of one user's own that does not answer holds up nobody else's.

Method: a daemon with two workers, of which one may wait for users' own ops, and two users. The op
of the one waits for a file; the other one trains meanwhile. Then the file appears, and the first
one's samples are what they should be.
"""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
from daemon_process import DaemonProcess, other_users
from own_processes import wait_for
from pictures import center, write_folder

import feedwater
from feedwater import Pipeline, ops

pytestmark = pytest.mark.skipif(not other_users(), reason="needs root to be two users")

USER = 52003
RECORDS = 12
MODULE = """
import os, time
import numpy as np

def waiting(image):
    with open(os.environ["ASKED"], "ab") as file:
        file.write(b".")
    while not os.path.exists(os.environ["GO_ON"]):
        time.sleep(0.01)
    return 255 - image

def inverting(image):
    return 255 - image
"""
TRAINER = """
import os, sys
import numpy as np
import feedwater
import users_ops
address, uid, pipeline, results = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
if __name__ == "__main__":
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
    with feedwater.serve_op("own", users_ops.waiting, workers=1, timeout=600, address=address):
        with feedwater.Loader(pipeline, address=address, output="numpy", job="silent") as loader:
            found = {}
            for image, ids in loader:
                found.update(zip(ids.tolist(), image.copy()))
        np.save(results, np.array([found[record] for record in sorted(found)]))
"""


def pipeline(**options) -> Pipeline:
    batch = options.pop("batch", None)
    return Pipeline(
        dataset={"format": "image_folder", "root": "data", "path": "pictures"},
        sampler={"shuffle": "full", "seed": 1},
        graph=[ops.decode(), ops.center_crop(8), *options.pop("graph", [])],
        batch={"size": 3, **({"graph": batch} if batch else {})},
        outputs=["image", "sample_id"],
        cache={"kind": "none"},
        **options,
    )


@pytest.fixture(params=["none", "process"])
def daemon(request, folder, monkeypatch):
    folder.chmod(0o755)
    daemon = DaemonProcess(
        folder / "d",
        f"cpus: 2\npin_cpus: false\nisolation: {request.param}\naccess: {{users: ['{USER}']}}\n",
    )
    write_folder(daemon.data / "pictures", RECORDS)
    (folder / "users_ops.py").write_text(MODULE)
    (folder / "trainer.py").write_text(TRAINER)
    for path in folder.glob("*.py"):
        path.chmod(0o644)
    (folder / "out").mkdir()
    (folder / "out").chmod(0o777)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("GO_ON", str(folder / "go on"))
    monkeypatch.setenv("ASKED", str(folder / "out/asked"))
    yield daemon
    if daemon.alive():
        assert daemon.stop() == 0, daemon.tail()


@pytest.mark.parametrize("place", ["of samples", "of batches"])
def test_a_silent_op_holds_up_its_user_alone(daemon, folder, place):
    op = ops.python("own")
    silent = {"graph": [op]} if place == "of samples" else {"batch": [op]}
    daemon.add_pipeline("silent", pipeline(**silent).to_yaml())
    daemon.start()
    results, asked = folder / "out/results.npy", folder / "out/asked"
    trainer = subprocess.Popen(
        [sys.executable, str(folder / "trainer.py"), daemon.address, str(USER), "silent", results]
    )
    try:
        wait_for(asked.exists, "the op is asked")
        import users_ops

        with (
            feedwater.serve_op("own", users_ops.inverting, workers=1, address=daemon.address),
            feedwater.Loader(
                pipeline(graph=[ops.python("own")]), address=daemon.address, output="numpy"
            ) as loader,
        ):
            longest = 0.0
            for _ in range(5):
                before = time.monotonic()
                for image, ids in loader:
                    longest = max(longest, time.monotonic() - before)
                    wanted = np.array([255 - center(record) for record in ids.tolist()])
                    assert (image == wanted).all()
                    before = time.monotonic()
        assert longest < 20, "the other one's op has 600 s to answer"
        assert trainer.poll() is None and not results.exists()
        assert asked.stat().st_size == 1, "its call stays where it is"
        (folder / "go on").touch()
        assert trainer.wait(60) == 0
    finally:
        trainer.kill()
        trainer.wait()
    wanted = np.array([255 - center(record) for record in range(RECORDS)])
    assert (np.load(results) == wanted).all()
