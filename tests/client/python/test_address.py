"""Where the client looks for the daemon."""

import contextlib
import os
import shutil
import socket
import tempfile
from pathlib import Path

import pytest

import feedwater
from feedwater import address, machine


def make_instance(directory):
    directory.mkdir(parents=True)
    (directory / "data.sock").touch()
    return str(directory)


def test_an_argument_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("FEEDWATER_ADDRESS", "/from/environment")
    assert address.resolve("/from/argument") == "/from/argument"
    assert address.resolve() == "/from/environment"


def test_a_socket_stands_for_its_folder(monkeypatch):
    for name in ("data.sock", "control.sock"):
        assert address.resolve(f"/run/feedwater/0/{name}") == "/run/feedwater/0"
        monkeypatch.setenv("FEEDWATER_ADDRESS", f"/elsewhere/{name}")
        assert address.resolve() == "/elsewhere"


def test_an_address_behind_a_link_is_the_folder_that_the_system_finds(tmp_path, monkeypatch):
    there = make_instance(tmp_path / "real/run")
    (tmp_path / "real/deep").mkdir()
    (tmp_path / "link").symlink_to("real/deep")
    monkeypatch.chdir(tmp_path)
    for given in (
        "link/../run",
        "link/../run/data.sock",
        "./link/..//run/",
        f"{tmp_path}/link/../run",
    ):
        found = address.resolve(given)
        assert found == f"{tmp_path}/link/../run" and os.path.samefile(found, there)


def test_a_relative_address_stays_what_it_was_when_the_program_changes_its_folder(
    tmp_path, monkeypatch, daemon, open_loader
):
    monkeypatch.chdir(daemon.directory.parent)
    for given in (daemon.directory.name, f"./{daemon.directory.name}/data.sock"):
        assert address.resolve(given) == str(daemon.directory)
    monkeypatch.setenv("FEEDWATER_ADDRESS", daemon.directory.name)
    assert address.resolve() == str(daemon.directory)
    loader = open_loader(daemon, address=daemon.directory.name)
    monkeypatch.chdir(daemon.directory)
    assert address.resolve("data.sock") == str(daemon.directory)
    next(iter(loader))
    for session in list(daemon.sessions.values()):
        session.close()
    monkeypatch.chdir(tmp_path)
    assert len(list(loader)) == 10 and loader.stats()["reconnects"] == 1


@pytest.mark.parametrize("by_environment", [False, True])
def test_a_relative_address_in_a_folder_that_was_removed_is_told(
    tmp_path, monkeypatch, by_environment
):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    monkeypatch.setenv("FEEDWATER_ADDRESS", "run" if by_environment else "/elsewhere")
    with pytest.raises(feedwater.InvalidArgument, match=r"'run' is a relative.* was removed"):
        address.resolve(None if by_environment else "run")
    assert address.resolve("/run/feedwater/0/data.sock") == "/run/feedwater/0"


def test_the_users_own_daemon_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(address, "numa_node", lambda: 0)
    expected = make_instance(tmp_path / "feedwater/0")
    assert address.resolve() == expected


def test_the_instance_of_the_own_node_is_taken_and_node_0_without_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(address, "numa_node", lambda: 1)
    zero = make_instance(tmp_path / "feedwater/0")
    assert address.resolve() == zero
    one = make_instance(tmp_path / "feedwater/1")
    assert address.resolve() == one


def test_a_socket_that_a_killed_daemon_has_left_does_not_hide_one_that_listens(
    tmp_path, monkeypatch
):
    places = [tmp_path / name for name in "012"]
    monkeypatch.setattr(address, "candidates", lambda node: list(map(str, places)))
    with contextlib.ExitStack() as sockets:
        for place in places:
            place.mkdir()
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            sockets.enter_context(sock).bind(str(place / "data.sock"))
            assert address.resolve() == str(places[0])  # it may come back
        sock.listen()
        assert address.resolve() == str(places[2])


