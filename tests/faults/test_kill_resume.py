# SPDX-License-Identifier: Apache-2.0
"""kill_resume: SIGKILL at random moments, then the same command again: the same rows, byte for byte,
nothing lost, nothing twice, and what was sampled is not sampled again."""
import json
import re
import signal
import sqlite3
import time

import pytest
from jobdir import DONE, INTERRUPTED, Job
from lives import Life, interrupt, journalled, kill_at, n_lines, query_dead, sampled_tokens, taken_over
from tinymodel import byte_ids, chain, chain_model

WARM = ("--temperature", 0.8, "--seed", 11)
GREEDY = ("--temperature", 0)


def prompts(n, chars=40):
    """Prompts of different lengths, so that rows are not in step."""
    return [{"id": f"r{i}", "prompt": f"{i} " + "once upon a time " * (1 + i % 5) + "x" * (i * 7 % chars),
             "note": 1.50} for i in range(n)]


def check_same(job, want, out="out"):
    got = job.lines(out=out)
    assert len(got) == len(set(got)) == len(want), "rows are lost or there twice"
    assert sorted(got) == want


def check_totals(job, undisturbed, out, kills_that_left, tokens_left, share=0.10):
    """What the killed runs sampled in all, against the run that nobody disturbed."""
    killed = job.status(out)
    print(f"sampled {killed['sampled_tokens_total']} against {undisturbed['sampled_tokens_total']}, "
          f"resumed {killed['resumed_tokens_total']} (left: {tokens_left} by {kills_that_left} kills)")
    assert killed["sampled_tokens_total"] <= (1 + share) * undisturbed["sampled_tokens_total"]
    assert killed["completion_tokens"] == undisturbed["completion_tokens"]
    assert killed["rows_done"] == undisturbed["rows_done"]
    assert killed["state"] == "done"


def campaign(job, moments, n_kills, args, delay_s, limits=(0.02, 0.95)):
    """An undisturbed run, and one killed at n_kills random moments of the work that there is to do."""
    want = job.sorted_lines(*args, out="undisturbed", timeout=1800)
    undisturbed = job.status("undisturbed")
    total = undisturbed["sampled_tokens_total"]
    targets = sorted(moments.randrange(int(total * limits[0]), int(total * limits[1])) for _ in range(n_kills))
    found, tokens = kill_at(job, targets, args, out="killed", delay=lambda: moments.uniform(0, delay_s))
    check_same(job, want, out="killed")
    check_totals(job, undisturbed, "killed", found, tokens)
    return found, tokens


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_rows_killed_at_random_moments_are_those_of_an_undisturbed_run(headrace, tmp_path, slow, moments,
                                                                         sampling):
    job = Job(headrace, tmp_path, slow, prompts(24))
    # Long rows: between two commits the journal (every 0.25 s) is written several times on a fast machine too.
    args = (*sampling, "--max-tokens", 500, "--ignore-eos", "--max-running", 6, "--threads", 1)
    found, tokens = campaign(job, moments, 4, args, 0.2)
    assert found > 0 and tokens > 0


