#!/usr/bin/env python3
"""skipped.py RESULTS [--strict]: the tests that were skipped, by reason.

RESULTS is a folder of JUnit files, which googletest and pytest write. Exits with 1 when --strict
is given and a test was skipped, or when there is no result at all.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

# googletest and pytest begin a reason with the place: "tests/a_test.cc:12\n", "Skipped: ".
PLACE = re.compile(r"^(?:\S+:\d+:?\s+)?(?:Skipped: )?")


def skipped_tests(results: Path) -> tuple[int, dict[str, list[str]]]:
    """Return how many tests there were, and the names of the skipped ones by reason."""
    tests, by_reason = 0, defaultdict(list)
    for file in sorted(results.rglob("*.xml")):
        for case in ElementTree.parse(file).iter("testcase"):
            tests += 1
            skipped = case.find("skipped")
            if skipped is not None:
                reason = PLACE.sub("", skipped.get("message") or "no reason given", count=1)
                name = f"{case.get('classname')}.{case.get('name')}".strip(".")
                by_reason[" ".join(reason.split())].append(name)
    return tests, by_reason


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="folder of JUnit files")
    parser.add_argument("--strict", action="store_true", help="a skipped test is a failure")
    options = parser.parse_args(arguments)
    tests, by_reason = skipped_tests(options.results)
    if tests == 0:
        print(f"skipped.py: no results of tests in {options.results}", file=sys.stderr)
        return 1
    number = sum(len(names) for names in by_reason.values())
    print(f"{number} of {tests} tests skipped{':' if number else ''}")
    for reason, names in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0])):
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        print(f"{len(names):6}  {reason}  ({names[0]}{more})")
    if number and options.strict:
        print("--strict: a skipped test is a failure", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
