"""scripts/one-definition: the tree keeps its rule, and what breaks it is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from daemon_process import ROOT


def lint(root: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, ROOT / "scripts/one-definition", root], capture_output=True, text=True
    )


def write(root: Path, **files: str) -> Path:
    """Write files named like server__graph__op_h: server/graph/op.h."""
    for name, text in files.items():
        place, _, suffix = name.rpartition("_")
        path = root / f"{place.replace('__', '/')}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_tree_defines_every_name_once():
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_two_types_of_one_name_are_told_with_their_places(tmp_path):
    job = """// struct Other {
namespace feedwater::server {
enum class Way : int { kOne };
struct Outer { struct Inner { int a{1}; }; };
class ABSL_LOCKABLE [[nodiscard]] Cursor final : public Way<int> { int a; };
template <> struct Traits<int> { char q = '{'; };
}
"""
    cursor = """namespace feedwater {
#define OPEN {
namespace server {
const char* text = R"(}}}{)" "\\"{";
struct Cursor {};
enum Way { kOne, kTwo = 1'000 };
struct Inner {};
struct Traits<char> {};
union Outer::Inner {};
}
}
"""
    done = lint(write(tmp_path, server__job_h=job, client__cpp__cursor_h=cursor))
    assert done.returncode == 1
    assert [line.split(" is ")[0] for line in done.stdout.splitlines()] == [
        "feedwater::server::Cursor",
        "feedwater::server::Outer::Inner",
        "feedwater::server::Way",
    ]
    assert "server/job.h:5 and client/cpp/cursor.h:5" in done.stdout


def test_two_inline_functions_are_found_by_their_parameters(tmp_path):
    one = """namespace a {
inline int F(int x, const std::string& y = "") { return 1; }
inline int F(double x) { return 1; }
template <typename T> T G(T x) { return x; }
static inline int H() { return 1; }
}
"""
    two = """namespace a {
inline int F(int other, const std::string& name) { return 2; }
inline int F(float x) { return 2; }
template <typename T> T G(T y) { return y; }
static inline int H() { return 2; }
}
"""
    done = lint(write(tmp_path, server__one_h=one, server__two_h=two))
    assert [line.split(" is ")[0] for line in done.stdout.splitlines()] == [
        "a::F(int, const std :: string &)",
        "a::template < typename T > G(T)",
    ]


def test_what_cannot_meet_in_one_program_may_share_a_name(tmp_path):
    mine = "namespace a { struct Mine {}; namespace { struct H {}; } void F() { struct L {}; } }"
    programs = {"tests__a__one_test_cc": mine, "tests__b__two_test_cc": mine}
    assert lint(write(tmp_path, **programs)).returncode == 0
    done = lint(write(tmp_path, tests__testing__fake_h="namespace a { class Mine {}; }"))
    assert done.stdout.count("defined twice") == 1
    assert "tests/testing/fake.h:1" in done.stdout and "tests/a/one_test.cc:1" in done.stdout


def test_braces_that_do_not_match_are_no_silence(tmp_path):
    done = lint(write(tmp_path, server__one_h="namespace a {\nstruct B {\n}\n"))
    assert done.returncode == 1
    assert "server/one.h: cannot follow this file's braces: a } is missing" in done.stdout
