# SPDX-License-Identifier: Apache-2.0
"""cli: help, versions and exit codes of the binary itself; no model is needed."""
import re
import subprocess

import pytest

COMMANDS = ["run", "status", "tokenize", "render", "verify", "bench"]


def test_help_lists_every_command_with_one_line(headrace):
    for args in (["--help"], ["help"], ["-h"]):
        got = headrace(*args)
        assert got.returncode == 0 and got.stderr == ""
        for command in COMMANDS:
            assert re.search(rf"^  {command} +[A-Z].*\.$", got.stdout, re.M), command


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_explains_its_options_with_their_defaults(headrace, command):
    got = headrace("help", command)
    assert got.returncode == 0 and got.stderr == ""
    assert got.stdout == headrace(command, "--help").stdout
    assert got.stdout.startswith(f"usage: headrace {command} ")
    for name in re.findall(r"^  --(\S+)", got.stdout, re.M):
        sentence = got.stdout.split(f"  --{name}", 1)[1].split("\n  --")[0].split("\n\n")[0]
        assert len(sentence.split()) > 4, f"--{name} is not explained"


def test_version_tells_the_facts_of_the_build(headrace):
    got = headrace("--version")
    assert got.returncode == 0
    assert re.match(r"headrace \d+\.\d+\.\d+", got.stdout)
    for fact in ("compiler", "build", "tiers", "this cpu", "libraries", "libuv", "sqlite"):
        assert fact in got.stdout


@pytest.mark.parametrize("args, message", [
    ([], "usage: headrace COMMAND"),
    (["stats"], "unknown command 'stats'; did you mean 'status'?"),
    (["--halp"], "did you mean 'help'?"),
    (["help", "rum"], "unknown command 'rum'; did you mean 'run'?"),
    (["status"], "usage: headrace status DIR"),
    (["status", "a", "b"], "'b' is one argument too many"),
    (["status", "--jsn", "a"], "unknown option '--jsn'; did you mean --json?"),
    (["status", "/nonexistent"], "/nonexistent: No such file or directory"),
    (["run", "m.json", "--seed", "8x"], "--seed expects a whole number, got '8x'"),
    (["run", "m.json", "--max-token", "8"], "unknown option '--max-token'; did you mean --max-tokens?"),
])
def test_wrong_usage_exits_2_with_one_plain_message(headrace, args, message):
    got = headrace(*args)
    assert got.returncode == 2
    assert message in got.stderr
    assert got.stdout == ""


def test_an_answer_that_cannot_be_written_is_a_failure(headrace):
    with open("/dev/full", "w", encoding="utf-8") as full:
        got = subprocess.run([headrace.path, "--version"], stdout=full, stderr=subprocess.PIPE,
                             text=True, check=False)
    assert got.returncode == 1
    assert got.stderr == "error: could not write to stdout\n"
