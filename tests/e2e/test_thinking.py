# SPDX-License-Identifier: Apache-2.0
"""thinking: a row's reasoning apart from its response, whoever opens the tags and whatever they are made of,
and stop strings that apply to the response alone.

The models are chains (tinymodel), in which a token has one follower: so the tags are single tokens here, or
letters; how they may lie across tokens is in tests/unit/test_engine_flight.c."""
import json

import pytest

from jobdir import DONE, USAGE, Job
from tinymodel import END, START, STOP, byte_ids, chain, chain_model, change_json

OPEN, CLOSE, MORE = 259, 260, 261
TAGS = ["<think>", "</think>", "\n<think>\nx"]
CHATML = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}<|im_end|>\n"
          "{% endfor %}<|im_start|>assistant{{ '\n' }}")
NOT = object()  # the row has no such key


def thinker(folder, *parts, tail="", special=False):
    """A chat model whose template ends with `tail`; the first of `parts` is the prompt's last token."""
    model = chain_model(folder, chain(*parts), extra_tokens=TAGS)
    change_json(model / "tokenizer_config.json", {"chat_template": CHATML + tail})
    tok = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))
    for token in tok["added_tokens"][-len(TAGS):]:
        token["special"] = special
    (model / "tokenizer.json").write_text(json.dumps(tok), encoding="utf-8")
    return model


def answer(headrace, folder, model, prompt="x", manifest=None, **sampling):
    job = Job(headrace, folder, model, [{"id": 1, "prompt": prompt}], sampling={"temperature": 0, **sampling},
              **{"output": {"token_ids": True}, **(manifest or {})})
    job.run()
    return job.rows()[0]


def parts(row):
    return row.get("reasoning", NOT), row["response"], row["finish_reason"], row.get("stop_reason")


@pytest.mark.parametrize("special", [False, True], ids=["text", "special"])
def test_the_model_opens_the_tag(headrace, tmp_path, special):
    model = thinker(tmp_path / "m", "\n", OPEN, "ab c", CLOSE, "de", STOP, special=special)
    row = answer(headrace, tmp_path / "a", model)
    assert parts(row) == ("ab c", "de", "stop", None)
    assert row["completion_token_ids"] == [OPEN, *byte_ids("ab c"), CLOSE, *byte_ids("de"), STOP]
    assert row["usage"]["completion_tokens"] == 9
    assert list(row)[4:6] == ["reasoning", "response"]


def test_special_tokens_before_a_tag_and_in_one_are_passed_over(headrace, tmp_path):
    model = thinker(tmp_path / "m", "\n", START, OPEN, "ab c", END, CLOSE, "de", STOP)
    assert parts(answer(headrace, tmp_path / "a", model, stop="b")) == ("ab c", "de", "stop", None)
    model = chain_model(tmp_path / "n", {**chain("0<t", START, "h>ab", END, "/c"), **chain("cDE", STOP)})
    split = {"chat": False, "thinking": {"open": "<th>", "close": "b/c"}}
    assert parts(answer(headrace, tmp_path / "b", model, "0", split)) == ("a", "DE", "stop", None)


@pytest.mark.parametrize("special", [False, True], ids=["text", "special"])
@pytest.mark.parametrize("tail", ["<think>", "{{ '<think>\n' }}", "<think>{{ '\n\n' }}"])
def test_the_template_opens_the_tag(headrace, tmp_path, tail, special):
    last = OPEN if tail == "<think>" else "\n"
    model = thinker(tmp_path / "m", last, "ab c", CLOSE, "de", STOP, tail=tail, special=special)
    assert parts(answer(headrace, tmp_path / "a", model)) == ("ab c", "de", "stop", None)
    assert parts(answer(headrace, tmp_path / "b", model, stop="b")) == ("ab c", "de", "stop", None)


def test_a_tag_that_a_user_typed_does_not_begin_the_reasoning(headrace, tmp_path):
    model = thinker(tmp_path / "m", OPEN, "ab", CLOSE, "de", STOP)
    typed, own = "{{ messages[0].content }}{# </think> #}", "{{ messages[0].content }}<think>"
    change_json(model / "tokenizer_config.json", {"chat_template": typed})
    assert parts(answer(headrace, tmp_path / "a", model, "hi <think>")) == (NOT, "ab</think>de", "stop", None)
    change_json(model / "tokenizer_config.json", {"chat_template": own + "{# </think> #}"})
    assert parts(answer(headrace, tmp_path / "b", model, "hi <think>")) == ("ab", "de", "stop", None)


def test_white_space_is_kept_but_for_what_stands_before_the_tag(headrace, tmp_path):
    model = thinker(tmp_path / "m", "!", MORE, " y", CLOSE, "\rz\t", STOP, tail="!")
    assert parts(answer(headrace, tmp_path / "a", model)) == ("\nx y", "\rz\t", "stop", None)


