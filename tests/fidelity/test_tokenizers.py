# SPDX-License-Identifier: Apache-2.0
"""Every tokenizer of the kit gives the reference's ids and texts; skips where the kit is not."""
import importlib.util
import os
import pathlib

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

pytestmark = [
    pytest.mark.skipif(not KIT, reason='no kit (set HEADRACE_KIT)'),
    pytest.mark.skipif(not os.path.exists(BINARY), reason='headrace is not built'),
]


def compare(name, gguf, tmp_path):
    path = kit_cases.plain_file(KIT / name, 'vocab.gguf' if gguf else 'tokenizer.json', tmp_path)
    if path is None:
        pytest.skip('the kit has no such file')
    asked = kit_cases.asked_of(KIT / name, gguf)
    wrong = kit_cases.ask(BINARY, ['--model' if gguf else '--tokenizer', str(path)], asked)
    assert wrong == []


@pytest.mark.parametrize('name', NAMES)
def test_tokenizer_json(name, tmp_path):
    compare(name, False, tmp_path)


@pytest.mark.parametrize('name', NAMES)
def test_gguf_vocabulary(name, tmp_path):
    compare(name, True, tmp_path)
