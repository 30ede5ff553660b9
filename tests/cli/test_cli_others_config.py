"""Commands with the configuration of a daemon that has what they lack: its user, CPUs, memory.

What a pipeline does not need stops no command over it. The daemon itself, and its --check, want all
that the file names.
"""

from __future__ import annotations

import os
import subprocess

import pytest
from command_line import PROGRAM, environment, run
from daemon_process import DAEMON, NO_OTHER_USERS, OTHER_USER, other_users
from pictures import write_folder

GRAPH = "  - decode: {in: data, out: image}\n  - center_crop: {size: 8}\n"
QUICK = ("--seconds", "0.2", "--warm-up", "0.1")


@pytest.fixture
def theirs(folder):
    """A daemon's folder with two roots, of which `closed` is for root alone."""
    folder.chmod(0o755)
    for root in ("open/data", "closed/data"):
        (folder / root).mkdir(parents=True)
        write_folder(folder / root / "pictures", 8)
        (folder / root).chmod(0o755)
    (folder / "closed").chmod(0o700)
    (folder / "pipelines").mkdir()
    for name in ("open", "closed"):
        (folder / f"pipelines/{name}.yaml").write_text(
            f"version: 1\ndataset: {{format: image_folder, root: {name}, path: pictures}}\n"
            f"graph:\n{GRAPH}batch: {{size: 4}}\noutputs: [image]\n"
        )
    configure(folder)
    return folder


def configure(folder, *lines: str) -> None:
    """Write its configuration, with these lines."""
    head = [
        "version: 1",
        "pipelines: [pipelines]",
        "state_dir: state",
        "runtime_dir: run",
        "roots: {open: open/data, closed: closed/data}",
    ]
    names = {line.partition(":")[0] for line in lines}
    kept = [line for line in head if line.partition(":")[0] not in names]
    (folder / "feedwater.yaml").write_text("\n".join([*kept, *lines, ""]))


def as_other(program, *arguments) -> subprocess.CompletedProcess:
    """Run a program as another user."""
    user = [f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups"]
    return subprocess.run(
        ["setpriv", *user, program, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment(HOME="/nonexistent"),
        cwd="/",
        timeout=120,
    )


@pytest.mark.skipif(not other_users(PROGRAM), reason=NO_OTHER_USERS)
def test_a_root_that_the_caller_may_not_read_stops_no_pipeline_over_another_one(theirs):
    config = theirs / "feedwater.yaml"
    done = as_other(PROGRAM, "verify", "open", "--config", config)
    assert done.returncode == 0, done
    done = as_other(PROGRAM, "verify", "closed", "--config", config)
    assert done.returncode != 0
    root = f"root 'closed' ({theirs}/closed/data)"
    assert f"{root} may not be read by uid {OTHER_USER}" in done.stderr
    assert "cure: give that user read access" in done.stderr
    done = as_other(PROGRAM, "doctor", "--config", config)
    assert "skip  root closed" in done.stdout and "good  configuration" in done.stdout, done
    done = as_other(DAEMON, "--config", config, "--check")
    assert done.returncode == 2 and "roots.closed: root 'closed'" in done.stderr, done


@pytest.mark.skipif(not other_users(PROGRAM), reason=NO_OTHER_USERS)
def test_a_folder_of_pipelines_that_the_caller_may_not_see_stops_no_file(theirs):
    mine = theirs / "mine.yaml"
    mine.write_text((theirs / "pipelines/open.yaml").read_text())
    configure(theirs, "pipelines: [closed/pipelines]")
    done = as_other(PROGRAM, "verify", mine, "--config", theirs / "feedwater.yaml")
    assert done.returncode == 0, done


@pytest.mark.parametrize(
    "line",
    [
        "roots: {open: open/data, gone: /no/such/folder}",
        'cpus: "0-4000"',
        "cpus: 4000",
        "memory: 8000TiB",
        "numa_node: 900",
    ],
)
def test_what_this_machine_lacks_stops_no_command(theirs, line):
    configure(theirs, line)
    config = theirs / "feedwater.yaml"
    for command in (("verify", "open"), ("preview", "open", "-o", theirs / "sheet.png")):
        done = run(*command, "--config", config)
        assert done.status == 0, done
    done = subprocess.run(
        [DAEMON, "--config", config, "--check"], capture_output=True, text=True, env=environment()
    )
    assert done.returncode == 2 and "feedwater.yaml:" in done.stderr, done


@pytest.mark.parametrize("line, said", [
    ('cpus: "0-4000"', "not as the file says"),
    ("memory: 8000TiB", "instead of `memory` = "),
    ("roots: {open: open/data, closed: closed/data, gone: /no/such/folder}", ""),
])  # fmt: skip
def test_bench_says_what_it_does_not_measure_with(theirs, line, said):
    configure(theirs, line)
    config = theirs / "feedwater.yaml"
    done = run("bench", "open", "--config", config, *QUICK)
    assert done.status == 0 and said in done.err, done
    assert said or done.err == ""
    done = run("bench", "open", "--config", config, "--cpus", "4000", *QUICK)
    assert done.status == 2 and "--cpus: must be a count from 1 to" in done.err, done


def test_a_mistake_of_the_file_is_one_for_commands_too(theirs):
    for line in ("cpus: many", "memory: plenty", "numa_node: left", "storage: {engine: magnetic}"):
        configure(theirs, line)
        done = run("verify", "open", "--config", theirs / "feedwater.yaml")
        assert done.status == 2 and "feedwater.yaml:" in done.err, done


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_plug_in_of_another_user_is_missed_where_its_op_is(theirs):
    """Never loaded: who can write it would run code as whoever runs a command."""
    plugin = theirs / "their.so"
    plugin.write_bytes(b"\177ELF")
    os.chown(plugin, OTHER_USER, OTHER_USER)
    configure(theirs, "plugins: [their.so]")
    config = theirs / "feedwater.yaml"
    done = run("verify", "open", "--config", config)
    assert (done.status, done.err.count("plug")) == (0, 0), done
    assert run("bench", "open", "--config", config, *QUICK).status == 0
    text = (theirs / "pipelines/open.yaml").read_text()
    (theirs / "pipelines/open.yaml").write_text(text.replace("center_crop", "vignette"))
    for more in (("--config", config), ()):
        found = environment(FEEDWATER_CONFIG=str(config))
        done = run("validate", theirs / "pipelines/open.yaml", *more, env=found)
        assert done.status == 2 and "vignette" in done.err, done
        why = f"plugins: {plugin} belongs to user {OTHER_USER}"
        assert done.err.count("warning: ") == 1 and why in done.err, done
        assert "chown root" in done.err
    os.chown(plugin, 0, 0)
    done = run("verify", "open", "--config", config)
    assert done.status == 2 and "their.so cannot be loaded" in done.err, done


def test_a_configuration_with_a_mistake_is_told_where_an_op_is_missing(theirs):
    configure(theirs, "plugins: [none.so]")
    path = theirs / "pipelines/open.yaml"
    path.write_text(path.read_text().replace("center_crop", "vignette"))
    found = environment(FEEDWATER_CONFIG=str(theirs / "feedwater.yaml"))
    done = run("validate", path, env=found)
    assert done.status == 2 and "vignette" in done.err and "none.so" in done.err, done
    configure(theirs, "nonsense: 1")
    done = run("validate", path, env=found)
    assert done.status == 2 and "warning: " in done.err and "nonsense" in done.err, done
