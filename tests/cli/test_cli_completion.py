"""feedwater completion: the scripts offer the commands as they are, and bash really completes."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from command_line import PROGRAM, environment, open_terminal, run

BASH = shutil.which("bash")
RANDOM_R = {"random_resize", "random_resized_crop", "random_rotation"}

# Asks the completion function as bash does, and prints what it offers.
ASK = r"""
source <(feedwater completion bash)
compopt() { :; }
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_feedwater
printf '%s\n' "${COMPREPLY[@]}"
"""


def shell_environment(**changes: str) -> dict[str, str]:
    """Return an environment in which `feedwater` is the program under test."""
    return environment(PATH=f"{PROGRAM.parent}:{os.environ['PATH']}", **changes)


def offers(*words: str, cwd: Path | None = None, **changes: str) -> set[str]:
    """Return what bash offers for the last of the words."""
    done = subprocess.run(
        [BASH, "--norc", "-c", ASK, "bash", "feedwater", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=shell_environment(**changes),
        timeout=60,
    )
    assert done.stderr == ""
    return set(done.stdout.split("\n")) - {""}


def commands() -> list[str]:
    """Return the commands that the program's help lists."""
    _, _, listed = run("--help").out.partition("Pipelines and datasets:\n")
    return re.findall(r"^  (\S+)  ", listed.partition("\nExamples:")[0], re.M)


needs_bash = pytest.mark.skipif(BASH is None, reason="bash is not installed")


@needs_bash
def test_all_commands_and_all_their_options_are_offered(project):
    names = commands()
    assert {"validate", "preview", "graph", "verify", "describe", "completion"} <= set(names)
    assert offers("") == set(names)
    for name in names:
        options = set(re.findall(r"(?<![\w-])--[a-z-]+", run(name, "--help").out))
        offered = offers(name, "--")
        # Examples in the help may show options of other programs; those of its own are all there.
        own = {option for option in options if option in offered}
        assert {"--help", "--address", "--json"} <= offered
        assert offered - {"--address", "--json"} <= own, (name, offered, options)


@needs_bash
def test_names_of_ops_and_formats_are_offered(project):
    assert offers("describe", "op", "random_r") == RANDOM_R
    assert offers("describe", "format", "cifar1") == {"cifar10", "cifar100"}
    assert {"op", "format", "pipeline", "resize"} <= offers("describe", "")
    assert offers("completion", "") >= {"bash", "zsh", "fish"}


@needs_bash
def test_pipelines_of_the_configuration_and_files_are_offered(project):
    project.pipeline("alpha", "[]\n")
    project.pipeline("beta", "[]\n")
    (project.folder / "albatross.yaml").touch()
    config = str(project.config)
    offered = offers("preview", "--config", config, "al", cwd=project.folder)
    assert offered == {"alpha", "albatross.yaml"}
    offered = offers("verify", "b", cwd=project.folder, FEEDWATER_CONFIG=config)
    assert offered == {"beta"}
    assert offers("describe", "pipeline", "b", FEEDWATER_CONFIG=config, cwd=project.folder) == {
        "beta"
    }


@needs_bash
def test_values_of_options_are_files_folders_or_nothing(project):
    (project.folder / "some file.yaml").touch()
    (project.folder / "some folder").mkdir()
    both = {"some file.yaml", "some folder"}
    assert offers("preview", "--config", "so", cwd=project.folder) == both
    assert offers("preview", "x", "-o", "so", cwd=project.folder) == both
    assert offers("convert", "x", "so", cwd=project.folder) == {"some folder"}
    assert offers("convert", "x", "-o", "so", cwd=project.folder) == {"some folder"}
    assert offers("--address", "so", cwd=project.folder) == {"some folder"}
    assert offers("preview", "--samples", "", cwd=project.folder) == set()


