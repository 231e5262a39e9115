#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes goldens: the reference implementations' own numbers.

For a model of your own, on any machine with transformers; the file is for `headrace verify`:

    pip install torch transformers          (and gguf, for a .gguf file)
    make_goldens.py --model DIR --out goldens.jsonl [--prompts FILE.jsonl] [--n-tokens 64]
    headrace verify --model DIR --against goldens.jsonl

For this folder, run by a person, never by CI:

    pip install torch transformers accelerate gguf
    tests/golden/make_goldens.py [dequant] [tiny] [verify] [demo]         (all when none is named)

dequant   tests/golden/dequant/: blocks of every weight format and their f32 values, by gguf-py.
tiny      tests/golden/tiny-*/: random models of a few hundred kB and transformers' logits for them;
          a folder's name makes that one alone.
verify    tests/golden/verify/: for a tiny model what --model makes for yours.
demo      the demo model as a Hugging Face directory of bf16 weights in the cache, and
          tests/golden/demo/: transformers' greedy answers and teacher-forced logits, in float32 on
          those weights. What is too large to commit goes to the cache too.

README.md beside this file has the formats. The results depend on the versions of torch and
transformers only in the last bits.
"""

import argparse
import datetime
import functools
import hashlib
import json
import os
import pathlib
import shutil
import subprocess

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = pathlib.Path(os.environ.get("HEADRACE_CACHE", ROOT / ".cache"))
BF16_DIR = CACHE / "smollm2-135m-bf16"

N_TEACHER = 2000  # teacher-forced positions of the demo model
N_TOP = 64        # log-probabilities kept of each sampled position
TOP_STEP = 10     # one position in so many is kept
N_GREEDY = 64     # tokens of a greedy answer
N_PROMPTS = 20

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(r, ensure_ascii=False, allow_nan=False) + "\n" for r in rows),
                    encoding="utf-8")


# --- dequant: blocks and what they mean --------------------------------------------------------


def scale_fields(quant):
    """Byte offsets of the f16 numbers in a block of the format."""
    name = quant.name
    return {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
            "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}.get(name, [])


def make_dequant():
    import gguf

    out = HERE / "dequant"
    out.mkdir(exist_ok=True)
    rng = np.random.default_rng(20250701)
    # Scales with both signs, zeros, a subnormal, and the largest finite one.
    scales = np.array([0.0123, -0.5, 1.0, 0.0, -0.0, 6e-8, -3.1e-5, 65504.0], dtype=np.float16)
    for name in ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]:
        quant = gguf.GGMLQuantizationType[name]
        n_elems, n_bytes = gguf.GGML_QUANT_SIZES[quant]
        n_blocks = 8 if n_elems > 1 else 256
        if name == "F32":
            blocks = rng.standard_normal(n_blocks).astype(np.float32).view(np.uint8)
        elif name == "F16":
            values = np.concatenate([scales, rng.standard_normal(n_blocks - len(scales))])
            values[-1], values[-2] = np.inf, -np.inf
            blocks = values.astype(np.float16).view(np.uint8)
        elif name == "BF16":
            blocks = gguf.quants.quantize(rng.standard_normal(n_blocks).astype(np.float32), quant)
        else:
            blocks = rng.integers(0, 256, (n_blocks, n_bytes), dtype=np.uint8)
            for i, offset in enumerate(scale_fields(quant)):
                blocks[:, offset:offset + 2] = np.roll(scales, 3 * i)[:, None].view(np.uint8)
        blocks = np.ascontiguousarray(blocks).reshape(-1)
        if name == "F16":
            values = blocks.view(np.float16).astype(np.float32)
        else:
            with np.errstate(all="ignore"):
                values = gguf.quants.dequantize(blocks, quant).astype(np.float32).reshape(-1)
        (out / f"{name}.bin").write_bytes(blocks.tobytes())
        (out / f"{name}.f32").write_bytes(values.tobytes())
        print(f"dequant {name}: {len(values)} numbers in {len(blocks)} bytes")


# --- running the reference ----------------------------------------------------------------------


def where_it_is(path):
    """A model as from_pretrained wants it: a directory, or a GGUF file in one."""
    path = pathlib.Path(path)
    if path.suffix == ".gguf":
        return {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    return {"pretrained_model_name_or_path": path}


def load_reference(path, dtype="float32", device="cpu"):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(int(os.environ.get("GOLDEN_THREADS", "1")))
    model = AutoModelForCausalLM.from_pretrained(**where_it_is(path), dtype=getattr(torch, dtype),
                                                 attn_implementation="eager")
    return model.to(device).eval()


def logits_of(model, ids):
    """[n, vocab] f32: row i predicts token i + 1."""
    import torch

    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()


def greedy_steps(model, ids, n_max, eos):
    """The greedy answer: (token, logits [vocab] f32) a step. Ends with a token of eos."""
    import torch

    cache, step = None, torch.tensor([ids])
    for _ in range(n_max):
        with torch.no_grad():
            result = model(step.to(model.device), past_key_values=cache, use_cache=True)
        cache, logits = result.past_key_values, result.logits[0, -1].float().cpu()
        token = int(torch.topk(logits, 2).indices[0])
        yield token, logits
        if token in eos:
            return
        step = torch.tensor([[token]])


def greedy_of(model, ids, n_max, eos):
    """Tokens and the lead of each over the second best, in logits."""
    tokens, margins = [], []
    for token, logits in greedy_steps(model, ids, n_max, eos):
        best = logits.topk(2).values
        tokens.append(token)
        margins.append(round(float(best[0] - best[1]), 6))
    return tokens, margins


# --- goldens for `headrace verify` --------------------------------------------------------------

PROMPTS = [
    {"id": "facts", "prompt": "Name three rivers of France, and say in one sentence where each of them rises."},
    {"id": "code", "prompt": "Write a C function that reverses a singly linked list, with a short comment."},
    {"id": "numbers", "prompt": "A train leaves at 9:40 and arrives at 13:05. How long does it travel?"},
    {"id": "unicode", "prompt": "Übersetze ins Englische: „Der Mühlbach trägt das Wasser zum Rad.“ 水 🚰"},
    {"id": "turns", "messages": [
        {"role": "system", "content": "Answer in one short sentence."},
        {"role": "user", "content": "What is a headrace?"},
        {"role": "assistant", "content": "It is the channel that brings water to a mill wheel."},
        {"role": "user", "content": "And a tailrace?"}]},
    {"id": "list", "prompt": "1. Wash the rice\n2. Boil the water\n\nGo on with this list."},
]


def read_prompts(path):
    rows = [json.loads(line) for line in open(path, encoding="utf-8") if line.strip()]
    for i, row in enumerate(rows):
        if not ("messages" in row or isinstance(row.get("prompt"), str)):
            raise SystemExit(f"{path}: row {i + 1} has neither \"messages\" nor a text \"prompt\"")
    return rows


def identity_of(path, model):
    """What headrace can compare with its own reading of the model."""
    config = model.config.get_text_config()
    file = pathlib.Path(path) / "config.json"
    heads = config.num_attention_heads
    return {"model_type": config.model_type,
            "config_sha256": hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None,
            "vocab_size": config.vocab_size, "num_hidden_layers": config.num_hidden_layers,
            "hidden_size": config.hidden_size, "intermediate_size": config.intermediate_size,
            "num_attention_heads": heads,
            "num_key_value_heads": getattr(config, "num_key_value_heads", None) or heads,
            "head_dim": getattr(config, "head_dim", None) or config.hidden_size // heads}


def top_of(logits, n_top):
    """[ids, logprobs, rest] of a position: the best tokens with their natural log-probabilities, and the
    logarithm of what all others have together (None: nothing)."""
    logprobs = logits.double().log_softmax(-1)
    best = logprobs.topk(min(n_top, len(logprobs)) if n_top else len(logprobs))
    logprobs[best.indices] = float("-inf")
    rest = float(logprobs.logsumexp(-1))
    if not bool(best.values.isfinite().all()):
        raise SystemExit("the reference's logits are not finite: the model overflows in this precision")
    return [best.indices.tolist(), [round(v, 7) for v in best.values.tolist()],
            round(rest, 7) if rest > float("-inf") else None]


def rendered_of(tokenizer, row):
    """The text that the model sees, and its ids."""
    if not tokenizer.chat_template:
        if "messages" in row:
            raise SystemExit("the model has no chat template: give prompts with \"prompt\" alone")
        return row["prompt"], tokenizer(row["prompt"])["input_ids"]
    messages = row.get("messages") or [{"role": "user", "content": row["prompt"]}]
    kind = {"tools": row.get("tools"), "add_generation_prompt": True}
    return (tokenizer.apply_chat_template(messages, tokenize=False, **kind),
            tokenizer.apply_chat_template(messages, return_dict=True, **kind)["input_ids"])


def make_goldens(path, out, prompts, n_tokens, n_top, dtype="float32", device="cpu"):
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(**where_it_is(path))
    model = load_reference(path, dtype, device)
    ends = model.generation_config.eos_token_id
    eos = {tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])}
    now = datetime.datetime.now().replace(microsecond=0).isoformat()
    rows = []
    for i, row in enumerate(prompts):
        rendered, ids = rendered_of(tokenizer, row)
        greedy, top = [], []
        for token, logits in greedy_steps(model, ids, n_tokens, eos):
            greedy.append(token)
            top.append(top_of(logits, n_top))
        asked = {k: row[k] for k in ("messages", "prompt", "tools") if k in row}
        rows.append({"id": row.get("id", i + 1), **asked, "rendered": rendered, "prompt_ids": ids,
                     "greedy": greedy, "text": tokenizer.decode(greedy), "top": top})
        print(f"{i + 1} of {len(prompts)}: {len(ids)} prompt tokens, {len(greedy)} answered", flush=True)
    head = {"format": "headrace-goldens", "version": 1, "model": identity_of(path, model),
            "chat": bool(tokenizer.chat_template), "now": now, "n_prompts": len(rows), "top": n_top,
            "made_with": {"torch": torch.__version__, "transformers": transformers.__version__,
                          "dtype": dtype, "device": device}}
    write_jsonl(pathlib.Path(out), [head, *rows])


def make_verify():
    out = HERE / "verify"
    out.mkdir(exist_ok=True)
    make_goldens(HERE / "tiny-qwen3", out / "tiny-qwen3.jsonl", PROMPTS, 16, 24)


# --- tiny: random models ------------------------------------------------------------------------


def tiny_tokenizer(path, n_vocab):
    """A token a byte, and ChatML's three special tokens: enough for a run from end to end."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    assert len(alphabet) + 3 <= n_vocab
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(s, normalized=False)
                                  for s in ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]])
    tokenizer.save(str(path / "tokenizer.json"))
    write_json(path / "tokenizer_config.json",
               {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>",
                "pad_token": "<|endoftext|>", "chat_template": CHATML})
    write_json(path / "generation_config.json", {"eos_token_id": [256, 258]})


