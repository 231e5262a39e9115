# SPDX-License-Identifier: Apache-2.0
"""Random chat templates and conversations for diff_templates.py.

A case is made from its own random.Random and nothing else, so a seed and a number repeat it. Templates
are statements and expressions over the Jinja subset that headrace knows, mostly of fitting types, now
and then of any type, so that refusals are compared as well. Left out is what cannot be compared (texts
with an address in them) and what headrace refuses by name.

The names that a template sets are never names of the context: Jinja2 decides at compile time where
such a name is read from, headrace when it is read (docs/fidelity.md)."""
import re

WORDS = [
    'a', 'b', 'user', 'system', 'x1', '', ' ', 'the end', '  two  blanks ', 'line\nnext', '\n\n', 'Zeile\r\nzwei',
    'tab\there', 'ÄÖ straße', 'ǅ ǆ İ ﬁ Σίσυφος ΟΔΟΣ', '日本語。テキスト', '👋🏽 👨‍👩‍👧', 'e\u0301', '\u00a0nbsp\u3000',
    '<|im_end|>', '<think>\nhm\n</think>\n\nyes', '</think>', '{{ x }}', '{% if %}', "it's", '"quoted"',
    'back\\slash', '&<>', 'a,b,,c', 'a.b.c', '-12', '3.5', ' 42 ', '0x1f', '1e3', 'nan', '1_000', 'True', 'null',
    '%s', '%d%%', '{}', '{0}', '\x00', '\x1f\x7f', '\u2028', 'A' * 30, 'word ' * 12, 'one two  three\nfour'
]
NUMBERS = [0, 1, -1, 2, 3, 7, 10, -12, 255, 2**31, 2**53 + 1, -2**63, 2**64, 10**25]
FLOATS = [0.0, -0.0, 0.5, 1.5, 2.5, -2.5, 0.1, 1e16, 1e22, 1e-5, 123456.789, 3.0, 1e300]
ROLES = ['system', 'user', 'assistant', 'tool', 'developer', 'User', 'ipython', 'user\n', '']
SET_NAMES = ['v0', 'v1', 'v2', 'v3']


