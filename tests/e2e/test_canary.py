# SPDX-License-Identifier: Apache-2.0
"""canary: --canary 1/N computes finished rows again and finds them the same, whatever the run is like, and the
dataset is as if there were none. That it finds rows that are wrong: tests/faults/test_canary_faults.py."""
import random
import sqlite3

import pytest

from jobdir import USAGE, Job, without_repetition
from tinymodel import random_model

WARM = {"temperature": 0.8, "seed": 7, "top_p": 0.95, "repetition_penalty": 1.1}
COUNTS = ("rows_done", "rows_length", "prompt_tokens", "completion_tokens", "sampled_tokens_total")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return random_model(tmp_path_factory.mktemp("model") / "tiny")


def make_rows(n=40):
    """Some behind a common beginning, some with many samples, some that stop early."""
    rng = random.Random(5)
    words = "say what the miller's wheel turns when water is low".split()
    rows = [{"id": i, "prompt": ("a common beginning of some pages " * 3 if i % 3 else "") +
             " ".join(rng.choices(words, k=1 + i % 40)), "max_tokens": 3 + i % 5 if i < n // 2 else 60 + i}
            for i in range(n)]
    rows[4]["n"] = 5
    rows[5]["stop"] = ["e", "a"]
    return rows


def canaries(job, out="out"):
    s = job.status(out)
    return tuple(s[f"canaries_{x}"] for x in ("picked", "checked", "failed"))


@pytest.mark.parametrize("args", [(), ("--max-running", 1), ("--kv-tokens", 512, "--scatter", 5),
                                  ("--kv-tokens", 512, "--hicache-size", 0, "--max-running", 12)],
                         ids=["plain", "one", "small_pool", "no_host_tier"])
def test_all_rows_computed_again_are_the_same_and_change_nothing(headrace, tmp_path, tiny, args):
    job = Job(headrace, tmp_path, tiny, make_rows(), sampling=WARM)
    want = job.sorted_lines(*args, out="without")
    assert job.sorted_lines(*args, "--canary", "1/1", out="with") == want
    assert canaries(job, "with") == (44, 44, 0) and canaries(job, "without") == (0, 0, 0)
    with_, without = job.status("with"), job.status("without")
    assert [with_[k] for k in COUNTS] == [without[k] for k in COUNTS]
    if "--max-running" in args and args[1] == 1:
        assert with_["mean_running"] == without["mean_running"] == 1
    assert with_["prefill_tokens_total"] + with_["cached_tokens_total"] == with_["prompt_tokens"]


def test_which_rows_are_picked_is_no_matter_of_time(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, [{"id": i, "prompt": "p", "max_tokens": 1 + i % 3} for i in range(400)])
    got = []
    for i, args in enumerate(((), ("--max-running", 3), ("--limit", 400))):
        job.run("--canary", "1/20", *args, out=f"out{i}")
        got.append(canaries(job, f"out{i}"))
    assert got[0] == got[1] == got[2]
    assert got[0][0] == got[0][1] and 5 <= got[0][0] <= 45, "about twenty of four hundred"


def test_a_run_that_goes_on_counts_on_and_a_cap_counts_rows_alone(headrace, tmp_path, tiny):
    rows = [{"id": i, "prompt": "the miller " * (1 + i % 9), "max_tokens": 20} for i in range(40)]
    job = Job(headrace, tmp_path, tiny, rows, sampling={**WARM, "ignore_eos": True})
    args = ("--max-running", 4)
    job.run("--limit", 10, "--canary", "1/1", *args)
    assert "canaries   10 of 10 picked rows computed again, 0 differ" in job.run("--limit", 10, *args).stderr
    got = job.run("--canary", "1/1", "--max-tokens-per-dataset", 500, *args)
    assert "stopped at the cap" in got.stderr and len(job.lines()) == 25
    assert canaries(job) == (25, 25, 0) and [r["canaries_checked"] for r in job.status()["runs"]] == [10, 0, 15]
    job.run("--canary", "0", *args)
    assert canaries(job) == (25, 25, 0) and len(job.lines()) == 40


@pytest.mark.parametrize("value", ["2", "1/0", "1/x", "1/", "0/3", "1/-3", "1/3x", "1/ 3", "1/99999999999"])
def test_another_share_than_one_in_n_is_refused(headrace, tmp_path, tiny, value):
    job = Job(headrace, tmp_path, tiny, make_rows(6))
    got = job.run("--canary", value, code=USAGE)
    assert f"--canary expects 1/N, such as 1/100 for one row in a hundred, or 0 for none, got '{value}'" in got.stderr
    assert not job.path("state.db").exists()


def test_a_state_file_from_before_canaries_is_read_and_then_brought_up_to_date(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, make_rows(), sampling=WARM)
    job.run("--limit", 10)
    db = sqlite3.connect(job.path("state.db"))
    for x in ("picked", "checked", "failed"):
        db.execute(f"ALTER TABLE runs DROP COLUMN canaries_{x}")
    without_repetition(db)
    db.execute("PRAGMA user_version=1")
    db.close()
    assert canaries(job) == (0, 0, 0) and job.status()["rows_done"] == 14
    job.run("--canary", "1/1")
    assert canaries(job) == (30, 30, 0) and job.status()["rows_done"] == 44
    db = sqlite3.connect(job.path("state.db"))
    assert db.execute("PRAGMA user_version").fetchone() == (3,)
    db.close()