def test_without_a_daemon_the_error_names_every_place_and_the_cure(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(address, "_has_socket", lambda directory: False)
    with pytest.raises(feedwater.DaemonLost, match="feedwaterd --config") as caught:
        feedwater.Loader("numbers", output="numpy")
    for place in (f"{tmp_path}/feedwater/0", "/run/feedwater/0", f"/tmp/feedwater-{os.getuid()}/0"):
        assert place in str(caught.value)
    assert caught.value.state is None


def test_a_place_that_is_closed_to_this_user_is_told_with_the_cure(monkeypatch):
    closed, there = "/closed/feedwater/0", "/open/feedwater/0"

    def has_socket(directory):
        if directory == closed:
            raise PermissionError(13, "Permission denied")
        return directory == there

    monkeypatch.setattr(address, "_has_socket", has_socket)
    monkeypatch.setattr(address, "candidates", lambda node: [closed])
    with pytest.raises(feedwater.PermissionDenied, match="permission denied") as caught:
        feedwater.Loader("numbers", output="numpy")
    for part in (f"{closed}/data.sock", f"user {os.getuid()}", "access:", "group"):
        assert part in str(caught.value)
    monkeypatch.setattr(address, "candidates", lambda node: [closed, there])
    assert address.resolve() == there


def test_a_daemon_that_another_user_has_put_into_tmp_is_not_taken(monkeypatch):
    """The folder's name can be foreseen, and everybody may make it."""
    if os.getuid() != 0:
        pytest.skip("needs root, to make another user's folder")
    folder = Path(tempfile.mkdtemp(prefix="feedwater-", dir="/tmp"))
    (folder / "0").mkdir()
    (folder / "0/data.sock").touch()
    monkeypatch.setattr(address, "candidates", lambda node: [str(folder / "0")])
    assert address.resolve() == str(folder / "0")
    for foreign in (folder / "0", folder):
        os.chown(foreign, 12345, -1)
        with pytest.raises(feedwater.DaemonLost):
            address.resolve()
        os.chown(foreign, 0, -1)
    shutil.rmtree(folder)


def test_an_address_without_a_daemon_is_an_error(tmp_path):
    with pytest.raises(feedwater.DaemonLost, match="is the daemon running") as caught:
        feedwater.Loader("numbers", address=str(tmp_path), output="numpy", reconnect_timeout=0)
    assert caught.value.code == "UNAVAILABLE"


def test_a_socket_file_that_nobody_listens_on_is_an_error(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(str(tmp_path / "data.sock"))
    with pytest.raises(feedwater.DaemonLost, match="refused"):
        feedwater.Loader("numbers", address=str(tmp_path), output="numpy", reconnect_timeout=0)


def test_a_path_that_is_too_long_for_a_socket_is_an_error():
    with pytest.raises(feedwater.DaemonLost, match="too long"):
        feedwater.Loader("numbers", address="/tmp/" + "x" * 200, output="numpy")


def write_node(sysfs, number, cpus):
    node = sysfs / f"node{number}"
    node.mkdir()
    (node / "cpulist").write_text(cpus + "\n")


def test_the_node_is_that_of_the_cpus_on_which_the_process_may_run(tmp_path):
    mine = min(os.sched_getaffinity(0))
    write_node(tmp_path, 0, "4000-4010,4020")
    write_node(tmp_path, 1, ",".join(str(cpu) for cpu in os.sched_getaffinity(0)))
    assert address.numa_node(str(tmp_path)) == 1
    assert machine.cpu_list("0-2,7\n") == {0, 1, 2, 7}
    assert mine in os.sched_getaffinity(0)


def test_a_process_that_may_run_on_several_nodes_stays_at_the_first(tmp_path, monkeypatch):
    """It may serve its dataset at one daemon and look for it at another otherwise."""
    write_node(tmp_path, 0, "0")
    write_node(tmp_path, 1, "1")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(address, "_cpu_now", lambda: 1)
    assert address.numa_node(str(tmp_path)) == 1
    monkeypatch.setattr(address, "_cpu_now", lambda: 0)
    assert address.numa_node(str(tmp_path)) == 1
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as in a forked child
    assert address.numa_node(str(tmp_path)) == 0


def test_without_numa_in_the_kernel_it_is_node_0(tmp_path):
    assert address.numa_node(str(tmp_path / "absent")) == 0
