#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_seeds: writes the seeds of the fuzz targets, corpus/<what>/seed-<name>. All of it is made here; the
other files of a corpus are inputs that once were findings. Needs nothing but Python, and zstd's frame
format is simple enough to write one raw block by hand."""
import base64
import gzip
import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"


def seed(what, name, data):
    folder = CORPUS / what
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"seed-{name}").write_bytes(data if isinstance(data, bytes) else data.encode())


# ---- JSON texts and rows ----

ROWS = {
    "messages": {"id": "r1", "messages": [{"role": "user", "content": "say 1"}], "temperature": 0.5, "n": 2},
    "prompt": {"id": 7, "prompt": "caf\u00e9 \U0001f375", "seed": 3, "stop": ["\n", "END"], "x": {"y": [1, None]}},
    "parts": {"a": "do this", "b": " with that ", "id": "p", "max_tokens": None, "x": [1, {"k": "v"}]},
    "tools": {"key": "k", "m": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
              "tools": [{"type": "function", "function": {"name": "f"}}], "stop_token_ids": [1, 2]},
}
TEXTS = {
    "numbers": '{"id":9007199254740993,"x":1e400,"y":0.10,"z":-0,"w":12345678901234567890123,"v":8.0,"u":1E-7}',
    "escapes": '["\\ud83c\\udf78","\\u2028\\u0000\\u000b","\\"\\\\\\/\\b\\f\\n\\r\\t","\u2028\u0085"]',
    "double": '{"a":1,"\\u0061":2,"b":[[],{}],"b":true}',
    "deep": "[" * 60 + "null" + "]" * 60,
    "blank": ' \t\r\n{ "a" : [ 1 , 2 ] } \n',
}


def rows():
    for name, row in ROWS.items():
        text = json.dumps(row, ensure_ascii=False)
        seed("jscan", name, text)
        for i in range(4):
            seed("record", f"{name}-{i}", bytes([i]) + text.encode())
    for name, text in TEXTS.items():
        seed("jscan", name, text)
        seed("record", name, b"\0" + text.encode())
    seed("record", "carriage-return", b'\0{"id":1,\r"prompt":"x",\r"y":{"a"\r:\r1}}')


def manifests():
    full = {"dataset": "demo", "model": "m.gguf", "shards": ["s.jsonl", "?.jsonl"], "prompt": "{a}\n\n{b}",
            "id": "key", "system": "be brief", "sampling": {
                "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1,
                "presence_penalty": 0.1, "frequency_penalty": 0.1, "max_tokens": 8, "stop": ["\n"],
                "stop_token_ids": [2], "ignore_eos": False, "seed": 1, "n": 2},
            "max_tokens_per_dataset": 1000, "output": {"token_ids": True}, "chat": True,
            "template_vars": {"enable_thinking": False}}
    seed("manifest", "full", json.dumps(full))
    seed("manifest", "small", '{"dataset":"d","shards":"s.jsonl"}')
    seed("manifest", "messages", '{"dataset":"d","shards":["*.jsonl"],"messages":"m","sampling":{"max_tokens":null}}')
    seed("manifest", "name-with-a-slash", '{"dataset":"d/../../e","shards":["s.jsonl"]}')
    seed("manifest", "misspelt", '{"dataset":"d","shards":["s.jsonl"],"samplin":{}}')


# ---- shards ----

def zstd_raw(data):
    """A frame of one raw block: magic, single segment with its size in two bytes, the block."""
    return (b"\x28\xb5\x2f\xfd" + b"\x60" + struct.pack("<H", len(data) - 256)
            + struct.pack("<I", len(data) << 3 | 1)[:3] + data)


def shards():
    lines = b'\xef\xbb\xbf{"id":1}\r\n\n \t\n{"id":2,"x":"a\xe2\x80\xa8b"}\n' + b'{"id":3}' * 40
    seed("shard", "plain", b"\0" + lines)
    seed("shard", "gz", b"\1" + gzip.compress(lines, mtime=0))
    seed("shard", "gz-two-members", b"\1" + gzip.compress(lines, mtime=0) * 2)
    seed("shard", "gz-torn", b"\1" + gzip.compress(lines, mtime=0)[:-9])
    seed("shard", "zst", b"\2" + zstd_raw(lines))
    seed("shard", "zst-skippable", b"\2" + struct.pack("<II", 0x184D2A50, 3) + b"abc" + zstd_raw(lines))
    seed("shard", "zst-torn", b"\2" + zstd_raw(lines)[:-5])
    rle = b"\x28\xb5\x2f\xfd\x00\x58" + struct.pack("<I", 131072 << 3 | 2)[:3] + b"\n"
    seed("shard", "zst-newlines", b"\2" + rle + struct.pack("<I", 1 << 3 | 1)[:3] + b"x")


# ---- the tail of raw_responses.jsonl ----

def row(i, sample=0, **more):
    return json.dumps({"id": f"r{i}", "dataset": "fuzz", "sample": sample, "prompt": f"say {i}", "response": "x",
                       "finish_reason": "length", "usage": {"prompt_tokens": 3, "completion_tokens": 2},
                       "seed": 0, **more, "metadata": {}}, separators=(",", ":")) + "\n"


def tails():
    seed("store", "nothing", b"\0")
    seed("store", "adopt", b"\0" + (row(4) + row(5) + row(5, 1)).encode())
    seed("store", "adopt-then-torn", b"\0" + (row(7) + row(4)[:50]).encode())
    seed("store", "twice", b"\0" + (row(4) + row(4)).encode())
    seed("store", "committed-again", b"\0" + row(1).encode())
    seed("store", "rejected", b"\0" + row(6).encode())
    seed("store", "foreign", b"\0" + row(99).encode())
    seed("store", "occurrence", b"\0" + row(4, occurrence=1).encode())
    seed("store", "no-usage", b"\0" + b'{"id":"r4","sample":0}\n')
    seed("store", "zeros", b"\0" + bytes(64))
    seed("store", "cut", b"\x05")
    seed("store", "cut-all", b"\xff" + row(99).encode())
    seed("store", "cut-and-adopt", b"\x30" + row(7).encode())


# ---- weights ----

def string(s):
    s = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(s)) + s


def kv(key, kind, value):
    return string(key) + struct.pack("<I", kind) + value


def array(kind, parts):
    return struct.pack("<IQ", kind, len(parts)) + b"".join(parts)


U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
BLOCKS = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22),
          "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176),
          "Q6_K": (14, 256, 210), "BF16": (30, 1, 2)}


def gguf(kvs, tensors):
    """tensors: (name, type, shape as ne0, ne1)."""
    head, data = b"", b""
    for name, kind, shape in tensors:
        number, elems, size = BLOCKS[kind]
        n = 1
        for d in shape:
            n *= d
        data += bytes(-len(data) % 32)
        head += string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", number, len(data))
        data += bytes(i * 7 % 61 for i in range(n // elems * size))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(kvs)) + b"".join(kvs) + head
    return head + bytes(-len(head) % 32) + data


def llama_kvs(arch="llama"):
    ints = {"block_count": 1, "context_length": 64, "embedding_length": 32, "feed_forward_length": 32,
            "attention.head_count": 2, "attention.head_count_kv": 1}
    return ([kv("general.architecture", STRING, string(arch)), kv("general.name", STRING, string("seed"))]
            + [kv(f"{arch}.{k}", U32, struct.pack("<I", v)) for k, v in ints.items()]
            + [kv(f"{arch}.rope.freq_base", F32, struct.pack("<f", 1e4)),
               kv(f"{arch}.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5))])


def llama_tensors(kind):
    return [("token_embd.weight", kind, (32, 4)), ("blk.0.attn_norm.weight", "F32", (32,)),
            ("blk.0.attn_q.weight", kind, (32, 32)), ("blk.0.attn_k.weight", kind, (32, 16)),
            ("blk.0.attn_v.weight", kind, (32, 16)), ("blk.0.attn_output.weight", kind, (32, 32)),
            ("blk.0.ffn_norm.weight", "F32", (32,)), ("blk.0.ffn_gate.weight", kind, (32, 32)),
            ("blk.0.ffn_up.weight", kind, (32, 32)), ("blk.0.ffn_down.weight", kind, (32, 32)),
            ("output_norm.weight", "F32", (32,))]


def vocab_kvs(model="gpt2", pre="smollm"):
    tokens = ["a", "b", "ab", "<s>"]
    return [kv("tokenizer.ggml.model", STRING, string(model)), kv("tokenizer.ggml.pre", STRING, string(pre)),
            kv("tokenizer.ggml.tokens", ARRAY, array(STRING, [string(t) for t in tokens])),
            kv("tokenizer.ggml.token_type", ARRAY, array(I32, [struct.pack("<i", t) for t in (1, 1, 1, 3)])),
            kv("tokenizer.ggml.merges", ARRAY, array(STRING, [string("a b")])),
            kv("tokenizer.ggml.bos_token_id", U32, struct.pack("<I", 3)),
            kv("tokenizer.ggml.add_bos_token", BOOL, b"\1"),
            kv("tokenizer.chat_template", STRING, string("{{ bos_token }}{{ messages[0].content }}"))]


def ggufs():
    seed("gguf", "q4_1", gguf(llama_kvs() + vocab_kvs(), llama_tensors("Q4_1")))
    seed("gguf", "f32-qwen", gguf(llama_kvs("qwen2"), llama_tensors("Q8_0")))
    seed("gguf", "all-types", gguf([], [(k, k, (256, 2)) for k in BLOCKS]))
    seed("gguf", "vocab-qwen2", gguf(vocab_kvs(pre="qwen2"), []))
    seed("gguf", "vocab-llama3", gguf(vocab_kvs(pre="llama-bpe"), []))
    scores = kv("tokenizer.ggml.scores", ARRAY, array(F32, [struct.pack("<f", -i) for i in range(262)]))
    pieces = ["<unk>", "</s>", "\u2581a", "a", "\u2581", "b"] + [f"<0x{i:02X}>" for i in range(256)]
    types = [2, 3, 1, 1, 1, 1] + [6] * 256
    seed("gguf", "vocab-llama", gguf([
        kv("tokenizer.ggml.model", STRING, string("llama")), scores,
        kv("tokenizer.ggml.tokens", ARRAY, array(STRING, [string(t) for t in pieces])),
        kv("tokenizer.ggml.token_type", ARRAY, array(I32, [struct.pack("<i", t) for t in types])),
        kv("tokenizer.ggml.unknown_token_id", U32, bytes(4)),
        kv("tokenizer.ggml.eos_token_id", U32, struct.pack("<I", 1))], []))
    seed("gguf", "long-key", gguf([kv("a", STRING, struct.pack("<Q", 2**64 - 8) + b"x")], []))
    seed("gguf", "cut-in-a-key", gguf([kv("a" * 64, U32, bytes(4)), struct.pack("<Q", 300) + b"a" * 24], []))
    seed("gguf", "cut", gguf([], [("a", "F32", (8, 8))])[:-64])
    seed("gguf", "empty", gguf([], []))
    seed("gguf", "arrays", gguf([kv("a", ARRAY, array(ARRAY, [array(U32, [b"\1\0\0\0"])])),
                                 kv("b", ARRAY, array(BOOL, [b"\0", b"\1"]))], []))


def safetensors(tensors, metadata=None):
    head, at = ({"__metadata__": metadata} if metadata else {}), 0
    size = {"F32": 4, "F16": 2, "BF16": 2}
    for name, dtype, shape in tensors:
        n = size[dtype]
        for d in shape:
            n *= d
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(head, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + bytes(i % 61 for i in range(at))


def folders():
    layer = "model.layers.0."
    whole = [("model.embed_tokens.weight", "BF16", [4, 8]), ("model.norm.weight", "F32", [8]),
             (layer + "input_layernorm.weight", "F16", [8]), (layer + "post_attention_layernorm.weight", "BF16", [8])]
    whole += [(layer + f"self_attn.{x}_proj.weight", "BF16", [8, 8]) for x in "qkvo"]
    whole += [(layer + f"mlp.{x}_proj.weight", "BF16", [8, 8]) for x in ("gate", "up", "down")]
    seed("safetensors", "whole", safetensors(whole, {"format": "pt"}))
    seed("safetensors", "scalar-and-empty", safetensors([("s", "F32", []), ("e", "F16", [0])]))
    seed("safetensors", "three", safetensors([("a", "F32", [2]), ("b", "F16", [3, 1]), ("c", "BF16", [1, 2])]))
    seed("safetensors", "no-tensors", safetensors([]))
    seed("safetensors", "header-too-long", struct.pack("<Q", 64) + b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}')
    seed("safetensors", "past-the-end", safetensors([("a", "F32", [4])])[:-8])
    seed("safetensors", "index", '{"metadata":{"total_size":8},"weight_map":{"x":"a.safetensors","y":"b.safetensors"}}')
    seed("safetensors", "index-lies", '{"weight_map":{"x":"b.safetensors","z":"../a.safetensors"}}')


def configs():
    llama = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
             "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
             "vocab_size": 264, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
             "hidden_act": "silu", "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False,
             "eos_token_id": [1, 2], "bos_token_id": 0,
             "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                              "original_max_position_embeddings": 64}}
    qwen = {**llama, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "use_sliding_window": False,
            "rope_scaling": None, "attention_bias": False, "sliding_window": None}
    parameters = {k: v for k, v in llama.items() if k not in ("rope_scaling", "rope_theta")}
    parameters["rope_parameters"] = {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}
    seed("config", "llama3", json.dumps(llama))
    seed("config", "qwen3", json.dumps(qwen))
    seed("config", "rope-parameters", json.dumps(parameters))
    yarn = {**llama, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1,
                                      "original_max_position_embeddings": 64, "attention_factor": 1.1,
                                      "mscale": 1.0, "mscale_all_dim": 0.5, "truncate": False}}
    phi = {**llama, "model_type": "phi3", "partial_rotary_factor": 0.75, "original_max_position_embeddings": 64,
           "attention_bias": False, "mlp_bias": False, "rope_scaling": {
               "type": "longrope", "short_factor": [1.0] * 6, "long_factor": [2.0] * 6}}
    gemma = {**qwen, "model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 8,
             "query_pre_attn_scalar": 16, "rope_local_base_freq": 1e4, "sliding_window_pattern": 2,
             "layer_types": ["sliding_attention", "full_attention"], "final_logit_softcapping": 30.0,
             "attn_logit_softcapping": 50.0}
    smol = {**llama, "model_type": "smollm3", "no_rope_layers": [1, 0], "no_rope_layer_interval": 2,
            "attention_bias": False, "mlp_bias": False}
    for name, config in (("yarn", yarn), ("phi3", phi), ("gemma3", gemma), ("smollm3", smol)):
        seed("config", name, json.dumps(config))
    seed("config", "uneven-heads", json.dumps({**llama, "num_key_value_heads": 3}))
    seed("config", "factor-zero", json.dumps({**yarn, "rope_scaling": {**yarn["rope_scaling"], "factor": 0}}))
    seed("config", "generation", '{"do_sample":true,"temperature":0.6,"top_p":0.9,"top_k":0,"min_p":0.1,'
                                 '"repetition_penalty":1.05,"eos_token_id":2,"model_max_length":1' + "0" * 30 + "}")
    seed("config", "tokenizer", json.dumps({
        "bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": True, "chat_template": [
            {"name": "default", "template": "{{ messages[0]['content'] }}"}, {"name": "tool_use", "template": "x"}]}))


# ---- text ----

TEMPLATES = {
    "chatml": "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
              "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "namespace": "{%- set ns = namespace(found=false, i=0) -%}\n{%- for m in messages if m.role != 'system' -%}\n"
                 "{%- set ns.i = ns.i + 1 -%}{{ loop.index0 ~ ':' ~ loop.last ~ ns.i }}\n{%- else -%}none{%- endfor -%}",
    "macro": "{% macro f(x, y='d') -%}[{{ x|upper }}{{ y }}{{ caller() if caller else '' }}]{%- endmacro %}"
             "{{ f('a') }}{% call f(y=2, x='b') %}body{% endcall %}{% set t %}block{{ 1 }}{% endset %}{{ t|length }}",
    "strings": "{{ messages[1].content.strip().split('\\n')[-1][::-1] }}{{ 'a-b'.replace('-', '+') }}"
               "{{ '%s-%05.2f' % ('x', 3.14159) }}{{ '{:>5}|{!r}'.format(1, 'q') }}{{ 'x'.join(['a','b'])|title }}",
    "numbers": "{{ 7 // 2 }} {{ -7 % 3 }} {{ 2 ** 70 }} {{ 1e300 * 1e10 }} {{ 0.1 + 0.2 }} {{ 10 / 4 }} "
               "{{ 123456789012345678901234567890 * 987654321 }} {{ range(3)|list }} {{ [3,1,2]|sort|join(',') }}",
    "filters": "{{ messages|tojson(indent=2) }}{{ tools|map(attribute='function')|list }}{{ messages|selectattr('role', "
               "'equalto', 'user')|list|length }}{{ {'b':1,'a':2}|dictsort }}{{ [1,2,3]|batch(2)|list }}{{ none|default('z') }}",
    "tests": "{{ x is defined }}{{ 1 is odd }}{{ messages is iterable and messages is not mapping }}{{ 'a' in 'abc' }}"
             "{{ not (1 == 2 or 3 <= 4) }}{{ 'y' if messages else 'n' }}{% raw %}{{ raw }}{% endraw %}{# note #}",
    "raise": "{% if messages|length > 2 %}{{ raise_exception('too many: ' ~ messages|length) }}{% endif %}",
    "now": "{{ strftime_now('%d %b %Y %H:%M:%S %j %A') }}{% set a, b = 1, [2, {'k': (1,)}] %}{{ b[1]['k'][0] }}",
    "loops": "{% for k, v in tools[0].function.items() %}{{ k }}={{ v }}{% if loop.first %}{% continue %}{% endif %}"
             "{% break %}{% endfor %}{% for x in messages recursive %}{{ x.role }}{% endfor %}{% generation %}g{% endgeneration %}",
    "fields": "{{ '{0:012,.2f}|{0!r:*^9}|{a:#_x}'.format(1234.5, a=255) }}{{ '%+05.3d|%-6s|%a' % (7, 'x', 'y') }}"
              "{{ 25|round(-1) }}{{ 2.5|round(1, 'floor') }}{{ (2 ** 62 + 1) / 3 }}{{ ' a b '.rsplit(none, 1) }}{{ messages[] }}",
    "broken": "{% for m in messages %}{{ m.",
}


def templates():
    for name, text in TEMPLATES.items():
        seed("template", name, text)
    seed("template", "with-context", TEMPLATES["filters"] + '\0[{"role":"user","content":[1,{"a":null}]}]')
    seed("template", "context-text", "{% for m in messages %}{{ m }}{{ m|string|trim }}{% endfor %}\0" + '["x",2,{"k":"v"}]')


def byte_alphabet():
    codes = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b]
    return [chr(b) for b in codes] + [chr(256 + i) for i in range(256 - len(codes))]


def charsmap():
    """A double-array trie of one key, "A", which becomes "a": the root's offset is 1, so that the child stands
    at 1 ^ 0x41; that node has a leaf, at its own index ^ 1, whose value is the replacement's place."""
    units = [0] * 0x42  # as short as it can be, so that other characters lead past its end
    units[0] = 1 << 10
    units[0x40] = 1 << 10 | 1 << 8 | 0x41
    units[0x41] = 1 << 31
    return struct.pack("<I66I", 4 * 0x42, *units) + b"a\0"


