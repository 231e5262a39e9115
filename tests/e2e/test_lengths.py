# SPDX-License-Identifier: Apache-2.0
"""lengths: what is known of answers' lengths decides who starts first and changes no row; several datasets share
the engine by the work they have left."""
import json
import sqlite3

import pytest

from jobdir import USAGE, Job
from tinymodel import random_model

GREEDY = {"temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return random_model(tmp_path_factory.mktemp("model") / "tiny")


def lengths(n):
    return [40 + (i * 37) % 60 for i in range(n)]


def rows(n, **more):
    return [{"id": i, "prompt": f"say {i}", "max_tokens": m, **{k: v(m) for k, v in more.items()}}
            for i, m in enumerate(lengths(n))]


def order(job, out="out"):
    return [r["usage"]["completion_tokens"] for r in job.rows(out)]


def is_longest_first(tokens):
    """The first rows may start before the others have been read."""
    rest = tokens[len(tokens) // 4:]
    return rest == sorted(rest, reverse=True)


# Stop ids that never come: so that only hints, not ignore_eos, say how long a row will be.
UNSURE = {**GREEDY, "stop_token_ids": [263]}


def test_rows_that_an_earlier_run_answered_start_longest_first(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, rows(40), sampling=UNSURE)
    job.run("--max-running", 1, out="first")
    assert not is_longest_first(order(job, "first"))
    got = job.run("--max-running", 1, "--lengths-from", tmp_path / "first", out="second")
    assert "the lengths of 40 rows are known" in got.stderr
    assert is_longest_first(order(job, "second"))
    job.run("--max-running", 1, "--lengths-from", job.path("state.db", "first"), out="third")
    assert is_longest_first(order(job, "third"))
    got = job.run("--max-running", 1, "--lengths-from", job.path("", "first"), out="fourth")  # as `status` takes it
    assert "the lengths of 40 rows are known" in got.stderr and is_longest_first(order(job, "fourth"))
    assert sorted(job.lines(out="first")) == sorted(job.lines(out="second")) == sorted(job.lines(out="third"))


def test_rows_whose_field_says_a_length_start_longest_first(headrace, tmp_path, tiny):
    data = rows(40, about=lambda m: m + 0.5)
    job = Job(headrace, tmp_path, tiny, data, sampling=UNSURE, expected_tokens=70, expected_tokens_field="about")
    job.run("--max-running", 1)
    assert is_longest_first([lengths(40)[r["id"]] for r in job.rows()])
    assert job.by_id()[3]["metadata"] == {"about": data[3]["about"]}  # carried as any other field


@pytest.mark.parametrize("hint", ["x", None, -3, 0, [], {}, 1e300, True])
def test_a_length_that_is_none_is_no_hint_and_loses_no_row(headrace, tmp_path, tiny, hint):
    job = Job(headrace, tmp_path, tiny, rows(3, about=lambda m: hint), sampling=GREEDY, expected_tokens_field="about")
    job.run()
    assert set(job.by_id()) == {0, 1, 2}


def test_a_folder_without_earlier_rows_is_refused_but_a_new_dataset_is_not(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, rows(3), sampling=GREEDY)
    got = job.run("--lengths-from", tmp_path / "nowhere", code=USAGE)
    assert "--lengths-from" in got.stderr and "name its --out folder, or leave it out" in got.stderr
    got = job.run("--lengths-from", "/dev/null", code=USAGE)
    assert "no lengths are known: /dev/null is empty" in got.stderr and "there is no /dev/null" not in got.stderr
    got = job.run("--lengths-from", tmp_path / "a", "--lengths-from", tmp_path / "b", code=USAGE)
    assert "--lengths-from is given twice" in got.stderr
    job.run(out="a")
    got = job.run("--lengths-from", tmp_path / "a", out="a", code=USAGE)
    assert "this run's own output" in got.stderr
    other = Job(headrace, tmp_path, tiny, rows(3), dataset="e", sampling=GREEDY)
    got = headrace("run", job.manifest, other.manifest, "--model", tiny, "--out", tmp_path / "b", "--lengths-from",
                   tmp_path / "a")
    assert got.returncode == 0 and "e: no lengths are known" in got.stderr


@pytest.mark.parametrize("said", ["is not a state file of headrace", "was written by a newer headrace", "is damaged"])
def test_a_state_file_that_cannot_be_read_need_not_be(headrace, tmp_path, tiny, said):
    job = Job(headrace, tmp_path, tiny, rows(3), sampling=GREEDY)
    job.run(out="a")
    state = job.path("state.db", "a")
    if "newer" in said:
        db = sqlite3.connect(state)
        db.execute("PRAGMA user_version = 99")
        db.close()
    else:
        data = bytearray(state.read_bytes())
        data[:16 if "not" in said else 0] = b"x" * (16 if "not" in said else 0)
        data[100:] = b"\xff" * (len(data) - 100)
        state.write_bytes(data)
    got = job.run("--lengths-from", tmp_path / "a", code=USAGE)
    assert said in got.stderr and got.stderr.rstrip().endswith("or leave --lengths-from out, which only helps the speed")


@pytest.mark.parametrize("key,value,said", [("expected_tokens", -1, "must not be negative"),
                                            ("expected_tokens", 1.5, "must be a whole number"),
                                            ("expected_tokens", "many", "expected_tokens"),
                                            ("expected_tokens_field", "", "must not be empty")])
def test_a_wrong_expectation_is_refused_by_name(headrace, tmp_path, tiny, key, value, said):
    job = Job(headrace, tmp_path, tiny, rows(1), **{key: value})
    got = job.run(code=USAGE)
    assert key in got.stderr and said in got.stderr


def test_two_datasets_run_at_once_in_proportion_to_their_work(headrace, tmp_path, tiny):
    same = {**GREEDY, "max_tokens": 200}
    data = [{"id": i, "prompt": f"say {i}"} for i in range(60)]
    a = Job(headrace, tmp_path, tiny, data, dataset="a", sampling=same)
    b = Job(headrace, tmp_path, tiny, data[:20], dataset="b", sampling=same)
    a.run(out="apart"), b.run(out="apart")
    got = headrace("run", a.manifest, b.manifest, "--model", tiny, "--out", tmp_path / "out", "--max-running", 8)
    assert got.returncode == 0, got.stderr
    for job in (a, b):
        assert sorted(job.lines()) == sorted(job.lines(out="apart"))
    # One after the other, the small one would be in the engine for a third of the large one's time.
    seconds = {d["dataset"]: d["completion_tokens"] / d["tok_s"] for d in
               json.loads(headrace("status", tmp_path / "out", "--json").stdout)["datasets"]}
    assert seconds["b"] > 0.6 * seconds["a"]


def test_a_dataset_at_its_cap_leaves_the_engine_to_the_others(headrace, tmp_path, tiny):
    same = {**GREEDY, "max_tokens": 100}
    data = [{"id": i, "prompt": f"say {i}"} for i in range(400)]
    a = Job(headrace, tmp_path, tiny, data, dataset="a", sampling=same, max_tokens_per_dataset=1500)
    b = Job(headrace, tmp_path, tiny, data[:40], dataset="b", sampling=same)
    got = headrace("run", a.manifest, b.manifest, "--model", tiny, "--out", tmp_path / "out", "--max-running", 8)
    assert got.returncode == 0, got.stderr
    assert a.status()["capped"] and 1400 <= a.status()["completion_tokens"] <= 2500
    assert b.status()["rows_done"] == 40 and b.status()["mean_running"] > 2
