"""The Python of server/sampler/README.md gives exactly the order that the C++ gives.

Cuts the fenced block out of the page, runs it, and compares it with print_order for every
combination of modes over many random sizes.

Called by ctest as: readme_order_test.py PRINT_ORDER README
"""

import functools
import itertools
import json
import random
import re
import subprocess
import sys

SEED = 20240607


def cases(rng):
    for shuffle, last, shard in itertools.product(
        ("none", "full", "block"), ("drop", "pad", "partial"), ("batch", "interleave")
    ):
        for _ in range(30):
            records = rng.choice([1, 2, 3, rng.randint(1, 40), rng.randint(1, 200)])
            block = rng.choice([1, 2, 7, 64, records, 4096])
            starts = []
            if rng.random() < 0.5:
                inner = (
                    [rng.randint(1, records - 1) for _ in range(rng.randint(0, 6))]
                    if records > 1
                    else []
                )
                starts = [0] + sorted(inner)
            yield {
                "records": records,
                "batch_size": rng.choice([1, 2, 3, 8, rng.randint(1, 50)]),
                "world_size": rng.choice([1, 2, 3, 4, 7]),
                "seed": rng.choice([0, 42, 2**64 - 1, rng.getrandbits(64)]),
                "epoch": rng.choice([0, 1, 2**32 + 5, rng.randint(0, 100)]),
                "shuffle": shuffle,
                "last": last,
                "shard": shard,
                "block_records": block,
                "shard_starts": starts,
                "start": rng.choice([0, 0, records, rng.randint(0, records)]),
            }


def expected(page, case):
    sizes = (case["records"], case["batch_size"], case["world_size"])
    steps = page["steps"](*sizes, case["last"], case["start"])
    batches = [
        [
            step,
            rank,
            [
                list(place)
                for place in page["batch"](
                    *sizes,
                    case["seed"],
                    case["epoch"],
                    step,
                    rank,
                    case["shuffle"],
                    case["last"],
                    case["shard"],
                    case["block_records"],
                    case["shard_starts"],
                    case["start"],
                )
            ],
        ]
        for step in range(steps)
        for rank in range(case["world_size"])
    ]
    step_size = case["batch_size"] * case["world_size"]
    cursor = [min(case["start"] + (step + 1) * step_size, case["records"]) for step in range(steps)]
    return {"steps": steps, "next": cursor, "batches": batches}


def large_cases(rng):
    # Record numbers of more than 32 bits, and permutations of even and odd bit counts.
    for records in (2**16, 2**16 + 1, 2**31, 2**32 + 1, 2**40 - 87, 2**41, 2**61 + 3):
        at = [0, 1, records - 1] + [rng.randrange(records) for _ in range(20)]
        yield {
            "records": records,
            "seed": rng.getrandbits(64),
            "epoch": rng.randint(0, 9),
            "shuffle": "full",
            "at": at,
        }
    # More runs of block_records than the daemon keeps in a table.
    for records, block in ((5000, 1), (10_001, 2), (70_000, 16)):
        at = [0, records - 1] + [rng.randrange(records) for _ in range(50)]
        yield {
            "records": records,
            "seed": 1,
            "epoch": 2,
            "shuffle": "block",
            "block_records": block,
            "at": at,
        }


def main(print_order, readme):
    with open(readme, encoding="utf-8") as page:
        (block,) = re.findall(r"^```python\n(.*?)^```$", page.read(), re.DOTALL | re.MULTILINE)
    names = {}
    exec(compile(block, readme, "exec"), names)
    names["permute"] = functools.cache(
        names["permute"]
    )  # each batch asks anew for the order of all shards

    rng = random.Random(SEED)
    todo = list(cases(rng)) + list(large_cases(rng))
    text = "".join(json.dumps(case) + "\n" for case in todo)
    run = subprocess.run([print_order], input=text, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(answers) == len(todo), (len(answers), len(todo))
    samples = 0
    for case, answer in zip(todo, answers):
        if "at" in case:
            pi = names["epoch_order"](
                case["records"],
                case["seed"],
                case["epoch"],
                case["shuffle"],
                case.get("block_records", 4096),
            )
            want = {"records": [pi(position) for position in case["at"]]}
        else:
            want = expected(names, case)
            samples += sum(len(places) for _, _, places in want["batches"])
        if answer != want:
            print(
                f"seed {SEED}: the page's order differs from the daemon's for\n{json.dumps(case)}",
                file=sys.stderr,
            )
            print(
                f"README: {json.dumps(want)[:2000]}\ndaemon: {json.dumps(answer)[:2000]}",
                file=sys.stderr,
            )
            return 1
    assert samples > 10_000, samples
    print(f"{len(todo)} orders with {samples} samples are equal")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
