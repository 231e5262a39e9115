# SPDX-License-Identifier: Apache-2.0
"""Tokenizers give the reference's ids and texts: on the committed small cases; on the kit's, where it
is; on generated texts, where `tokenizers` or `tiktoken` can be imported."""
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

# By its path: as a module it would hide the package of the same name from other tests.
SPEC = importlib.util.spec_from_file_location(
    'kit_cases', pathlib.Path(__file__).parent / 'tokenizers.py')
kit_cases = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(kit_cases)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get('HEADRACE_BIN', str(ROOT / 'build' / 'headrace'))
KIT = kit_cases.kit_folder()
NAMES = sorted(p.name for p in KIT.iterdir()) if KIT else []
OWN_NAMES = sorted(p.name for p in kit_cases.OWN.iterdir())

pytestmark = pytest.mark.skipif(not os.path.exists(BINARY), reason='headrace is not built')
with_kit = pytest.mark.skipif(not KIT, reason='no kit (set HEADRACE_KIT)')


def compare(folder, gguf, tmp_path):
    source = kit_cases.source_of(folder, gguf, tmp_path)
    if source is None:
        pytest.skip('there is no such file')
    assert kit_cases.ask(BINARY, source, kit_cases.asked_of(folder, gguf)) == []


@pytest.mark.parametrize('name', OWN_NAMES)
def test_own_cases(name, tmp_path):
    compare(kit_cases.OWN / name, False, tmp_path)


@with_kit
@pytest.mark.parametrize('name', NAMES)
def test_tokenizer_json(name, tmp_path):
    compare(KIT / name, False, tmp_path)


@with_kit
@pytest.mark.parametrize('name', NAMES)
def test_gguf_vocabulary(name, tmp_path):
    compare(KIT / name, True, tmp_path)


def run_script(name, capsys):
    done = subprocess.run([sys.executable, str(pathlib.Path(__file__).parent / name), '--bin', BINARY],
                          capture_output=True, text=True, timeout=600, check=False)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.split('\n')
    with capsys.disabled():  # the seed belongs into the log also when all is well
        print(f'\n{name}: {next(line for line in lines if line.startswith("seed"))}')


def test_generated_texts_against_the_reference(capsys):
    run_script('diff_tokenizers.py', capsys)


def test_generated_texts_against_tiktoken(capsys):
    run_script('diff_tiktoken.py', capsys)
