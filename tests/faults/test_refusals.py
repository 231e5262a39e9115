# SPDX-License-Identifier: Apache-2.0
"""refusals: what a resume must not mix and who must not write: every refused change names the key that
differs and touches nothing; a second run is told who is there; locks of the dead block nobody."""
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
from jobdir import DONE, INTERRUPTED, REJECTS, USAGE, Job, jsonl
from lives import Life, interrupt, n_lines
from tinymodel import random_model
from test_kill_resume import GREEDY, check_same, prompts

ARGS = (*GREEDY, "--max-tokens", 20, "--ignore-eos", "--threads", 1)


def snapshot(job):
    """Every file of the job but run.log and the lock: which bytes, and when they were last written."""
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in job.path("").iterdir()
            if p.name not in ("run.log", "lock")}


@pytest.fixture
def half_done(headrace, tmp_path, tiny):
    """A job of ten rows, five of which are done."""
    job = Job(headrace, tmp_path, tiny, prompts(10))
    job.run(*ARGS, "--limit", 5)
    return job


def refused(job, args, *keys):
    before = snapshot(job)
    got = job.call(*args)
    assert got.returncode == USAGE, got.stderr
    for key in keys:
        assert key in got.stderr
    assert snapshot(job) == before, "a refused run must touch nothing"
    job.run(*ARGS, "--limit", 5)  # and the right command still goes on


@pytest.mark.parametrize("flags, keys", [
    (("--temperature", 1), ["sampling.temperature was 0, is now 1"]),
    (("--max-tokens", 21), ["sampling.max_tokens was 20, is now 21"]),
    (("--seed", 5), ["sampling.seed was 0, is now 5"]),
    (("--temperature", 1, "--seed", 5), ["sampling.temperature", "sampling.seed"]),
])
def test_another_way_to_sample_is_refused_by_its_key(half_done, flags, keys):
    refused(half_done, (*ARGS, *flags), *keys)


def test_another_model_is_refused(half_done, tmp_path):
    other = random_model(tmp_path / "other", "tiny-qwen2", config={"max_position_embeddings": 4096})
    refused(half_done, (*ARGS, "--model", other), "model was", "is now")


def test_another_chat_template_is_refused(half_done, tiny, tmp_path):
    other = random_model(tmp_path / "other", config={"max_position_embeddings": 4096})
    (other / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}", encoding="utf-8")
    refused(half_done, (*ARGS, "--model", other), "model.template was")


def test_the_same_model_at_another_path_goes_on(half_done, tmp_path):
    other = random_model(tmp_path / "other", config={"max_position_embeddings": 4096})
    half_done.run(*ARGS, "--model", other)
    assert n_lines(half_done) == 10


def state_of(job, out="out"):
    return job.status(out)["state"]


def test_a_refused_start_leaves_a_finished_dataset_and_its_rejects_as_they_are(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, prompts(3) + [{"id": "bad"}])
    job.run(*ARGS, code=REJECTS)
    before, log = snapshot(job), job.path("run.log").read_bytes()
    for flags in ((), ("--retry-rejects",)):
        got = job.call(*ARGS, *flags, "--lengths-from", tmp_path / "typo")
        assert got.returncode == USAGE and "--lengths-from" in got.stderr
        assert snapshot(job) == before and job.path("run.log").read_bytes() == log
        assert state_of(job) == "done" and len(job.rejects()) == 1
    job.run(*ARGS, "--retry-rejects", code=REJECTS)
    assert job.path("rejects.jsonl.1").exists() and job.status()["rejects"] == 1


def test_a_refused_start_binds_a_new_dataset_to_nothing(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, prompts(3))
    assert job.call(*ARGS, "--now", "2026-01-01", "--lengths-from", tmp_path / "typo").returncode == USAGE
    assert state_of(job) == "never run"
    job.run(*ARGS, "--temperature", 1, "--now", "2026-01-02", "--cpu-mask", 0)
    assert n_lines(job) == 3
    refused_now = job.call(*ARGS, "--temperature", 1, "--now", "2026-01-01", "--cpu-mask", 0)
    assert refused_now.returncode == USAGE and "rendered at 2026-01-02" in refused_now.stderr


