# SPDX-License-Identifier: Apache-2.0
"""terminal: what a person sees of a run in a terminal: one live line that fits its width, whole lines
above it, and nothing of it left behind at the end. The terminal is a pty; nothing else is needed."""
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time

import pytest
from jobdir import INTERRUPTED, Job
from test_kill_resume import GREEDY, prompts


class Terminal:
    """A run of the job on a terminal of so many columns; what it has written so far."""

    def __init__(self, job, columns, *args):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.set_blocking(master, False)
        command = [job.headrace.path, "run", job.manifest, "--model", job.model, "--out", job.folder / "out", *args]
        self.process = subprocess.Popen([str(a) for a in command], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=slave,
                                        env={**os.environ, "TERM": "xterm"})
        os.close(slave)
        self.master, self.bytes = master, b""

    def read(self):
        try:
            while chunk := os.read(self.master, 65536):
                self.bytes += chunk
        except (BlockingIOError, OSError):
            pass
        return self.bytes.decode()

    def wait_for(self, pattern, timeout=60):
        end = time.monotonic() + timeout
        while not (found := re.search(pattern, self.read())):
            assert time.monotonic() < end and self.process.poll() is None, self.bytes
            time.sleep(0.05)
        return found[0]

    def end(self):
        code = self.process.wait(60)
        self.read()
        os.close(self.master)
        return code


ARGS = (*GREEDY, "--max-tokens", 1200, "--ignore-eos", "--max-running", 4, "--threads", 1)
ERASE = "\r\x1b[K"


@pytest.mark.parametrize("columns", [120, 60, 24])
def test_the_live_line_fits_and_goes_away(headrace, tmp_path, slow, columns):
    job = Job(headrace, tmp_path, slow, prompts(12))
    terminal = Terminal(job, columns, *ARGS)
    terminal.wait_for(r"d  (\[.*\] )?\d+/12")
    time.sleep(1)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == INTERRUPTED
    text = terminal.bytes.decode()
    live = [s for s in re.split(r"\r\x1b\[K|\n", text) if re.match(r"d  (\[.*\] )?\d+/\?|d  (\[.*\] )?\d+/12", s)]
    assert len(live) >= 2 and all(len(s) < columns for s in live), live
    if columns == 120:
        assert re.fullmatch(r"d  \[[=> ]+\] \d+/12  [\d.]+ tok/s  4 running  \d+ queued  KV \d+%  ETA \S+", live[-1])
    assert text.rstrip().endswith("interrupted; resume with the same command")
    assert text.rindex("d: interrupted") > text.rindex(live[-1])
    assert text[:text.rindex("d: interrupted")].endswith(ERASE)


def test_run_log_gets_the_periodic_line_of_a_run_with_a_live_one(headrace, tmp_path, slow):
    job = Job(headrace, tmp_path, slow, prompts(12))
    terminal = Terminal(job, 100, *ARGS)
    end = time.monotonic() + 60
    while "Decode batch, #running-req: 4" not in (job.path("run.log").read_text(encoding="utf-8")
                                                  if job.path("run.log").exists() else ""):
        assert time.monotonic() < end and terminal.process.poll() is None
        terminal.read()
        time.sleep(0.1)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == INTERRUPTED
    assert "Decode batch" not in terminal.bytes.decode()
