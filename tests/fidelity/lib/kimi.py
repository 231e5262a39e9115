# SPDX-License-Identifier: Apache-2.0
"""A model directory in Kimi's form (tiktoken.model, tokenizer_config.json) and its reference.

Needs `tiktoken`. The ranks are those of any byte-level BPE whose ids go by merges. Source of the
pattern, the reserved ids and their names: moonshotai/Kimi-K2-Instruct, tokenization_kimi.py."""
import base64
import json

import small
import tiktoken

N_RESERVED = 256
NAMED = {0: ('[BOS]', True), 1: ('[EOS]', True), 2: ('<|im_end|>', True), 3: ('<|im_user|>', True),
         10: ('<|tool_calls_section_begin|>', False)}


def ranks_of(tokenizer_json):
    """{bytes: rank} of a byte-level tokenizer.json, without its added tokens."""
    alphabet = {}
    extra = 256
    for b in range(256):
        printable = 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b
        alphabet[chr(b if printable else extra)] = b
        extra += not printable
    d = json.loads(tokenizer_json)
    added = {a['content'] for a in d['added_tokens']}
    tokens = sorted((i, t) for t, i in d['model']['vocab'].items() if t not in added)
    return {bytes(alphabet[c] for c in t): i for i, (_, t) in enumerate(tokens)}


def control_of(n):
    return {NAMED.get(i, (f'<|reserved_token_{n + i}|>', True))[0]: n + i for i in range(N_RESERVED)}


def write_model(folder, ranks):
    n = len(ranks)
    lines = [base64.b64encode(t).decode() + f' {i}\n' for t, i in ranks.items()]
    (folder / 'tiktoken.model').write_text(''.join(lines))
    table = {str(n + i): {'content': content, 'special': special, 'lstrip': False, 'rstrip': False,
                          'normalized': False, 'single_word': False}
             for i, (content, special) in NAMED.items()}
    (folder / 'tokenizer_config.json').write_text(json.dumps(
        {'tokenizer_class': 'TikTokenTokenizer', 'bos_token': '[BOS]', 'eos_token': '[EOS]',
         'added_tokens_decoder': table}, indent=1) + '\n')


class Reference:
    def __init__(self, ranks):
        self.n = len(ranks)
        self.encoding = tiktoken.Encoding('kimi', pat_str=small.KIMI, mergeable_ranks=ranks,
                                          special_tokens=control_of(self.n))
        self.visible = {self.n + i for i, (_, special) in NAMED.items() if not special}

    def case(self, text):
        ids = self.encoding.encode(text, allowed_special='all')
        return {'text': text, 'ids': ids, 'ids_special': ids, **self.decoded(ids),
                'ids_plain': self.encoding.encode(text, disallowed_special=())}

    def decoded(self, ids):
        shown = [i for i in ids if i < self.n or i in self.visible]
        return {'decoded': self.text_of(ids), 'decoded_skip': self.text_of(shown)}

    def text_of(self, ids):
        return self.encoding.decode_bytes(ids).decode('utf-8', errors='replace')
