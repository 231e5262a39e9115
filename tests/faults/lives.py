# SPDX-License-Identifier: Apache-2.0
"""lives: one job in several lives: started, watched while it runs, killed, and looked at when dead.

What a living run has done is read from its own state.db, over a connection that cannot write; what a
dead one has left is read from copies, so that looking at it mends nothing."""
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time

POLL_S = 0.004


class Life:
    """A run of the job that is going on. Its stderr goes to a file, so that nobody has to read it."""

    def __init__(self, job, *args, out="out", env=None, wrap=()):
        self.job, self.out = job, out
        self.log = tempfile.TemporaryFile("w+")
        command = [*wrap, job.headrace.path, "run", job.manifest, "--model", job.model, "--out",
                   job.folder / out, *args]
        self.process = subprocess.Popen([str(a) for a in command], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=self.log,
                                        env={**os.environ, **(env or {})})

    def stderr(self):
        self.log.seek(0)
        return self.log.read()

    def wait_for(self, condition, timeout=120):
        """True when the condition holds, False when the run ended before it did."""
        end = time.monotonic() + timeout
        while not condition():
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < end, f"it did not come to that: {self.stderr()}"
            time.sleep(POLL_S)
        return True

    def wait_for_text(self, text, timeout=120):
        assert self.wait_for(lambda: text in self.stderr(), timeout), self.stderr()

    def wait_for_tokens(self, n, timeout=600):
        return self.wait_for(lambda: sampled_tokens(self.job, self.out) >= n, timeout)

    def wait_for_rows(self, n, timeout=600):
        return self.wait_for(lambda: n_lines(self.job, self.out) >= n, timeout)

    def signal(self, signum):
        self.process.send_signal(signum)

    def kill(self):
        """True when it was alive."""
        alive = self.process.poll() is None
        self.process.kill()
        self.process.wait()
        return alive

    def end(self, timeout=600):
        return self.process.wait(timeout=timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.log.close()


def n_lines(job, out="out"):
    path = job.path("raw_responses.jsonl", out)
    return path.read_bytes().count(b"\n") if path.exists() else 0


def sampled_tokens(job, out="out"):
    """Tokens that reached the journal or a row, over all lives so far; 0 before there is a state.db."""
    try:
        db = sqlite3.connect(f"file:{job.path('state.db', out)}?mode=ro", uri=True, timeout=5)
        try:
            return db.execute("SELECT ifnull(sum(sampled_tokens), 0) FROM runs").fetchone()[0]
        finally:
            db.close()
    except sqlite3.OperationalError:
        return 0


def query_dead(job, sql, out="out"):
    """Rows of a query over a copy of the state.db (and its log) that a dead run has left."""
    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("", "-wal"):
            path = job.path("state.db" + suffix, out)
            if path.exists():
                shutil.copy(path, f"{folder}/state.db{suffix}")
        if not os.path.exists(f"{folder}/state.db"):
            return []
        db = sqlite3.connect(f"{folder}/state.db")
        try:
            return db.execute(sql).fetchall()
        except sqlite3.OperationalError as error:
            assert "no such table" in str(error)  # killed before its first transaction
            return []
        finally:
            db.close()


def journalled(job, out="out"):
    """What a dead run has left unfinished: samples, tokens."""
    left = query_dead(job, "SELECT count(*), ifnull(sum(n), 0) FROM (SELECT sum(length(tokens)) / 4 AS n "
                           "FROM journal GROUP BY row, sample)", out)
    return left[0] if left else (0, 0)


def taken_over(stderr):
    """What a run says that it took over from the one before: samples, tokens."""
    said = re.search(r"the last run left (\d+) unfinished rows? with (\d+) tokens?; (?:it is|they are) continued", stderr)
    return (int(said[1]), int(said[2])) if said else (0, 0)


def kill_at(job, targets, args, out="out", delay=lambda: 0.0):
    """A life for each target, killed when that many tokens were sampled over all lives (and a random
    moment later), and a last one that ends by itself. Every life must take over what the one before
    left. Returns how many kills found rows unfinished, and how many tokens were taken over."""
    n_unfinished = n_tokens = 0
    left = journalled(job, out)
    for target in [*targets, None]:
        with Life(job, *args, out=out) as life:
            if target is None:
                assert life.end() == 0, life.stderr()
            else:
                life.wait_for_tokens(target)
                time.sleep(delay())
                life.kill()
            said = taken_over(life.stderr())
            assert said == left or (target is not None and said == (0, 0) and "tok/s" not in life.stderr()), (
                f"{left[0]} rows with {left[1]} tokens were left unfinished; {life.stderr()}")
        left = journalled(job, out)
        n_unfinished += left[0] > 0
        n_tokens += left[1]
        print(f"killed at {target}: {n_lines(job, out)} rows, {left[0]} unfinished with {left[1]} tokens")
    assert left == (0, 0)
    return n_unfinished, n_tokens


def interrupt(life, signum=signal.SIGINT, within=20):
    """Asks the run to stop; its exit code."""
    life.signal(signum)
    return life.end(within)
