"""What operators install: units, seccomp profile, package files."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from daemon_process import DAEMON, ROOT
from pictures import write_folder

import feedwater

DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd/feedwaterd@.service"
SOCKET = DEPLOY / "systemd/feedwaterd@.socket"

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


class Unit(configparser.RawConfigParser):
    """A unit file, whose keys keep their case and may come several times."""

    def __init__(self, path: Path) -> None:
        super().__init__(strict=False)
        self.optionxform = str
        self.lines = path.read_text().splitlines()
        self.read(path)

    def all(self, key: str) -> list[str]:
        return [line.split("=", 1)[1] for line in self.lines if line.startswith(f"{key}=")]


@needs_systemd
def test_the_unit_is_exposed_by_no_more_than_1(tmp_path):
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=10", "--no-pager", UNIT],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    level = float(re.search(r"exposure level.*: ([\d.]+)", done.stdout).group(1))
    assert level <= 1.0


@needs_systemd
def test_systemd_understands_every_line(tmp_path):
    for unit in (UNIT, SOCKET):
        text = unit.read_text().replace("/usr/bin/feedwaterd", str(DAEMON))
        (tmp_path / unit.name).write_text(text)
    for name in ("feedwaterd@0.service", "feedwaterd@0.socket"):
        template = name.replace("@0", "@")
        shutil.copy(tmp_path / template, tmp_path / name)
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", tmp_path / name],
            capture_output=True,
            text=True,
        )
        said = [line for line in done.stderr.splitlines() if "feedwaterd@" in line]
        assert not said, said


def test_the_unit_and_the_socket_agree_with_the_daemon():
    unit, socket = Unit(UNIT), Unit(SOCKET)
    command = unit["Service"]["ExecStart"]
    assert "--numa-node %i" in command, "systemd 252 does not expand %i in NUMAMask="
    assert not unit.all("NUMAMask") and not unit.all("CPUAffinity")
    folder = re.search(r"runtime_dir=(\S+)", command).group(1)
    assert folder == f"/run/{unit['Service']['RuntimeDirectory']}"
    assert socket["Socket"]["ListenStream"] == f"{folder}/control.sock"
    assert socket["Socket"]["ListenSequentialPacket"] == f"{folder}/data.sock"
    assert unit["Service"]["Type"] == "notify"
    known = subprocess.run([DAEMON, "--help"], capture_output=True, text=True).stdout
    for option in re.findall(r"--[a-z-]+", command):
        assert option in known


# --- what the daemon asks of the kernel ---


@pytest.fixture(scope="module")
def used_calls(tmp_path_factory) -> set[str]:
    """The system calls of a daemon's whole life: start, an epoch, reload, end."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    if not DAEMON.exists():
        pytest.skip(f"{DAEMON} is not built")
    folder = tmp_path_factory.mktemp("t")
    write_folder(folder / "data/pictures", 24)
    (folder / "pipelines").mkdir()
    (folder / "pipelines/some.yaml").write_text(
        "version: 1\ndataset: {format: image_folder, root: data, path: pictures}\ngraph:\n"
        "  - decode: {in: data, out: image}\n  - resize: {size: [8, 8]}\nbatch: {size: 4}\n"
        "cache: {kind: bytes}\n"
    )
    config = folder / "feedwater.yaml"
    config.write_text(
        f"version: 1\nruntime_dir: {folder / 'run'}\nstate_dir: {folder / 'state'}\n"
        f"pipelines: [pipelines]\nroots: {{data: data}}\ncpus: 2\nmemory: 1GiB\n"
        f"cache: {{ram: 64MiB, disk: 64MiB}}\nisolation: process\n"
    )
    trace = folder / "trace"
    daemon = subprocess.Popen(
        # --attachable: a daemon that hardens itself is not to be traced.
        ["strace", "-f", "-qq", "-o", trace, DAEMON, "--config", config, "--attachable"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        log = []
        for line in daemon.stderr:
            log.append(line)
            if "serving at" in line:
                break
        else:
            if "ptrace" in "".join(log).lower():
                pytest.skip("ptrace is not allowed here")
            raise AssertionError("".join(log))
        address = str(folder / "run")
        with feedwater.Loader("some", address=address, output="numpy") as loader:
            for _ in range(2):
                assert sum(len(batch[0]) for batch in loader) == 24
        pid = _child_of(daemon.pid)
        subprocess.run(["kill", "-HUP", str(pid)], check=True)
        for line in daemon.stderr:
            if "reloaded" in line:
                break
        subprocess.run(["kill", "-TERM", str(pid)], check=True)
        daemon.stderr.read()
        assert daemon.wait(60) == 0
    finally:
        daemon.kill()
    calls = set(re.findall(r"^\d+ +([a-z_0-9]+)\(", trace.read_text(errors="replace"), re.M))
    assert {"memfd_create", "openat2", "fallocate"} <= calls
    return calls


def _child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _expand(filters: list[str]) -> set[str]:
    """Names of a SystemCallFilter= list, groups resolved by systemd itself."""
    shown = subprocess.run(
        ["systemd-analyze", "syscall-filter", "--no-pager"], capture_output=True, text=True
    ).stdout
    groups: dict[str, list[str]] = {}
    for line in shown.splitlines():
        if line.startswith("@"):
            current = groups.setdefault(line.strip(), [])
        elif line.startswith("    ") and not line.strip().startswith("#"):
            current.append(line.strip())

    def members(name: str) -> set[str]:
        if not name.startswith("@"):
            return {name}
        return set().union(*(members(inner) for inner in groups[name]))

    allowed: set[str] = set()
    for entry in filters:
        names = set().union(*(members(name) for name in entry.lstrip("~").split()))
        allowed = allowed - names if entry.startswith("~") else allowed | names
    return allowed


# strace's own names, and what only happens before the filter is on.
_BEFORE = {"execve"}


@needs_systemd
def test_the_units_filter_allows_what_the_daemon_does(used_calls):
    allowed = _expand(Unit(UNIT).all("SystemCallFilter"))
    assert {"io_uring_setup", "io_uring_enter", "io_uring_register", "mbind"} <= allowed
    assert "ptrace" not in allowed and "mount" not in allowed and "bpf" not in allowed
    assert used_calls - _BEFORE <= allowed


def test_the_containers_profile_allows_what_the_daemon_does(used_calls):
    profile = json.loads((DEPLOY / "container/seccomp.json").read_text())
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    allowed = {name for rule in profile["syscalls"] for name in rule["names"]}
    assert {"io_uring_setup", "io_uring_enter", "io_uring_register", "mbind"} <= allowed
    assert not allowed & {"ptrace", "mount", "bpf", "unshare", "setns", "init_module", "kexec_load"}
    assert used_calls - _BEFORE <= allowed


def test_the_profile_names_each_call_once():
    profile = json.loads((DEPLOY / "container/seccomp.json").read_text())
    names = [name for rule in profile["syscalls"] for name in rule["names"]]
    assert len(names) == len(set(names))
    refused = [rule for rule in profile["syscalls"] if rule["action"] != "SCMP_ACT_ALLOW"]
    assert [rule["names"] for rule in refused] == [["clone3"]]


# --- the package ---


def test_the_packages_configuration_is_good(tmp_path):
    text = (DEPLOY / "debian/feedwater.yaml").read_text()
    (tmp_path / "pipelines").mkdir()
    config = tmp_path / "feedwater.yaml"
    config.write_text(
        text.replace("/etc/feedwater/pipelines]", f"{tmp_path}/pipelines]").replace(
            "groups: [feedwater]", "groups: [root]"
        )
    )
    done = subprocess.run([DAEMON, "--config", config, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_maintainer_scripts_are_plain_shell():
    for name in ("postinst", "prerm", "postrm"):
        script = DEPLOY / "debian" / name
        assert script.stat().st_mode & 0o111
        assert subprocess.run(["sh", "-n", script]).returncode == 0
