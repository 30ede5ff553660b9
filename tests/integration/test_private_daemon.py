"""A loader without a daemon starts one for its job, and who shares it.

Programs run as processes of their own, with folders of their own (`private_home`).
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from daemon_process import BUILD
from private_home import (
    OPEN,
    STARTED,
    TRAIN,
    WAIT,
    home_fixture,  # noqa: F401
    jobs_at,
    rank,
)


def test_a_daemon_ends_soon_after_its_last_loader_in_a_program_that_goes_on(home):
    program = home.start(OPEN + "loader.close()\n" + WAIT)
    program.line()
    home.wait_until_nothing_is_left()
    program.go_on()
    program.end()


def test_loaders_that_follow_one_another_or_stand_beside_one_another_have_one_daemon(home):
    out, told = home.run("""
addresses = set()
for turn in range(3):
    with open_loader() as train:
        addresses.add(train.address)
        next(iter(train))
    with open_loader() as first, open_loader(job="validation") as second:
        addresses |= {first.address, second.address}
say(len(addresses))
""")
    assert json.loads(out) == 1
    assert told.count(STARTED) == 1
    home.wait_until_nothing_is_left()


def test_ranks_of_a_job_share_a_daemon(home):
    programs = [home.start(TRAIN + WAIT, **rank(number)) for number in range(2)]
    said = [json.loads(program.line()) for program in programs]
    assert said[0][0] == said[1][0]
    assert len(home.daemons()) == 1
    ids = [i for _, batches in said for _, ids in batches for i in ids]
    assert sorted(ids) == list(range(40))
    assert sum(program.told().count(STARTED) for program in programs) == 1
    programs[0].kill()
    assert len(home.daemons()) == 1 and jobs_at(said[1][0])
    programs[1].kill()
    home.wait_until_nothing_is_left()


def test_ranks_that_are_restarted_one_by_one_find_the_daemon_of_the_others(home):
    programs = [home.start(OPEN + WAIT, **rank(number)) for number in range(2)]
    addresses = {json.loads(program.line()) for program in programs}
    daemons = home.daemons()
    for _ in range(2):
        for number in range(2):
            programs[number].kill()
            programs[number] = home.start(OPEN + WAIT, **rank(number))
            addresses.add(json.loads(programs[number].line()))
    assert len(addresses) == 1 and home.daemons() == daemons
    for program in programs:
        program.kill()
    home.wait_until_nothing_is_left()


def test_threads_that_open_the_first_loaders_at_the_same_time_share_a_daemon(home):
    out, told = home.run(
        """
import threading
addresses = []
threads = [
    threading.Thread(target=lambda n=n: addresses.append(open_loader(job=f"job-{n}").address))
    for n in range(4)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
say([len(addresses), len(set(addresses))])
""",
        **rank(0, 1),
    )
    assert json.loads(out) == [4, 1]
    assert told.count(STARTED) == 1
    home.wait_until_nothing_is_left()


def test_ranks_that_validate_alone_first_share_a_daemon_too(home):
    text = """
with open_loader(rank=0, world_size=1) as alone:
    ids = [digest(batch)[1] for batch in alone]
    with open_loader() as train:
        say([alone.address, train.address, sum(map(len, ids))])
        sys.stdin.readline()
"""
    programs = [home.start(text, **rank(number)) for number in range(2)]
    said = [json.loads(program.line()) for program in programs]
    assert len({address for *addresses, _ in said for address in addresses}) == 1
    assert [count for *_, count in said] == [40, 40]
    assert len(home.daemons()) == 1
    for program in programs:
        program.kill()
    home.wait_until_nothing_is_left()


def test_two_jobs_have_two_daemons_and_are_told_of_each_other(home):
    epochs = OPEN + "for line in sys.stdin: say(len(list(loader)))\n"
    first = home.start(epochs)
    one = json.loads(first.line())
    second = home.start(epochs)
    other = json.loads(second.line())
    assert one != other and len(home.daemons()) == 2
    assert f"FEEDWATER_ADDRESS={one}" in second.told()
    for _ in range(2):
        first.go_on()
        first.line()
    assert first.told().count(f"FEEDWATER_ADDRESS={other}") == 1
    # As told: a third one shares the first one's, which then outlives the job that started it.
    third = home.start(epochs, FEEDWATER_ADDRESS=one)
    assert json.loads(third.line()) == one
    assert len(home.daemons()) == 2 and STARTED not in third.told()
    first.kill()
    third.go_on()
    assert third.line() == "10"
    second.kill()
    third.kill()
    home.wait_until_nothing_is_left()


def test_status_all_lists_shared_and_private_daemons(home, make_daemon):
    program = home.start(OPEN + WAIT)
    address = json.loads(program.line())
    shared = make_daemon()
    shared.address = str(home.runtime / "feedwater/0")
    text = shared.config.read_text().replace(str(shared.folder / "run"), shared.address)
    shared.config.write_text(text)
    shared.start()

    def ask(*arguments: str) -> str:
        return subprocess.run(
            [BUILD / "bin/feedwater", "status", "--all", *arguments],
            env=home.environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    here = [
        d
        for d in json.loads(ask("--json"))["daemons"]
        if d["address"].startswith(str(home.runtime))
    ]
    assert {d["kind"]: d["address"] for d in here} == {"private": address, "shared": shared.address}
    private = next(d for d in here if d["kind"] == "private")
    assert [private["pid"]] == [p for p in home.daemons() if p == private["pid"]]
    assert len(private["cpus"]) >= 1 and len(private["jobs"]) == 1
    text = ask()
    assert address in text and shared.address in text and "jobs: none" in text
    assert Path(address).exists()
    program.kill()


def test_status_and_ledger_ask_the_users_only_private_daemon_and_list_several(home):
    environment = {k: v for k, v in home.environment.items() if k != "FEEDWATER_ADDRESS"}

    def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BUILD / "bin/feedwater", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    if json.loads(ask("status", "--all", "--json").stdout)["daemons"]:
        pytest.skip("other daemons of this user run here")
    program = home.start(OPEN + WAIT)
    address = json.loads(program.line())
    for arguments in (["status"], ["status", "--bad"]):
        done = ask(*arguments)
        assert done.returncode == 0, done.stderr
        assert done.stderr.splitlines() == [
            f"feedwater: no shared daemon is here; asking your private one at {address}"
        ]
    [job] = [job["job"] for job in json.loads(ask("status", "--json").stdout)["jobs"]]
    ledger = ask("ledger", job, "--batch", "0", "--json")
    assert ledger.returncode == 0 and json.loads(ledger.stdout)["job"] == job, ledger.stderr

    second = home.start(OPEN + WAIT)
    other = json.loads(second.line())
    for arguments in (["status"], ["status", "--bad"], ["status", "--watch"]):
        done = ask(*arguments)
        assert done.returncode == 1
        for one in (address, other):
            assert f"feedwater {' '.join(arguments)} --address {one}\n" in done.stderr
    assert "name one of them" in ask("ledger", job, "--batch", "0").stderr
    program.kill()
    second.kill()
    home.wait_until_nothing_is_left()
