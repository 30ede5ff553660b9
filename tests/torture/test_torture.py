"""The CI sizes of scripts/torture, through the same code, of all scenarios but the sieges.

Durations and rates are noted, not judged: continuous integration shares its machine.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from daemon_process import DAEMON

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torture
from scenarios import Settings


@pytest.mark.parametrize("name", torture.QUICK)
def test_the_scenario_holds(name, capfd):
    if not DAEMON.exists():
        pytest.skip(f"{DAEMON} is not built (FEEDWATER_BUILD_DIR says where)")
    seed = random.randrange(1 << 32)
    result = torture.run(
        name,
        Settings(torture.module(name).COUNTS["ci"], seed, judge_times=False, everything=False),
    )
    torture.show(result, judge_times=False)
    print(f"again: scripts/torture {name} --seed {seed} --no-times")
    failed = [c for c in result["checks"] if not c["ok"] and not c["timing"]]
    assert result["passed"], (failed, result["figures"].get("violations"))
