"""Projects built as a user builds them: against an installed package, by find_package alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import EXAMPLES
from daemon_process import BUILD

CMAKE = "/usr/bin/cmake" if os.path.exists("/usr/bin/cmake") else shutil.which("cmake")


def output_of(*arguments: object) -> str:
    """Run a command, which must succeed, and return what it prints."""
    done = subprocess.run(
        list(map(str, arguments)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def build_project(source: Path, build: Path, prefix: Path, *options: str) -> None:
    """Build a project against the package in `prefix`."""
    output_of(CMAKE, "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}", *options)
    output_of(CMAKE, "--build", build)


def build_example(name: str, folder: Path, *options: str) -> Path:
    """Build client/examples/NAME against what `cmake --install` puts into an empty folder.

    Below `folder` are then `prefix`, `source` and `build`, which is returned.
    """
    if CMAKE is None:
        pytest.skip("cmake is not installed")
    if not (BUILD / "cmake_install.cmake").exists():
        pytest.skip(f"{BUILD} is no CMake build (FEEDWATER_BUILD_DIR says where one is)")
    if not (BUILD / "libfeedwater_client.a").exists():
        pytest.skip(f"the C++ client is not built in {BUILD}")
    prefix, source, build = folder / "prefix", folder / "source", folder / "build"
    output_of(CMAKE, "--install", BUILD, "--prefix", prefix, "--component", "dev")
    shutil.copytree(EXAMPLES / name, source)  # nothing of the repository can be found from there
    build_project(source, build, prefix, *options)
    return build
