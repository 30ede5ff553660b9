"""Ranks on two hosts, each with a daemon of its own that knows nothing of the other.

The promise under test: a job whose ranks would read different epochs does not begin. The hosts are
two daemons here, and the process group is a fake one (tests/fake_group.py); with torch's own see
test_process_groups.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from own_processes import PATIENCE_S

TESTS = Path(__file__).resolve().parents[1]

RANK = f"""
import functools, json, sys
sys.path.insert(0, {str(TESTS)!r})
import fake_group, own_datasets as own, feedwater

if __name__ == "__main__":
    rank, address, group, late, options = (
        int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] == "late", json.loads(sys.argv[5])
    )
    given = {{"rank": rank, "world_size": 2}}
    if not late:
        fake_group.join(rank, 2, group)
        given = {{}}
    kind, by = options.pop("kind", "Stream"), options.pop("by", None)
    if by is not None:
        op = feedwater.serve_op("brighten", functools.partial(own.brighten, by=by), address=address)
        options["graph"] = [feedwater.ops.python("brighten", in_="field0", out="field0")]
    try:
        with feedwater.Loader.from_dataset(
            getattr(own, kind)(*options.pop("arguments", ())), batch_size=4, address=address,
            output="numpy",
            **given, **options,
        ) as loader:
            if late:
                fake_group.join(rank, 2, group)
            got = [int(number) for batch in loader for number in batch[0][:, 0, 0]]
        print(json.dumps(got))
    except feedwater.Error as error:
        print(json.dumps([error.code, str(error)]))
"""


@pytest.fixture
def run(make_daemon, tmp_path):
    """Run two ranks at two daemons; return what each said."""
    daemons = [make_daemon(), make_daemon()]
    for daemon in daemons:
        daemon.start()
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    group = tmp_path / "group"
    group.mkdir()

    def run_both(first: dict, second: dict, when: str = "early") -> list[list]:
        ranks = []
        for rank, options in enumerate((first, second)):
            ranks.append(
                subprocess.Popen(
                    [
                        sys.executable, script, str(rank), daemons[rank].address, group, when,
                        json.dumps(options),
                    ],
                    stdout=subprocess.PIPE, text=True,
                )
            )  # fmt: skip
        said = [rank.communicate(timeout=PATIENCE_S)[0] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0, 0]
        return [json.loads(text.splitlines()[-1]) for text in said]

    return run_both


def test_hosts_that_agree_share_the_epoch(run):
    options = {"workers": 2, "length": 40}
    got = run(options, options)
    assert got == [list(range(0, 40, 2)), list(range(1, 40, 2))]


def test_hosts_with_the_same_op_share_the_epoch(run):
    options = {"kind": "Numbers", "by": 100, "shuffle": False}
    got = run(options, options)
    assert sorted(got[0] + got[1]) == list(range(100, 140))


def test_hosts_whose_user_says_that_they_serve_the_same_are_believed(run):
    options = {"kind": "Part", "version": "1", "shuffle": False}
    got = run({"arguments": [0], **options}, {"arguments": [1], **options})
    assert [len(numbers) for numbers in got] == [20, 20]


@pytest.mark.parametrize("when", ["early", "late"])
@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ({"workers": 2, "length": 40}, {"workers": 3, "length": 40}, "the same workers= on every"),
        ({"workers": 2, "length": 40}, {"workers": 2, "length": 38}, "the number of records is"),
        ({"kind": "Numbers", "seed": 1}, {"kind": "Numbers", "seed": 2}, "the seed is"),
        ({"kind": "Numbers"}, {"kind": "Numbers", "shuffle": False}, "the sampler is"),
        ({"kind": "Numbers"}, {"kind": "Numbers", "outputs": ["field0", "is_real"]}, "digest is"),
        ({"kind": "Part", "arguments": [0]}, {"kind": "Part", "arguments": [1]}, "what is served"),
        ({"kind": "Numbers", "by": 0}, {"kind": "Numbers", "by": 1}, "op brighten: pickle"),
    ],
)
def test_hosts_that_differ_are_refused(run, first, second, words, when):
    got = run(first, second, when)
    refused = [one for one in got if one and one[0] == "FAILED_PRECONDITION"]
    assert len(refused) == 1, "whoever came second"
    assert words in refused[0][1]