def value(rng, depth=2):
    """Any JSON value."""
    kind = rng.randrange(10 if depth else 7)
    if kind < 3:
        return rng.choice(WORDS)
    if kind == 3:
        return rng.choice(NUMBERS)
    if kind == 4:
        return rng.choice(FLOATS)
    if kind == 5:
        return rng.choice([True, False])
    if kind == 6:
        return None
    if kind < 9:
        return [value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {
        rng.choice(['a', 'b', 'k', 'items', 'type', 'ä', '']): value(rng, depth - 1)
        for _ in range(rng.randrange(4))
    }


# --- conversations


def content(rng, plain):
    kind = 0 if plain else rng.randrange(8)
    if kind < 4:
        return ' '.join(rng.choice(WORDS) for _ in range(rng.randrange(1, 4)))
    if kind == 4:
        return None
    if kind == 5:
        return value(rng)
    parts = [{
        'type': 'text',
        'text': rng.choice(WORDS)
    }, {
        'type': 'image'
    }, {
        'type': 'text'
    }, {
        'type': 'image_url',
        'image_url': {
            'url': 'u'
        }
    },
             rng.choice(WORDS)]
    return [rng.choice(parts) for _ in range(rng.randrange(4))]


def tool_call(rng):
    arguments = rng.choice([value(rng), {'a': value(rng, 1), 'b': rng.choice(WORDS)}, '{"a": 1}'])
    call = {'name': rng.choice(['f', 'get_weather', 'ä b']), 'arguments': arguments}
    return rng.choice([{'id': 'c1', 'type': 'function', 'function': call}, {'function': call}, call])


def message(rng, i, plain):
    m = {'role': rng.choice(ROLES) if not plain and rng.randrange(4) == 0 else ('user', 'assistant')[i % 2]}
    if plain or rng.randrange(12):
        m['content'] = content(rng, plain)
    if m['role'] == 'assistant' and rng.randrange(3) == 0:
        m['tool_calls'] = rng.choice([[tool_call(rng) for _ in range(rng.randrange(3))], None])
    if rng.randrange(6) == 0:
        m['reasoning_content'] = rng.choice(WORDS)
    if rng.randrange(10) == 0:
        m[rng.choice(['name', 'tool_call_id', 'extra', 'prefix'])] = value(rng, 1)
    return m


def tool(rng):
    properties = {
        rng.choice(['a', 'b', 'city', 'ü']): {
            'type': rng.choice(['string', 'number', ['string', 'null']]),
            'description': rng.choice(WORDS)
        }
        for _ in range(rng.randrange(3))
    }
    function = {
        'name': rng.choice(['f', 'get_weather']),
        'description': rng.choice(WORDS),
        'parameters': {
            'type': 'object',
            'properties': properties,
            'required': list(properties)[:1]
        }
    }
    return rng.choice([{'type': 'function', 'function': function}, function])


def conversation(rng):
    plain = rng.randrange(3) > 0  # what every template takes
    messages = [message(rng, i if plain else i + rng.randrange(5) // 4, plain) for i in range(rng.randrange(7))]
    if plain and rng.randrange(4) == 0:
        messages.insert(0, {'role': 'system', 'content': content(rng, plain)})
    return messages


def context(rng):
    c = {
        'messages': conversation(rng),
        'bos_token': '<s>',
        'eos_token': '</s>',
        'add_generation_prompt': rng.choice([True, False]),
        'n': rng.choice(NUMBERS),
        'f': rng.choice(FLOATS),
        's': rng.choice(WORDS),
        'z': None,
        'l': [value(rng, 1) for _ in range(rng.randrange(5))],
        'words': [rng.choice(WORDS) for _ in range(rng.randrange(5))],
        'ints': [rng.choice(NUMBERS[:9]) for _ in range(rng.randrange(6))],
        'd': {
            'a': value(rng, 1),
            'b': rng.choice(WORDS),
            'k': {
                'a': [1, 2.5, None]
            }
        }
    }
    if rng.randrange(2):
        c['tools'] = rng.choice([None, [tool(rng) for _ in range(rng.randrange(3))]])
    if rng.randrange(3) == 0:
        c['enable_thinking'] = rng.choice([True, False, None])
    return c


# --- templates

# What an expression of a kind is made of: $kind is another one, $PICK one of those below, and the
# others are methods of Template. LEAVES end it.
GRAMMAR = {
    'text': [
        '$text|$FILTER', '$text|$FILTER', '$text.$METHOD', '($text).$METHOD', '$text ~ $any', '$text + $text',
        '$text * $FEW', '($text$not_folded)[$slice]', '$format', '$field', '$any|$JSON', '$list|join',
        '$list|join($literal)', '$literal $literal', "messages|join(', ', attribute='role')", '$dict|urlencode',
        '$int|filesizeformat', '$int|filesizeformat(true)', '$literal.join($list|map("string"))', '$any|string',
        '$call', '$text if $bool else $text', 'strftime_now($TIME)'
    ],
    'int': [
        '$int $SIGN $int', '$int ** $FEW', '-$int', '$int|round($FEW, $HOW)', '$list|sum(start=$int)',
        'words|$EXTREME', "messages|$EXTREME(attribute='role')", '$list|length', '$text|length', '$dict|count',
        '$any|int$INT', '($text).$COUNT', '$int|abs', '$float|round|int', '$list|sum', '$list|$EXTREME',
        '$text|wordcount'
    ],
    'float': [
        '$float $SIGN $float', '$float $SIGN $int', '$int / $int', '$float|round$ROUND', '$any|float$FLOAT',
        '$float ** 2', '$float ** 0.5', '$float ** -1'
    ],
    'bool': [
        '$text $ORDER $text', '$int $ORDER $float', '$list $ORDER $list', '$any $ORDER $any', '$int < $int <= $float',
        '$any == $any != $any', '$text in $text', '$text not in $text', '$any in $list', '$any not in $dict',
        '$any is $TEST', '$any is not $TEST', '$any and $any', '$any or $any', 'not $any', 'not $any in $list',
        '($text).$QUESTION'
    ],
    'list': [
        '[$any, $any]', '($any, $any)', 'range($FEW, $FEW, $STEP)|list', '($list$not_folded)[$slice]',
        '$list + $list', '($text).$SPLIT', '$list|sort$SORT', 'words|sort$SORT', '$list|$LAZY|list',
        '$list|select$CHOICE|list', '$list|reject$CHOICE|list', 'messages|$OF_MESSAGES|list', '$list|map($MAP)|list',
        '$dict$OF_DICT', "messages|groupby('role')|map('first')|list", "messages|groupby('role', default='x')|list",
        '$list|list', '$text|list'
    ],
    'dict': [
        '{$literal: $any, s: $any}', '{n: $any}', 'dict(a=$any)',
        'dict([[$text, $any], (1, 2)])', 'dict(d.items(), k=$any)',
        'dict($dict, c=$any)', 'messages[$FEW]', '$dict.copy()'
    ],
    'any': [
        '$text', '$int', '$float', '$bool', '$list', '$dict', '$any if $bool', '$any if $bool else $any',
        '($any).$NAME', '($any)[$text]', '($any)[$int]', '($dict).get($text)', '($dict).get($text, $any)',
        '$any|default($any)', '$any|default($any, true)', "$any|attr('role')", '$any or $any', '$any and $any',
        '$list|first', '$list|last', '$text|first', '$text|last'
    ]
}
LEAVES = {
    'text': ['s', 's', 'bos_token', 'd.b', 'messages[0].role', '$literal'],
    'int': ['n', 'words|length', '2', '7', '0x1F', '0b101', '0o17', '1_000', '-1', '0', '$loop'],
    'float': ['f', 'f', '1.5', '2.0', '0.1', '1e3', '1_0.5', '2.5E-3', '1e16'],
    'bool': ['true', 'False', 'add_generation_prompt', 'tools is defined', 'z is none', 'd.items is callable'],
    'list': ['l', 'words', 'ints', '[]', '[1, "a", none]', 'messages', 'range(3)', 'd.k.a', '(1, 2)'],
    'dict': ['d', 'd.k', '{}', '{"a": 1, "b": [2]}', 'dict(a=1, b=s)', 'messages[0]', "{1: 'i', none: 2}"],
    'any': [
        'z', "d['a']", 'messages[-1]', "messages[0]['content']", 'l[0]', 'n', 's', 'words', '""', 'f', 'tools',
        'enable_thinking', 'd.get("a")', "d.get('q', 'def')", 'none', 'true', '3', '$own', '$own', '$own', 'nope'
    ]
}
PICKS = {
    'FILTER': [
        'upper', 'lower', 'trim', 'title', 'capitalize', 'string', "trim('a ')", 'center(9)', 'indent',
        'indent(2, true)', "indent('> ', blank=true)", 'truncate(5)', "truncate(9, true, '..', 0)",
        "replace('a', 'bb')", 'reverse', 'e', "replace('', '-', 2)", "default('dd')", "default('dd', true)", 'd',
        'urlencode', "replace('\\n', ' ')", 'escape', 'forceescape', 'replace("a", "b", 1)', "trim('\\n')", 'safe'
    ],
    'METHOD': [
        'upper()', 'lower()', 'strip()', 'lstrip()', 'rstrip()', "strip('ab ')", "lstrip('\\n')", "rstrip('e')",
        'title()', 'capitalize()', 'swapcase()', 'casefold()', "replace('a', '')", "replace('', '_')",
        "replace('e', 'E', 1)", 'zfill(6)', 'ljust(7)', "rjust(8, '*')", "center(9, '.')", "removeprefix('a')",
        "removesuffix('e')", "partition(' ')[0]", "rpartition(' ')[2]", 'split()[0]', "split(',')[-1]",
        "rsplit(' ', 1)[0]", "split('</think>')[-1]", "split('\\n')|join('|')", 'splitlines()|join("/")',
        "join(['x', 'y'])"
    ],
    'SPLIT': [
        'split()', 'splitlines()', 'split(s)', 'rsplit(none, 1)', 'split(none, 1)', 'partition(s)',
        'splitlines(true)', "split(' ', 1)", "rsplit('a', 2)", 'split(maxsplit=1)', "rpartition('a')", 'rsplit()'
    ],
    'QUESTION': [
        "startswith('a')", "endswith('e')", "startswith(('a', 'b'))", 'isdigit()', 'isalpha()', 'isalnum()',
        'isspace()', 'isupper()', 'islower()', 'isascii()', 'isnumeric()', 'isdecimal()', 'isprintable()',
        "endswith('\\n', 0, 3)"
    ],
    'COUNT': ["find('a')", "rfind('e')", "count('a')", "index('a')", "count('')", "find('', 2)", "rfind('a', 1, 5)"],
    'TEST': [
        'defined', 'undefined', 'none', 'string', 'number', 'integer', 'float', 'boolean', 'true', 'false', 'mapping',
        'iterable', 'sequence', 'callable', 'odd', 'even', 'divisibleby(3)', 'lower', 'upper', "eq('a')", 'equalto 1',
        "in ['a', 1]", 'ne(none)', 'sameas none', 'gt 1', 'le(2)', 'escaped', 'filter', 'test', 'ge 1', 'lt("b")'
    ],
    'JSON': [
        'tojson', 'tojson', 'tojson(indent=2)', 'tojson(ensure_ascii=true)', "tojson(separators=(',', ':'))",
        'tojson(sort_keys=true)', 'tojson(indent=1, sort_keys=true)', "tojson(indent='--')"
    ],
    'OF_MESSAGES': [
        "selectattr('role', 'equalto', 'user')", "rejectattr('content')", "selectattr('tool_calls', 'defined')",
        "map(attribute='role')", "map(attribute='content', default='?')", "selectattr('content', 'string')",
        "rejectattr('role', 'in', ['user'])", "sort(attribute='role')", "sort(true, attribute='role,content')",
        "unique(attribute='role')", "map(attribute='content.0.type')", "map('default', 'x')"
    ],
    'OF_DICT':
    ['.keys()|list', '.values()|list', '.items()|list', '|items|list', '|dictsort', '|list', "|dictsort(by='value')"],
    'LAZY': ['unique', 'reverse', 'batch(2)', 'batch(3, 0)', 'slice(2)', 'slice(3, none)'],
    'CHOICE': ['', '("string")', '("odd")', "('eq', 'a')", "('in', words)"],
    'MAP': ["'upper'", "'string'", "'length'", "'trim'", "'tojson'", "'int'"],
    'EXTREME': ['min', 'max', 'min(true)', 'max(case_sensitive=true)'],
    'SORT': ['', '(reverse=true)', '(case_sensitive=true)', '(true, true)'],
    'ROUND': ['', '(1)', '(2, "floor")', "(0, 'ceil')", '(-1)', "(method='ceil')"],
    'INT': ['', '(7)', '(default=none)', '(0, 16)', '(0, 0)'],
    'FLOAT': ['', '(1.5)', '(default=none)'],
    'HOW': ["'common'", "'ceil'", "'floor'"],
    'SIGN': ['+', '-', '*', '//', '%'],
    'ORDER': ['==', '!=', '<', '<=', '>', '>='],
    'FEW': ['-2', '-1', '0', '1', '2', '3'],
    'STEP': ['1', '2', '-1'],
    'NAME': ['a', 'b', 'k', 'role', 'content', 'nope'],
    'TIME': ["'%d %b %Y'", "'%Y-%m-%d'", "'%H:%M:%S %j %A'", "'%B %-d, %y'"],
    'LOOP': ['index', 'index0', 'first', 'last', 'length', 'revindex', 'revindex0', 'depth', 'depth0'],
    'LOOP_ONLY': ["cycle('a', 'b')", 'changed(i)', 'previtem', 'nextitem', 'previtem is defined'],
    'DATA': [
        '\n', ' ', '  \n', '\n\n', '\t', 'text', '<|im_start|>', '<|im_end|>', 'ä', '}', '{ ', "'", '#', '-', '\r\n',
        'a b'
    ],
    'COMMENT': ['{# c #}', '{#- {{ x }} -#}', '{#+ % #}', '{# a\nb -#}', '  {#- c #}\n'],
    'RAW': ['{% raw %}', '{%- raw -%}', '{% raw -%}', '{%+ raw %}'],
    'RAW_DATA': ['{{ x }}', ' {% if %} ', '\n}}\n', ''],
    'ENDRAW': ['{% endraw %}', '{%- endraw -%}', '{%- endraw %}', '{% endraw -%}\n']
}
FORMATS = [
    "'%s|%s' % ($any, $any)", "'%5s' % $any", "'%-6s|' % ($any,)", "'{}-{}'.format($any, $any)",
    "'{1}{0}'.format($any, $any)", "'{:>6}'.format($text)", "'%d' % $int", "'%05d' % $int", "'{:.3f}'.format($float)",
    "'%r' % $any", "'{:,}'.format($int)", "'{:08.2f}'.format($float)", "'{a}'.format(a=$any)",
    "'%(a)s' % {'a': $any}", "'{0[0]}'.format($text)", "'{!r:^9}'.format($any)", "'%s'|format($any)", "'%c' % 'a'"
]
KINDS = list(GRAMMAR)


class Template:
    """One random template: make() gives its text. A budget of expressions keeps it small."""

    def __init__(self, rng):
        self.rng = rng
        self.names = []  # loop targets in reach
        self.was_set = []  # somewhere before; perhaps in a scope that has ended
        self.loops = 0  # loops around that a break may leave
        self.macros = []  # (name, number of parameters)
        self.budget = 40
        self.wild = rng.choice([0, 0, 0.02, 0.15])  # how often a kind is another one

    # --- expressions

    def expand(self, text, depth):
        return re.sub(r'\$(\w+)', lambda m: self.part(m[1], depth), text)

    def part(self, name, depth):
        if name in PICKS:
            return self.rng.choice(PICKS[name])
        return self.expr(name, depth) if name in GRAMMAR else getattr(self, name)()

    def expr(self, kind, depth=2):
        self.budget -= 1
        if self.rng.random() < self.wild:
            kind = self.rng.choice(KINDS)
        if depth <= 0 or self.budget < 0:
            return self.expand(self.rng.choice(LEAVES[kind]), 0)
        made = self.expand(self.rng.choice(GRAMMAR[kind]), depth - 1)
        return f'({made})' if self.rng.randrange(5) == 0 else made

    def literal(self):
        text, quote = self.rng.choice(WORDS), self.rng.choice('\'"')
        text = text.replace('\\', '\\\\').replace('\n', '\\n').replace('\r', '\\r').replace('\0', '\\x00')
        return quote + text.replace(quote, '\\' + quote) + quote

    def own(self):
        return self.rng.choice((self.names + self.was_set) or ['v0'])

    def loop(self):
        return 'loop.' + self.rng.choice(PICKS['LOOP']) if self.loops else '5'

    def slice(self):
        parts = [self.rng.choice(['', '', '0', '1', '2', '-1', '-2', '5', 'n', 'none']) for _ in range(2)]
        return ':'.join(parts + self.rng.choice([[], ['-1'], ['2'], ['-2'], ['']]))

    def not_folded(self):
        """A constant that has no slices gives an undefined value where Jinja2 folds it, else an error."""
        return ' if s is defined' if self.wild else ''

    def format(self):
        return self.expand(self.rng.choice(FORMATS), 1)

    def field(self):
        """A value in a field of random make: what Python refuses of it must be refused."""

        def maybe(*choices):
            return self.rng.choice(('',) * len(choices) + choices)

        v = self.expr(self.rng.choice(['text', 'int', 'int', 'float', 'float', 'bool', 'any']), 1)
        size, digits = maybe('1', '6', '9', '12'), maybe('.0', '.1', '.3', '.12')
        if self.rng.randrange(2):
            head = maybe('<', '>', '^', '=', '*<', '0>', '_^', 'ä=') + maybe('+', '-', ' ') + maybe('#') + maybe('0')
            spec = head + size + maybe(',', '_') + digits + maybe(*'sdxXobceEfFgG%')
            return f"'{{{maybe('!r', '!s', '!a')}:{spec}}}|'.format({v})"
        flags = ''.join(c for c in '-+ #0' if self.rng.randrange(4) == 0)
        return f"'%{flags}{size}{digits}{self.rng.choice('sssrddixXouceEfFgG%a')}|' % ({v},)"

    def call(self):
        if not self.macros:
            return 's'
        name, n_params = self.rng.choice(self.macros)
        given = [self.expr('any', 1) for _ in range(max(0, n_params + self.rng.choice([0, 0, 0, -1, 1])))]
        if given and self.rng.randrange(3) == 0:
            given[-1] = f'p{len(given) - 1}={given[-1]}'
        return f'{name}({", ".join(given)})'

    # --- statements

    def tag(self, inner):
        head, tail = self.rng.choice(['', '', '', '-', '+']), self.rng.choice(['', '', '', '-', '+'])
        return '{%' + head + ' ' + self.expand(inner, 1) + ' ' + tail + '%}'

    def show(self, inner, depth=1):
        head, tail = self.rng.choice(['', '', '-']), self.rng.choice(['', '', '-'])
        return '{{' + head + ' ' + self.expand(inner, depth) + ' ' + tail + '}}'

    def data(self):
        return ''.join(self.rng.choice(PICKS['DATA']) for _ in range(self.rng.randrange(4)))

    def body(self, depth):
        return ''.join(self.data() + self.statement(depth) for _ in range(self.rng.randrange(1, 4))) + self.data()

    def output(self):
        return self.show('$' + self.rng.choice(KINDS + ['text']), self.rng.randrange(1, 4))

    def statement(self, depth):
        if depth <= 0 or self.budget < 0 or self.rng.randrange(4) == 0:
            return self.output()
        return self.rng.choice([
            self.if_, self.if_, self.for_, self.for_, self.set_, self.set_, self.set_block, self.macro,
            self.call_block, self.filter_block, self.with_, self.namespace, self.comment, self.raw, self.generation,
            self.message_loop, self.raise_, self.loop_parts, self.recursive, self.cycler
        ])(depth - 1)

    def if_(self, depth):
        out = self.tag('if ($bool)') + self.body(depth)
        if self.rng.randrange(3) == 0:
            out += self.tag('elif ($any)') + self.body(depth)
        if self.rng.randrange(2):
            out += self.tag('else') + self.body(depth)
        return out + self.tag('endif')

    def inside(self, names, make, is_loop=True):
        """What make() gives where these names can be read, and `loop` when it is a loop."""
        self.names, outer = self.names + names, self.names
        self.loops += is_loop
        out = make()
        self.loops -= is_loop
        self.names = outer
        return out

    def for_(self, depth):
        target, over = self.rng.choice([('i', '$list'), ('i', '$list'), ('i', '$text'), ('i', '$any'), ('i', '$dict'),
                                        ('k, w', '$dict.items()'), ('k, w', 'd|dictsort')])
        names = target.split(', ')
        head = self.expand(f'for {target} in ({over})', 1)
        if self.rng.randrange(4) == 0:
            head += self.inside(names, lambda: self.expand(' if ($bool)', 1), False)

        def make():
            out = self.body(depth)
            if self.rng.randrange(5) == 0:
                jump = self.rng.choice(['break', 'continue'])
                out += self.tag('if ($bool)') + self.tag(jump) + self.tag('endif') + self.body(0)
            return out

        out = self.tag(head) + self.inside(names, make)
        if self.rng.randrange(4) == 0:
            out += self.tag('else') + self.body(0)
        return out + self.tag('endfor')

    def loop_parts(self, depth):
        what = 'loop.' + self.rng.choice(['$LOOP', '$LOOP_ONLY'])
        return self.tag('for i in ($list)') + self.show(what) + self.data() + self.tag('endfor')

    def message_loop(self, depth):

        def make():
            role = self.rng.choice(["message.role == 'user'", "message['role'] != 'system'"])
            content = self.rng.choice(
                ['message.content', "message['content']|trim", 'message.content|tojson', 'message'])
            call = self.rng.choice(['c.function.name', 'c.function.arguments|tojson', 'c'])
            return (self.tag(f'if {role}') + self.data() + self.show(content) + self.data()
                    + self.tag('elif message.tool_calls') + self.tag('for c in message.tool_calls') + self.show(call)
                    + self.tag('endfor') + self.tag('else') + self.body(depth) + self.tag('endif'))

        return self.tag('for message in messages') + self.inside(['message'], make) + self.data() + self.tag('endfor')

    def set_(self, depth):
        name, other = self.rng.choice(SET_NAMES), self.rng.choice(SET_NAMES)
        if self.rng.randrange(6) == 0:
            return self.tag(f'set {name}, {other} = $any, $any')
        out = self.tag(f'set {name} = ' + self.rng.choice(['$text', '$list', '$any'])) + self.data() + self.show(name)
        self.was_set.append(name)
        return out

    def set_block(self, depth):
        name, filters = self.rng.choice(SET_NAMES), self.rng.choice(['', '', ' | upper', ' | trim | length'])
        return self.tag(f'set {name}{filters}') + self.body(depth) + self.tag('endset') + self.show(name)

    def namespace(self, depth):
        given = self.rng.choice(['', 'a=1', 'a=$any', 'd', 'a=0, b=s', '$dict'])
        return (self.tag(f'set ns = namespace({given})') + self.tag('for i in ($list)') + self.tag('set ns.a = $any')
                + self.data() + self.tag('endfor')
                + self.show(self.rng.choice(['ns.a', 'ns.b', 'ns.a|string', "ns['a']"])))

    def macro(self, depth):
        n, name = self.rng.randrange(3), f'm{len(self.macros)}'
        params = [f'p{i}' for i in range(n)]
        last = [f'p{n - 1}=' + self.expr('any', 0)] if n and self.rng.randrange(3) == 0 else params[n - 1:]
        rest = self.rng.choice(['', '', '', '', 'varargs', 'kwargs|dictsort', 'varargs|length'])
        names, self.names, loops, self.loops, macros, self.macros = self.names, params, self.loops, 0, self.macros, []
        inner = self.body(depth) + (self.show(rest) if rest else '')
        self.names, self.loops, self.macros = names, loops, macros + [(name, n)]
        return (self.tag(f'macro {name}({", ".join(params[:-1] + last)})') + inner + self.tag('endmacro')
                + self.show(self.call()))

    def call_block(self, depth):
        loops, self.loops = self.loops, 0
        inner = self.body(depth)
        self.loops = loops
        if self.rng.randrange(2):
            return (self.tag('macro w()') + '[' + self.show('caller()') + ']' + self.tag('endmacro')
                    + self.tag('call w()') + inner + self.tag('endcall'))
        return (self.tag('macro x(y)') + self.show('caller(y, 1)') + self.tag('endmacro')
                + self.tag('call(q, r) x($any)') + self.show('q') + inner + self.tag('endcall'))

    def filter_block(self, depth):
        filters = self.rng.choice(PICKS['FILTER'][:8] + ['trim|upper'])
        return self.tag('filter ' + filters) + self.body(depth) + self.tag('endfilter')

    def with_(self, depth):
        return (self.tag('with q = $any') + self.inside(['q'], lambda: self.body(depth), False) + self.tag('endwith'))

    def comment(self, depth):
        return self.rng.choice(PICKS['COMMENT'])

    def raw(self, depth):
        return self.expand('$RAW$RAW_DATA$ENDRAW', 0)

    def generation(self, depth):
        loops, self.loops = self.loops, 0
        out = self.tag('generation') + self.body(depth) + self.tag('endgeneration')
        self.loops = loops
        return out

    def raise_(self, depth):
        return self.tag('if ($bool)') + self.show('raise_exception($text)') + self.tag('endif')

    def recursive(self, depth):
        leaf = self.rng.choice(['i', 'loop.$LOOP'])
        again = self.rng.choice(['loop(i)', 'loop(i)|trim', 'loop(i|list)'])
        return (self.tag('for i in [1, [2, l], words] recursive') + self.data()
                + self.tag('if i is string or i is not iterable') + self.show(leaf) + self.tag('else') + '('
                + self.show(again) + ')' + self.tag('endif') + self.tag('endfor'))

    def cycler(self, depth):
        sep = self.rng.choice(['', '"|"', 's'])
        return (self.tag('set c = cycler($any, 2)') + self.tag(f'set j = joiner({sep})')
                + self.tag('for i in ($list)') + self.show('j()') + self.show('c.next()') + self.show('c.current')
                + self.tag('if i is none') + self.show('c.reset()') + self.tag('endif') + self.tag('endfor'))

    def make(self):
        return ''.join(self.data() + self.statement(3) for _ in range(self.rng.randrange(1, 6))) + self.data()


# --- damaged templates

PIECES = [
    '{%', '%}', '{{', '}}', '{%-', '-%}', '{#', '#}', '(', ')', '[', ']', "'", '"', '|', '.', ',', ':', '~', '+',
    'if', 'else', 'endif', 'endfor', 'not', 'and', 'in', 'is', 'none', 'loop.index', "|trim", "|length", '[0]',
    '[-1]', '.content', '0', '1', "'a'", ' ', '\n', 'set x = 1'
]


def damaged(rng, source):
    """A template with a few of its pieces moved, doubled, lost or replaced."""
    parts = re.findall(r'\{[%{#][-+]?|[-+]?[%}#]\}|\w+|\s+|.', source, re.S)
    for _ in range(rng.randrange(1, 4)):
        i, how = rng.randrange(len(parts)), rng.randrange(4)
        if how == 0:
            del parts[i]
        elif how == 1:
            parts.insert(i, rng.choice(PIECES))
        elif how == 2:
            parts[i] = rng.choice(PIECES)
        else:
            k = rng.randrange(len(parts))
            parts[i], parts[k] = parts[k], parts[i]
        if not parts:
            break
    return ''.join(parts)


def case(rng, shapes):
    """(kind, template, context): random, of a known shape, or a shape damaged."""
    kind = rng.choice(['random'] * 6 + ['shape'] * 3 + ['damaged'])
    if kind == 'random':
        template = Template(rng).make()
    else:
        template = rng.choice(shapes)
        if kind == 'damaged':
            template = damaged(rng, template)
    return kind, template, context(rng)
