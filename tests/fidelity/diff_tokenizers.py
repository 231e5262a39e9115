#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `headrace tokenize` with `tokenizers` from PyPI on generated texts.

Trains the small tokenizers of lib/small.py and sends texts through each of them, three of them long:
with special tokens read, with what the post-processor adds, as plain text, and back; then random
ids. The seed is printed, and --seed repeats it.

    tests/fidelity/diff_tokenizers.py [--bin build/headrace] [--n 20000] [--seed N] [NAME ...]
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
    import small
    from tokenizers import Tokenizer
except ImportError as missing:
    print(f'skipped: {missing} (pip install tokenizers)')
    sys.exit(77)


def answers_of(binary, path, requests):
    data = ''.join(json.dumps(r) + '\n' for r in requests).encode()
    done = subprocess.run([binary, 'tokenize', '--tokenizer', str(path)], input=data,
                          capture_output=True, check=False)
    lines = [json.loads(line) for line in done.stdout.decode().split('\n') if line]
    if done.returncode or len(lines) != len(requests):
        raise SystemExit(f'{path}: {done.stderr.decode().strip()} ({len(lines)} answers)')
    return lines


def expected(t, texts, id_lists):
    """The reference's answers, in the order of the requests."""
    out = []
    t.encode_special_tokens = False
    found = t.encode_batch(texts, add_special_tokens=False)
    put_around = t.encode_batch(texts, add_special_tokens=True)
    t.encode_special_tokens = True
    plain = t.encode_batch(texts, add_special_tokens=False)
    for a, b, c in zip(found, put_around, plain):
        out += [{'ids': a.ids}, {'ids': b.ids}, {'ids': c.ids}]
    for ids in [a.ids for a in found] + id_lists:
        out.append({'ids': ids, 'decoded': t.decode(ids, skip_special_tokens=False),
                    'decoded_skip': t.decode(ids)})
    return out


def compare(binary, name, texts, rng):
    """The number of comparisons, and those that differ as (request, wanted, got)."""
    made = small.BUILD[name]().to_str()
    t = Tokenizer.from_str(made)  # reading a score back may change its last bit
    n_ids = t.get_vocab_size()
    id_lists = [[rng.randrange(n_ids + 3) for _ in range(rng.randrange(1, 20))]
                for _ in range(len(texts) // 4)]
    want = expected(t, texts, id_lists)
    requests = []
    for text in texts:
        requests += [{'text': text, 'parse_special': True},
                     {'text': text, 'parse_special': True, 'add_special': True}, {'text': text}]
    requests += [{'ids': w['ids']} for w in want[len(requests):]]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / 'tokenizer.json'
        path.write_text(made)
        got = answers_of(binary, path, requests)
    wrong = [(r, w, g) for r, w, g in zip(requests, want, got)
             if any(g.get(k) != v for k, v in w.items())]
    return len(requests), wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--bin', default=os.environ.get('HEADRACE_BIN') or ROOT / 'build/headrace')
    parser.add_argument('--n', type=int, default=20000, help='texts for all tokenizers together')
    parser.add_argument('--each', action='store_true', help='all texts through each tokenizer')
    parser.add_argument('--seed', type=int, default=random.randrange(1 << 32))
    parser.add_argument('--verbose', type=int, default=3, metavar='N')
    parser.add_argument('names', nargs='*')
    args = parser.parse_args()
    names = args.names or list(small.BUILD)
    print(f'seed {args.seed}')
    rng = random.Random(args.seed)
    n, bad = args.n if args.each else -(-args.n // len(names)), 0
    texts = small.texts(args.seed, n * (1 if args.each else len(names)))
    for i, name in enumerate(names):
        mine = texts if args.each else texts[i * n:(i + 1) * n]
        n_asked, wrong = compare(args.bin, name, mine + small.long_texts(args.seed), rng)
        bad += len(wrong)
        print(f'{name}: {n_asked - len(wrong)} of {n_asked} agree on {len(mine)} texts')
        for request, want, got in wrong[:args.verbose]:
            print(f'    {ascii(request)[:2000]}')
            for k, v in want.items():
                if got.get(k) != v:
                    print(f'        {k}: want {ascii(v)[:2000]}')
                    print(f'        {k}: got  {ascii(got.get(k))[:2000]}')
    return bad != 0


if __name__ == '__main__':
    sys.exit(main())
