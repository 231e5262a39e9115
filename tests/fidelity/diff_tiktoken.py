#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares a model directory in Kimi's form with `tiktoken` from PyPI on generated texts.

The ranks are small ones that small.py trains and, where the kit is, gpt-oss's 200,000 (o200k): no
sample of Kimi's own is at hand, and its pattern is what must be seen to hold.

    tests/fidelity/diff_tiktoken.py [--bin build/headrace] [--n 2000] [--seed N]
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# The script tokenizers.py beside this one must not hide the package of that name.
sys.path[:] = [str(HERE / 'lib')] + [p for p in sys.path if pathlib.Path(p or '.').resolve() != HERE]
try:
    import kimi
    import small
except ImportError as missing:
    print(f'skipped: {missing} (pip install tokenizers tiktoken)')
    sys.exit(77)


def kit_ranks():
    import gzip
    kit = pathlib.Path(os.environ.get('HEADRACE_KIT') or ROOT.parent / 'shared' / 'kit')
    path = kit / 'tokenizers' / 'gpt-oss' / 'tokenizer.json.gz'
    return kimi.ranks_of(gzip.decompress(path.read_bytes())) if path.exists() else None


def compare(binary, ranks, texts):
    """The texts that differ, as (text, wanted, got)."""
    reference = kimi.Reference(ranks)
    lines = ''.join(json.dumps({'text': t, 'parse_special': special}) + '\n'
                    for t in texts for special in (True, False))
    with tempfile.TemporaryDirectory() as folder:
        kimi.write_model(pathlib.Path(folder), ranks)
        done = subprocess.run([binary, 'tokenize', '--model', folder], input=lines.encode(),
                              capture_output=True, check=False)
    got = [json.loads(line) for line in done.stdout.decode().split('\n') if line]
    if done.returncode or len(got) != 2 * len(texts):
        raise SystemExit(f'{done.stderr.decode().strip()} ({len(got)} answers)')
    wrong = []
    for i, text in enumerate(texts):
        want = reference.case(text)
        same = all(got[2 * i].get(k) == want[k] for k in ('ids', 'decoded', 'decoded_skip'))
        if not same or got[2 * i + 1].get('ids') != want['ids_plain']:
            wrong.append((text, want, got[2 * i:2 * i + 2]))
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--bin', default=os.environ.get('HEADRACE_BIN') or ROOT / 'build/headrace')
    parser.add_argument('--n', type=int, default=2000)
    parser.add_argument('--seed', type=int, default=random.randrange(1 << 32))
    args = parser.parse_args()
    print(f'seed {args.seed}')
    texts = [t.replace('<|im_start|>', '<|im_user|>') for t in small.texts(args.seed, args.n)]
    sets = {'small': kimi.ranks_of(small.BUILD['bytes-o200k']().to_str()), 'o200k': kit_ranks()}
    bad = 0
    for name, ranks in sets.items():
        if ranks is None:
            print(f'{name}: skipped: no kit (set HEADRACE_KIT)')
            continue
        wrong = compare(args.bin, ranks, texts)
        bad += len(wrong)
        print(f'{name}: {len(texts) - len(wrong)} of {len(texts)} texts agree')
        for text, want, got in wrong[:3]:
            print(f'    {ascii(text)}\n        want {ascii(want)}\n        got  {ascii(got)}')
    return bad != 0


if __name__ == '__main__':
    sys.exit(main())
