/* SPDX-License-Identifier: Apache-2.0
 *
 * fault: the words for a place in the forward pass; see fault.h. */
#include "model/fault.h"

#include <stdio.h>

static const struct {
    const char *text;
    int of_layer;
} stages[] = {
    [HR_STAGE_NONE] = {"nowhere", 0},
    [HR_STAGE_EMBED] = {"the token's embedding (embed_tokens)", 0},
    [HR_STAGE_ATTN_NORM] = {"norm before attention (input_layernorm)", 1},
    [HR_STAGE_QKV] = {"attention inputs (self_attn.q_proj, k_proj, v_proj)", 1},
    [HR_STAGE_ROPE] = {"rotated queries (self_attn.q_norm)", 1},
    [HR_STAGE_ATTEND] = {"attention (self_attn)", 1},
    [HR_STAGE_ATTN_OUT] = {"attention output (self_attn.o_proj)", 1},
    [HR_STAGE_FFN_NORM] = {"norm before the feed-forward (post_attention_layernorm)", 1},
    [HR_STAGE_GATE_UP] = {"feed-forward inputs (mlp.gate_proj, up_proj)", 1},
    [HR_STAGE_FFN_ACT] = {"feed-forward activation (mlp.act_fn)", 1},
    [HR_STAGE_FFN_OUT] = {"feed-forward output (mlp.down_proj)", 1},
    [HR_STAGE_OUT_NORM] = {"the final norm (model.norm)", 0},
    [HR_STAGE_LOGITS] = {"the output matrix (lm_head)", 0},
    [HR_STAGE_PENALTIES] = {"the penalties", 0},
};

void hr_fault_describe(const struct hr_fault *f, char *out, size_t n) {
    if (stages[f->stage].of_layer) snprintf(out, n, "layer %d's %s", f->layer, stages[f->stage].text);
    else snprintf(out, n, "%s", stages[f->stage].text);
}