def test_a_run_that_answered_nothing_binds_to_nothing(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, prompts(3))
    job.run(*ARGS, "--limit", 0)
    job.run(*ARGS, "--max-tokens", 2, "--cpu-mask", 0)
    assert [r["usage"]["completion_tokens"] for r in job.rows()] == [2, 2, 2]
    got = job.call(*ARGS, "--cpu-mask", 0)
    assert got.returncode == USAGE and "sampling.max_tokens was 2, is now 20" in got.stderr


def test_one_refused_dataset_leaves_the_others_as_they_are(headrace, tmp_path, tiny):
    """The first of the three is finished, the second new; the third would be mixed."""
    done, new, mixed = (Job(headrace, tmp_path, tiny, prompts(2), dataset=name) for name in ("a", "b", "c"))
    done.run(*ARGS)
    mixed.run(*ARGS)
    mixed.write_manifest(output={"token_ids": True})
    before = snapshot(done)
    got = headrace("run", done.manifest, new.manifest, mixed.manifest, "--model", tiny, "--out", tmp_path / "out", *ARGS)
    assert got.returncode == USAGE and "/c holds rows made with other settings" in got.stderr
    assert snapshot(done) == before
    assert [state_of(job) for job in (done, new, mixed)] == ["done", "never run", "done"]
    new.run(*ARGS, "--seed", 7)


def test_a_row_edited_under_its_old_id_is_refused(half_done):
    rows = prompts(10)
    rows[2]["prompt"] += " and more"
    shard = half_done.folder / half_done.shards[0]
    good = shard.read_bytes()
    shard.write_bytes(b"".join(json.dumps(r).encode() + b"\n" for r in rows))
    done = half_done.path("raw_responses.jsonl").read_bytes()
    got = half_done.call(*ARGS)
    assert got.returncode == USAGE
    assert '"r2"' in got.stderr and "edited" in got.stderr and ":3" in got.stderr
    assert half_done.path("raw_responses.jsonl").read_bytes() == done
    shard.write_bytes(good)
    half_done.run(*ARGS)
    assert n_lines(half_done) == 10


def test_a_long_id_is_cut_in_the_message(headrace, tmp_path, tiny):
    name = "\u20ac" * 1000
    job = Job(headrace, tmp_path, tiny, [{"id": name, "prompt": "p"}])
    job.run(*ARGS)
    (job.folder / job.shards[0]).write_bytes(jsonl([{"id": name, "prompt": "q"}]))
    got = job.call(*ARGS)
    assert got.returncode == USAGE and 'row id "' + 15 * "\u20ac" + "... was edited" in got.stderr


def test_a_rejected_row_may_be_edited_under_its_id(headrace, tmp_path, tiny):
    rows = prompts(3)
    good = rows[1]["prompt"]
    rows[1]["prompt"] = "far too long " * 1000
    job = Job(headrace, tmp_path, tiny, rows)
    job.run(*ARGS, code=REJECTS)
    assert n_lines(job) == 2 and job.status()["rejects"] == 1
    rows[1]["prompt"] = good
    (job.folder / job.shards[0]).write_bytes(jsonl(rows))
    got = job.run(*ARGS)
    assert n_lines(job) == 3 and job.status()["rejects"] == 0
    assert "3 of 3 rows, 0 rejected" in got.stderr
    rows[1]["prompt"] = "now it is done"
    (job.folder / job.shards[0]).write_bytes(jsonl(rows))
    assert job.call(*ARGS).returncode == USAGE


def test_what_a_start_mends_is_said_once_and_in_run_log(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, prompts(3))
    job.run(*ARGS)
    path = job.path("raw_responses.jsonl")
    path.write_bytes(path.read_bytes()[:-7])
    got = job.run(*ARGS)
    said = got.stderr.splitlines()
    assert sum("raw_responses.torn" in line for line in said) == 1
    assert sum("1 finished row is not in the file any more" in line for line in said) == 1
    assert sum("torn" in line or "again" in line for line in said) == 2
    log = job.path("run.log").read_text(encoding="utf-8")
    assert "raw_responses.torn" in log and "1 finished row is not in the file any more" in log
    path.write_bytes(path.read_bytes()[:-7])
    got = job.call(*ARGS, "--seed", 5)
    assert got.returncode == USAGE and got.stderr.count("raw_responses.torn") == 1


