"""The Python of server/sampler/README.md gives exactly the order that the C++ gives.

Cuts the fenced block out of the page, runs it, and compares it with print_order for every
combination of modes over many random sizes.

Called by ctest as: readme_order_test.py PRINT_ORDER README
"""

import functools
import itertools
import json
import math
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


def weights_of(rng, sources):
    """Weights that nothing divides all of: few, many, equal and far apart."""
    most = rng.choice([1, 3, 10, 60])
    weights = [rng.randint(1, most) for _ in range(sources)]
    return [weight // math.gcd(*weights) for weight in weights]


def mix_cases(rng):
    for shuffle, last, shard in itertools.product(
        ("none", "full", "block"), ("drop", "pad", "partial"), ("batch", "interleave")
    ):
        for _ in range(8):
            sizes = [rng.randint(1, 25) for _ in range(rng.randint(1, 5))]
            sources = []
            for records, weight in zip(sizes, weights_of(rng, len(sizes))):
                inner = sorted(rng.randint(0, records) for _ in range(rng.randint(0, 3)))
                sources.append(
                    {
                        "records": records,
                        "weight": weight,
                        "shard_starts": rng.choice([[], [0, *inner]]),
                    }
                )
            period = sum(source["weight"] for source in sources)
            stop = rng.choice(["all", "first", period, rng.randint(period, 3 * period)])
            yield {
                "mix": sources,
                "stop": stop,
                "batch_size": rng.choice([1, 2, 3, 8, rng.randint(1, 50)]),
                "world_size": rng.choice([1, 2, 3, 4, 7]),
                "seed": rng.choice([0, 42, 2**64 - 1, rng.getrandbits(64)]),
                "epoch": rng.choice([0, 1, 2**32 + 5, 2**63 - 1, rng.randint(0, 100)]),
                "shuffle": shuffle,
                "last": last,
                "shard": shard,
                "block_records": rng.choice([1, 2, 7, 64]),
                "start": rng.choice([0, 0, 1]),
            }


def large_mix_cases(rng):
    for stop in ("all", "first", 2**60):
        sizes = [2**61 + 3, 10**6, 3] if stop != "all" else [2**57 + 3, 10**6, 3]
        yield {
            "mix": [
                {"records": records, "weight": weight} for records, weight in zip(sizes, (7, 2, 1))
            ],
            "stop": stop,
            "seed": rng.getrandbits(64),
            "epoch": rng.choice([0, 2**62]),
            "shuffle": "full",
            "at": [0, 1, 2, 3, 4] + ([] if stop == "first" else [rng.randrange(2**58)]),
        }


def expected_of_mix(page, case):
    """As the page says, or an error where a source would have no turn."""
    sizes = [source["records"] for source in case["mix"]]
    turns = page["schedule"]([source["weight"] for source in case["mix"]])
    length = page["mix_length"](turns, sizes, case["stop"])
    if any(turns[:length].count(i) == 0 for i in range(len(sizes))):
        return {"error": "no sample"}
    places = page["mix_order"](
        turns,
        sizes,
        length,
        case["seed"],
        case["epoch"],
        case["shuffle"],
        case.get("block_records", 4096),
        [source.get("shard_starts", []) for source in case["mix"]],
    )
    pi = functools.cache(lambda position: places(position)[0])
    if "at" in case:
        return {"records": [pi(position) for position in case["at"]], "positions": length}
    return {**expected(page, {**case, "records": length}, pi), "positions": length}


def expected(page, case, pi=None):
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
                    case.get("shard_starts", []),
                    case["start"],
                    pi,
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
    todo = [*cases(rng), *large_cases(rng), *mix_cases(rng), *large_mix_cases(rng)]
    text = "".join(json.dumps(case) + "\n" for case in todo)
    run = subprocess.run([print_order], input=text, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(answers) == len(todo), (len(answers), len(todo))
    samples = refused = 0
    for case, answer in zip(todo, answers):
        if "mix" in case:
            want = expected_of_mix(names, case)
            refused += "error" in want
            if "error" in want and want["error"] in answer.get("error", ""):
                want = answer
            samples += sum(len(places) for _, _, places in want.get("batches", []))
        elif "at" in case:
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
    assert refused < 20, refused
    print(f"{len(todo)} orders with {samples} samples are equal")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