def test_reasoning_that_never_ends_is_all_there_is(headrace, tmp_path):
    model = thinker(tmp_path / "m", "\n", OPEN, "abc\u010f", CLOSE, "de", STOP)
    assert parts(answer(headrace, tmp_path / "a", model, max_tokens=3)) == ("ab", "", "length", None)
    row = answer(headrace, tmp_path / "b", model, max_tokens=5)
    assert parts(row) == ("abc", "", "length", None) and row["dropped_bytes"] == 1
    assert parts(answer(headrace, tmp_path / "c", model, max_tokens=1)) == ("", "", "length", None)
    # A token of stop_token_ids ends everything, as EOS does.
    row = answer(headrace, tmp_path / "d", model, stop_token_ids=byte_ids("b"))
    assert parts(row) == ("a", "", "stop", byte_ids("b")[0])


def test_thinking_that_the_prompt_has_ended_leaves_no_reasoning(headrace, tmp_path):
    off = "{% if enable_thinking is defined %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
    model = thinker(tmp_path / "m", "\n", "ab", CLOSE, "de", STOP, tail=off)
    row = answer(headrace, tmp_path / "a", model, manifest={"template_vars": {"enable_thinking": False}}, stop="b")
    assert parts(row) == (NOT, "a", "stop", "b")
    row = answer(headrace, tmp_path / "b", model, manifest={"template_vars": {"enable_thinking": False}})
    assert parts(row) == (NOT, "ab</think>de", "stop", None)


def test_stop_strings_apply_to_the_response_alone(headrace, tmp_path):
    model = thinker(tmp_path / "m", "\n", OPEN, "abXc", CLOSE, "deYf", STOP)
    for i, (stop, want) in enumerate({"b": "deYf", "Y": "de", "d": "", "k>d": "deYf", ">": "deYf"}.items()):
        row = answer(headrace, tmp_path / str(i), model, stop=[stop])
        assert parts(row)[:2] == ("abXc", want) and row.get("stop_reason") == (stop if want != "deYf" else None)
    # With thinking off the tags are text like any other.
    for i, off in enumerate((False, None)):
        row = answer(headrace, tmp_path / f"off{i}", model, manifest={"thinking": off}, stop="b")
        assert parts(row) == (NOT, "<think>a", "stop", "b")


def test_the_manifest_may_name_the_tags(headrace, tmp_path):
    model = chain_model(tmp_path / "m", chain("0AZbcDEfg", STOP))
    raw = {"chat": False, "thinking": {"open": "AZ", "close": "DE"}}
    assert parts(answer(headrace, tmp_path / "a", model, "0", raw)) == ("bc", "fg", "stop", None)
    assert parts(answer(headrace, tmp_path / "b", model, "0", raw, stop=["c", "g"])) == ("bc", "f", "stop", "g")
    assert parts(answer(headrace, tmp_path / "c", model, "AZ", raw)) == ("bc", "fg", "stop", None)
    # It begins otherwise: no reasoning. Its first letter might have been the tag's: stop strings have waited.
    assert parts(answer(headrace, tmp_path / "d", model, "A", raw)) == (NOT, "ZbcDEfg", "stop", None)
    other = {"chat": False, "thinking": {"open": "AX", "close": "DE"}}
    row = answer(headrace, tmp_path / "e", model, "0", other, stop="A")
    assert parts(row) == (NOT, "", "stop", "A") and row["usage"]["completion_tokens"] == 2
    # Without chat nothing is taken from the template.
    assert parts(answer(headrace, tmp_path / "f", model, "0", {"chat": False})) == (NOT, "AZbcDEfg", "stop", None)


def test_a_run_that_would_mix_tags_is_refused(headrace, tmp_path):
    model = thinker(tmp_path / "m", "\n", OPEN, "ab", CLOSE, "de", STOP)
    job = Job(headrace, tmp_path / "j", model, [{"id": i, "prompt": "x"} for i in range(3)])
    said = 'd: what stands between "<think>" and "</think>" is a row\'s reasoning, not its response'
    assert said in job.run("--limit", 1).stderr
    job.write_manifest(thinking=False)
    got = job.run(code=USAGE)
    assert "thinking was <think> to </think>, is now not set" in got.stderr
    job.write_manifest(thinking={"open": "<think>", "close": "</think>"})  # what the template says anyway
    job.run(code=DONE)
    assert len(job.rows()) == 3


def test_a_model_that_does_not_think_has_rows_as_before(headrace, tmp_path):
    model = chain_model(tmp_path / "m", chain("\n", "ab", STOP))  # its template names no tags
    row = answer(headrace, tmp_path / "a", model)
    assert parts(row) == (NOT, "ab", "stop", None)
    assert "reasoning" not in (tmp_path / "a" / "out" / "d" / "run.log").read_text(encoding="utf-8")
    job = Job(headrace, tmp_path / "j", model, [{"id": 1, "prompt": "x"}])
    assert "reasoning" not in headrace("run", job.manifest, "--model", model, "--dry-run").stdout


def test_a_dry_run_says_what_it_takes_for_reasoning(headrace, tmp_path):
    model = thinker(tmp_path / "m", "ab", STOP, tail="{% if messages[0].content == 'x' %}<think>{% endif %}")
    job = Job(headrace, tmp_path / "j", model, [{"id": i, "prompt": p} for i, p in enumerate("xyx")])
    got = headrace("run", job.manifest, "--model", model, "--dry-run")
    assert got.returncode == DONE
    assert 'reasoning: between "<think>" and "</think>"; 2 of the prompts begin it' in got.stdout
