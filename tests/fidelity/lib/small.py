# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers, one for each component that headrace knows, and texts that tell them apart.

Needs `tokenizers` from PyPI; it trains them on a few lines of its own, so no file is needed.
make_cases.py writes some answers into cases/; diff_tokenizers.py compares many more."""
import json
import random

from charsmap import charsmap
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

LINES = '''The quick brown fox jumps over the lazy dog. I'll say they've said it's done, I'm sure you'd agree.
def parse(self, text: str) -> list[int]:\n    return [int(x) for x in text.split(",") if x.strip()]
int main(void) {\n\tprintf("hello, world %d\\n", 42);\n\treturn 0;\n}
Numbers: 1 12 123 1234 12345 3.14159 -2.5e10 0xFF 1,000,000; dates 2024-01-31, 10:45:59.
Größe, naïve café, façade, Ångström, señor, ÀÉÎÕÜ, straße; Việt Nam; İstanbul, ĳ, ﬁnal ﬂag.
Быстрая коричневая лиса прыгает через ленивую собаку. Съешь же ещё этих мягких булок.
敏捷的棕色狐狸跳过了懒狗。今天天气很好，我们去公园吧！ 日本語のテキスト、カタカナとひらがな。 한국어 텍스트입니다.
مرحبا بالعالم، كيف حالك؟ שלום עולם. नमस्ते दुनिया। สวัสดีชาวโลก
👋🏽 👨‍👩‍👧 🇩🇪 ☃ ∑ ≤ ≥ → ← ½ ² ① Ⅻ … “quoted” ‘single’ – — •
www.example.com/path?query=1&other=two#frag user@example.org CamelCaseWords snake_case_words HTTPServer2Go
aaaaaaaaaaaaaaaa bbbbbbbb ======== -------- ........ 00000000         end   of  line
'''.split('\n')
CORPUS = LINES * 4

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r'\p{N}{1,3}', r'\p{N}')
UPPER, LOWER = r'[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]', r'[\p{Ll}\p{Lm}\p{Lo}\p{M}]'
TAIL = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (rf'[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{TAIL}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{TAIL}'
         r'|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+')
KIMI = ('[\\p{Han}]+|' + O200K.replace('[\\r\\n/]*', '[\\r\\n]*').replace('\\p{M}]', '\\p{M}&&[^\\p{Han}]]'))
MAP = {'\u00a0': ' ', '\u3000': ' ', '\u2026': '...', '\ufb01': 'fi', '\u00bd': '1/2', '\u2460': '1',
       'e\u0301': '\u00e9', '\r\n': '\n', '\u0600': 'n', '\u00a9': '(c)', '\u0915': 'k', '\u1100': 'g'}
BYTES = [f'<0x{i:02X}>' for i in range(256)]


def byte_level(pre, norm=None, post=None, size=700, added=(), **model):
    t = Tokenizer(models.BPE(**model))
    if norm:
        t.normalizer = norm
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return finish(t, added, post)


def finish(t, added, post=None):
    for token in added:
        (t.add_special_tokens if token.special else t.add_tokens)([token])
    if post:
        t.post_processor = post(t)
    return t


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), 'isolated')


def bytes_only():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def chars(norm, pre, decoder, special, size=700, unigram=False, added=(), post=None, **model):
    """A BPE over characters, or a Unigram model."""
    t = Tokenizer(models.Unigram() if unigram else models.BPE(unk_token=special[0], **model))
    if norm:
        t.normalizer = norm
    if pre:
        t.pre_tokenizer = pre
    lines = [line for text in CORPUS for line in (text, ' ' + text)]
    trainer = trainers.UnigramTrainer if unigram else trainers.BpeTrainer
    more = {'unk_token': special[0]} if unigram else {'limit_alphabet': 120}
    t.train_from_iterator(lines, trainer(vocab_size=size, special_tokens=special, show_progress=False,
                                         **more))
    t.decoder = decoder
    if unigram and model.get('byte_fallback'):
        d = json.loads(t.to_str())
        d['model']['byte_fallback'] = True
        t = Tokenizer.from_str(json.dumps(d))
    return finish(t, added, post)


def llama_decoder():
    return decoders.Sequence([decoders.Replace('\u2581', ' '), decoders.ByteFallback(),
                              decoders.Fuse(), decoders.Strip(' ', 1, 0)])


def llama_normalizer():
    return normalizers.Sequence([normalizers.Prepend('\u2581'), normalizers.Replace(' ', '\u2581')])


def special(content, **more):
    return AddedToken(content, special=True, normalized=False, **more)


def control():
    return [special('<|im_start|>'), special('<|im_end|>'), AddedToken('<tool>', normalized=False)]


def bos(t):
    return processors.TemplateProcessing(
        single='<|im_start|> $A', special_tokens=[('<|im_start|>', t.token_to_id('<|im_start|>'))])


def roberta(t):
    return processors.RobertaProcessing(('<|im_end|>', t.token_to_id('<|im_end|>')),
                                        ('<|im_start|>', t.token_to_id('<|im_start|>')))


SEQ = pre_tokenizers.Sequence
BUILD = {
    'bytes-gpt2': lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), added=control()),
    'bytes-llama3': lambda: byte_level(SEQ([split(LLAMA3), bytes_only()]), added=control(), post=bos,
                                       ignore_merges=True),
    'bytes-qwen2': lambda: byte_level(SEQ([split(QWEN2), bytes_only()]), norm=normalizers.NFC(),
                                      added=control()),
    'bytes-o200k': lambda: byte_level(SEQ([split(O200K), bytes_only()]), added=control()),
    'bytes-whole': lambda: byte_level(bytes_only(), added=control()),
    'bytes-punctuation': lambda: byte_level(
        SEQ([pre_tokenizers.Punctuation('contiguous'), pre_tokenizers.ByteLevel(add_prefix_space=False),
             pre_tokenizers.Digits(False), split('[0-9][0-9][0-9]')]), norm=normalizers.NFKC()),
    'bytes-prefix': lambda: byte_level(
        SEQ([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=True)]),
        norm=normalizers.NFD(), post=roberta, added=control() + [
            special('<left>', lstrip=True), special('<right>', rstrip=True),
            special('word', single_word=True), AddedToken('caf\u00e9', normalized=True)]),
    'spm-llama': lambda: chars(llama_normalizer(), None, llama_decoder(), ['<unk>', '<s>'] + BYTES,
                               size=900, fuse_unk=True, byte_fallback=True,
                               added=control() + [AddedToken('<left>', special=True, normalized=True)]),
    'spm-some-bytes': lambda: chars(llama_normalizer(), None, llama_decoder(),
                                    ['<unk>'] + BYTES[:0xf0:2] + BYTES[1:0xf0:2], size=900,
                                    fuse_unk=True, byte_fallback=True),
    'spm-unknown': lambda: chars(None, pre_tokenizers.Metaspace(prepend_scheme='first', split=False),
                                 decoders.Metaspace(prepend_scheme='first'), ['<unk>'], fuse_unk=True,
                                 added=[special('<right>', rstrip=True), AddedToken('the', normalized=True)]),
    'spm-single-unknown': lambda: chars(normalizers.Strip(), pre_tokenizers.Metaspace(),
                                        decoders.Metaspace(), ['<unk>']),
    'lowercase-words': lambda: chars(
        normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]),
        pre_tokenizers.Whitespace(), decoders.Fuse(), ['<unk>'], fuse_unk=True),
    'nmt-delimiter': lambda: chars(
        normalizers.Sequence([normalizers.Nmt(), normalizers.NFKD(),
                              normalizers.Replace(Regex(' {2,}'), ' ')]),
        pre_tokenizers.CharDelimiterSplit('a'), decoders.Fuse(), ['<unk>']),
    'unigram-t5': lambda: chars(
        normalizers.Precompiled(charsmap(MAP)),
        SEQ([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]), decoders.Metaspace(),
        ['<unk>', '<s>'], unigram=True, added=control(), post=bos),
    'unigram-bytes': lambda: chars(
        normalizers.Sequence([normalizers.Nmt(), normalizers.Replace(' ', '\u2581')]), None,
        llama_decoder(), ['<unk>'] + BYTES, size=900, unigram=True, byte_fallback=True),
    'unigram-lines': lambda: chars(None, pre_tokenizers.Split('\n', 'merged_with_next'), decoders.Fuse(),
                                   ['<unk>'], unigram=True),
}

PIECES = (list("aaabcdeeeinorstt'.,;:!?-_()[]{}<>=+*/\\\"#@&%$0123456789ABCXYZ") + [' '] * 12 +
          ['\n', '\n', '\r\n', '\r', '\t', '  ', '   ', '\u00a0', '\u3000', '\u2028', '\u0085', '\u200b',
           '\u200d', '\ufeff', '\u0301', '\u0308', '\u0323', '\u093c', '\u0e33', '\u00e9', 'e\u0301',
           '\u00df', '\u0130', '\u01c5', '\u2126', '\u212b', '\ufb01', '\u00bd', '\u00b2', '\u2460',
           '\u2167', '\u2026', '\u4e2d', '\u6587', '\u3007', '\u3005', '\u304c', '\u30ac', '\uac00',
           '\u1100', '\u1161', '\u11a8', '\u0627', '\u0600', '\u05d0', '\u0915', '\u094d', '\u0660',
           '\u0966', '\u00a9', '\u2603', '\u20ac', '\u2581', '\u2581\u2581', '\ufffd', '\ue000',
           '\U0001f44b', '\U0001f3fd', '\U0001f468\u200d\U0001f469', '\U0001f1e9\U0001f1ea', '\U00020000',
           '\U0010ffff', '\u0120', '\u010a', '<0x41>', '<unk>', '<s>', '<tool>', '<|im_start|>',
           '<|im_end|>', '<left>', '<right>', 'word', 'cafe\u0301', 'caf\u00e9', ' the', 'the', ' return',
           "I'll", "don't", "we'VE", 'HTTPServer', 'x' * 40, 'a' * 70, '=' * 33, '\x00', '\x1f', '\x7f'])
WORDS = sorted({w for line in LINES for w in line.split(' ')})


def random_text(rng):
    """A mixture of characters, words, repetitions and any code point at all."""
    out = []
    for _ in range(rng.choice((1, 2, 3, 5, 8, 13, 21, 34))):
        kind = rng.random()
        if kind < 0.6:
            piece = rng.choice(PIECES)
        elif kind < 0.9:
            piece = rng.choice((' ', '', '\n')) + rng.choice(WORDS)
        else:
            c = rng.choice((rng.randrange(0x80, 0x800), rng.randrange(0x800, 0x10000),
                            rng.randrange(0x10000, 0x110000)))
            piece = chr(c if not 0xd800 <= c < 0xe000 else 0x21)
        out.append(piece * (rng.choice((1, 1, 1, 1, 1, 2, 3, 7)) if len(piece) < 8 else 1))
    return ''.join(out)


def long_texts(seed):
    """Longer than what headrace merges or searches at once, in one piece for some tokenizers."""
    rng = random.Random(seed)
    return ['a' * 70003, ''.join(rng.choice('ab=\u4e2de ') for _ in range(70000)),
            ''.join(rng.choice(('', '', '', ' ')) + rng.choice(WORDS) for _ in range(12000))]


def texts(seed, n):
    rng = random.Random(seed)
    return [random_text(rng) for _ in range(n)]