def tiny_config(name):
    from transformers import (Gemma2Config, Gemma3TextConfig, LlamaConfig, MistralConfig,
                              Olmo2Config, Phi3Config, Qwen2Config, Qwen3Config, SmolLM3Config)

    common = dict(vocab_size=264, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                  num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024,
                  rms_norm_eps=1e-5, bos_token_id=257, eos_token_id=258)
    if name == "tiny-llama3":
        rope = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
        return LlamaConfig(**common, rope_parameters=rope, attention_bias=True, mlp_bias=True)
    if name == "tiny-mistral":
        return MistralConfig(**common, sliding_window=24)
    if name == "tiny-phi3":  # all sequences are longer than 32: the long set
        sets = {"short_factor": [1 + 0.1 * i for i in range(6)],
                "long_factor": [1.5, 2.0, 3.5, 5.0, 9.0, 14.0]}
        rope = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75, **sets}
        return Phi3Config(**common, rope_parameters=rope, original_max_position_embeddings=32,
                          sliding_window=60, pad_token_id=256)
    gemma = {**common, "num_hidden_layers": 3, "hidden_size": 72, "head_dim": 16,
             "query_pre_attn_scalar": 24, "sliding_window": 20, "pad_token_id": 256,
             "tie_word_embeddings": False}
    if name == "tiny-gemma3":
        kinds = ["sliding_attention", "full_attention", "sliding_attention"]
        return Gemma3TextConfig(**gemma, layer_types=kinds, rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}})
    if name == "tiny-gemma2":
        return Gemma2Config(**gemma, attn_logit_softcapping=2.0, final_logit_softcapping=12.0)
    if name == "tiny-smollm3":
        return SmolLM3Config(**{**common, "num_hidden_layers": 3}, no_rope_layers=[1, 0, 1],
                             rope_theta=50000.0, use_sliding_window=True, sliding_window=30,
                             pad_token_id=256)
    if name == "tiny-olmo2":
        return Olmo2Config(**common, pad_token_id=256)
    if name == "tiny-yarn":
        rope = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 6.0, "beta_fast": 8.0,
                "original_max_position_embeddings": 64}
        return Qwen3Config(**common, head_dim=32, use_sliding_window=False, rope_parameters=rope)
    if name == "tiny-qwen2":
        return Qwen2Config(**common, tie_word_embeddings=True, use_sliding_window=False)
    return Qwen3Config(**common, head_dim=32, use_sliding_window=False,
                       rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e6})


