"""feedwater doctor: what it finds on this host, and on made-up ones."""

from __future__ import annotations

import resource
import subprocess

import pytest
from command_line import PROGRAM, environment, run


@pytest.fixture
def host(tmp_path, project):
    """A copy of another host's /proc and /sys, to be filled."""

    def write(path: str, text: str) -> None:
        file = tmp_path / "host" / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    write.root = tmp_path / "host"
    write("/proc/sys/kernel/osrelease", "6.12.1")
    return write


def checks(*arguments, **options) -> dict[str, dict]:
    result = run("doctor", *arguments, "--json", **options)
    assert result.status in (0, 1), result.err
    document = result.document
    states = [check["state"] for check in document["checks"]]
    assert document["warnings"] == states.count("warning")
    assert document["failures"] == states.count("failure")
    assert result.status == (1 if document["failures"] else 0)
    for check in document["checks"]:
        assert (check["cure"] == "") == (check["state"] == "good"), check
    return {check["check"]: check for check in document["checks"]}


def test_every_check_says_what_it_found(project):
    found = checks("--config", project.config)
    for name in (
        "kernel",
        "io_uring",
        "shared memory",
        "CPUs",
        "governor",
        "NUMA",
        "memory",
        "huge pages",
        "clock",
        "open files",
        "locked memory",
        "configuration",
        "root data",
        "state_dir",
        "daemon",
    ):
        assert found[name]["found"], name


def test_what_is_for_tests_alone_is_not_listed(project):
    assert "--root" not in run("doctor", "--help").out
    assert "--root" not in run("complete", "--", "doctor", "--").out


@pytest.mark.parametrize(
    "path, text, check, words",
    [
        ("/proc/sys/kernel/osrelease", "5.10.0-8-amd64", "kernel", "SO_PEERPIDFD"),
        ("/proc/sys/kernel/io_uring_disabled", "2", "io_uring", "sysctl"),
        (
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "powersave",
            "governor",
            "cpupower",
        ),
        (
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
            "hpet",
            "clock",
            "tsc",
        ),
    ],
)
def test_a_host_that_is_not_right_gets_a_warning_with_the_cure(host, path, text, check, words):
    assert checks("--root", host.root)[check]["state"] == "good" or check == "io_uring"
    host(path, text)
    found = checks("--root", host.root)[check]
    assert found["state"] == "warning"
    assert words in found["cure"]


def test_without_a_configuration_nothing_of_it_is_called_good(project):
    no_daemon = environment(FEEDWATER_ADDRESS=str(project.folder))
    found = checks(env=no_daemon)["configuration"]
    if "/etc/feedwater" in found["found"]:
        pytest.skip("a configuration is installed here")
    assert found["state"] == "skipped" and "--config" in found["cure"]
    assert "skip  configuration" in run("doctor").out


def test_two_nodes_want_two_daemons(host):
    for node in (0, 1):
        host(f"/sys/devices/system/node/node{node}/meminfo", f"Node {node} MemTotal: 1048576 kB")
    found = checks("--root", host.root)["NUMA"]
    assert found["state"] == "warning" and "1.0 GiB" in found["found"]
    assert "feedwaterd@1" in found["cure"]


def test_few_open_files_are_a_warning(project):
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))

    done = subprocess.run(
        [PROGRAM, "doctor"], preexec_fn=limit, env=environment(), capture_output=True, text=True
    )
    assert "512 open files" in done.stdout and "LimitNOFILE" in done.stdout


def test_a_state_folder_that_is_not_there_is_looked_at_where_it_will_be(project):
    config = project.folder / "later.yaml"
    text = project.config.read_text()
    config.write_text(text.replace("state_dir: state", f"state_dir: {project.folder / 'a/b/c'}"))
    found = checks("--config", config)["state_dir"]["found"]
    assert "a/b/c: made at the first start, on " in found and " free" in found


def test_a_bad_configuration_and_a_missing_root_fail(project):
    config = project.folder / "bad.yaml"
    config.write_text("version: 1\npipelines: [x]\nroots: {a: /nowhere/at/all}\nnonsense: 1\n")
    result = run("doctor", "--config", config)
    assert result.status == 1
    assert "FAIL" in result.out and "nonsense" in result.out and "cure" in result.out
