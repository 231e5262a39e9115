# SPDX-License-Identifier: Apache-2.0
"""Rendered prompts are the reference's: on generated templates and conversations, where Jinja2 can be
imported. The kit's templates are in ../test_fidelity.py."""
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parent / 'diff_templates.py'


def test_generated_templates_against_jinja2(headrace, capsys):
    done = subprocess.run([sys.executable, str(SCRIPT), '--bin', headrace.path], capture_output=True, text=True,
                          timeout=600, check=False)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    with capsys.disabled():  # the seed belongs into the log also when all is well
        print(f'\n{SCRIPT.name}: {done.stdout.strip()}')
