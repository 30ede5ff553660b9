"""What the programs load: few libraries, and none of those that bring a hundred others."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from daemon_process import BUILD

# Debian 12. Of the daemon's, gRPC brings 57, OpenCV's core and imgproc 20; of the commands', Pango
# (the writing on contact sheets) brings 21. Codecs of audio, and others whose licence lets us, are
# within the programs (WITHIN in deploy/wheel/make_wheel.py).
MOST = {"feedwaterd": 90, "feedwater-commands": 109, "feedwater-decoder": 67, "feedwater": 3}
# libopencv_imgcodecs brings all the others.
UNWANTED = re.compile("imgcodecs|gdal|poppler|odbc|hdf5|curl|openexr|geos|proj|mysql|spatialite")
SANITIZERS = re.compile("lib(asan|ubsan|tsan|lsan)")


@pytest.fixture(params=MOST)
def program(request) -> str:
    return request.param


def libraries(program: str) -> list[str]:
    """Return the names of all libraries that a program loads, the loader and the vdso included."""
    path = BUILD / "bin" / program
    if not path.exists():
        pytest.skip(f"{path} is not built")
    if shutil.which("ldd") is None:
        pytest.skip("ldd is not installed")
    done = subprocess.run(["ldd", path], capture_output=True, text=True, check=True)
    names = [line.split()[0] for line in done.stdout.splitlines()]
    return [name for name in names if not SANITIZERS.match(name)]


def test_no_program_loads_more_than_its_share(program):
    names = libraries(program)
    assert len(names) <= MOST[program], f"{len(names)}:\n" + "\n".join(names)


def test_no_program_loads_what_it_does_not_need(program):
    unwanted = [name for name in libraries(program) if UNWANTED.search(name)]
    assert not unwanted


def test_a_decoder_has_no_grpc():
    assert not [name for name in libraries("feedwater-decoder") if "grpc" in name]
