"""What a client delivers: facts, order, bytes, epochs."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from conftest import RECORDS, SEED
from driver import digests, output, values
from pictures import CLASSES, center, label

IDS = ["sample_id", "position", "is_real", "label"]


def sha256(array) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def test_a_driver_says_who_it_is(daemon, start, client):
    hello = start(daemon).call("hello", None)
    assert hello["protocol"] == 1
    assert hello["client"].split()[0] == {"python": "python", "cpp": "c++"}[client]


def test_a_loader_tells_what_it_delivers(daemon, start):
    facts = start(daemon).open("crop", job="facts", rank=1, world_size=2)
    assert facts["fields"] == [
        {"name": "image", "dtype": "uint8", "shape": [8, 8, 3]},
        {"name": "label", "dtype": "int64", "shape": []},
        {"name": "sample_id", "dtype": "int64", "shape": []},
        {"name": "position", "dtype": "int64", "shape": []},
        {"name": "is_real", "dtype": "bool", "shape": []},
    ]
    expected = {
        "job": "facts",
        "rank": 1,
        "world_size": 2,
        "batch_size": 4,
        "seed": SEED,
        "records": RECORDS,
        "steps_per_epoch": 5,
        "samples_per_epoch": 20,
        "classes": list(CLASSES),
        "epoch": 0,
    }
    assert {name: facts[name] for name in expected} == expected


@pytest.mark.parametrize(("world", "batch"), [(1, 4), (2, 4), (3, 2), (1, 42), (1, 1)])
@pytest.mark.parametrize("name", ["crop", "plain"])
def test_every_byte_of_two_epochs_is_the_promised_one(daemon, start, reference, name, world, batch):
    """Order from the sampler's page, pictures from their numbers: nothing here comes from the
    daemon.
    """
    shuffle = "full" if name == "crop" else "none"
    driver = start(daemon)
    for rank in range(world):
        driver.open(name, f"r{rank}", job="bytes", rank=rank, world_size=world, batch_size=batch)
    for epoch in range(2):
        for step in range(reference["steps"](RECORDS, batch, world)):
            for rank in range(world):
                (got,) = driver.batches(f"r{rank}", 1, values=IDS)
                places = reference["batch"](RECORDS, batch, world, SEED, epoch, step, rank, shuffle)
                records = [record for _, record, _ in places]
                assert (got["epoch"], got["step"], got["samples"]) == (epoch, step, batch)
                assert values([got], "position") == [position for position, _, _ in places]
                assert values([got], "sample_id") == records
                assert values([got], "label") == [label(r, RECORDS) for r in records]
                assert values([got], "is_real") == [True] * batch
                image = output(got, "image")
                assert image["shape"] == [batch, 8, 8, 3]
                assert image["sha256"] == sha256([center(r) for r in records])
                labels = np.array([label(r, RECORDS) for r in records], np.int64)
                assert output(got, "label")["sha256"] == sha256(labels)
        for rank in range(world):
            assert driver.call("next", f"r{rank}") == {"batches": [], "end": True}


@pytest.mark.parametrize("last", ["partial", "pad"])
@pytest.mark.parametrize(("world", "batch"), [(1, 4), (2, 4), (4, 11), (5, 4)])
def test_the_last_batches_are_short_or_padded_as_promised(
    daemon, start, reference, last, world, batch
):
    driver = start(daemon)
    steps = reference["steps"](RECORDS, batch, world, last)
    for rank in range(world):
        facts = driver.open(
            last, f"r{rank}", job=last, rank=rank, world_size=world, batch_size=batch
        )
        assert facts["steps_per_epoch"] == steps
        if (last, world, batch) == ("partial", 5, 4):
            assert facts["warning"].startswith("ranks 2 to 4 of 5 get an empty last batch")
            assert "`sampler: {last: pad}`" in facts["warning"]
        else:
            assert facts["warning"] == ""
    for step in range(steps):
        for rank in range(world):
            (got,) = driver.batches(f"r{rank}", 1, values=IDS)
            places = reference["batch"](RECORDS, batch, world, SEED, 0, step, rank, "full", last)
            assert values([got], "position") == [position for position, _, _ in places]
            assert values([got], "sample_id") == [record for _, record, _ in places]
            assert values([got], "is_real") == [real for _, _, real in places]
            assert got["samples"] == len(places)
            assert got["real_samples"] == sum(real for _, _, real in places)
            assert output(got, "image")["shape"] == [len(places), 8, 8, 3]
            images = [center(record) for _, record, _ in places]
            assert output(got, "image")["sha256"] == sha256(np.array(images, np.uint8))


def test_a_seed_of_its_own_gives_another_order_and_is_told(daemon, start, reference):
    driver = start(daemon)
    assert driver.open("crop", seed=1234567890123456789)["seed"] == 1234567890123456789
    got = values(driver.batches(values=["sample_id"]), "sample_id")
    pi = reference["epoch_order"](RECORDS, 1234567890123456789, 0, "full")
    assert got == [pi(i) for i in range(40)]


def test_a_pipeline_sent_as_text_gives_the_bytes_of_the_named_one(daemon, start):
    driver = start(daemon)
    driver.open("crop")
    driver.open(str(daemon.pipelines / "crop.yaml"), "b")
    assert digests(driver.batches()) == digests(driver.batches("b"))


def test_random_ops_give_the_same_bytes_on_every_run_and_other_bytes_in_every_epoch(daemon, start):
    runs = []
    for _ in range(2):
        driver = start(daemon)
        facts = driver.open("augment")
        assert facts["fields"][0] == {"name": "image", "dtype": "float32", "shape": [3, 8, 8]}
        runs.append([digests(driver.batches()) for _ in range(3)])
    assert runs[0] == runs[1]
    images = {digest for epoch in runs[0] for _, _, digest, *_ in epoch}
    assert len(images) == 30


def test_both_clients_deliver_the_same_bytes(daemon, start):
    runs = []
    for other in ("python", "cpp"):
        driver = start(daemon, other)
        driver.open("augment", batch_size=5)
        runs.append([digests(driver.batches()) for _ in range(2)])
    assert runs[0] == runs[1]


def test_a_samples_bytes_do_not_depend_on_the_world(daemon, start):
    samples = {}
    for world, batch in [(1, 4), (2, 2), (4, 1)]:
        driver = start(daemon)
        for rank in range(world):
            driver.open(
                "augment",
                f"r{rank}",
                job=f"w{world}",
                rank=rank,
                world_size=world,
                batch_size=batch,
            )
        seen = {}
        for _ in range(10):
            for rank in range(world):
                (got,) = driver.batches(f"r{rank}", 1, values=["image", "position"])
                flat = output(got, "image")["values"]
                for k, position in enumerate(output(got, "position")["values"]):
                    seen[position] = tuple(flat[k * 192 : (k + 1) * 192])
        samples[world] = seen
    assert samples[1] == samples[2] == samples[4]
    assert len(samples[1]) == 40


def test_checked_batches_are_the_same_batches(daemon, start):
    driver = start(daemon)
    driver.open("crop")
    driver.open("crop", "b", verify=True)
    assert digests(driver.batches()) == digests(driver.batches("b"))


def test_statistics_count_what_was_delivered(daemon, start):
    driver = start(daemon)
    driver.open("crop")
    driver.batches()
    driver.batches(count=3)
    stats = driver.call("stats")
    assert (stats["batches"], stats["samples"], stats["substituted"]) == (13, 52, 0)


def test_ranks_in_both_languages_make_one_job(daemon, start, reference):
    drivers = [start(daemon, "python"), start(daemon, "cpp")]
    for rank, driver in enumerate(drivers):
        driver.open("crop", job="mixed", rank=rank, world_size=2)
    seen = []
    for _ in range(5):
        for driver in drivers:
            seen += values(driver.batches(count=1, values=["sample_id"]), "sample_id")
    pi = reference["epoch_order"](RECORDS, SEED, 0, "full")
    assert seen == [pi(i) for i in range(40)]


@pytest.mark.parametrize(
    "environment",
    [
        {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "h", "MASTER_PORT": "1"},
        {
            "SLURM_PROCID": "1",
            "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_LOCALID": "1",
            "SLURM_JOB_ID": "9",
        },
        {
            "OMPI_COMM_WORLD_RANK": "1",
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        },
    ],
    ids=["torchrun", "slurm", "openmpi"],
)
def test_rank_and_world_come_from_the_launcher_and_its_ranks_meet_in_a_job(
    daemon, start, environment
):
    facts = start(daemon, **environment).open("crop")
    assert (facts["rank"], facts["world_size"], facts["local_rank"]) == (1, 2, 1)
    zero = {k: "0" if v == "1" and "PORT" not in k else v for k, v in environment.items()}
    for other in ("python", "cpp"):
        driver = start(daemon, other, **zero)
        assert driver.open("crop")["rank"] == 0
        if "OMPI" not in str(environment):  # its job has no name in this environment
            assert driver.call("info")["job"] == facts["job"]
        driver.call("close")
