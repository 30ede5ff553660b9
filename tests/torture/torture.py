"""Runs scenarios by name and judges them; see scripts/torture and README.md here."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import secrets
import sys
import time
import traceback
from pathlib import Path

from scenarios import ROOT, Settings, Stage

QUICK = (  # in continuous integration
    "trainer_kill", "daemon_kill", "both_kill", "protocol", "files", "churn", "private_daemons",
    "soak",
)  # fmt: skip
SIEGES = ("control_floods", "large_plans", "image_bombs", "slow_ops", "arena_hoard")
NAMES = QUICK + SIEGES
RESULTS = ROOT / "build" / "torture"
EXAMPLES = """examples:
  scripts/torture --list                      what there is
  scripts/torture                             the CI sizes of all scenarios, some minutes
  scripts/torture control_floods --count 60   each flood for a minute
  scripts/torture --tier release              the release sizes of all, some hours
  scripts/torture trainer_kill --count 500    one scenario, 500 kills
  scripts/torture soak --minutes 30           chaos for half an hour
  scripts/torture --minutes 10                each scenario for ten minutes at most
  scripts/torture --replay build/torture/trainer_kill.json    the same random choices again

Each run prints its seed. The same seed makes the same random choices; when they meet the processes
is up to the machine, so repeat a failing seed a few times. Results, with every figure, are written
to build/torture/NAME.json. Exit status: 0 all held, 1 something was violated, 2 wrong usage.
"""


def module(name: str):
    """Return a scenario's module."""
    return importlib.import_module(f"scenarios.{name}")


def run(name: str, settings: Settings) -> dict:
    """Run a scenario; return its result. An error of the scenario itself is a violation too."""
    with Stage(name, settings) as stage:
        try:
            module(name).run(stage)
        except Exception as error:
            traceback.print_exc()
            stage.none_wrong()
            stage.check("the scenario ran to its end", False, repr(error), "no error")
        return stage.result()


def show(result: dict, judge_times: bool) -> None:
    """Print a result."""
    for check in result["checks"]:
        unjudged = check["timing"] and not judge_times
        verdict = "ok  " if check["ok"] else "noted" if unjudged else "FAIL"
        print(f"  {verdict} {check['what']}: {check['got']} (must be {check['must']})")
    for what, figure in result["figures"].items():
        print(f"       {what}: {figure}")
    verdict = "held" if result["passed"] else "VIOLATED"
    print(f"{result['scenario']}: {verdict}; {result['done']} of {result['count']} in "
          f"{result['seconds']} s, seed {result['seed']}", flush=True)  # fmt: skip


def arguments() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """Return the parser and what it was given."""
    parser = argparse.ArgumentParser(
        prog="scripts/torture",
        description="Kills and abuses real daemons and trainers; checks every byte and leftover.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="SCENARIO", help=", ".join(NAMES))
    parser.add_argument("--tier", choices=("ci", "release"), default="ci", help="how many events")
    parser.add_argument("--count", type=int, metavar="N", help="events, instead of the tier's")
    parser.add_argument("--minutes", type=float, metavar="N", help="stop each scenario after N")
    parser.add_argument("--seed", type=int, metavar="S", help="of all random choices")
    parser.add_argument("--replay", type=Path, metavar="RESULT", help="scenario, seed and count "
                        "of a result file")  # fmt: skip
    parser.add_argument("--no-times", action="store_true", help="note durations and rates, but do "
                        "not judge them: for a busy machine")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="list the scenarios and their sizes")
    return parser, parser.parse_args()


def main() -> int:
    """Run what the command line asks for."""
    parser, options = arguments()
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"unknown scenario {', '.join(sorted(unknown))}; known: {', '.join(NAMES)}")
    if options.list:
        for name in NAMES:
            counts = module(name).COUNTS
            print(f"{name:14} ci {counts['ci']}, release {counts['release']}")
            print(f"{'':14} {module(name).__doc__.partition(chr(10) * 2)[0]}".replace("\n", " "))
        return 0
    seed = options.seed if options.seed is not None else secrets.randbelow(1 << 32)
    names, count = options.names or NAMES, options.count
    if options.replay:
        try:
            old = json.loads(options.replay.read_text())
            names, seed, count = [old["scenario"]], old["seed"], old["count"]
        except (OSError, ValueError, KeyError) as error:
            parser.error(f"--replay {options.replay}: {error}")
    passed = True
    for name in names:
        settings = Settings(
            count=count if count is not None else module(name).COUNTS[options.tier],
            seed=seed,
            minutes=options.minutes,
            judge_times=not options.no_times,
            everything=options.tier == "release",
            progress=lambda line: print("  " + line, flush=True),
        )
        print(f"== {name}: seed {seed}", flush=True)
        result = run(name, settings)
        show(result, settings.judge_times)
        result["machine"] = {"cpus": os.cpu_count(), "date": time.strftime("%F %T")}
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        passed &= result["passed"]
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
