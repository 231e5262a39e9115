# SPDX-License-Identifier: Apache-2.0
"""conftest: what the Python tests share: the repository, the binary, the demo model, the kit.

The binary is $HEADRACE_BIN or build/headrace; the model is $HEADRACE_MODEL or what scripts/demo-model
prints. The kit (real tokenizers, templates and prompts, not part of the repository) is $HEADRACE_KIT
or ../shared/kit; tests that want it are skipped, and say so, when it is not there."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Headrace:
    """The binary. A call returns the finished process with its text; it never raises for an exit code."""

    def __init__(self, path):
        self.path = path

    def __call__(self, *args, timeout=120, stdin="", env=None, cwd=None):
        return subprocess.run([self.path, *map(str, args)], input=stdin, capture_output=True, text=True,
                              timeout=timeout, cwd=cwd, env={**os.environ, **(env or {})}, check=False)

    def start(self, *args, env=None, cwd=None, stderr=subprocess.DEVNULL):
        """A process that runs on, for tests that kill it."""
        return subprocess.Popen([self.path, *map(str, args)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=stderr, cwd=cwd,
                                env={**os.environ, **(env or {})})


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def headrace():
    path = pathlib.Path(os.environ.get("HEADRACE_BIN", ROOT / "build" / "headrace")).resolve()
    assert path.is_file(), f"{path} is not there: run scripts/build, or set HEADRACE_BIN"
    return Headrace(str(path))


@pytest.fixture(scope="session")
def model():
    path = os.environ.get("HEADRACE_MODEL")
    if not path:
        got = subprocess.run([str(ROOT / "scripts" / "demo-model")], capture_output=True, text=True,
                             check=False)
        if got.returncode != 0:
            pytest.skip("the demo model could not be fetched: " + got.stderr.strip())
        path = got.stdout.strip()
    return path


@pytest.fixture(scope="session")
def kit():
    path = pathlib.Path(os.environ.get("HEADRACE_KIT", ROOT.parent / "shared" / "kit"))
    if not path.is_dir():
        pytest.skip("the kit is not there (HEADRACE_KIT or ../shared/kit)")
    return path
