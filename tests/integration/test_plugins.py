"""Plug-ins of a real daemon: what keeps one out, what a mistaken one costs, and when it changes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time

import pytest
from daemon_process import BUILD, DAEMON, dying_by_signals
from pictures import write_patterns

import feedwater

PLUGINS = BUILD / "plugins"
RECORDS = 12
PIPELINE = """version: 1
dataset: {{format: image_folder, root: data, path: pictures}}
graph:
  - decode: {{in: data, out: image}}
  - center_crop: {{in: image, size: [8, 8]}}
  - {op}: {{in: sample_id, out: checked, value: 7}}
batch: {{size: 4}}
outputs: [image, checked, sample_id]
on_bad_sample: {policy}
"""

pytestmark = pytest.mark.skipif(
    not (PLUGINS / "good.so").exists(), reason=f"{PLUGINS}/good.so is not built"
)


@pytest.fixture
def make(make_daemon):
    """Make a daemon whose configuration names a copy of a plug-in of tests/testing/plugins."""

    def made(plugin: str, more: str = ""):
        daemon = make_daemon(config=f"cpus: 2\nmemory: 1GiB\n{more}plugins:\n  - my.so\n")
        daemon.environment = dying_by_signals()
        install(daemon, plugin)
        write_patterns(daemon.data / "pictures", RECORDS)
        for op in ("crash_on", "throw_on", "leave_on"):
            for policy in ("fail", "substitute"):
                daemon.add_pipeline(f"{op}-{policy}", PIPELINE.format(op=op, policy=policy))
        return daemon

    return made


def install(daemon, plugin: str) -> None:
    """Put a plug-in where the configuration names one, as a package's manager does."""
    new = daemon.folder / "new.so"
    shutil.copyfile(PLUGINS / f"{plugin}.so", new)
    new.chmod(0o644)
    new.rename(daemon.folder / "my.so")