def test_speed_limit_and_cap_may_change(half_done):
    half_done.run(*ARGS, "--max-running", 3, "--limit", 7)
    assert n_lines(half_done) == 7
    half_done.run(*ARGS, "--kv-tokens", 8192, "--step-tokens", 64, "--threads", 2,
                  "--max-tokens-per-dataset", 180)
    assert 7 < n_lines(half_done) < 10
    half_done.run(*ARGS, "--max-tokens-per-dataset", 0)
    check_same(half_done, half_done.sorted_lines(*ARGS, out="undisturbed"))


def test_carried_fields_and_new_rows_may_change(half_done):
    rows = [{**r, "note": "other"} for r in reversed(prompts(10))] + [{"id": "new", "prompt": "hello"}]
    (half_done.folder / half_done.shards[0]).write_bytes(b"".join(json.dumps(r).encode() + b"\n" for r in rows))
    half_done.run(*ARGS)
    assert [r["id"] for r in half_done.rows()].count("new") == 1 and n_lines(half_done) == 11


# ---- who else is there ----------------------------------------------------------------------------


@pytest.fixture
def long_job(headrace, tmp_path, slow):
    return Job(headrace, tmp_path, slow, prompts(12)), (*GREEDY, "--max-tokens", 300, "--ignore-eos",
                                                        "--max-running", 4, "--threads", 1)


def test_a_second_run_is_told_who_holds_the_folder_and_a_dead_one_blocks_nobody(long_job):
    job, args = long_job
    with Life(job, *args) as first:
        first.wait_for_tokens(100)
        begin = time.monotonic()
        got = job.call(*args)
        assert got.returncode == USAGE and time.monotonic() - begin < 5
        assert f"pid {first.process.pid}" in got.stderr
        assert first.process.poll() is None
        first.kill()
    assert (job.path("lock")).read_text(encoding="utf-8").startswith("pid ")
    job.run(*args)
    check_same(job, job.sorted_lines(*args, out="undisturbed"))


def test_a_state_file_that_somebody_locks_is_waited_for(long_job):
    """CASES 10. Ten seconds are long against the journal's 0.25 s, and the line comes every three."""
    job, args = long_job
    want = job.sorted_lines(*args, out="undisturbed")
    with Life(job, *args) as life:
        life.wait_for_tokens(200)
        db = sqlite3.connect(job.path("state.db"), timeout=30, isolation_level=None)
        db.execute("BEGIN EXCLUSIVE")
        life.wait_for_text("is locked by another program; waiting for it", 20)
        time.sleep(float(os.environ.get("HEADRACE_LOCK_S", 1)))
        assert life.process.poll() is None
        db.execute("COMMIT")
        db.close()
        assert life.end() == DONE, life.stderr()
    check_same(job, want)


def test_ctrl_c_does_not_wait_for_somebodys_lock(long_job):
    job, args = long_job
    with Life(job, *args) as life:
        life.wait_for_tokens(200)
        db = sqlite3.connect(job.path("state.db"), timeout=30, isolation_level=None)
        db.execute("BEGIN EXCLUSIVE")
        try:
            time.sleep(0.5)
            assert interrupt(life, signal.SIGINT, within=20) == INTERRUPTED, life.stderr()
        finally:
            db.close()
    job.run(*args)
    check_same(job, job.sorted_lines(*args, out="undisturbed"))


def test_state_may_live_elsewhere(long_job, tmp_path):
    job, args = long_job
    state = tmp_path / "elsewhere" / "my.db"
    with Life(job, *args, "--state", state) as life:
        life.wait_for_rows(2)
        life.kill()
    assert state.exists() and not job.path("state.db").exists()
    assert job.run(*args, "--state", state)
    check_same(job, job.sorted_lines(*args, out="undisturbed"))
    got = job.headrace("status", job.path(""), "--state", state, "--json")
    assert json.loads(got.stdout)["datasets"][0]["rows_done"] == 12


# ---- CASES 11: where a run can begin again --------------------------------------------------------