def tokenizers():
    seed("charsmap", "one-key", bytes([6]) + b"Abc\xcc\x81A" + charsmap())
    chars = byte_alphabet()
    vocab = {c: i for i, c in enumerate(chars)}
    for merged in ("he", "ll", "hell", "\u0120w", "aa"):
        vocab[merged] = len(vocab)
    merges = ["h e", "l l", "he ll", "\u0120 w", "a a"]
    n = len(vocab)
    added = [{"id": n + i, "content": c, "special": s, "normalized": not s, "lstrip": i == 1, "rstrip": i == 1,
              "single_word": i == 2} for i, (c, s) in enumerate((("<|im_end|>", True), ("<t>", False), ("zz", False)))]
    split = {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}| ?[^\\s\\p{L}]+|\\s+(?!\\S)|(?i:'s|'t)|."},
             "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    bpe = {"type": "BPE", "vocab": vocab, "merges": merges}
    both = {"normalizer": {"type": "NFC"}, "decoder": {"type": "ByteLevel"}, "added_tokens": added, "model": bpe,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
            "post_processor": {"type": "TemplateProcessing",
                               "single": [{"SpecialToken": {"id": "<|im_end|>", "type_id": 0}},
                                          {"Sequence": {"id": "A", "type_id": 0}}],
                               "pair": [], "special_tokens": {"<|im_end|>": {
                                   "id": "<|im_end|>", "ids": [n], "tokens": ["<|im_end|>"]}}}}
    seed("tokenizer", "split", json.dumps(both) + "\0hello world's 12345 zz <t> ")
    seed("tokenizer", "gpt2", json.dumps({"model": {**bpe, "merges": [m.split(" ") for m in merges]},
                                          "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True},
                                          "decoder": {"type": "ByteLevel"}}))
    small = {"<unk>": 0, "a": 1, "b": 2, "ab": 3, "\u2581": 4, "<0x41>": 5, "<0xC3>": 6, "<0xA9>": 7}
    pieces = {"model": {"type": "BPE", "vocab": small, "merges": ["a b"], "unk_token": "<unk>", "fuse_unk": True,
                        "byte_fallback": True, "ignore_merges": True},
              "normalizer": {"type": "Sequence", "normalizers": [
                  {"type": "Prepend", "prepend": "\u2581"},
                  {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
              "decoder": {"type": "Sequence", "decoders": [
                  {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
                  {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}}
    seed("tokenizer", "pieces", json.dumps(pieces) + "\0ab \u00e9 a")
    unigram = {"model": {"type": "Unigram", "unk_id": 0, "byte_fallback": True, "vocab": [
                   ["<unk>", 0], ["\u2581a", -1.5], ["a", -2], ["\u2581", -3e0], ["ab", -2.25], ["<0xC3>", -9]]},
               "normalizer": {"type": "Sequence", "normalizers": [
                   {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap()).decode()},
                   {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
               "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
               "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}}
    seed("tokenizer", "unigram", json.dumps(unigram) + "\0Aa  ab \u00e9")
    ranks = [bytes([i]) for i in range(256)] + [b"ab", b" a", b"abc"]
    seed("tokenizer", "ranks", "".join(f"{base64.b64encode(r).decode()} {i}\n" for i, r in enumerate(ranks))
         + "\0abc 12 ab<|im_end|>")
    for kind in ("Digits", "Punctuation", "Whitespace", "WhitespaceSplit", "Metaspace"):
        tiny = {"model": {"type": "BPE", "vocab": {"a": 0, "1": 1}, "merges": []}, "decoder": {"type": "ByteLevel"},
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                    {"type": kind, "individual_digits": True, "behavior": "Isolated", "replacement": "\u2581"}, {"type": "ByteLevel"}]}}
        seed("tokenizer", kind.lower(), json.dumps(tiny) + "\0a1!a")
    nfkd = {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "decoder": {"type": "ByteLevel"},
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "NFC"}]},
            "pre_tokenizer": {"type": "ByteLevel"}}
    seed("tokenizer", "nfkd", json.dumps(nfkd) + "\0\ufb01\u1ebf\u1112\u1161\u11ab")


if __name__ == "__main__":
    for make in (rows, manifests, shards, tails, ggufs, folders, configs, templates, tokenizers):
        make()
