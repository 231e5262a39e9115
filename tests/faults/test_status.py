# SPDX-License-Identifier: Apache-2.0
"""status: another process tells how far a job is: while it runs, when it was interrupted or killed, and
when it is done or capped; and it changes nothing. What a run writes to run.log and to a pipe."""
import json
import re
import signal

import pytest
from jobdir import INTERRUPTED, Job
from lives import Life, interrupt, journalled, n_lines
from test_kill_resume import GREEDY, prompts

KEYS = """dataset rows_total rows_done rows_length rows_repetitive rejects prompt_tokens completion_tokens sampled_tokens_total
 prefill_tokens_total cached_tokens_total resumed_tokens_total mean_running preemptions recomputed_tokens_total
 tok_s capped state runs""".split()
ARGS = (*GREEDY, "--max-tokens", 200, "--ignore-eos", "--max-running", 4, "--threads", 1)


@pytest.fixture
def job(headrace, tmp_path, slow):
    return Job(headrace, tmp_path, slow, prompts(10) + [{"id": "bad"}])


def check(status, state, n_runs):
    assert set(KEYS) <= set(status)
    assert status["state"] == state and len(status["runs"]) == n_runs
    assert status["completion_tokens"] == 200 * status["rows_done"] == 200 * status["rows_length"]
    assert status["sampled_tokens_total"] == sum(r["sampled_tokens_total"] for r in status["runs"])
    return status


def test_a_job_is_told_of_in_every_state_of_its_life(job):
    with Life(job, *ARGS) as life:
        life.wait_for_rows(2)  # in the file a moment before they count
        life.wait_for(lambda: job.status()["rows_done"] >= 2)
        first = check(job.status(), "running", 1)
        assert first["rows_total"] == 11
        table = job.headrace("status", job.folder / "out").stdout
        assert re.search(r"^d +running +\d+/11 ", table, re.M), table
        life.kill()
    n = n_lines(job)
    killed = check(job.status(), "killed", 1)
    assert n >= killed["rows_done"] >= first["rows_done"]
    assert killed["sampled_tokens_total"] == killed["completion_tokens"] + journalled(job)[1]
    with Life(job, *ARGS) as life:
        life.wait_for_text("continued, not sampled again")
        life.wait_for_tokens(killed["sampled_tokens_total"] + 1)
        assert interrupt(life, signal.SIGTERM) == INTERRUPTED
    interrupted = check(job.status(), "interrupted", 2)
    assert interrupted["resumed_tokens_total"] == journalled_before(killed)
    job.run(*ARGS, code=3)
    done = check(job.status(), "done", 3)
    assert (done["rows_total"], done["rows_done"], done["rejects"]) == (11, 10, 1)
    assert [r["state"] for r in done["runs"]] == ["killed", "interrupted", "done"]
    assert 0 < done["mean_running"] <= 4 and done["tok_s"] > 0 and done["capped"] is False


def journalled_before(status):
    return status["sampled_tokens_total"] - status["completion_tokens"]


def test_a_capped_job_says_so(job):
    job.run(*ARGS, "--max-tokens-per-dataset", 600, code=3)
    status = check(job.status(), "capped", 1)
    assert status["capped"] is True and 500 <= status["completion_tokens"] <= 800
    assert status["cap"] == 600 and status["over_cap"] == 11 - status["rows_done"] - status["rejects"]
    with Life(job, *ARGS, "--max-tokens-per-dataset", 1200) as life:
        life.wait_for_tokens(status["sampled_tokens_total"] + 1)
        again = check(job.status(), "running", 2)
        assert again["capped"] is False and again["cap"] == 1200


def test_status_changes_nothing_and_finds_a_dataset_or_a_folder_of_them(job):
    with Life(job, *ARGS) as life:
        life.wait_for_rows(1)
        life.kill()
    before = {p.name: p.read_bytes() for p in job.path("").iterdir() if not p.name.endswith("-shm")}
    answers = [job.headrace("status", path, "--json").stdout for path in (job.folder / "out", job.path(""))]
    assert answers[0] == answers[1] and json.loads(answers[0])["datasets"]
    assert {p.name: p.read_bytes() for p in job.path("").iterdir() if not p.name.endswith("-shm")} == before


def test_a_pipe_gets_the_periodic_line_at_once_and_run_log_the_same(job):
    args = (*GREEDY, "--max-tokens", 1500, "--ignore-eos", "--max-running", 4, "--threads", 1)
    line = re.compile(r"Decode batch, #running-req: \d+, #token: \d+, token usage: \d\.\d\d, "
                      r"gen throughput \(token/s\): \d+\.\d\d, #queue-req: \d+, rows: \d+/11, .*ETA: \S+")
    with Life(job, *args) as life:
        assert life.wait_for(lambda: line.search(life.stderr()), timeout=60), life.stderr()
        assert interrupt(life) == INTERRUPTED
        text = life.stderr()
    log = job.path("run.log").read_text(encoding="utf-8")
    head = json.loads(log.splitlines()[0])
    assert {"version", "host", "settings", "max_running"} <= set(head)
    assert len(head["settings"]["model"]) == 64
    for said in text.splitlines():
        assert said.removeprefix("warning: ").removeprefix("error: ") in log
    assert re.search(r"d: interrupted, \d+ of 1[01] rows, 1 rejected", text)


def test_the_first_periodic_line_tells_the_speed(headrace, tmp_path, slow):
    job = Job(headrace, tmp_path, slow, prompts(40))
    args = (*GREEDY, "--max-tokens", 3000, "--ignore-eos", "--max-running", 4, "--threads", 1)
    with Life(job, *args) as life:
        life.wait_for_text("ETA: ", 120)
        first = next(line for line in life.stderr().splitlines() if "Decode batch" in line)
        assert float(re.search(r"gen throughput \(token/s\): ([\d.]+)", first)[1]) > 0, first
