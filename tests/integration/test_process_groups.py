"""Ranks that a program makes itself: mp.spawn with gloo, torchrun, groups made late.

The promise under test: however two ranks come about, they read each sample of the epoch once
between them, or they are told that they would not. The daemon is real; torch is needed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest
from pictures import write_folder

pytest.importorskip("torch")

PIPELINE = """version: 1
dataset: {format: image_folder, root: data, path: pictures}
sampler: {shuffle: full, seed: 9}
graph:
  - decode: {in: data, out: image}
  - center_crop: {in: image, size: [8, 8]}
batch: {size: 4}
outputs: [image, label, sample_id]
"""
RECORDS = 48
_LIMIT_S = 240  # two processes import torch on a busy machine

HEAD = """
import json, os, sys
import feedwater, torch
import torch.distributed as dist
import torch.multiprocessing as mp

def start_group(rank, world, method=None):
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=world)

def tell(loader, first=None):
    ids = [i for _, _, sample_id in loader for i in sample_id.tolist()]
    print(json.dumps([loader.rank, loader.world_size, loader.job, ids]), flush=True)
"""


@pytest.fixture
def run(make_daemon, tmp_path):
    """Run a program; return what its ranks told, by rank, and what it said on stderr."""
    daemon = make_daemon()
    write_folder(daemon.data / "pictures", RECORDS)
    daemon.add_pipeline("pictures", PIPELINE)
    daemon.start()

    def run_one(body: str, *launcher: str) -> tuple[list[list], str, int]:
        program = tmp_path / "program.py"
        program.write_text(HEAD + textwrap.dedent(body))
        done = subprocess.run(
            [sys.executable, *launcher, program],
            env={**os.environ, "FEEDWATER_ADDRESS": daemon.address, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
        )
        told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
        return sorted(told), done.stderr, done.returncode

    return run_one


def check_one_epoch(told):
    assert [(rank, world) for rank, world, _, _ in told] == [(0, 2), (1, 2)]
    assert len({job for _, _, job, _ in told}) == 1
    ids = [sample_id for *_, ids in told for sample_id in ids]
    assert sorted(ids) == list(range(RECORDS))


def test_spawned_ranks_of_a_group_share_the_epoch(run, tmp_path):
    told, errors, status = run(
        f"""
        def main(rank):
            start_group(rank, 2, "file://{tmp_path}/rendezvous")
            tell(feedwater.Loader("pictures"))
            dist.barrier()

        if __name__ == "__main__":
            mp.spawn(main, nprocs=2)
        """
    )
    assert status == 0, errors
    check_one_epoch(told)


def test_ranks_of_torchrun_share_the_epoch_before_and_after_the_group(run):
    told, errors, status = run(
        """
        loader = feedwater.Loader("pictures")
        dist.init_process_group("gloo")
        tell(loader)
        again = feedwater.Loader("pictures")
        assert (again.rank, again.world_size) == (loader.rank, loader.world_size)
        dist.barrier()
        """,
        "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
    )  # fmt: skip
    assert status == 0, errors
    check_one_epoch(told)


def test_a_loader_made_before_the_group_takes_its_place_in_it(run, tmp_path):
    # Two programs that find one another through a file, as those of a cluster do through a store.
    told, errors, status = run(
        f"""
        import subprocess
        if len(sys.argv) == 1:
            ranks = [subprocess.Popen([sys.executable, __file__, str(r)]) for r in range(2)]
            sys.exit(max(rank.wait() for rank in ranks))
        loader = feedwater.Loader("pictures")
        assert loader.world_size == 1
        start_group(int(sys.argv[1]), 2, "file://{tmp_path}/rendezvous")
        tell(loader)
        dist.barrier()
        """
    )
    assert status == 0, errors
    check_one_epoch(told)
    assert "before the process group was initialised" in errors


def test_ranks_of_a_group_that_would_read_other_samples_are_refused(run, tmp_path):
    """By the group's store, as where each host has a daemon."""
    told, errors, status = run(
        f"""
        def main(rank):
            start_group(rank, 2, "file://{tmp_path}/rendezvous")
            from feedwater.agreement import Agreement
            from types import SimpleNamespace as Facts
            same = Facts(
                own_workers=0, records=48, dataset_digest="d", seed=1, batch_size=4,
                steps_per_epoch=6, pipeline_digest="p", pipeline="ours", own_identity="",
                sampler="",
            )
            place = feedwater.placement.placement()
            for _ in range(2):
                Agreement(False, 2).check(place, same)
            same.own_workers = rank + 2
            try:
                Agreement(False, 2).check(place, same)
                result = "agreed"
            except feedwater.FailedPrecondition as error:
                result = str(error)
            print(json.dumps([rank, result]), flush=True)
            dist.barrier()

        if __name__ == "__main__":
            mp.spawn(main, nprocs=2)
        """
    )
    assert status == 0, errors
    results = [result for _, result in told]
    assert results.count("agreed") == 1
    assert sum("the same workers= on every rank" in result for result in results) == 1


def test_spawned_ranks_without_a_group_are_refused(run):
    told, errors, status = run(
        """
        def main(rank):
            loader = feedwater.Loader("pictures")
            import time
            time.sleep(60)  # until the other one's error ends both

        if __name__ == "__main__":
            mp.spawn(main, nprocs=2)
        """
    )
    assert status != 0 and not told
    assert "initialise the process group before the loader is made" in errors


def test_a_loader_in_workers_of_a_data_loader_is_refused(run):
    told, errors, status = run(
        """
        class Samples(torch.utils.data.IterableDataset):
            def __init__(self, loader=None):
                self.loader = loader
            def __iter__(self):
                return iter(self.loader or feedwater.Loader("pictures"))

        if __name__ == "__main__":
            for loader in (None, feedwater.Loader("pictures")):
                try:
                    for _ in torch.utils.data.DataLoader(Samples(loader), None, num_workers=2):
                        pass
                    print("[]")
                except Exception as error:
                    print(error, file=sys.stderr)
        """
    )
    assert status == 0 and not told, errors
    assert "2 workers of a torch DataLoader" in errors  # made in the worker
    assert "a forked child makes its own" in errors  # made before the fork