def make_tiny_model(name):
    import torch
    from transformers import AutoModelForCausalLM

    out = HERE / name
    shutil.rmtree(out, ignore_errors=True)
    seed = 1234 + TINY.index(name)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(tiny_config(name), dtype=torch.float32)
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "norm" in key:
                one = 0 if name.startswith("tiny-gemma") else 1  # which is not in Gemma's files
                p.copy_(one + 0.2 * torch.randn_like(p))
            elif "embed" in key and name.startswith("tiny-gemma"):
                p.copy_(0.6 / model.config.hidden_size ** 0.5 * torch.randn_like(p))
            elif "embed" in key or "lm_head" in key:
                p.copy_((0.25 if model.config.tie_word_embeddings else 0.6) * torch.randn_like(p))  # spread: about 5
            else:
                p.copy_(SPREAD.get(name, 0.15) * torch.randn_like(p))
            p.copy_(p.to(torch.bfloat16).float())
    model.to(torch.bfloat16).save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    tiny_tokenizer(out, 264)

    model = load_reference(out)
    generator = np.random.default_rng(seed)
    ids = [int(i) for i in generator.integers(0, 256, 320)]
    positions = list(range(3, len(ids), 4))
    logits = logits_of(model, ids)
    greedy, margins = greedy_of(model, ids[:40], N_GREEDY, eos=())
    np.save(out / "logits.npy", logits[positions].astype(np.float32))
    write_json(out / "golden.json", {"ids": ids, "positions": positions, "n_prompt": 40,
                                     "greedy": greedy, "margins": margins})
    print(f"{name}: logits std {logits.std():.2f}, least margin {min(margins):.4f}, "
          f"{len(set(greedy))} distinct greedy tokens")


