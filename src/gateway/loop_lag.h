// SPDX-License-Identifier: Apache-2.0
// How long whatever is due has to wait for the loop: METRIC_LOOP_LAG_SECONDS.
#pragma once

#include "loop.h"

// Measures ten times a second, until it is freed.
struct loop_lag;
struct loop_lag *loop_lag_new(struct loop *loop);
void loop_lag_free(struct loop_lag *lag);
