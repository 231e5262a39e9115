#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes cases/NAME: a small tokenizer for each component, texts, and the reference's answers.

Needs `tokenizers` 0.23.3 and `tiktoken` 0.14.0 from PyPI. The forms of the files are the kit's:
cases.jsonl (id, text, ids, ids_special, ids_plain, decoded, decoded_skip) and decode.jsonl; what
equals the member before it (ids_special and ids_plain: ids; decoded: text) is left out.

    tests/fidelity/make_cases.py
"""
import json
import pathlib
import random
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
# The script tokenizers.py beside this one must not hide the package of that name.
sys.path[:] = [str(HERE / 'lib')] + [p for p in sys.path if pathlib.Path(p or '.').resolve() != HERE]
import kimi  # noqa: E402
import small  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

OUT = HERE / 'cases'
SEED = 20240131
SAME_AS = (('ids_special', 'ids'), ('ids_plain', 'ids'), ('decoded_skip', 'decoded'), ('decoded', 'text'))
N_RANDOM = 10


def write_lines(path, rows):
    for row in rows:
        for key, before in SAME_AS:
            if before in row and row.get(key) == row[before]:
                row[f'-{key}'] = row[key]
        for key in [k for k in row if k[0] == '-']:
            del row[key], row[key[1:]]
    path.write_text(''.join(json.dumps(row, separators=(',', ':')) + '\n' for row in rows))


def texts():
    return small.LINES[:-1] + [
        '', ' ', '  a', 'b\x01c\x7fd\x0be\u200bf\ufeff\x8f\x9fg', 'x\u2581 y', '\u2603\u2603a\u2603', 'a' * 70, ' ' * 40, 'caf\u00e9 cafe\u0301 word sword',
        "I'LL we've <|im_start|>user\nhi<|im_end|>\n<tool> <left> a <right>  b"] + small.texts(SEED, N_RANDOM)


def write_cases(folder, answer, decode, n_ids):
    rng = random.Random(SEED)
    rows = [{'id': f'{i}', **answer(text)} for i, text in enumerate(texts())]
    write_lines(folder / 'cases.jsonl', rows)
    lists = [row['ids'][1:9] for row in rows[:9]]
    lists += [[rng.randrange(n_ids) for _ in range(8)] for _ in range(9)]
    write_lines(folder / 'decode.jsonl', [{'id': f'decode-{i}', 'ids': ids, **decode(ids)}
                                          for i, ids in enumerate(lists)])


def make_small(name):
    folder = OUT / name
    folder.mkdir(parents=True)
    made = small.BUILD[name]().to_str()
    t = Tokenizer.from_str(made)
    (folder / 'tokenizer.json').write_text(made + '\n')

    def decode(ids):
        return {'decoded': t.decode(ids, skip_special_tokens=False), 'decoded_skip': t.decode(ids)}

    def answer(text):
        t.encode_special_tokens = True
        plain = t.encode(text, add_special_tokens=False).ids
        t.encode_special_tokens = False
        ids = t.encode(text, add_special_tokens=False).ids
        return {'text': text, 'ids': ids, 'ids_special': t.encode(text).ids, 'ids_plain': plain,
                **decode(ids)}

    write_cases(folder, answer, decode, t.get_vocab_size())


def make_kimi():
    folder = OUT / 'kimi'
    folder.mkdir(parents=True)
    ranks = kimi.ranks_of(small.BUILD['bytes-o200k']().to_str())
    kimi.write_model(folder, ranks)
    reference = kimi.Reference(ranks)
    write_cases(folder, lambda text: reference.case(text.replace('<|im_start|>', '<|im_user|>')),
                reference.decoded, reference.n + kimi.N_RESERVED)


if __name__ == '__main__':
    shutil.rmtree(OUT, ignore_errors=True)
    for each in small.BUILD:
        make_small(each)
    make_kimi()
