// SPDX-License-Identifier: Apache-2.0
// What is held of all budgets.

#include "budget.h"
#include "metrics.h"

void
metrics_read_budgets(void)
{
    for (const struct budget *budget = budget_next(NULL); budget; budget = budget_next(budget)) {
        metric_set(METRIC_BUDGET_HELD, (double)budget->held, budget->name);
        metric_set(METRIC_BUDGET_MAX, (double)budget->max, budget->name);
    }
}
