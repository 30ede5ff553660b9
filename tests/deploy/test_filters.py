"""A real daemon under the filters that it is shipped with, put on it by libseccomp.

What systemd does with the rest of the unit is tried by deploy/systemd/try-units, which needs root.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import seccomp
from daemon_process import BUILD, DAEMON, DaemonProcess
from pictures import write_folder
from test_service import DEPLOY, UNIT, Unit, _expand, needs_systemd

import feedwater

_PIPELINE = """version: 1
dataset: {format: image_folder, root: data, path: pictures}
graph:
  - decode: {in: data, out: image}
  - resize: {size: [8, 8]}
batch: {size: 4}
outputs: [image, sample_id]
"""
_IO_URING = ("io_uring_setup", "io_uring_enter", "io_uring_register")


def _container_rules() -> dict:
    return json.loads((DEPLOY / "container/seccomp.json").read_text())


def _unit_rules() -> dict:
    """Return the unit's filter, with what other lines of the unit make systemd 252 refuse."""
    allowed = _expand(Unit(UNIT).all("SystemCallFilter"))
    rules = [{"names": sorted(allowed), "action": "SCMP_ACT_ALLOW"}]
    section = Unit(UNIT)["Service"]
    if section.get("RestrictSUIDSGID") == "yes":  # their flags are out of a filter's sight
        rules = _without(rules, {"openat2"})
        rules.append({"names": ["openat2"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38})
    if section.get("RestrictNamespaces") == "yes":
        rules = _without(rules, {"clone3"})
        rules.append({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38})
    return {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": rules}


def _without(rules: list[dict], names: set[str]) -> list[dict]:
    return [{**rule, "names": [n for n in rule["names"] if n not in names]} for rule in rules]


class FilteredDaemon(DaemonProcess):
    """A daemon that runs under rules."""

    def __init__(self, folder: Path, rules: dict, isolation: str) -> None:
        super().__init__(folder, config=f"cpus: 2\nmemory: 1GiB\nisolation: {isolation}\n")
        write_folder(self.data / "pictures", 24)
        self.add_pipeline("some", _PIPELINE)
        (folder / "rules.json").write_text(json.dumps(rules))
        self.command = [
            sys.executable, Path(seccomp.__file__), folder / "rules.json", DAEMON,
        ]  # fmt: skip


def _epochs(daemon: DaemonProcess) -> list:
    with feedwater.Loader("some", address=daemon.address, output="numpy") as loader:
        return [
            (ids.tolist(), image.tobytes()) for _ in range(2) for image, ids in loader
        ]  # two epochs


def _engine(daemon: DaemonProcess) -> dict:
    done = subprocess.run(
        [BUILD / "bin/feedwater", "--address", daemon.address, "--json", "status"],
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)["engine"]


@pytest.fixture
def run_under(folder):
    if not DAEMON.exists():
        pytest.skip(f"{DAEMON} is not built")
    try:
        seccomp.library()
    except OSError:
        pytest.skip("libseccomp is not installed")
    made = []

    def run(rules: dict, isolation: str = "none") -> DaemonProcess:
        daemon = FilteredDaemon(folder / f"f{len(made)}", rules, isolation)
        made.append(daemon)
        daemon.start()
        return daemon

    yield run
    for daemon in made:
        if daemon.alive():
            assert daemon.stop() == 0, daemon.tail()


@pytest.fixture
def free(make_daemon):
    """A daemon of the same data without a filter."""
    daemon = make_daemon()
    write_folder(daemon.data / "pictures", 24)
    daemon.add_pipeline("some", _PIPELINE)
    daemon.start()
    return daemon


@needs_systemd
@pytest.mark.parametrize("isolation", ["none", "process"])
def test_the_daemon_lives_under_the_units_filter_with_the_same_engine_and_bytes(
    run_under, free, isolation
):
    filtered = run_under(_unit_rules(), isolation)
    assert _engine(filtered) == _engine(free)
    assert _epochs(filtered) == _epochs(free)


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_the_daemon_lives_under_the_containers_profile_with_the_same_engine_and_bytes(
    run_under, free, isolation
):
    filtered = run_under(_container_rules(), isolation)
    assert _engine(filtered) == _engine(free)
    assert _epochs(filtered) == _epochs(free)


def test_without_io_uring_the_bytes_are_the_same_and_the_reason_is_told(run_under, free):
    rules = _container_rules()
    rules["syscalls"] = _without(rules["syscalls"], set(_IO_URING))
    filtered = run_under(rules)
    engine = _engine(filtered)
    assert engine["name"] == "pread"
    assert "seccomp" in engine["reason"]
    assert _epochs(filtered) == _epochs(free)


def test_the_containers_profile_lets_nobody_make_a_user_namespace(tmp_path):
    try:
        seccomp.library()
    except OSError:
        pytest.skip("libseccomp is not installed")
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps(_container_rules()))
    attempt = (
        "import ctypes, errno, os, sys\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "for call, flags, wanted in ((272, 0x10000000, errno.EPERM),"  # unshare
        " (56, 0x10000000 | 17, errno.EPERM), (435, 0, errno.ENOSYS)):\n"  # clone, clone3
        "    result = libc.syscall(call, flags, 0, 0, 0, 0)\n"
        "    if result == 0 and call == 56: os._exit(3)\n"
        "    assert result == -1 and ctypes.get_errno() == wanted, (call, ctypes.get_errno())\n"
    )
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers of the calls are those of x86-64")
    done = subprocess.run(
        [sys.executable, seccomp.__file__, rules, sys.executable, "-c", attempt],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
