# SPDX-License-Identifier: Apache-2.0
"""fidelity: the binary over the kit's real tokenizers and chat templates, through the scripts in
tests/fidelity. Without the kit these are skipped."""
import subprocess
import sys

import pytest

# Those of the families that headrace runs; tests/fidelity/tokenizers.py without names tries all.
TOKENIZERS = ["smollm2", "qwen2.5", "qwen3", "llama3"]


def agrees(root, script, *args):
    done = subprocess.run([sys.executable, str(root / "tests" / "fidelity" / script), *args],
                          capture_output=True, text=True, timeout=600, check=False)
    if done.returncode == 77:
        pytest.skip((done.stdout + done.stderr).strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", TOKENIZERS)
def test_token_ids_equal_the_reference(root, headrace, kit, name):
    # A name that the kit does not know would agree in all of its no cases.
    assert "1 of 1 " in agrees(root, "tokenizers.py", "--bin", headrace.path, name)


def test_rendered_prompts_equal_the_reference(root, headrace, kit):
    agrees(root, "templates.py", headrace.path, str(kit))
