"""Which daemon a loader without one uses, and what is told where none can be started."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from daemon_process import DAEMON, NO_OTHER_USERS, OTHER_USER, other_users
from private_home import (
    PIPELINE,
    STARTED,
    TRAIN,
    home_fixture,  # noqa: F401
)


def test_why_a_daemon_does_not_start_is_told_where_children_are_not_waited_for(home):
    out, told = home.run(
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "try:\n    open_loader(memory='1 B')\n"
        "except feedwater.Error as error:\n    say(str(error))\n"
    )
    assert "did not start: memory=1 B: " in out and STARTED not in told
    assert not home.files()
    out, told = home.run("signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n" + TRAIN)
    assert len(json.loads(out)[1]) == 10 and told.count(STARTED) == 1
    home.wait_until_nothing_is_left()


def test_an_absolute_root_is_refused_by_a_shared_daemon_with_the_cure(home, make_daemon):
    daemon = make_daemon()
    daemon.start()
    out, told = home.run(
        "try:\n    open_loader(address=sys.argv[-1])\nexcept feedwater.PermissionDenied as error:\n"
        "    say(str(error))\n".replace("sys.argv[-1]", repr(daemon.address))
    )
    assert "absolute path" in out and "private" in out
    assert not told and not home.daemons()


def test_a_name_of_a_root_is_refused_by_a_private_daemon_with_the_cure(home):
    home.pipeline.write_text(PIPELINE.format(root="data"))
    out, _ = home.run(
        "try:\n    open_loader()\nexcept feedwater.NotFound as error:\n    say(str(error))\n"
    )
    assert "absolute path" in out
    home.wait_until_nothing_is_left()


def test_a_daemon_that_answers_is_used(home, make_daemon):
    shared = make_daemon()
    (home.runtime / "feedwater").mkdir()
    shared.address = str(home.runtime / "feedwater/0")
    text = shared.config.read_text().replace(str(shared.folder / "run"), shared.address)
    shared.config.write_text(text.replace(f"data: {shared.data}", f"data: {home.data}"))
    home.pipeline.write_text(PIPELINE.format(root="data"))
    shared.start()
    for options in ("", "daemon='shared'"):
        out, told = home.run(f"say(open_loader({options}).address)")
        assert json.loads(out) == shared.address and STARTED not in told
    _, told = home.run("open_loader(cpus=1)")
    assert "no effect" in told
    # One that was killed answers no more, whatever its sockets are.
    shared.kill()
    home.pipeline.write_text(PIPELINE.format(root=home.data))
    out, told = home.run("say(open_loader().address)")
    assert json.loads(out) != shared.address and STARTED in told


@pytest.mark.skipif(os.geteuid() != 0, reason=NO_OTHER_USERS)
def test_a_daemon_that_lets_this_user_not_in_is_told_and_a_folder_that_hides_one_is_not(home):
    if not other_users(DAEMON):
        pytest.skip(NO_OTHER_USERS)
    user = str(OTHER_USER)
    wrapper = ("setpriv", "--reuid", user, "--regid", user, "--clear-groups")
    home.folder.chmod(0o755)
    home.folder.parent.chmod(0o755)
    text = (
        "try:\n    say(open_loader().address)\n"
        "except feedwater.PermissionDenied as error:\n    say(str(error))\n"
    )
    hidden = {"XDG_RUNTIME_DIR": "/root", "XDG_STATE_HOME": "/root"}
    said = home.start(text, wrapper, **hidden).end()
    assert f"/tmp/feedwater-{user}/private/" in said
    home.wait_for(lambda: not home.daemons(), "it ends")
    # The folder of a daemon that serves others.
    home.runtime.chmod(0o755)
    (home.runtime / "feedwater/0").mkdir(parents=True)
    (home.runtime / "feedwater").chmod(0o755)
    (home.runtime / "feedwater/0").chmod(0o700)
    said = home.start(text, wrapper, XDG_STATE_HOME="/root").end()
    assert "may not connect" in said and "private" in said
    shutil.rmtree(f"/tmp/feedwater-{user}")


@pytest.mark.parametrize("how", ["address", "environment"])
def test_a_daemon_that_was_named_is_never_replaced(home, how):
    nowhere = str(home.folder / "nowhere")
    option = f"address={nowhere!r}, " if how == "address" else ""
    environment = {"FEEDWATER_ADDRESS": nowhere} if how == "environment" else {}
    out, told = home.run(
        f"try:\n    open_loader({option}reconnect_timeout=0)\n"
        "except feedwater.DaemonLost as error:\n    say(str(error))\n",
        **environment,
    )
    assert nowhere in out and STARTED not in told
    assert not home.daemons() and not home.files()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("daemon='own'", "auto, shared, private"),
        ("daemon='private', address='/x'", "address"),
        ("daemon='shared', cpus=1", "private"),
        ("cpus='many'", "cpus"),
        ("cpus=0", "cpus"),
        ("cpus=4096", "cpus=4096: must be a count from 1"),
        ("memory='1 B'", "memory=1 B: "),
        ("memory='1 byte'", "give a size such as '8GiB'"),
        ("memory=1.5", "memory"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(home, options, words):
    out, _ = home.run(
        f"try:\n    open_loader({options})\n"
        "except feedwater.InvalidArgument as error:\n    say(str(error))\n"
    )
    assert words in out and ".yaml:" not in out
    home.wait_until_nothing_is_left()


def test_a_second_loader_is_told_that_its_cpus_come_too_late(home):
    _, told = home.run(
        "first = open_loader(cpus=1)\nagain = open_loader(cpus=1)\nlate = open_loader(cpus=2)\n"
    )
    assert told.count("cpus=2 has no effect") == 1 and "with cpus=1" in told
    assert "cpus=1 has no effect" not in told and told.count(STARTED) == 1
    home.wait_until_nothing_is_left()


def test_cpus_and_memory_are_taken_as_given(home):
    _, told = home.run("open_loader(cpus=1, memory='512MiB')")
    assert "it takes 1 of" in told and "0.5 GiB" in told
    assert "512.0 MiB" in home.log()


def test_without_the_program_the_error_says_where_it_was_looked_for(home):
    text = "try:\n    open_loader()\nexcept feedwater.DaemonLost as error:\n    say(str(error))\n"
    nowhere = str(home.folder / "no-such-program")
    out, _ = home.run(text, FEEDWATERD=nowhere)
    assert nowhere in out and "$FEEDWATERD" in out and "install" in out
    assert not home.files()
    # One that is no daemon: what it said stands in the error.
    out, _ = home.run(text, FEEDWATERD="/bin/false")
    assert "did not start" in out
    assert not home.files() and not home.daemons()


@pytest.mark.parametrize(
    ("mounted", "words"),
    [
        ("mode=700,ro", "Read-only file system"),
        ("mode=700,size=4k", "No space left"),
        ("mode=700,nr_inodes=3", "No space left"),
    ],
)
def test_a_runtime_folder_without_room_or_right_is_named_with_the_cure(home, mounted, words):
    # A mount namespace of its own, since root may write wherever anybody could.
    fill = 'head -c 4096 /dev/zero >"$0/full"; ' if "size" in mounted else ""
    script = f'mount -t tmpfs -o {mounted} none "$0" && {{ {fill}exec "$@"; }}'
    program = home.start(
        "from feedwater import private_folder\n"
        f"private_folder._tmp = lambda: {str(home.runtime / 'tmp')!r}\n"
        "try:\n    open_loader()\nexcept feedwater.Error as error:\n    say(str(error))\n",
        wrapper=("unshare", "-m", "sh", "-c", script, str(home.runtime)),
    )
    said, _ = program.process.communicate(timeout=60)
    if "unshare" in program.told():
        pytest.skip("no mount namespaces here")
    assert words in said and str(home.runtime) in said and "Cure" in said, said + program.told()
    assert not home.daemons()