def test_a_resume_after_nothing_was_done_begins_at_the_beginning(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, prompts(6))
    job.run(*ARGS, "--limit", 0)
    assert n_lines(job) == 0 and job.status()["rows_done"] == 0
    job.run(*ARGS)
    assert n_lines(job) == 6


def test_a_run_with_nothing_left_says_so_and_loads_no_weights(headrace, tmp_path, model):
    job = Job(headrace, tmp_path, model, prompts(1))
    args = (*GREEDY, "--max-tokens", 1)
    job.run(*args)
    begin = time.monotonic()
    got = job.run(*args)
    assert time.monotonic() - begin < 2
    assert "done, 1 of 1 row," in got.stderr and "loaded" not in got.stderr


def test_a_run_with_only_a_reject_left_ends_with_3_each_time(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, prompts(3) + [{"id": "bad"}])
    for _ in range(3):
        job.run(*ARGS, code=3)
        assert n_lines(job) == 3 and len(job.rejects()) == 1


def test_a_kill_while_the_weights_load_leaves_a_job_that_goes_on(headrace, tmp_path, model):
    job = Job(headrace, tmp_path, model, prompts(2))
    args = (*GREEDY, "--max-tokens", 200, "--ignore-eos")
    log = job.path("run.log")
    for signum in (signal.SIGKILL, signal.SIGTERM):
        size = log.stat().st_size if log.exists() else 0
        with Life(job, *args) as life:
            life.wait_for(lambda: log.exists() and log.stat().st_size > size)
            time.sleep(0.05)  # the log is opened a moment before signals are caught
            assert n_lines(job) == 0 and "loaded" not in life.stderr()
            life.signal(signum)
            assert life.end(30) == (-signal.SIGKILL if signum == signal.SIGKILL else INTERRUPTED)
            assert "loaded" not in life.stderr(), "a stop must not wait for the weights"
    job.run(*args)
    assert n_lines(job) == 2


# ---- where rows cannot go -------------------------------------------------------------------------


def test_an_out_that_is_a_file_is_refused_before_the_weights_load(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, prompts(2))
    (tmp_path / "out").write_text("mine", encoding="utf-8")
    got = job.call(*ARGS)
    assert got.returncode in (1, USAGE) and str(tmp_path / "out") in got.stderr
    assert (tmp_path / "out").read_text(encoding="utf-8") == "mine"


def test_a_folder_that_may_not_be_written_is_refused(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, prompts(2))
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(0o555)
    if os.access(tmp_path / "out", os.W_OK):  # for root there is no such folder but in a mount
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", tmp_path / "out"], check=False,
                          capture_output=True).returncode:
            pytest.skip("root may write everywhere, and no read-only mount is possible here")
    try:
        got = job.call(*ARGS)
    finally:
        if os.path.ismount(tmp_path / "out"):
            subprocess.run(["umount", tmp_path / "out"], check=True)
    assert got.returncode in (1, USAGE)
    assert str(tmp_path / "out") in got.stderr and "loaded" not in got.stderr


# ---- a stderr that nobody reads -------------------------------------------------------------------


@pytest.mark.parametrize("how", ["closed", "full pipe", "gone reader"])
def test_a_stderr_that_nobody_reads_does_not_stop_a_run(headrace, tmp_path, tiny, how):
    job = Job(headrace, tmp_path, tiny, prompts(30) + [{"id": i} for i in range(50)])
    command = [headrace.path, "run", job.manifest, "--model", tiny, "--out", tmp_path / "out", *ARGS]
    command = [str(c) for c in command]
    read, write = os.pipe()
    if how == "full pipe":
        os.set_blocking(write, False)
        try:
            while os.write(write, b"x" * 4096):
                pass
        except BlockingIOError:
            os.set_blocking(write, True)
    if how == "gone reader":
        os.close(read)
    if how == "closed":
        command = [sys.executable, "-c",
                   "import os, sys; [os.close(i) for i in (0, 1, 2)]; os.execv(sys.argv[1], sys.argv[1:])", *command]
    process = subprocess.Popen(command, stderr=write, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    assert process.wait(60) == 3
    assert len([json.loads(line) for line in job.lines()]) == 30
    assert len(job.rejects()) == 50

