# SPDX-License-Identifier: Apache-2.0
"""fidelity: the binary over the kit's real chat templates, through tests/fidelity/templates.py. Without
the kit it is skipped."""
import subprocess
import sys

import pytest


def test_rendered_prompts_equal_the_reference(root, headrace, kit):
    done = subprocess.run([sys.executable, str(root / "tests" / "fidelity" / "templates.py"),
                           headrace.path, str(kit)],
                          capture_output=True, text=True, timeout=600, check=False)
    if done.returncode == 77:
        pytest.skip((done.stdout + done.stderr).strip())
    assert done.returncode == 0, done.stdout + done.stderr