def refusal(daemon, *arguments: str) -> str:
    """Return what a daemon says that does not start, whose status says that it is mistaken."""
    done = subprocess.run(
        [DAEMON, "--config", daemon.config, *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2, done.stderr
    return done.stderr


def epoch(daemon, name: str) -> list[int]:
    ids = []
    with feedwater.Loader(name, address=daemon.address, output="numpy") as loader:
        for _, checked, numbers in loader:
            assert checked.tolist() == numbers.tolist()
            ids += numbers.tolist()
    return ids


# --- what keeps one out ---


@pytest.mark.parametrize(
    "plugin, reason",
    [
        ("no_symbol", "has no symbol feedwater_plugin"),
        ("other_abi", "was built for version 7 of the plug-in interface"),
        ("taken", "offers op 'resize', but there is a built-in one of that name already"),
        ("bad_default", "op 'crash_on': parameter 'value': its default"),
        ("bad_example", "op 'crash_on': its example:1:14: op 'crash_on' has no parameter 'label'"),
        ("start_fails", "cannot start: there is no table"),
    ],
)
def test_one_that_cannot_be_loaded_is_told_with_its_place(make, plugin, reason):
    daemon = make(plugin)
    line = daemon.config.read_text().count("\n")
    place = f"{daemon.config}:{line}:5: plugins: {daemon.folder / 'my.so'}"
    for arguments in ((), ("--check",)):
        said = refusal(daemon, *arguments)
        assert place in said and reason in said, said


def test_a_file_that_is_missing_open_to_others_or_no_library_is_told_with_its_place(make):
    daemon = make("good")
    line = daemon.config.read_text().count("\n")
    path = daemon.folder / "my.so"
    path.chmod(0o666)
    said = refusal(daemon)
    assert f"{daemon.config}:{line}:5: plugins: {path} is writable by all" in said
    assert f"cure: chmod go-w {path}" in said
    path.write_text("no library")
    path.chmod(0o644)
    assert f":{line}:5: plugins: {path} is no shared library" in refusal(daemon)
    path.unlink()
    assert f":{line}:5: plugins: {path}: No such file" in refusal(daemon)
    said = refusal(daemon, "--set", "plugins=[/nowhere/at/all.so]")
    assert "--set plugins: plugins: /nowhere/at/all.so: No such file" in said


def test_commands_tell_of_it_too_and_go_on_where_they_can(make):
    daemon = make("start_fails")
    pipeline = daemon.pipelines / "throw_on-fail.yaml"

    def command(*words, **environment):
        return subprocess.run(
            [BUILD / "bin/feedwater", "--address", daemon.folder, *words],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
        )

    for words in (("validate", pipeline), ("describe", "op", "throw_on"), ("describe", "op")):
        done = command(*words, "--config", daemon.config)
        assert done.returncode == 2, words
        assert "my.so cannot start: there is no table" in done.stderr
    # What nobody has named keeps no command from its work.
    done = command("describe", "op", FEEDWATER_CONFIG=str(daemon.config))
    assert done.returncode == 0 and "center_crop" in done.stdout
    assert done.stderr.startswith(f"warning: {daemon.config}:")
    done = command("describe", "op", "resize", FEEDWATER_CONFIG=str(daemon.config))
    assert done.returncode == 0 and done.stderr == ""
    done = command("doctor", "--config", daemon.config)
    assert "there is no table" in done.stdout


def test_a_pipeline_cannot_bring_one(make):
    daemon = make("good")
    daemon.start()
    text = PIPELINE.format(op="crash_on", policy="fail") + f"plugins: [{daemon.folder}/my.so]\n"
    sent = daemon.folder / "sent.yaml"
    sent.write_text(text)
    with pytest.raises(feedwater.InvalidArgument, match="'plugins'"):
        feedwater.Loader(str(sent), address=daemon.address, output="numpy")


# --- what a mistaken one costs ---


@pytest.mark.parametrize(
    "op, reason",
    [
        ("crash_on", "the decoder process died of SIGSEGV on this record"),
        ("leave_on", "the decoder process died of SIGSYS"),
        ("throw_on", "throw_on: threw an exception: it is the one"),
    ],
)
def test_isolated_it_costs_one_record(make, op, reason):
    daemon = make("good", "isolation: process\n")
    daemon.start()
    with pytest.raises(feedwater.BadSample) as caught:
        epoch(daemon, f"{op}-fail")
    assert caught.value.record == 7
    assert reason in str(caught.value)
    assert "000007.png" in caught.value.path
    ids = epoch(daemon, f"{op}-substitute")
    assert ids[:7] + ids[8:] == [*range(7), *range(8, RECORDS)] and ids[7] != 7
    command = [BUILD / "bin/feedwater", "--address", daemon.address, "status", "--bad", "--json"]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert any(reason in entry["reason"] for entry in listed["bad_samples"]), listed


def test_an_exception_costs_one_record_in_the_daemon_too(make):
    daemon = make("good", "isolation: none\n")
    daemon.start()
    with pytest.raises(feedwater.BadSample, match="throw_on: threw an exception: it is the one"):
        epoch(daemon, "throw_on-fail")
    assert len(epoch(daemon, "throw_on-substitute")) == RECORDS
    assert daemon.alive()


def test_a_crash_in_the_daemon_ends_it_and_puts_the_record_aside(make):
    daemon = make("good", "isolation: none\n")
    for _ in range(2):
        daemon.start()
        with pytest.raises(feedwater.DaemonLost):
            with feedwater.Loader(
                "crash_on-substitute",
                address=daemon.address,
                output="numpy",
                reconnect_timeout=0.5,
                daemon="shared",
            ) as loader:
                list(zip(range(9), loader))
        assert daemon.process.wait(60) == -signal.SIGSEGV
    daemon.start()
    ids = epoch(daemon, "crash_on-substitute")
    assert ids[:7] + ids[8:] == [*range(7), *range(8, RECORDS)] and ids[7] != 7


# --- when it changes ---


def reload(daemon) -> str:
    """Send SIGHUP, and return what the daemon said about it."""
    before = len(daemon.tail(1 << 30))
    daemon.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        said = daemon.tail(1 << 30)[before:]
        if "reloaded;" in said and said.endswith("\n"):
            return said
        time.sleep(0.01)
    raise AssertionError(f"no answer to SIGHUP:\n{said}")


def test_a_changed_file_and_a_changed_list_need_a_restart(make):
    daemon = make("good", "isolation: process\n")
    daemon.start()
    assert "plug-in" in daemon.tail() and "op throw_on, version 1" in daemon.tail()
    assert "restart" not in reload(daemon)
    install(daemon, "good")
    said = reload(daemon)
    assert f"these plug-ins changed and need a restart: {daemon.folder / 'my.so'};" in said
    # No process of another version makes half of a batch.
    with pytest.raises(feedwater.Error, match="has changed since the daemon loaded it; cure"):
        epoch(daemon, "throw_on-substitute")
    daemon.config.write_text(daemon.config.read_text() + "  - other.so\n")
    said = reload(daemon)
    assert "these keys changed and take effect after a restart only: plugins" in said
    assert daemon.stop() == 0
    daemon.config.write_text(daemon.config.read_text().replace("  - other.so\n", ""))
    daemon.start()
    assert len(epoch(daemon, "throw_on-substitute")) == RECORDS
