"""SIGHUP on a real daemon: what changes at once, what does not, and whom it disturbs."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import time

import pytest
from daemon_process import BUILD, NO_OTHER_USERS, other_users
from pictures import write_folder

import feedwater

_PIPELINE = """version: 1
dataset: {{format: image_folder, root: {root}, path: pictures}}
sampler: {{shuffle: full, seed: 7}}
graph:
  - decode: {{in: data, out: image}}
  - resize: {{size: [8, 8]}}
batch: {{size: 4}}
outputs: [image, sample_id]
"""


@pytest.fixture
def daemon(make_daemon):
    made = make_daemon()
    write_folder(made.data / "pictures", 24)
    made.add_pipeline("first", _PIPELINE.format(root="data"))
    made.start()
    return made


def _reload(daemon, says: str) -> str:
    """Send SIGHUP, and return what the daemon logged up to the line with `says`."""
    before = len(daemon.tail(1 << 30))
    daemon.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        said = daemon.tail(1 << 30)[before:]
        if says in said and said.endswith("\n"):
            return said
        time.sleep(0.01)
    raise AssertionError(f"'{says}' did not come:\n{said}")


def _epoch(loader) -> list:
    return [(ids.tolist(), image.tobytes()) for image, ids in loader]


def _names(daemon) -> set[str]:
    """Names of `first`, `second` that can be opened."""
    known = set()
    for name in ("first", "second"):
        try:
            feedwater.Loader(name, address=daemon.address, output="numpy").close()
            known.add(name)
        except feedwater.Error:
            pass
    return known


def test_a_bad_file_changes_nothing_and_is_told_with_its_place(daemon):
    good = daemon.config.read_text()
    line = len(good.splitlines()) + 1
    daemon.add_pipeline("second", _PIPELINE.format(root="data"))
    for bad in ("colour: red\n", "  memory: [\n"):
        daemon.config.write_text(good.replace("{data: ", "{other: ") + bad)
        said = _reload(daemon, "the configuration stays as it was")
        assert f"{daemon.config}:{line}:" in said
        assert _names(daemon) == {"first", "second"}, "the root is there"
    daemon.config.write_text(good)
    _reload(daemon, "reloaded;")
    assert _names(daemon) == {"first", "second"}


def test_a_good_file_changes_pipelines_and_roots_at_once(daemon):
    elsewhere = daemon.folder / "elsewhere"
    write_folder(elsewhere / "pictures", 12)
    daemon.config.write_text(
        daemon.config.read_text().replace("{data: ", f"{{more: {elsewhere}, data: ")
    )
    daemon.add_pipeline("second", _PIPELINE.format(root="more"))
    with pytest.raises(feedwater.Error, match=r"unknown root 'more'.*at SIGHUP"):
        feedwater.Loader("second", address=daemon.address, output="numpy")
    assert _names(daemon) == {"first"}
    said = _reload(daemon, "reloaded;")
    assert f"SIGHUP of process {os.getpid()} (" in said
    assert f") of user {os.getuid()}: reading {daemon.config} again" in said
    with feedwater.Loader("second", address=daemon.address, output="numpy") as loader:
        assert sum(len(ids) for ids, _ in _epoch(loader)) == 12
    (daemon.pipelines / "first.yaml").unlink()
    _reload(daemon, "reloaded;")
    assert _names(daemon) == {"second"}


def test_a_broken_pipeline_is_not_listed_among_the_good_ones(daemon):
    daemon.add_pipeline("second", _PIPELINE.format(root="data").replace("resize", "resise"))
    said = _reload(daemon, "reloaded;")
    assert f"{daemon.pipelines / 'second.yaml'}:6:" in said, "its mistake comes with its place"
    assert "reloaded; pipelines: first; broken, see above: second\n" in said


def test_an_unknown_name_says_what_there_is_now(daemon):
    daemon.add_pipeline("second", _PIPELINE.format(root="data"))
    with pytest.raises(feedwater.NotFound) as caught:
        feedwater.Loader("secnod", address=daemon.address, output="numpy")
    for words in (
        "did you mean 'second'",
        "Known: first",
        f"secnod.yaml is looked for in {daemon.pipelines}",
    ):
        assert words in str(caught.value)


def test_running_streams_do_not_notice(daemon):
    with feedwater.Loader("first", address=daemon.address, output="numpy") as loader:
        undisturbed = [_epoch(loader), _epoch(loader)]
    good = daemon.config.read_text()
    with feedwater.Loader("first", address=daemon.address, output="numpy") as loader:
        seen = []
        for epoch in range(2):
            batches = []
            for step, (image, ids) in enumerate(loader):
                batches.append((ids.tolist(), image.tobytes()))
                if step == 1 and epoch == 0:
                    # Even the stream's own pipeline goes, and its root.
                    (daemon.pipelines / "first.yaml").unlink()
                    daemon.config.write_text(good.replace("{data: ", "{other: "))
                    _reload(daemon, "reloaded;")
                if step == 3 and epoch == 0:
                    daemon.config.write_text("version: 1\n")
                    _reload(daemon, "the configuration stays as it was")
            seen.append(batches)
    assert seen == undisturbed
    assert _names(daemon) == set()


@pytest.mark.skipif(not other_users(BUILD / "bin/feedwater"), reason=NO_OTHER_USERS)
def test_access_changes_at_once(daemon):
    nobody = pwd.getpwnam("nobody")
    daemon.folder.parent.chmod(0o755)

    def healthy() -> bool:
        done = subprocess.run(
            [BUILD / "bin/feedwater", "--address", daemon.address, "health"],
            user=nobody.pw_uid,
            group=nobody.pw_gid,
            extra_groups=[],
            capture_output=True,
        )
        return done.returncode == 0

    good = daemon.config.read_text()
    assert not healthy()
    daemon.config.write_text(good + "access: {users: [nobody]}\n")
    _reload(daemon, "reloaded;")
    assert healthy()
    daemon.config.write_text(good)
    _reload(daemon, "reloaded;")
    assert not healthy()
