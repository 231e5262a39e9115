#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `headrace render --raw` with Jinja2 from PyPI on generated templates and conversations.

Jinja2 is set up as transformers does: ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks,
loopcontrols, the generation tag, its tojson, raise_exception and strftime_now. Both must give the same
text, or both an error; the message of raise_exception must be the same too. Six tenths of the templates are
random (lib/templates_gen.py), the others have the shapes of real ones, a tenth is damaged. The seed
is printed, and --seed repeats it; --only I shows one case of it. With --kit DIR the kit's templates are
among the shapes.

    tests/fidelity/diff_templates.py [--bin build/headrace] [--n 2000] [--seed N] [--only I] [--kit DIR]
"""
import argparse
import datetime
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import warnings

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE / 'lib'))
try:
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError as missing:
    print(f'skipped: {missing} (pip install jinja2)')
    sys.exit(77)
import templates_gen

NOW = datetime.datetime(2026, 3, 7, 9, 5, 3)
BATCH = 2000  # cases at once, so that a long run needs no more memory than a short one
# What headrace refuses by name (docs/fidelity.md): no statement about such a case.
SET_ASIDE = re.compile(r'(is|are) not supported|not supported$|only the encoding utf-8|print in decimal only|'
                       r'is not known here|has no method')


class Generation(jinja2.ext.Extension):
    tags = {'generation'}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(['name:endgeneration'], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method('_same'), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters['tojson'] = tojson
    env.globals['raise_exception'] = raise_exception
    env.globals['strftime_now'] = NOW.strftime
    return env


def reference(env, template, context):
    """{'text'} or {'error', 'raised'}; raised: the template's own message."""
    try:
        return {'text': env.from_string(template).render(**context)}
    except Exception as error:  # whatever it is, a user of transformers would see it
        return {'error': f'{type(error).__name__}: {error}',
                'raised': str(error) if type(error) is jinja2.exceptions.TemplateError else None}


def ask(binary, cases):
    requests = ''.join(json.dumps({'template': t, 'context': c, 'now': NOW.isoformat()}) + '\n' for _, t, c in cases)
    done = subprocess.run([binary, 'render', '--raw'], input=requests.encode(), stdout=subprocess.PIPE, check=False)
    answers = [json.loads(line) for line in done.stdout.decode().split('\n') if line]
    if done.returncode or len(answers) != len(cases):
        raise SystemExit(f'exit code {done.returncode}, {len(answers)} answers to {len(cases)} cases')
    return answers


def verdict(want, got):
    """'same', 'differs', or 'aside' when there is nothing to compare."""
    if 'error' in got and SET_ASIDE.search(got['error']):
        return 'aside'
    if ' at 0x' in (want.get('text') or want.get('raised') or '').lower():
        return 'aside'
    if 'text' in want:
        return 'same' if got.get('text') == want['text'] else 'differs'
    if want['raised'] is not None:
        return 'same' if got.get('error') == want['raised'].split('\0')[0] else 'differs'  # a C string
    return 'same' if 'error' in got else 'differs'


def show(number, case, want, got):
    kind, template, context = case
    print(f'case {number} ({kind}):\n    template {template!r}\n    context {ascii(context)[:3000]}')
    print(f'    want {ascii(want)[:3000]}\n    got  {ascii(got)[:3000]}')


def shapes_of(kit):
    folders = [HERE / 'shapes'] + ([pathlib.Path(kit) / 'templates'] if kit else [])
    return [p.read_text(encoding='utf-8') for folder in folders for p in sorted(folder.glob('*.jinja'))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--bin', default=os.environ.get('HEADRACE_BIN') or ROOT / 'build/headrace')
    parser.add_argument('--n', type=int, default=2000)
    parser.add_argument('--seed', type=int, default=random.randrange(1 << 32))
    parser.add_argument('--only', type=int, metavar='I')
    parser.add_argument('--kit', metavar='DIR')
    parser.add_argument('--verbose', type=int, default=5, metavar='N')
    args = parser.parse_args()
    warnings.simplefilter('ignore')  # Python's, about the code that Jinja2 makes of strange templates
    env, shapes, counts = environment(), shapes_of(args.kit), {}
    again = f' --kit {args.kit}' if args.kit else ''
    print(f'seed {args.seed} (again: diff_templates.py --seed {args.seed} --n {args.n}{again})', flush=True)
    numbers = range(args.n) if args.only is None else [args.only]
    for first in range(0, len(numbers), BATCH):
        batch = numbers[first:first + BATCH]
        cases = [templates_gen.case(random.Random(f'{args.seed} {i}'), shapes) for i in batch]
        for i, case, got in zip(batch, cases, ask(args.bin, cases)):
            want = reference(env, *case[1:])
            outcome = verdict(want, got)
            if outcome == 'same':
                outcome = 'text' if 'text' in want else 'error'
            counts[outcome] = counts.get(outcome, 0) + 1
            if args.only is not None or (outcome == 'differs' and counts[outcome] <= args.verbose):
                show(i, case, want, got)
    n_differ = counts.get('differs', 0)
    print(f'{len(numbers)} cases: {counts.get("text", 0)} equal texts, {counts.get("error", 0)} errors of both, '
          f'{counts.get("aside", 0)} set aside, {n_differ} differ')
    return 1 if n_differ else 0


if __name__ == '__main__':
    sys.exit(main())
