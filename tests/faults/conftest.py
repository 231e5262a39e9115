# SPDX-License-Identifier: Apache-2.0
"""conftest: what the fault tests share. Long campaigns run only when HEADRACE_LONG=1 is set; the
moments at which they kill come from HEADRACE_KILL_SEED, or from a seed that is printed."""
import os
import pathlib
import random
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from tinymodel import change_json, random_model, write_chain_files, write_tensors  # noqa: E402


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A model of random weights that answers ten thousand tokens in a second."""
    return random_model(tmp_path_factory.mktemp("model") / "tiny", config={"max_position_embeddings": 4096})


def _random_bf16(rng, n):
    """n numbers of either sign between 1/128 and 1/32, fast without a library."""
    data = bytearray(2 * n)
    data[0::2] = rng.randbytes(n)
    data[1::2] = rng.randbytes(n).translate(bytes(0x3c | b & 0x80 for b in range(256)))
    return data


@pytest.fixture(scope="session")
def slow(tmp_path_factory):
    """A larger one: a step takes some milliseconds, so that there is time to kill a run in the midst
    of its rows."""
    dim, inner, n_layers, n_vocab, rng = 384, 1024, 6, 264, random.Random(5)
    to = tmp_path_factory.mktemp("model") / "slow"
    to.mkdir()
    write_chain_files(to, dim, 258, None, (), 4096, n_vocab)
    change_json(to / "config.json", {"num_hidden_layers": n_layers, "intermediate_size": inner})
    ones = bytearray(b"\x80\x3f" * dim)
    tensors = {name: ([n_vocab, dim], _random_bf16(rng, n_vocab * dim))
               for name in ("lm_head.weight", "model.embed_tokens.weight")}
    tensors["model.norm.weight"] = ([dim], ones)
    shapes = {**{f"self_attn.{x}_proj": (dim, dim) for x in "qkvo"}, "mlp.gate_proj": (inner, dim),
              "mlp.up_proj": (inner, dim), "mlp.down_proj": (dim, inner)}
    for layer in (f"model.layers.{i}." for i in range(n_layers)):
        tensors[layer + "input_layernorm.weight"] = ([dim], ones)
        tensors[layer + "post_attention_layernorm.weight"] = ([dim], ones)
        for name, shape in shapes.items():
            tensors[layer + name + ".weight"] = (list(shape), _random_bf16(rng, shape[0] * shape[1]))
    write_tensors(to / "model.safetensors", tensors)
    return to


@pytest.fixture
def long_run():
    if os.environ.get("HEADRACE_LONG") != "1":
        pytest.skip("a campaign of many minutes: set HEADRACE_LONG=1")


@pytest.fixture
def moments():
    """Random numbers for the moments of kills; the seed is in the report of a failure."""
    seed = int(os.environ.get("HEADRACE_KILL_SEED", random.randrange(1 << 31)))
    print(f"HEADRACE_KILL_SEED={seed}")
    return random.Random(seed)


@pytest.fixture(scope="session")
def preload(tmp_path_factory, request):
    """Builds a library for LD_PRELOAD out of tests/faults/NAME.c."""
    folder = tmp_path_factory.mktemp("preload")

    def build(name):
        out = folder / (name + ".so")
        if not out.exists():
            source = pathlib.Path(__file__).with_name(name + ".c")
            subprocess.run([os.environ.get("CC", "cc"), "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
                            "-o", out, source], check=True)
        return str(out)
    return build
