// SPDX-License-Identifier: Apache-2.0
// How long whatever is due has to wait for the loop: METRIC_LOOP_LAG_SECONDS.
#pragma once

#include "loop.h"

// Measures ten times a second while the loop has something to do, until it is freed. It takes the
// loop's turns (loop_set_turn()).
struct loop_lag;
struct loop_lag *loop_lag_new(struct loop *loop);
void loop_lag_free(struct loop_lag *lag);