@needs_bash
def test_a_real_tab_completes_in_a_real_shell(project):
    master, slave = open_terminal()
    shell = subprocess.Popen(
        [BASH, "--norc", "--noprofile", "-i"],
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        env=shell_environment(TERM="dumb", PS1="ready> "), cwd=project.folder,
    )  # fmt: skip
    os.close(slave)
    seen = ""

    def wait_for(text: str) -> None:
        nonlocal seen
        deadline = time.monotonic() + 60
        while text not in seen:
            ready, _, _ = select.select([master], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not come: {seen!r}"
            seen += os.read(master, 4096).decode(errors="replace")
        seen = seen.partition(text)[2]

    try:
        wait_for("ready> ")
        os.write(master, b"source <(feedwater completion bash); echo sour''ced\n")
        wait_for("sourced")
        os.write(master, b"feedwater desc\tformat image_f\t\n")
        wait_for("describe")
        wait_for("torchvision's order")
    finally:
        shell.kill()
        shell.wait()
        os.close(master)


@pytest.mark.parametrize(("shell", "check"), [
    ("bash", ["-n"]), ("zsh", ["-n"]), ("fish", ["--no-execute"]),
])  # fmt: skip
def test_the_script_is_right_in_its_shell_and_short(project, shell, check):
    script = run("completion", shell)
    assert script.status == 0
    assert "feedwater complete -- " in script.out and len(script.out.splitlines()) < 20
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = project.folder / f"script.{shell}"
    path.write_text(script.out)
    done = subprocess.run([shell, *check, path], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# Ask zsh's and fish's functions as the shells do, and print what they offer: "word<TAB>what".
ASK_ZSH = r"""
compdef() { :; }
_files() { print -l -- "_files $*"; }
_describe() { print -l -- "${(@P)2}"; }
source <(feedwater completion zsh)
words=("$@"); CURRENT=$#
_feedwater
"""
ASK_FISH = r"""
feedwater completion fish | source
complete -C (string join ' ' -- $argv)
"""


def offers_in(shell: str, *words: str, cwd: Path) -> list[str]:
    """Return the lines that a shell's own completion offers."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    ask = ["-f", "-c", ASK_ZSH, "zsh"] if shell == "zsh" else ["--no-config", "-c", ASK_FISH]
    done = subprocess.run(
        [shell, *ask, "feedwater", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=shell_environment(),
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_fish_completes(project):
    (project.folder / "some file.yaml").touch()

    def offered(*words: str) -> set[str]:
        lines = offers_in("fish", *words, cwd=project.folder)
        return {line.partition("\t")[0] for line in lines}

    assert offered("") >= set(commands())
    assert "check pipeline files" in "".join(offers_in("fish", "valid", cwd=project.folder))
    assert {"--samples", "--address"} <= offered("preview", "--")
    assert offered("describe", "op", "random_r") == RANDOM_R
    assert {"op", "format", "pipeline", "resize"} <= offered("describe", "")
    assert offered("preview", "--config", "so") == {"some file.yaml"}


def test_zsh_completes(project):
    def offered(*words: str) -> list[str]:
        return offers_in("zsh", *words, cwd=project.folder)

    assert {line.partition(":")[0] for line in offered("")} == set(commands())
    assert any(line.startswith("validate:check pipeline") for line in offered("valid"))
    assert any(line.startswith("--samples:") for line in offered("preview", "--"))
    assert offered("describe", "op", "random_r") == [f"{name}:" for name in sorted(RANDOM_R)]
    assert "_files " in offered("preview", "--config", "so")
    assert "_files -/" in offered("--address", "")


def test_what_a_program_is_told_to_complete_may_be_anything(project):
    for words in ([], [""], ["--"], ["no", "such"], ["--config"], ["status", "x", ""], ["-"]):
        done = run("complete", "--", *words, cwd=project.folder)
        assert (done.status, done.err) == (0, ""), words
    assert run("complete", "--", "complet").out.splitlines() == [
        "completion\tprint the completion script of a shell"
    ]


def test_help_says_how_to_install_it_and_other_shells_are_refused(project):
    text = run("completion", "--help").out
    for part in ("source <(feedwater completion bash)", "bash-completion/completions", "fpath",
                 "fish/completions"):  # fmt: skip
        assert part in text
    assert run("completion", "tcsh").status == 2
