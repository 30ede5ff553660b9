"""A loader that is made while its daemon is being started waits for it."""

from __future__ import annotations

import threading
import time

import pytest

import feedwater
from feedwater.address import APPEARS_S
from feedwater.session import Session

PIPELINE = (
    "version: 1\ndataset: {format: image_folder, root: data, path: images}\n"
    "outputs: [sample_id]\nbatch: {size: 2}\ncache: {kind: none}\n"
)


@pytest.fixture
def daemon(make_daemon):
    daemon = make_daemon()
    (daemon.data / "images/a").mkdir(parents=True)
    for i in range(2):
        (daemon.data / f"images/a/{i}.jpg").write_bytes(b"not looked into")
    daemon.add_pipeline("ids", PIPELINE)
    return daemon


@pytest.mark.parametrize("how", ["address", "environment"])
def test_a_loader_waits_for_a_daemon_that_does_not_listen_yet(daemon, monkeypatch, how):
    begin = threading.Timer(0.5, daemon.start)
    begin.start()
    options = {"address": daemon.address}
    if how == "environment":
        monkeypatch.setenv("FEEDWATER_ADDRESS", options.pop("address"))
    with feedwater.Loader("ids", output="numpy", **options) as loader:
        assert [ids.tolist() for (ids,) in loader] == [[0, 1]]
    begin.join()


@pytest.mark.parametrize("given", [True, False])
def test_a_daemon_that_never_comes_is_told_after_a_while(tmp_path, monkeypatch, given):
    for name in ("XDG_RUNTIME_DIR", "FEEDWATER_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("feedwater.address.candidates", lambda _: [str(tmp_path / "nowhere")])
    options = {"address": str(tmp_path)} if given else {}
    began = time.monotonic()
    with pytest.raises(feedwater.DaemonLost):
        feedwater.Loader("ids", output="numpy", **options)
    assert time.monotonic() - began >= APPEARS_S
    began = time.monotonic()
    with pytest.raises(feedwater.DaemonLost):
        feedwater.Loader("ids", output="numpy", reconnect_timeout=0, **options)
    assert time.monotonic() - began < APPEARS_S


def test_a_program_that_pauses_while_it_opens_greets_again(make_daemon, monkeypatch):
    daemon = make_daemon(config="cpus: 1\nmemory: 512MiB\nlimits: {handshake_timeout: 0.3s}\n")
    (daemon.data / "images/a").mkdir(parents=True)
    (daemon.data / "images/a/0.jpg").write_bytes(b"not looked into")
    daemon.add_pipeline("ids", PIPELINE.replace("size: 2", "size: 1"))
    daemon.start()
    greet, pauses = Session._greet, [5.5, 0.0]  # longer than a starting daemon is waited for

    def greet_and_pause(session):
        greet(session)
        time.sleep(pauses.pop(0))

    monkeypatch.setattr(Session, "_greet", greet_and_pause)
    with feedwater.Loader("ids", address=daemon.address, output="numpy") as loader:
        assert [ids.tolist() for (ids,) in loader] == [[0]]
    assert not pauses