def tag_and_stop(rows):
    """A letter that first comes in the middle of many completions, and one that comes before and behind it."""
    texts = [r["response"] for r in rows]
    close = max("abcdefghijklmnopqrstuvwxyz", key=lambda c: sum(0.2 < t.find(c) / len(t) < 0.6 for t in texts))
    return close, max((c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"),
                      key=lambda c: sum(c in t.partition(close)[0] and c in t.partition(close)[2] for t in texts))


def test_a_killed_run_still_knows_where_the_reasoning_ends(headrace, tmp_path, slow, moments):
    """Stop strings apply behind the closing tag alone, also when a kill fell between the two."""
    rows = [{"id": i, "prompt": f"{i} <think>\n"} for i in range(24)]
    args = (*WARM, "--max-tokens", 500, "--ignore-eos", "--max-running", 6, "--threads", 1)
    plain = Job(headrace, tmp_path / "plain", slow, rows, chat=False)
    plain.run(*args)
    close, stop = tag_and_stop(plain.rows())
    job = Job(headrace, tmp_path / "think", slow, rows, chat=False, sampling={"stop": stop},
              thinking={"open": "<think>", "close": close})
    found, tokens = campaign(job, moments, 4, args, 0.2)
    assert found > 0 and tokens > 0
    got, by_id = job.rows("killed"), {r["id"]: r for r in plain.rows()}
    for row in got:
        whole = by_id[row["id"]]["response"]
        reasoning, tag, rest = whole.partition(close)
        assert (row["reasoning"], row["response"]) == (reasoning, rest.partition(stop)[0])
        assert row.get("stop_reason") == (stop if tag and stop in rest else None)
    assert sum(stop in r["reasoning"] and "stop_reason" in r for r in got) > 2


def test_a_kill_inside_a_character_breaks_none(headrace, tmp_path):
    """Rows of one cup after the other, a byte a token, that are not in step: some are inside one at any moment."""
    cup, n_max = "\U0001f375", 3000
    model = chain_model(tmp_path / "m", {**chain("dcba" + cup), byte_ids(cup)[3]: byte_ids(cup)[0]}, n_ctx=4096)
    job = Job(headrace, tmp_path / "j", model, [{"id": c, "prompt": c, "n": 2} for c in "abcd"], chat=False,
              sampling={"temperature": 0, "max_tokens": n_max}, output={"token_ids": True})
    with Life(job, "--threads", 1) as life:
        assert life.wait_for_tokens(2000) and life.kill(), "it was done too early"
    left = query_dead(job, "SELECT sum(length(tokens)) / 4 FROM journal GROUP BY row, sample")
    assert left and sorted(n % 4 for n, in left) != [0, 0, 1, 1, 2, 2, 3, 3], "no row was inside a character"
    assert taken_over(job.run("--threads", 1).stderr)[0] == len(left)
    rows = job.rows()
    assert sorted((r["id"], r["sample"]) for r in rows) == [(c, k) for c in "abcd" for k in (0, 1)]
    for r in rows:
        data = ("dcba"["dcba".index(r["id"]) + 1:].encode() + n_max * cup.encode())[:n_max]
        text = data.decode(errors="ignore")
        assert r["response"] == text and r.get("dropped_bytes", 0) == n_max - len(text.encode())
        assert r["completion_token_ids"] == byte_ids(data) and r["finish_reason"] == "length"


def test_the_demo_model_killed_and_resumed_gives_the_same_rows(headrace, tmp_path, model, root, moments):
    rows = [json.loads(line) for line in (root / "datasets" / "demo.jsonl").read_text(encoding="utf-8").splitlines()[:6]]
    job = Job(headrace, tmp_path, model, rows)
    # Long enough for the journal (every 0.25 s) to have something at a kill on a fast machine too.
    found, _ = campaign(job, moments, 2, (*GREEDY, "--max-tokens", 200, "--ignore-eos"), 0.2, limits=(0.1, 0.7))
    assert found > 0


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_humaneval_killed_ten_times(headrace, tmp_path, model, kit, moments, long_run, sampling):
    job = Job(headrace, tmp_path, model, (kit / "prompts" / "humaneval.raw.jsonl").read_bytes(),
              prompt="prompt", id="task_id")
    found, _ = campaign(job, moments, 10, (*sampling, "--max-tokens", 128), 0.25)
    assert found > 0


def four_long_rows(job, args, fraction, n_tokens):
    """Undisturbed, then killed twice after `fraction` of the undisturbed time, and finished. Seconds of
    the undisturbed and of the last life, and the tokens that the last one sampled."""
    begin = time.monotonic()
    want = job.sorted_lines(*args, out="undisturbed", timeout=3600)
    whole_s = time.monotonic() - begin
    left = (0, 0)
    for _ in range(2):
        with Life(job, *args, out="killed") as life:
            time.sleep(fraction * whole_s)
            assert life.kill(), "it was done too early"
            assert taken_over(life.stderr()) == left
        left = journalled(job, "killed")
        print(f"killed: {left[0]} rows with {left[1]} tokens unfinished")
    begin = time.monotonic()
    job.run(*args, out="killed", timeout=3600)
    last_s = time.monotonic() - begin
    check_same(job, want, out="killed")
    status = job.status("killed")
    assert status["completion_tokens"] == 4 * n_tokens
    return whole_s, last_s, status["runs"][-1]["sampled_tokens_total"]


def test_a_life_ends_what_two_killed_ones_began(headrace, tmp_path, slow):
    """The small twin of the next test: it counts tokens, not seconds."""
    job = Job(headrace, tmp_path, slow, prompts(4))
    args = (*GREEDY, "--max-tokens", 600, "--ignore-eos", "--threads", 1)
    total = 4 * 600
    want = job.sorted_lines(*args, out="undisturbed")
    found, _ = kill_at(job, [total * 4 // 10, total * 7 // 10], args, out="killed")
    assert found == 2
    check_same(job, want, out="killed")
    runs = job.status("killed")["runs"]
    assert runs[-1]["sampled_tokens_total"] <= total - total * 7 // 10
    assert sum(r["sampled_tokens_total"] for r in runs) <= 1.1 * total


def test_four_rows_of_1500_tokens_killed_twice(headrace, tmp_path, model, long_run):
    job = Job(headrace, tmp_path, model, prompts(4))
    args = (*GREEDY, "--max-tokens", 1500, "--ignore-eos")
    whole_s, last_s, n = four_long_rows(job, args, 0.4, 1500)
    print(f"undisturbed {whole_s:.1f} s, the last life {last_s:.1f} s ({n} tokens of its own)")
    assert last_s <= 0.8 * whole_s


@pytest.fixture(scope="module")
def slow_row(headrace, tmp_path_factory, slow):
    """CASES 1: 200 rows, an early one of which is slow; its arguments, and its rows undisturbed."""
    rows = prompts(200)
    rows[3]["max_tokens"] = 900
    job = Job(headrace, tmp_path_factory.mktemp("slow_row"), slow, rows,
              sampling={"max_tokens": 8, "ignore_eos": True})
    args = (*GREEDY, "--max-running", 32, "--threads", 1)
    return job, args, job.sorted_lines(*args, out="undisturbed")


@pytest.mark.parametrize("n", [1, 60, 199])
def test_one_slow_early_row_and_a_kill_after_n_lines(slow_row, n):
    """Rows finish out of order; a resume that counts lines loses some and doubles others."""
    job, args, want = slow_row
    out = f"killed-{n}"
    with Life(job, *args, out=out) as life:
        life.wait_for_rows(n)
        life.kill()
    assert n_lines(job, out) < 200, "the slow row was not slow enough for this test"
    job.run(*args, out=out)
    check_same(job, want, out)
    assert {r["id"] for r in job.rows(out)} == {f"r{i}" for i in range(200)}


def slow_job(headrace, tmp_path, slow):
    """A run of some seconds, its arguments, and the tokens that it will sample."""
    job = Job(headrace, tmp_path, slow, prompts(16))
    args = (*WARM, "--max-tokens", 250, "--ignore-eos", "--max-running", 4, "--threads", 1)
    return job, args, 16 * 250


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_within_seconds_and_loses_no_token(headrace, tmp_path, slow, signum):
    job, args, total = slow_job(headrace, tmp_path, slow)
    with Life(job, *args) as life:
        life.wait_for_tokens(total // 10)
        begin = time.monotonic()
        assert interrupt(life, signum) == INTERRUPTED
        assert time.monotonic() - begin < 5
        life_said = life.stderr()
    assert "resume with the same command" in life_said
    status = job.status()
    assert status["state"] == "interrupted"
    unfinished = journalled(job)[1]
    assert unfinished > 0
    computed = re.search(r"this run +[\d,]+ rows?, ([\d,]+) tokens in", life_said)[1].replace(",", "")
    assert status["sampled_tokens_total"] == int(computed), "what the last steps brought is not in the journal"
    assert status["sampled_tokens_total"] == status["completion_tokens"] + unfinished
    got = job.run(*args)
    assert taken_over(got.stderr)[1] == unfinished
    assert job.status()["sampled_tokens_total"] == total, "a token was lost or sampled twice"
    check_same(job, job.sorted_lines(*args, out="undisturbed"))


def test_a_second_signal_stops_at_once(headrace, tmp_path, slow):
    job, args, total = slow_job(headrace, tmp_path, slow)
    with Life(job, *args) as life:
        life.wait_for_tokens(total // 10)
        db = sqlite3.connect(job.path("state.db"), timeout=30, isolation_level=None)
        db.execute("BEGIN EXCLUSIVE")  # the first signal's stop would wait some seconds for this
        life.signal(signal.SIGTERM)
        life.wait_for_text("stopping: ")
        begin = time.monotonic()
        assert interrupt(life, signal.SIGTERM) == INTERRUPTED
        assert time.monotonic() - begin < 1.5
        db.close()
    job.run(*args)
    check_same(job, job.sorted_lines(*args, out="undisturbed"))


def test_rows_are_in_the_file_within_a_second(headrace, tmp_path, slow):
    """CASES 4: one row at a time, so that the tokens say how many rows are finished; a second later the
    file must have them. A kill leaves them there."""
    job = Job(headrace, tmp_path, slow, prompts(8))
    args = (*GREEDY, "--max-tokens", 400, "--ignore-eos", "--max-running", 1, "--threads", 1)
    with Life(job, *args) as life:
        for n in (1, 2):
            life.wait_for_tokens(400 * n + 50)
            assert life.wait_for(lambda n=n: n_lines(job) >= n, timeout=1)
        life.kill()
    assert 2 <= n_lines(job) < 8
    assert all(json.loads(line)["usage"]["completion_tokens"] == 400 for line in job.lines())


def test_a_torn_last_line_is_cut_and_its_row_made_again(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, prompts(5))
    args = (*GREEDY, "--max-tokens", 20, "--ignore-eos")
    job.run(*args)
    want = sorted(job.lines())
    path = job.path("raw_responses.jsonl")
    path.write_bytes(path.read_bytes()[:-7])
    got = job.run(*args)
    assert "raw_responses.jsonl" in got.stderr and "again" in got.stderr
    check_same(job, want)
    assert job.status()["rows_done"] == 5
    assert job.run(*args).returncode == DONE


def test_whole_rows_without_a_mark_are_adopted(headrace, tmp_path, tiny):
    """Killed between the append and the transaction: the state of before, with the rows of after."""
    job = Job(headrace, tmp_path, tiny, prompts(6))
    args = (*GREEDY, "--max-tokens", 20, "--ignore-eos")
    job.run(*args, "--limit", 3)
    before = job.path("state.db").read_bytes()
    job.run(*args)
    want = sorted(job.lines())
    job.path("state.db").write_bytes(before)
    got = job.run(*args, "--limit", 3)
    assert job.status()["rows_done"] == 3 and "cut" in got.stderr  # rows that this state.db does not know
    job.run(*args)
    check_same(job, want)
