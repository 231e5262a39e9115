# SPDX-License-Identifier: Apache-2.0
"""repetition: a row that was cut off while it only repeated itself says so, and is counted everywhere."""
import json
import sqlite3

from jobdir import Job, without_repetition
from tinymodel import STOP, byte_ids, chain, chain_model

RAW = {"chat": False, "sampling": {"temperature": 0}}


def looping(folder):
    """From "0" on "abc" for ever; from "1" on "de" and the end."""
    a, c = byte_ids("a")[0], byte_ids("c")[0]
    return chain_model(folder, chain("0abc") | {c: a} | chain("1de", STOP))


ROWS = [{"id": "loop", "prompt": "0"}, {"id": "short", "prompt": "0", "max_tokens": 63},
        {"id": "stopped", "prompt": "0", "stop_token_ids": [2**30]}, {"id": "ends", "prompt": "1"}]


def test_a_loop_is_marked_and_counted(headrace, tmp_path):
    job = Job(headrace, tmp_path, looping(tmp_path / "m"), ROWS,
              **{**RAW, "sampling": {"temperature": 0, "max_tokens": 200}})
    got = job.run()
    rows = job.by_id()
    assert {i for i, r in rows.items() if r.get("repetitive") is True} == {"loop", "stopped"}
    assert all("repetitive" not in rows[i] for i in ("short", "ends"))
    assert list(rows["loop"])[5:8] == ["finish_reason", "repetitive", "usage"]
    assert "3/4 rows ended in length (max_tokens or the context), 2 of them repetitive" in got.stderr
    status = job.status()
    assert status["rows_repetitive"] == 2 == status["runs"][0]["rows_repetitive"] and status["rows_length"] == 3
    table = headrace("status", tmp_path / "out").stdout
    assert "3, 2 repetitive" in table


def test_the_count_is_over_all_runs_and_follows_rows_that_are_lost_or_found(headrace, tmp_path):
    rows = [{"id": i, "prompt": "0"} for i in range(4)]
    job = Job(headrace, tmp_path, looping(tmp_path / "m"), rows, **RAW)
    args = ("--max-tokens", 100)
    job.run("--limit", 2, *args)
    job.run("--limit", 3, *args)
    assert [r["rows_repetitive"] for r in job.status()["runs"]] == [2, 1]
    # The last two rows are cut off: they do not count any more, until they are there again.
    path = job.path("raw_responses.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0])
    job.run("--limit", 1, *args)
    assert job.status()["rows_repetitive"] == 1
    job.run(*args)
    assert job.status()["rows_repetitive"] == 4 == len(job.rows())
    # A row that is in the file and not marked: it is taken over with its mark.
    last = path.read_bytes().splitlines(keepends=True)[-1]
    with sqlite3.connect(job.path("state.db")) as db:
        db.execute("DELETE FROM done WHERE offset=(SELECT max(offset) FROM done)")
        db.execute("UPDATE tally SET rows_done=rows_done-1, rows_length=rows_length-1,"
                   "rows_repetitive=rows_repetitive-1")
    db.close()
    assert json.loads(last)["repetitive"]
    job.run(*args)
    assert job.status()["rows_repetitive"] == 4 == job.status()["rows_done"]


def test_a_state_of_the_format_before_is_read_and_brought_up_to_date(headrace, tmp_path):
    job = Job(headrace, tmp_path, looping(tmp_path / "m"), [{"id": i, "prompt": "01"[i % 2]} for i in range(4)], **RAW)
    args = ("--max-tokens", 100)
    job.run("--limit", 2, *args)
    with sqlite3.connect(job.path("state.db")) as db:
        without_repetition(db)
        db.execute("PRAGMA user_version=2")
    db.close()
    assert job.status()["rows_repetitive"] == 0 and job.status()["rows_done"] == 2
    job.run(*args)
    assert len(job.rows()) == 4
    assert job.status()["rows_repetitive"] == 1 and job.status()["rows_done"] == 4  # the older rows do not count
