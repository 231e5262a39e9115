# SPDX-License-Identifier: Apache-2.0
"""disk: a disk that fills pauses a run and loses nothing; a slow one does not hold the engine up."""
import signal
import subprocess
import time

import pytest
from jobdir import DONE, FAILED, INTERRUPTED, REJECTS, Job
from lives import Life, interrupt, n_lines
from test_kill_resume import GREEDY, WARM, check_same, prompts

ARGS = (*WARM, "--max-tokens", 120, "--ignore-eos", "--max-running", 4, "--threads", 1)


class FullDisk:
    """A job on a disk that is full while a flag is there; the library that pretends it."""

    def __init__(self, job, preload, folder):
        self.job, self.flag = job, folder / "disk-is-full"
        self.env = {"LD_PRELOAD": preload("nospace"), "FAULT_FLAG": str(self.flag),
                    "FAULT_DIR": str(job.folder / "out")}

    def fill(self):
        self.flag.touch()

    def make_room(self):
        self.flag.unlink()


@pytest.fixture
def disk(headrace, tmp_path, slow, preload):
    return FullDisk(Job(headrace, tmp_path, slow, prompts(16)), preload, tmp_path)


def test_a_disk_that_fills_pauses_the_run_until_there_is_room(disk):
    job = disk.job
    with Life(job, *ARGS, env=disk.env) as life:
        life.wait_for_rows(3)
        disk.fill()
        life.wait_for_text("paused: ", 20)
        assert "o space left on" in life.stderr()
        assert "goes on by itself when there is room" in life.stderr()
        n = n_lines(job)
        time.sleep(1)
        assert life.process.poll() is None and n_lines(job) == n
        disk.make_room()
        assert life.end(60) == DONE, life.stderr()
        assert "there is room again" in life.stderr()
    check_same(job, job.sorted_lines(*ARGS, out="undisturbed"))
    assert job.status()["sampled_tokens_total"] == 16 * 120
    assert job.status()["state"] == "done"


def test_a_start_on_a_full_disk_fails_and_says_what_to_do(disk):
    """Exit code 4 would make a script that resumes what was interrupted start it again at once, and again."""
    job = disk.job
    (job.folder / "out").mkdir()
    disk.fill()
    with Life(job, *ARGS, env=disk.env) as life:
        assert life.end(60) == FAILED, life.stderr()
        said = life.stderr().splitlines()[-1]
        assert "no space left" in said.lower() and said.endswith("; make room there, then give the same command again")


def test_ctrl_c_on_a_full_disk_is_a_resumable_stop(disk):
    job = disk.job
    with Life(job, *ARGS, env=disk.env) as life:
        life.wait_for_rows(2)
        disk.fill()
        life.wait_for_text("paused: ", 20)
        assert interrupt(life, signal.SIGINT, within=10) == INTERRUPTED, life.stderr()
    disk.make_room()
    job.run(*ARGS)
    check_same(job, job.sorted_lines(*ARGS, out="undisturbed"))


def test_a_kill_on_a_full_disk_loses_nothing(disk):
    job = disk.job
    with Life(job, *ARGS, env=disk.env) as life:
        life.wait_for_rows(2)
        disk.fill()
        life.wait_for_text("paused: ", 20)
        time.sleep(0.5)
        life.kill()
    disk.make_room()
    job.run(*ARGS)
    check_same(job, job.sorted_lines(*ARGS, out="undisturbed"))


def test_a_disk_that_is_full_while_lines_are_read_pauses_too(headrace, tmp_path, tiny, preload):
    """Nothing is sampled here: lines are only rejected, and each must be so once."""
    job = Job(headrace, tmp_path, tiny, [{"id": i, "text": "x" * 100} for i in range(60000)])
    full = FullDisk(job, preload, tmp_path)
    with Life(job, *ARGS, env=full.env) as life:
        life.wait_for(lambda: job.path("rejects.jsonl").exists() and job.path("rejects.jsonl").stat().st_size > 0)
        full.fill()
        life.wait_for_text("paused: ", 20)
        time.sleep(0.5)
        full.make_room()
        assert life.end(60) == REJECTS, life.stderr()
    ids = [r["id"] for r in job.rejects()]
    assert len(ids) == 60000 and ids == list(range(60000))


def test_a_real_file_system_that_is_full(headrace, tmp_path, slow):
    """2 MiB of memory as a disk: state.db and the rows share it with a file that takes all the room."""
    job = Job(headrace, tmp_path, slow, prompts(16))
    out = tmp_path / "out"
    out.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", out], check=False,
                      capture_output=True).returncode:
        pytest.skip("mounting needs root")
    try:
        with Life(job, *ARGS) as life:
            life.wait_for_rows(2)
            hog = out / "hog"
            try:
                with hog.open("wb", buffering=0) as f:
                    while f.write(b"x" * 4096):
                        pass
            except OSError:
                pass
            life.wait_for_text("paused: ", 30)
            time.sleep(0.5)
            hog.unlink()
            assert life.end(60) == DONE, life.stderr()
        check_same(job, job.sorted_lines(*ARGS, out="out2"))
    finally:
        subprocess.run(["umount", out], check=True)


def test_slow_syncs_make_commits_late_and_lose_nothing(headrace, tmp_path, slow, preload):
    """500 ms a sync. That decoding goes on meanwhile is measured by tests/faults/slowsync_bench.py; here:
    while a commit waits for the disk, tokens of other rows reach the journal, and the rows are right."""
    job = Job(headrace, tmp_path, slow, prompts(12))
    args = (*GREEDY, "--max-tokens", 100, "--ignore-eos", "--max-running", 4, "--threads", 1)
    env = {"LD_PRELOAD": preload("slowsync"), "FAULT_SYNC_MS": "500"}
    with Life(job, *args, env=env) as life:
        life.wait_for_rows(1)
        # The first row is in the file before its slow sync ends; the journal's turn comes after it.
        assert life.wait_for_tokens(101)
        life.kill()
    with Life(job, *args, env=env) as life:
        assert life.end(60) == DONE
    check_same(job, job.sorted_lines(*args, out="undisturbed"))
    assert job.status()["sampled_tokens_total"] <= 1.5 * 1200
