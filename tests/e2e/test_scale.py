# SPDX-License-Identifier: Apache-2.0
"""scale: memory and the time to the first row do not grow with the number of prompts.

100,000 lines by default, 1,000,000 with HEADRACE_LONG."""
import json
import os
import pathlib
import subprocess
import time

import pytest

from jobdir import DONE, REJECTS, Job
from tinymodel import random_model

LONG = bool(os.environ.get("HEADRACE_LONG"))
N_LINES = 1_000_000 if LONG else 100_000
MIB = 1 << 20
SHORT = {"temperature": 0, "max_tokens": 3, "ignore_eos": True}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return random_model(tmp_path_factory.mktemp("model") / "tiny")


def good(n):
    return [json.dumps({"id": f"g{i}", "prompt": f"say {i}"}) for i in range(n)]


def fill(job, before, n, line, after):
    with open(job.folder / job.shards[0], "w", encoding="utf-8") as f:
        f.writelines(s + "\n" for s in before)
        f.writelines(line % i + "\n" for i in range(n))
        f.writelines(s + "\n" for s in after)


def peak_bytes(pid):
    """The most memory that a process has held so far; 0 when it is gone. Not what wait4 tells: that begins
    with the memory of the process that forked it."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    kb = [int(s.split()[1]) for s in status.splitlines() if s.startswith("VmHWM:")]
    return kb[0] * 1024 if kb else 0


def measured(job, *args, code):
    """Runs the job; peak memory in bytes, and seconds to the first row."""
    path, first, peak = job.path("raw_responses.jsonl"), None, 0
    begin = time.monotonic()
    with open(job.folder / "stderr", "w", encoding="utf-8") as err:
        run = subprocess.Popen([job.headrace.path, "run", job.manifest, "--model", job.model, "--out",
                                job.folder / "out", *map(str, args)], stderr=err)
        while run.poll() is None:
            peak = max(peak, peak_bytes(run.pid))
            if first is None and path.exists() and path.stat().st_size > 0:
                first = time.monotonic() - begin
            time.sleep(0.01)
    if first is None:  # it ended before anybody looked
        first = time.monotonic() - begin
    assert run.returncode == code, (job.folder / "stderr").read_text(encoding="utf-8")[-2000:]
    assert peak > MIB
    return peak, first


BAD = '{"id":%d,"prompt":5,"pad":"' + "x" * 100 + '"}'
OTHER = '{"id":%d,"prompt":"' + "x" * 100 + '"}'


@pytest.fixture(scope="module")
def small(headrace, tiny, tmp_path_factory):
    """What a shard of 100 lines takes."""
    job = Job(headrace, tmp_path_factory.mktemp("small"), tiny, b"", sampling=SHORT)
    fill(job, good(50), 50, BAD, [])
    return measured(job, code=REJECTS)


def same_scale(job, small, got, rejects, wait_s=2.0):
    peak, first = got
    assert peak <= small[0] + 64 * MIB, f"{peak / MIB:.0f} MiB, {small[0] / MIB:.0f} for 100 lines"
    assert first <= small[1] + wait_s
    assert set(job.by_id()) == {f"g{i}" for i in range(50)}
    assert job.status()["rejects"] == rejects


def test_rejects_after_the_good_rows_cost_no_memory_and_no_wait(headrace, tmp_path, tiny, small):
    job = Job(headrace, tmp_path, tiny, b"", sampling=SHORT)
    fill(job, good(50), N_LINES - 50, BAD, [])
    same_scale(job, small, measured(job, code=REJECTS), N_LINES - 50)
    assert job.path("rejects.jsonl").read_bytes().count(b"\n") == N_LINES - 50
    measured(job, code=REJECTS)
    assert job.path("rejects.jsonl").read_bytes().count(b"\n") == N_LINES - 50


def test_rows_beyond_the_limit_cost_no_memory_and_no_wait(headrace, tmp_path, tiny, small):
    job = Job(headrace, tmp_path, tiny, b"", sampling=SHORT)
    fill(job, good(50), N_LINES - 50, OTHER, [])
    same_scale(job, small, measured(job, "--limit", 50, code=DONE), 0)


def test_rejects_before_the_good_rows_cost_no_memory(headrace, tmp_path, tiny, small):
    job = Job(headrace, tmp_path, tiny, b"", sampling=SHORT)
    fill(job, [], N_LINES - 50, BAD, good(50))
    same_scale(job, small, measured(job, code=REJECTS), N_LINES - 50, wait_s=600)


def test_a_speed_counts_from_the_first_start_to_the_last_row_only(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, b"", sampling=SHORT)
    fill(job, good(5), 60_000, BAD, [])
    job.run(code=REJECTS)
    s = job.status()
    assert s["completion_tokens"] == 15 and s["tok_s"] > 40, "the time of reading bad lines does not count"


def test_many_equal_bad_lines_are_counted_and_told_apart(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, b"{\n" * 5000 + b'{"id":"g","prompt":"p"}\n', sampling=SHORT)
    job.run(code=REJECTS)
    job.run(code=REJECTS)
    lines = [r["line"] for r in job.rejects()]
    assert lines == list(range(1, 5001))


def test_many_samples_of_one_row_are_all_there(headrace, tiny, tmp_path):
    job = Job(headrace, tmp_path, tiny, [{"id": 1, "prompt": "p", "n": 3000}], sampling={**SHORT, "temperature": 1})
    peak, _ = measured(job, code=DONE)
    assert len(job.rows()) == 3000 and {r["sample"] for r in job.rows()} == set(range(3000))
    assert peak < 200 * MIB
