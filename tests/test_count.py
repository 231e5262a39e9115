# SPDX-License-Identifier: Apache-2.0
"""count: the last line of scripts/test is right about what ran, crashed and was skipped."""
import json
import subprocess
import sys

CMOCKA = """[==========] Running 3 test(s).
[ RUN      ] one
[       OK ] one
[ RUN      ] two
[  FAILED  ] two
[ RUN      ] three
[  SKIPPED ] three
[==========] 3 test(s) run.
[  PASSED  ] 1 test(s).
[  SKIPPED ] 1 test(s), listed below:
[  SKIPPED ] three
[  FAILED  ] 1 test(s), listed below:
[  FAILED  ] two
"""
JUNIT = """<testsuites><testsuite><testcase classname="a" name="p"/>
<testcase classname="a" name="f"><failure>no</failure></testcase>
<testcase classname="a" name="s"><skipped/></testcase></testsuite></testsuites>"""


def count(root, *paths):
    done = subprocess.run([sys.executable, str(root / "scripts" / "count-tests"), *map(str, paths)],
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def log(path, *tests):
    path.write_text("".join(json.dumps(t) + "\n" for t in tests), encoding="utf-8")
    return path


def test_cases_of_cmocka_and_pytest_are_added_up(root, tmp_path):
    meson = log(tmp_path / "testlog.json",
                {"name": "u / cases", "result": "FAIL", "stderr": CMOCKA},
                {"name": "k / gemm", "result": "OK", "stdout": "fine"},
                {"name": "k / amx", "result": "SKIP"})
    xml = tmp_path / "pytest.xml"
    xml.write_text(JUNIT, encoding="utf-8")
    code, lines = count(root, meson, xml)
    assert code == 1
    assert lines == ["failed: u / cases: two", "failed: a: f", "3 passed, 2 failed, 3 skipped"]


def test_a_crash_is_a_failure_though_no_case_failed(root, tmp_path):
    cut = CMOCKA.split("[ RUN      ] two")[0]
    meson = log(tmp_path / "testlog.json", {"name": "u / crash", "result": "FAIL", "stderr": cut},
                {"name": "u / slow", "result": "TIMEOUT"})
    code, lines = count(root, meson)
    assert code == 1
    assert lines[-1] == "1 passed, 2 failed, 0 skipped"


def test_a_log_that_is_missing_or_empty_is_no_success(root, tmp_path):
    code, lines = count(root, tmp_path / "nothing.json")
    assert code == 1 and lines[-1] == "0 passed, 1 failed, 0 skipped"
    code, lines = count(root, log(tmp_path / "empty.json"))
    assert code == 1 and lines[-1] == "0 passed, 0 failed, 0 skipped"
    code, lines = count(root, log(tmp_path / "good.json", {"name": "x", "result": "OK"}))
    assert code == 0 and lines == ["1 passed, 0 failed, 0 skipped"]
