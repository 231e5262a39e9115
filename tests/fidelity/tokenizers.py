#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Drives `headrace tokenize` over the kit's tokenizer cases and counts what agrees.

The kit is looked for at $HEADRACE_KIT, else at ../shared/kit beside the repository; without it the
script says that it skips and ends with 77. For every tokenizer: cases.jsonl (ids, ids_special,
ids_plain, decoded, decoded_skip) and decode.jsonl with tokenizer.json; and with --gguf the
vocab.gguf beside it over the same cases and over llama.cpp's own .inp/.out pairs. --own: the
project's small cases beside this script (make_cases.py), where a tokenizer may also be a directory
with a tiktoken.model; these need no kit.

    tests/fidelity/tokenizers.py [--bin build/headrace] [--gguf | --own] [NAME ...]
"""
import argparse
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
OWN = ROOT / 'tests' / 'fidelity' / 'cases'

# With --gguf, what a GGUF cannot know or llama.cpp does otherwise than the model's own tokenizer:
# an early Qwen2.5 vocabulary without its last tokens; llama.cpp's pairs that leave out NFC; which of
# Gemma 3's tokens are control tokens (the GGUF says <mask> is, <start_of_image> is not; tokenizer.json
# says the reverse); that Phi-3's control tokens take the white characters after them.
GGUF_KNOWN_TEXT = {
    'qwen2.5': ('<|image_pad|>', '<|video_pad|>', '<tool_call>', '<|object_ref_start|>', '<|fim_',
                '<|vision_', '<|box_', '<|quad_', '<|repo_name|>', '<|file_sep|>'),
    'qwen35-pre': ('\u0301', '\u0300'),
    'gemma3': ('<mask>', '<unused', '<start_of_image>'),
    'phi-3-mini': ('<|user|>\n', '</s> x', '</s>\n'),
}
GGUF_KNOWN_IDS = {'qwen2.5': range(151646, 151936), 'gemma3': range(255999, 262144)}


def kit_folder():
    kit = pathlib.Path(os.environ.get('HEADRACE_KIT') or ROOT.parent / 'shared' / 'kit')
    return kit / 'tokenizers' if (kit / 'tokenizers').is_dir() else None


def plain_file(folder, name, scratch):
    """The path of a kit file, unpacked when it is stored as .gz; None when it is not there."""
    path = folder / name
    if path.exists():
        return path
    packed = folder / (name + '.gz')
    if not packed.exists():
        return None
    out = pathlib.Path(scratch) / f'{folder.name}-{name}'
    out.write_bytes(gzip.decompress(packed.read_bytes()))
    return out


def source_of(folder, gguf, scratch):
    """The options that name the tokenizer; None when the folder has none of this kind."""
    if (folder / 'tiktoken.model').exists() and not gguf:
        return ['--model', str(folder)]
    path = plain_file(folder, 'vocab.gguf' if gguf else 'tokenizer.json', scratch)
    return path and ['--model' if gguf else '--tokenizer', str(path)]


def load_lines(path):
    return [json.loads(line) for line in open(path, encoding='utf-8')] if path.exists() else []


def decoded_of(c, text=None):
    """The wanted texts of a case; a small file leaves out what equals the one before."""
    decoded = c.get('decoded', text)
    return {'decoded': decoded, 'decoded_skip': c.get('decoded_skip', decoded)}


def questions(folder):
    """(id, request, wanted keys) for each comparison that the kit holds."""
    out = []
    for c in load_lines(folder / 'cases.jsonl'):
        text = c['text']
        out.append((c['id'], {'text': text, 'parse_special': True},
                    {'ids': c['ids'], **decoded_of(c, text)}))
        out.append((c['id'] + ' special',
                    {'text': text, 'parse_special': True, 'add_special': True},
                    {'ids': c.get('ids_special', c['ids'])}))
        out.append((c['id'] + ' plain', {'text': text}, {'ids': c.get('ids_plain', c['ids'])}))
    for c in load_lines(folder / 'decode.jsonl'):
        out.append((c['id'], {'ids': c['ids']}, decoded_of(c)))
    return out


def pairs(folder):
    """llama.cpp's own: texts and the ids that it gives them, without BOS, special tokens read."""
    if not (folder / 'vocab.gguf.inp').exists():
        return []
    texts = (folder / 'vocab.gguf.inp').read_text(encoding='utf-8').split('\n__ggml_vocab_test__\n')
    lines = (folder / 'vocab.gguf.out').read_text(encoding='utf-8').split('\n')
    return [(f'pair-{i}', {'text': t}, {'ids': [int(x) for x in line.split()]})
            for i, (t, line) in enumerate(zip(texts, lines))]


def asked_of(folder, gguf):
    """All comparisons for tokenizer.json, or those that hold for the GGUF beside it."""
    if not gguf:
        return questions(folder)
    texts, ids = GGUF_KNOWN_TEXT.get(folder.name, ()), GGUF_KNOWN_IDS.get(folder.name, ())
    # Whether BOS is put in front is a GGUF's own word, not tokenizer.json's.
    return [q for q in questions(folder) + pairs(folder) if not q[0].endswith(' special')
            and not any(s in q[1].get('text', '') for s in texts)
            and not any(i in ids for i in q[1].get('ids', ()))]


def ask(binary, source, asked):
    """Runs the binary once over all questions; the list of those that differ, or an error text."""
    data = ''.join(json.dumps(request) + '\n' for _, request, _ in asked)
    done = subprocess.run([binary, 'tokenize', *source], input=data.encode(), capture_output=True)
    answers = [json.loads(line) for line in done.stdout.decode('utf-8').split('\n') if line]
    if done.returncode or len(answers) != len(asked):
        return done.stderr.decode(errors='replace').strip() or f'exit code {done.returncode}'
    return [(name, request, want, got) for (name, request, want), got in zip(asked, answers)
            if any(got.get(k) != v for k, v in want.items())]


def report(label, asked, wrong, verbose):
    if isinstance(wrong, str):
        print(f'{label}: REFUSED: {wrong}')
        return False
    print(f'{label}: {len(asked) - len(wrong)} of {len(asked)} agree')
    for name, request, want, got in wrong[:verbose]:
        print(f'    {name}: {ascii(request)[:160]}')
        for k, v in want.items():
            if got.get(k) != v:
                print(f'        {k}: want {ascii(v)[:200]}')
                print(f'        {k}: got  {ascii(got.get(k))[:200]}')
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--bin', default=os.environ.get('HEADRACE_BIN') or ROOT / 'build/headrace')
    parser.add_argument('--gguf', action='store_true', help='the GGUF vocabularies instead')
    parser.add_argument('--own', action='store_true', help="the project's own cases instead")
    parser.add_argument('--verbose', type=int, default=3, metavar='N',
                        help='show N differences of each')
    parser.add_argument('names', nargs='*')
    args = parser.parse_args()
    kit = OWN if args.own else kit_folder()
    if kit is None:
        print('skipped: no kit (set HEADRACE_KIT)')
        return 77
    good = n_asked = 0
    with tempfile.TemporaryDirectory() as scratch:
        for folder in sorted(kit.iterdir()):
            if args.names and folder.name not in args.names:
                continue
            source = source_of(folder, args.gguf, scratch)
            if source is None:
                continue
            asked = asked_of(folder, args.gguf)
            wrong = ask(args.bin, source, asked)
            n_asked += 1
            good += report(folder.name, asked, wrong, args.verbose)
    print(f'{good} of {n_asked} tokenizers agree in full')
    return 0 if good == n_asked else 1


if __name__ == '__main__':
    sys.exit(main())
