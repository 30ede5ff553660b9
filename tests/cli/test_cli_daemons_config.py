"""Commands without --config take the configuration of the daemon that runs."""

from __future__ import annotations

import os
import signal
import time

import pytest
from command_line import environment, run
from pictures import write_folder

GRAPH = "  - decode: {in: data, out: image}\n  - center_crop: {size: 8}\n"
PIPELINE = (
    "version: 1\ndataset: {format: image_folder, root: data, path: pictures}\n"
    f"graph:\n{GRAPH}batch: {{size: 4}}\n"
)


@pytest.fixture
def daemon(make_daemon):
    daemon = make_daemon()
    write_folder(daemon.data / "pictures", 8)
    daemon.add_pipeline("some", PIPELINE)
    daemon.start()
    return daemon


@pytest.mark.parametrize("how", ["--address", "environment"])
def test_its_pipelines_and_roots_are_found(daemon, tmp_path, how):
    sheet = tmp_path / "sheet.png"
    where = ("--address", daemon.address) if how == "--address" else ()
    env = environment(FEEDWATER_ADDRESS=None if where else daemon.address)
    for command in (
        ("preview", "some", "-o", sheet, "--draws", 1),
        ("verify", "some"),
        ("index", "some"),
        ("ledger", daemon.pipelines / "some.yaml", "--batch", 1),
        ("graph", "some"),
        ("doctor",),
    ):
        done = run(*where, *command, env=env, cwd=tmp_path)
        assert done.status == 0, (command, done)
    assert "root data" in run(*where, "doctor", env=env).out


def test_the_daemons_own_overrides_hold(make_daemon, tmp_path):
    """Also relative paths, which start at the daemon's working directory."""
    daemon = make_daemon()
    write_folder(daemon.data / "elsewhere", 8)
    daemon.add_pipeline("some", PIPELINE.replace("path: pictures", "path: elsewhere"))
    daemon.add_pipeline("other", PIPELINE.replace("root: data", "root: more"))
    write_folder(tmp_path / "real/pictures", 4)
    write_folder(tmp_path / "caller/real/pictures", 8)
    daemon.command = ["env", "-C", tmp_path, *daemon.command, "--set", "roots.more=real"]
    daemon.start()
    caller = tmp_path / "caller"
    done = run("--address", daemon.address, "verify", "other", cwd=caller)
    assert "4 records" in done.err, done


@pytest.mark.parametrize("key", ["roots", "pipelines"])
def test_what_a_reload_took_over_holds_beside_the_daemons_overrides(make_daemon, tmp_path, key):
    """Commands read what the daemon serves, not what it served when it started."""
    daemon = make_daemon()
    write_folder(daemon.data / "pictures", 8)
    write_folder(tmp_path / "second/pictures", 4)
    daemon.add_pipeline("some", PIPELINE)
    override = "roots.more=/" if key == "roots" else f"pipelines=[{daemon.pipelines}]"
    daemon.command = [*daemon.command, "--set", override]
    daemon.start()
    assert "8 records" in run("--address", daemon.address, "verify", "some").err
    text = daemon.config.read_text()
    daemon.config.write_text(text.replace(f"data: {daemon.data}", f"data: {tmp_path}/second"))
    daemon.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 60
    while "reloaded; pipelines" not in daemon.tail() and time.monotonic() < deadline:
        time.sleep(0.01)
    done = run("--address", daemon.address, "verify", "some")
    assert "4 records" in done.err, done


@pytest.mark.parametrize("how", ["--address", "environment", "default"])
def test_another_configuration_does_not_stand_in_for_that_of_a_daemon_that_hangs(
    daemon, tmp_path, how
):
    """Its names would be those of other data: no file may be taken that was not asked for."""
    (tmp_path / "feedwater").mkdir()
    (tmp_path / "feedwater/0").symlink_to(daemon.address)
    where = ("--address", daemon.address) if how == "--address" else ()
    env = environment(
        FEEDWATER_ADDRESS=daemon.address if how == "environment" else None,
        XDG_RUNTIME_DIR=str(tmp_path),
    )
    os.kill(daemon.process.pid, signal.SIGSTOP)
    try:
        for command in (
            ("verify", daemon.pipelines / "some.yaml"),
            ("convert", "some", tmp_path / "out"),
            ("index", "--all"),
        ):
            began = time.monotonic()
            done = run(*where, *command, env=env)
            assert time.monotonic() - began < 15, "status itself would wait for half a minute"
            assert done.status == 2, done
            for words in ("no configuration", "has not answered within 2 s", "--config FILE"):
                assert words in done.err, (words, done.err)
    finally:
        os.kill(daemon.process.pid, signal.SIGCONT)
    assert not (tmp_path / "out").exists()


def test_of_an_address_where_no_daemon_is_the_message_names_the_address(daemon, tmp_path):
    nowhere = tmp_path / "no"
    done = run("--address", nowhere, "verify", "some")
    assert done.status == 2 and f"no feedwaterd at {nowhere}" in done.err
    assert "--config FILE" in done.err
    assert run("--address", nowhere, "verify", "some", "--config", daemon.config).status == 0


def test_a_ledger_says_whether_the_job_or_the_daemon_is_missing(daemon, tmp_path):
    dead = environment(FEEDWATER_ADDRESS=str(tmp_path / "no"), FEEDWATER_CONFIG=str(daemon.config))
    done = run("ledger", "some", "--batch", 0, env=dead)
    assert done.status == 0 and "no daemon has answered" in done.err, done
    assert "no job 'some' is running" not in done.err
    done = run("--address", daemon.address, "ledger", "some", "--batch", 0)
    assert done.status == 0 and "no job 'some' is running" in done.err, done


def test_a_given_configuration_comes_first(daemon, tmp_path):
    done = run("--address", daemon.address, "verify", "some", "--config", tmp_path / "no.yaml")
    assert done.status == 2 and "no.yaml" in done.err
