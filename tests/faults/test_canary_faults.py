# SPDX-License-Identifier: Apache-2.0
"""canary_faults: --canary 1/1 in runs that go wrong. Bits of the KV cache flip while a run lives (flipkv.c): each
row that came out wrong of it is named, what was wrong leaves the cache, so later rows are right, and the exit
code says it. Kills and stops: canaries hold nothing back and raise no alarm."""
import re
import subprocess

import pytest
from jobdir import CANARY, INTERRUPTED, Job, cpu_masks
from lives import Life, interrupt, n_lines, sampled_tokens

# A beginning of many pages that all rows share: it stays in the cache for as long as the run lives.
SHARED = "The wheel turns when the water comes, and it stands still when the water is low. "
N_ROWS, N_TOKENS = 180, 20
ARGS = ("--temperature", 0, "--max-tokens", N_TOKENS, "--ignore-eos", "--max-running", 4, "--threads", 1)
# The mapping that flips: the device's pages are most of the memory, or the host's are.
WHERE = {"device": ("--kv-tokens", 8192, "--hicache-size", 0),
         "host": ("--kv-tokens", 256, "--hicache-size", "128M", "--max-running", 8)}


def make_rows():
    return [{"id": f"r{i}", "prompt": SHARED + f"Row {i} asks " + "why " * (i % 7)} for i in range(N_ROWS)]


def named(stderr):
    return set(re.findall(r'CANARY: d row "(r\d+)" sample 0 is not the same when it is computed again: '
                          r"completion token \d+ is \d+ in the row", stderr))


@pytest.mark.parametrize("where", WHERE)
def test_rows_from_flipped_bits_are_named_and_the_cache_gets_well(headrace, tmp_path, slow, preload, where):
    version = subprocess.run([headrace.path, "--version"], capture_output=True, text=True, check=True).stdout
    if where == "host" and "build" in version and "debug" in version:
        pytest.skip("a debug build holds a checksum of each page on the host, and ends by itself")
    job = Job(headrace, tmp_path, slow, make_rows())
    args = (*ARGS, *WHERE[where], "--canary", "1/1")
    job.run(*ARGS, out="undisturbed")
    want = job.by_id(out="undisturbed")
    flag = tmp_path / "flip-the-bits"
    with Life(job, *args, env={"LD_PRELOAD": preload("flipkv"), "FAULT_FLAG": str(flag)}) as life:
        life.wait_for_rows(6)
        flag.touch()
        life.wait_for(lambda: not flag.exists())
        n_before = n_lines(job)
        assert life.end(120) == CANARY, life.stderr()
        said = life.stderr()
    got = job.by_id()
    order = [r["id"] for r in job.rows()]
    wrong = {i for i in order if got[i] != want[i]}
    assert set(got) == set(want), "an alarm ends no run"
    assert n_before < N_ROWS and wrong, "the bits have changed no row"
    assert not wrong & set(order[:6]) and not wrong & set(order[-12:]), "what was wrong stays in the cache"
    print(f"{n_before} rows before, {len(wrong)} wrong, {len(named(said))} named")
    assert wrong <= named(said), said
    status = job.status()
    assert status["canaries_picked"] == status["canaries_checked"] == N_ROWS
    assert status["canaries_failed"] == len(named(said))
    assert status["sampled_tokens_total"] == N_ROWS * N_TOKENS
    assert f"computed again, {len(named(said))} DIFFER" in said
    again = job.run(*args, code=CANARY)
    assert "in this run or an earlier one" in again.stderr


def make_plain_rows(n):
    return [{"id": f"r{i}", "prompt": f"{i} " + "once upon a time " * (1 + i % 5)} for i in range(n)]


def test_rows_continued_after_a_kill_are_good_canaries(headrace, tmp_path, slow):
    """From the prompt on, although their first tokens came from the journal."""
    job = Job(headrace, tmp_path, slow, make_plain_rows(12))
    args = ("--temperature", 0.8, "--max-tokens", 80, "--ignore-eos", "--threads", 1, "--canary", "1/1")
    with Life(job, *args) as life:
        life.wait_for_tokens(300)
        life.kill()
    said = job.run(*args).stderr
    assert "continued, not sampled again" in said
    assert job.sorted_lines(*args, out="undisturbed") == sorted(job.lines())
    status = job.status()
    assert status["canaries_failed"] == 0 and status["sampled_tokens_total"] <= 1.5 * 12 * 80
    assert status["runs"][-1]["canaries_checked"] == status["runs"][-1]["rows_done"] > 0


def test_rows_continued_with_other_bits_are_no_canaries(headrace, tmp_path, slow):
    """Who allows numerics to be mixed knows that such a row comes out otherwise from the prompt."""
    if len(cpu_masks(headrace)) < 2:
        pytest.skip("this machine has one tier")
    job = Job(headrace, tmp_path, slow, make_plain_rows(12))
    args = ("--temperature", 0.8, "--max-tokens", 80, "--ignore-eos", "--threads", 1)
    with Life(job, *args) as life:
        life.wait_for_tokens(300)
        life.kill()
    before = sampled_tokens(job)
    assert before < 800, "the first life has left the other one something to do"
    other = ("--cpu-mask", 1, "--allow-mixed-numerics", "--canary", "1/1")
    with Life(job, *args, *other) as life:
        life.wait_for_tokens(before + 100)
        life.kill()
    job.run(*args, "--canary", "1/1")  # as the first, yet what it continues is not all of that kind
    status = job.status()
    assert status["rows_done"] == 12 and status["canaries_failed"] == 0
    assert status["canaries_picked"] < 12


def test_a_stop_and_a_kill_drop_the_canaries_that_are_left(headrace, tmp_path, slow):
    job = Job(headrace, tmp_path, slow, make_plain_rows(12))
    args = ("--temperature", 0.8, "--max-tokens", 80, "--ignore-eos", "--threads", 1)
    for out in ("stopped", "killed"):
        with Life(job, *args, "--canary", "1/1", out=out) as life:
            life.wait_for_rows(12)
            if out == "stopped":
                assert interrupt(life, within=10) == INTERRUPTED, life.stderr()
            else:
                life.kill()
        got = job.run(*args, out=out)
        assert len(job.by_id(out=out)) == 12
        status = job.status(out)
        left = status["canaries_picked"] - status["canaries_checked"]
        assert (f"0 differ, {left} not checked: the run was stopped before" in got.stderr) == (left > 0)
        assert status["canaries_checked"] < 12 and status["canaries_failed"] == 0
        assert status["canaries_checked"] <= status["canaries_picked"] <= 12
        assert status["rows_done"] == 12 and status["state"] == "done"
