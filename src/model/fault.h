/* SPDX-License-Identifier: Apache-2.0
 *
 * fault: where in a forward pass numbers first stopped being finite, as a value and in words. */
#ifndef HR_MODEL_FAULT_H
#define HR_MODEL_FAULT_H

#include <stddef.h>

/* What an operation of the pass leaves, in the order of the pass. */
enum hr_stage {
    HR_STAGE_NONE, /* nothing was found */
    HR_STAGE_EMBED,
    HR_STAGE_ATTN_NORM,
    HR_STAGE_QKV,
    HR_STAGE_ROPE,
    HR_STAGE_ATTEND,
    HR_STAGE_ATTN_OUT,
    HR_STAGE_FFN_NORM,
    HR_STAGE_GATE_UP,
    HR_STAGE_FFN_ACT,
    HR_STAGE_FFN_OUT,
    HR_STAGE_OUT_NORM,
    HR_STAGE_LOGITS,
    HR_STAGE_PENALTIES, /* behind the model: the request's own settings */
};

struct hr_fault {
    enum hr_stage stage;
    int layer;    /* from 0, of the stages of a layer */
    int position; /* of the token in its sequence, of all stages but NONE and PENALTIES */
};

/* "layer 3's feed-forward output (mlp.down_proj)", at most n bytes with the NUL: a stage of the model
 * with the module as its weights are named in a model directory. */
void hr_fault_describe(const struct hr_fault *f, char *out, size_t n);

#endif
