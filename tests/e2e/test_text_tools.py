# SPDX-License-Identifier: Apache-2.0
"""tokenize and render: a line that makes no sense is told so, and messages are what a run would show the template."""
import gzip
import json

import pytest

from jobdir import DONE, Job
from tinymodel import GOLDEN, byte_ids, random_model

TOKENIZER = GOLDEN / "tiny-qwen3" / "tokenizer.json"  # 259 tokens


def serve(headrace, *args, lines):
    got = headrace(*args, stdin="".join(json.dumps(line) + "\n" for line in lines))
    assert got.returncode == DONE, got.stderr
    return [json.loads(s) for s in got.stdout.splitlines()]


def tokenize(headrace, *lines):
    return serve(headrace, "tokenize", "--tokenizer", TOKENIZER, lines=lines)


def test_ids_without_a_token_are_named(headrace):
    ids = [*byte_ids("ab"), 258, 259, 999999999]
    got, whole = tokenize(headrace, {"ids": ids}, {"ids": byte_ids("ab")})
    assert got == {"ids": ids, "decoded": "ab<|im_end|>", "decoded_skip": "ab", "no_token": [259, 999999999]}
    assert "no_token" not in whole


@pytest.mark.parametrize("bad", [-1, 1.5, "a", None, 1 << 31])
def test_what_is_no_token_id_is_an_error_with_its_place(headrace, bad):
    got, after = tokenize(headrace, {"ids": [5, bad]}, {"ids": []})
    assert got == {"error": '"ids"[1] is not a token id, which is a whole number from 0 up'}
    assert after["decoded"] == ""


def test_render_shows_messages_as_a_run_does(headrace, tmp_path):
    template = "{% for m in messages %}{{ m.keys()|list }}{% endfor %}"
    messages = [{"role": "user", "content": "x", "name": None},
                {"role": "assistant", "content": "y", "reasoning": "r", "tool_calls": None},
                {"role": "user", "content": [{"type": "text", "text": "z", "image": None}]}]
    model = random_model(tmp_path / "m")
    (model / "chat_template.jinja").write_text(template + "{{ messages[2].content }}", encoding="utf-8")
    job = Job(headrace, tmp_path / "j", model, [{"id": 1, "messages": messages}])
    run = headrace("run", job.manifest, "--model", model, "--dry-run").stdout
    got, = serve(headrace, "render", "--model", model, lines=[{"messages": messages}])
    assert got["text"] in run
    assert got["text"] == ("['role', 'content']['thinking', 'role', 'content', 'reasoning', 'reasoning_content']"
                           "['role', 'content'][{'type': 'text', 'text': 'z'}]")
    raw, = serve(headrace, "render", "--raw", lines=[{"template": template, "context": {"messages": messages}}])
    assert "['role', 'content', 'name']" in raw["text"] and "thinking" not in raw["text"]


@pytest.mark.parametrize("messages", ["hi", ["hi"], 5])
def test_render_gives_a_template_what_is_no_list_of_messages(headrace, tmp_path, messages):
    (tmp_path / "t.jinja").write_text("{{ messages|tojson }}", encoding="utf-8")
    got, = serve(headrace, "render", "--template", tmp_path / "t.jinja", lines=[{"messages": messages}])
    assert got == {"text": json.dumps(messages)}


# ---- known ids of real tokenizers -------------------------------------------------------------------

TYPED = "<|im_start|>Hello World<|im_end|>"
QWEN = {TYPED: [27, 91, 318, 4906, 91, 29, 9707, 4337, 27, 91, 318, 6213, 91, 29], "->": [405],
        "(x):\n": [2075, 982], "12345": [16, 17, 18, 19, 20]}
LLAMA = {"12345": [4513, 1774], "1234567": [4513, 10961, 22]}


def real(kit, tmp_path, name):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(gzip.decompress((kit / "tokenizers" / name / "tokenizer.json.gz").read_bytes()))
    return path


@pytest.mark.parametrize("name, known", [("qwen2.5", QWEN), ("qwen3", QWEN), ("llama3", LLAMA)])
def test_text_has_the_ids_that_its_model_was_trained_on(headrace, tmp_path, kit, name, known):
    got = serve(headrace, "tokenize", "--tokenizer", real(kit, tmp_path, name), lines=[{"text": t} for t in known])
    assert {text: answer["ids"] for text, answer in zip(known, got)} == known


def test_a_template_writes_control_tokens_and_a_user_does_not(headrace, tmp_path, kit):
    got, = serve(headrace, "tokenize", "--tokenizer", real(kit, tmp_path, "qwen3"),
                 lines=[{"text": TYPED, "parse_special": True}])
    assert got["ids"] == [151644, 9707, 4337, 151645]
