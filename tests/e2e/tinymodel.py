# SPDX-License-Identifier: Apache-2.0
"""tinymodel: Hugging Face model directories of a few hundred KB, made for a test.

`random_model` copies a golden model (random weights, a byte-level tokenizer, ChatML). `chain_model`
builds a Llama whose next token is a table of the last one: its layer adds nothing to the residual
stream, embeddings are random signs (nearly orthogonal), and the output matrix adds up, for each token,
the embeddings of those that it follows. So a test can force any sequence, and flat logits too."""
import json
import pathlib
import random
import shutil
import struct

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
N_VOCAB = 264
END, START, STOP = 256, 257, 258  # <|endoftext|>, <|im_start|>, <|im_end|>
NAN = 0x7fc0                      # as bf16


def _vocab():
    return json.loads((GOLDEN / "tiny-qwen3" / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]


def _byte_names():
    """The character that stands for each byte in byte-level vocabularies (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names, n = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in names:
            names[b], n = chr(256 + n), n + 1
    return names


def byte_ids(data):
    """Token ids of a string's bytes: each byte is a token of its own."""
    vocab, names = _vocab(), _byte_names()
    return [vocab[names[b]] for b in (data.encode() if isinstance(data, str) else data)]


def read_tensors(path):
    raw = pathlib.Path(path).read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    head.pop("__metadata__", None)
    return {k: (v["shape"], bytearray(raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]))
            for k, v in head.items()}


def write_tensors(path, tensors):
    head, at = {}, 0
    for name, (shape, data) in tensors.items():
        head[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text
                                   + b"".join(bytes(d) for _, d in tensors.values()))


def random_model(to, name="tiny-qwen3", generation=None, config=None):
    shutil.copytree(GOLDEN / name, to, ignore=shutil.ignore_patterns("golden.json", "*.npy"))
    change_json(to / "generation_config.json", generation)
    change_json(to / "config.json", config)
    return to


def change_json(path, change):
    if change:
        path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}),
                        encoding="utf-8")


def change_tensor(model, name, i_first, values):
    """Overwrites bf16 elements of a tensor, from i_first on."""
    tensors = read_tensors(model / "model.safetensors")
    data = tensors[name][1]
    for i, v in enumerate(values):
        struct.pack_into("<H", data, 2 * (i_first + i), v)
    write_tensors(model / "model.safetensors", tensors)


def bf16(x):
    return struct.unpack("<I", struct.pack("<f", x))[0] >> 16


def _matrix(rows, n):
    return [len(rows), n], bytearray(b"".join(struct.pack(f"<{n}H", *map(bf16, r)) for r in rows))


def chain_model(to, table, eos=STOP, generation=None, extra_tokens=(), n_ctx=1024, flat=False, pieces=(),
                n_vocab=N_VOCAB):
    """table: {token: next}; a token that it does not name is followed by anything. Tokens from 259 on are
    `extra_tokens`, one token of text each. flat: all logits are equal. pieces: a SentencePiece tokenizer with
    these from 259 on (a blank is written U+2581); its other tokens are the bytes, each with its value as id."""
    dim, rng = 256, random.Random(7)
    to.mkdir(parents=True)
    embed = [[rng.choice((-1.0, 1.0)) for _ in range(dim)] for _ in range(n_vocab)]
    out = [[0.0] * dim for _ in range(n_vocab)]
    for token, following in () if flat else table.items():
        out[following] = [a + b for a, b in zip(out[following], embed[token])]
    one = _matrix([[1.0] * dim], dim)[1]
    zero = bytearray(2 * dim * dim)
    layer = "model.layers.0."
    tensors = {"lm_head.weight": _matrix(out, dim), "model.embed_tokens.weight": _matrix(embed, dim),
               "model.norm.weight": ([dim], one), layer + "input_layernorm.weight": ([dim], one),
               layer + "post_attention_layernorm.weight": ([dim], one)}
    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                 "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
        tensors[layer + name + ".weight"] = ([dim, dim], zero)
    write_tensors(to / "model.safetensors", tensors)
    write_chain_files(to, dim, eos, generation, extra_tokens, n_ctx, n_vocab)
    if pieces:
        write_pieces(to / "tokenizer.json", pieces)
    return to


def write_chain_files(to, dim, eos, generation, extra_tokens, n_ctx, n_vocab=N_VOCAB):
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": dim,
              "intermediate_size": dim, "num_hidden_layers": 1, "num_attention_heads": dim // 64,
              "num_key_value_heads": dim // 64, "vocab_size": n_vocab, "max_position_embeddings": n_ctx,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "eos_token_id": eos,
              "bos_token_id": START, "tie_word_embeddings": False}
    (to / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if generation is not None:
        (to / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    shutil.copy(GOLDEN / "tiny-qwen3" / "tokenizer_config.json", to)
    tok = json.loads((GOLDEN / "tiny-qwen3" / "tokenizer.json").read_text(encoding="utf-8"))
    tok["added_tokens"] += [{"id": 259 + i, "content": text, "single_word": False, "lstrip": False,
                             "rstrip": False, "normalized": False, "special": False}
                            for i, text in enumerate(extra_tokens)]
    (to / "tokenizer.json").write_text(json.dumps(tok), encoding="utf-8")


def write_pieces(path, pieces):
    tok = json.loads(path.read_text(encoding="utf-8"))
    tok["model"] = {"type": "BPE", "byte_fallback": True, "unk_token": None, "merges": [],
                    "vocab": {f"<0x{i:02X}>": i for i in range(256)} | {p: 259 + i for i, p in enumerate(pieces)}}
    tok["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    tok["pre_tokenizer"] = tok["post_processor"] = None
    tok["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    path.write_text(json.dumps(tok), encoding="utf-8")


def chain(*parts):
    """The table that leads from each token to the next: chain("ab", 258) is a -> b -> <|im_end|>."""
    ids = [i for p in parts for i in (byte_ids(p) if isinstance(p, (str, bytes)) else [p])]
    table = dict(zip(ids, ids[1:]))
    assert len(table) == len(ids) - 1, "a token has one follower"
    return table