# A name's place is its seed: new ones go to the end.
TINY = ["tiny-llama3", "tiny-qwen2", "tiny-qwen3", "tiny-mistral", "tiny-phi3", "tiny-gemma3", "tiny-gemma2",
        "tiny-smollm3", "tiny-yarn", "tiny-olmo2"]

# Standard deviation of a model's matrices: attention is neither flat nor one-hot. Longrope's factor
# sharpens it, so that Phi-3 needs less.
SPREAD = {"tiny-phi3": 0.12}


def make_tiny():
    for name in TINY:
        make_tiny_model(name)


# --- demo: the demo model -----------------------------------------------------------------------


def demo_gguf():
    return subprocess.run([ROOT / "scripts" / "demo-model"], check=True, capture_output=True,
                          text=True).stdout.strip()


LAYER_NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hf_name(name):
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, middle, suffix = name.split(".")
    return f"model.layers.{layer}.{LAYER_NAMES[middle]}.{suffix}"


def field(reader, key):
    return reader.fields[key].contents()


def convert_weights(reader, n_heads, n_kv_heads):
    """Dequantised weights under Hugging Face names, rotary rows back in rotate-half order, bf16."""
    import gguf
    import torch

    tensors = {}
    for t in reader.tensors:
        values = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        for middle, heads in (("attn_q", n_heads), ("attn_k", n_kv_heads)):
            if f".{middle}." in t.name:
                rows, cols = values.shape
                values = values.reshape(heads, rows // heads // 2, 2, cols).swapaxes(1, 2)
                values = values.reshape(rows, cols)
        tensors[hf_name(t.name)] = torch.from_numpy(values.copy()).to(torch.bfloat16)
    return tensors


def write_demo_tokenizer(reader, path):
    import gguf
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    tokens = field(reader, "tokenizer.ggml.tokens")
    merges = [tuple(m.split(" ")) for m in field(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer.decoder = decoders.ByteLevel()
    types = field(reader, "tokenizer.ggml.token_type")
    control = [t for t, kind in zip(tokens, types) if kind == gguf.TokenType.CONTROL]
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in control])
    tokenizer.save(str(path / "tokenizer.json"))
    special = {name: tokens[field(reader, f"tokenizer.ggml.{key}_token_id")]
               for name, key in [("bos_token", "bos"), ("eos_token", "eos"),
                                 ("unk_token", "unknown"), ("pad_token", "padding")]}
    write_json(path / "tokenizer_config.json",
               {**special, "chat_template": field(reader, "tokenizer.chat_template")})


def check_demo_tokenizer(path):
    """The conformance kit, where there is one, has a tokenizer.json made from the same vocabulary."""
    kit = pathlib.Path(os.environ.get("HEADRACE_KIT", ROOT.parent / "shared" / "kit"))
    cases = kit / "tokenizers" / "smollm2" / "cases.jsonl"
    if not cases.exists():
        print("demo: no conformance kit, tokenizer not checked")
        return
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    rows = [json.loads(line) for line in cases.open(encoding="utf-8")]
    bad = [r["id"] for r in rows
           if tokenizer.encode(r["text"], add_special_tokens=False).ids != r["ids"]]
    assert not bad, f"tokenizer.json differs from the kit's in {bad}"
    print(f"demo: tokenizer equals the kit's in {len(rows)} cases")


def check_against_transformers(tensors, path):
    """transformers reads GGUF files too, with its own code: both must give the same weights."""
    import torch

    model = load_reference(path)
    for key, want in model.state_dict().items():
        if key == "lm_head.weight":
            continue
        assert torch.equal(want.to(torch.bfloat16), tensors[key]), key
    print(f"demo: {len(tensors)} tensors equal transformers' reading of the GGUF file")


def make_bf16_dir():
    import gguf
    from safetensors.torch import save_file

    path = demo_gguf()
    reader = gguf.GGUFReader(path)
    n_heads = field(reader, "llama.attention.head_count")
    n_kv_heads = field(reader, "llama.attention.head_count_kv")
    tensors = convert_weights(reader, n_heads, n_kv_heads)
    check_against_transformers(tensors, path)
    out = BF16_DIR.with_name(BF16_DIR.name + ".new")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    bos, eos = (field(reader, f"tokenizer.ggml.{k}_token_id") for k in ("bos", "eos"))
    write_json(out / "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": field(reader, "llama.embedding_length"),
        "intermediate_size": field(reader, "llama.feed_forward_length"),
        "num_hidden_layers": field(reader, "llama.block_count"),
        "num_attention_heads": n_heads, "num_key_value_heads": n_kv_heads,
        "vocab_size": field(reader, "llama.vocab_size"),
        "max_position_embeddings": field(reader, "llama.context_length"),
        "rms_norm_eps": 1e-05, "rope_theta": field(reader, "llama.rope.freq_base"),
        "rope_scaling": None, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16",
        "bos_token_id": bos, "eos_token_id": eos})
    write_json(out / "generation_config.json",
               {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": eos})
    write_demo_tokenizer(reader, out)
    check_demo_tokenizer(out)
    shutil.rmtree(BF16_DIR, ignore_errors=True)
    out.rename(BF16_DIR)


def demo_prompts():
    rows = [json.loads(line) for line in (ROOT / "datasets" / "demo.jsonl").open(encoding="utf-8")]
    return [(row["id"], row["prompt"]) for row in rows if "prompt" in row][:N_PROMPTS]


def make_greedy(model, tokenizer):
    rows = []
    for name, prompt in demo_prompts():
        ids = tokenizer.apply_chat_template([{"role": "user", "content": prompt}],
                                            add_generation_prompt=True, return_dict=True)["input_ids"]
        tokens, margins = greedy_of(model, ids, N_GREEDY, eos=(tokenizer.eos_token_id,))
        rows.append({"id": name, "prompt": prompt, "prompt_ids": ids, "greedy": tokens,
                     "text": tokenizer.decode(tokens, skip_special_tokens=True), "margins": margins})
    assert len(rows) == N_PROMPTS
    return rows


def teacher_ids(tokenizer, rows):
    """One long conversation out of the prompts and their answers, over and over until it is long
    enough: natural text, and contexts up to its whole length."""
    messages = []
    while True:
        for row in rows:
            messages += [{"role": "user", "content": row["prompt"]},
                         {"role": "assistant", "content": row["text"]}]
            ids = tokenizer.apply_chat_template(messages, return_dict=True)["input_ids"]
            if len(ids) >= N_TEACHER:
                return ids[:N_TEACHER]


def make_teacher(model, ids, out):
    logits = logits_of(model, ids)
    np.save(CACHE / "smollm2-135m-teacher-logits.npy", logits)
    wide = logits.astype(np.float64)
    top = wide.max(axis=1, keepdims=True)
    lse = (np.log(np.exp(wide - top).sum(axis=1, keepdims=True)) + top)[:, 0]
    rows = np.arange(0, len(ids), TOP_STEP)
    best = np.argsort(-logits[rows], axis=1, kind="stable")[:, :N_TOP]
    logprobs = np.take_along_axis(wide[rows], best, axis=1) - lse[rows, None]
    np.save(out / "teacher_ids.npy", np.array(ids, dtype=np.int32))
    np.save(out / "teacher_top1.npy", logits.argmax(axis=1).astype(np.int32))
    np.save(out / "teacher_lse.npy", lse.astype(np.float32))
    np.save(out / "teacher_rows.npy", rows.astype(np.int32))
    np.save(out / "teacher_top_ids.npy", best.astype(np.int32))
    np.save(out / "teacher_top_logprobs.npy", logprobs.astype(np.float32))
    print(f"demo: the {N_TOP} best hold {np.exp(logprobs).sum(axis=1).mean():.4f} of the probability")


def make_demo():
    from transformers import AutoTokenizer

    make_bf16_dir()
    out = HERE / "demo"
    out.mkdir(exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(BF16_DIR)
    model = load_reference(BF16_DIR)
    rows = make_greedy(model, tokenizer)
    write_jsonl(out / "greedy.jsonl", rows)
    make_teacher(model, teacher_ids(tokenizer, rows), out)


def main():
    makers = {"dequant": make_dequant, "tiny": make_tiny, "verify": make_verify, "demo": make_demo}
    one = {name: functools.partial(make_tiny_model, name) for name in TINY}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help="dequant, tiny (or one of its folders), verify, demo; all when none "
                        "is named")
    parser.add_argument("--model", help="a model of your own: a Hugging Face directory or a .gguf file")
    parser.add_argument("--out", help="where its goldens go")
    parser.add_argument("--prompts", help="rows with \"messages\" or a text \"prompt\"; default: six of our own")
    parser.add_argument("--n-tokens", type=int, default=N_GREEDY, help="tokens of an answer (64)")
    parser.add_argument("--top", type=int, default=N_TOP, help="log-probabilities kept of a position (64); 0 keeps all")
    parser.add_argument("--dtype", default="float32", help="what the reference computes in (float32)")
    parser.add_argument("--device", default="cpu", help="where it computes, such as cuda (cpu)")
    args = parser.parse_args()
    if bool(args.model) != bool(args.out) or (args.model and args.what):
        parser.error("--model and --out go together, and without names")
    if args.top == 1 or args.top < 0:
        parser.error("--top expects 2 or more, or 0 for all")
    if args.model:
        prompts = read_prompts(args.prompts) if args.prompts else PROMPTS
        make_goldens(args.model, args.out, prompts, args.n_tokens, args.top, args.dtype, args.device)
        return
    what = args.what or list(makers)
    CACHE.mkdir(parents=True, exist_ok=True)
    for name in what:
        make = makers.get(name) or one.get(name)
        if not make:
            parser.error(f"unknown golden {name!r}; there are {', '.join([*makers, *one])}")
        make()


if __name__ == "__main__":
    main()
