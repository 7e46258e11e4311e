// SPDX-License-Identifier: Apache-2.0
// An array of ids and texts.

#include "tool_results.h"

#include <string.h>

struct item {
    char *call_id;
    char *json; // or NULL
    char *error;
    size_t len;
};

struct tool_results {
    size_t n;
    struct item items[];
};

static int
item_parse(const json_t *value, size_t at, struct item *ret, struct kg_error *err)
{
    const char *id = json_string_value(json_object_get(value, "call_id"));
    const json_t *result = json_object_get(value, "result");
    const json_t *error = json_object_get(value, "error");
    if (!id || (result != NULL) == (error != NULL) || (error && !json_is_string(error)) ||
        json_object_size(value) != 2)
        return kg_error_set(err, KG_INVALID, 0,
                            "results[%zu] must be {\"call_id\", \"result\": any value} or "
                            "{\"call_id\", \"error\": a string}",
                            at);
    ret->call_id = kg_strdup(id);
    if (error)
        ret->error = kg_strdup(json_string_value(error));
    else
        ret->json = json_dumps(result, JSON_COMPACT | JSON_ENCODE_ANY);
    ret->len = strlen(error ? ret->error : ret->json);
    return 0;
}

struct tool_results *
tool_results_new(const json_t *list, struct kg_error *err)
{
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n == 0 || n > TOOL_RESULTS_MAX) {
        (void)kg_error_set(err, KG_INVALID, 0, "results must be a list of 1 to %d results",
                           TOOL_RESULTS_MAX);
        return NULL;
    }
    KG_AUTO(tool_results) results = kg_calloc(1, sizeof *results + n * sizeof results->items[0]);
    results->n = n;
    for (size_t i = 0; i < n; i++) {
        if (item_parse(json_array_get(list, i), i, &results->items[i], err) < 0)
            return NULL;
        for (size_t j = 0; j < i; j++) {
            if (strcmp(results->items[j].call_id, results->items[i].call_id) == 0) {
                (void)kg_error_set(err, KG_INVALID, 0, "results[%zu]: %.60s has two results", i,
                                   results->items[i].call_id);
                return NULL;
            }
        }
    }
    return KG_STEAL(results);
}

void
tool_results_free(struct tool_results *results)
{
    for (size_t i = 0; results && i < results->n; i++) {
        free(results->items[i].call_id);
        free(results->items[i].json);
        free(results->items[i].error);
    }
    free(results);
}

size_t
tool_results_count(const struct tool_results *results)
{
    return results->n;
}

const char *
tool_results_call_id(const struct tool_results *results, size_t at)
{
    return results->items[at].call_id;
}

struct tool_result
tool_results_get(const struct tool_results *results, size_t at)
{
    const struct item *item = &results->items[at];
    return (struct tool_result){.json = item->json,
                                .len = item->len,
                                .error = item->error,
                                .code = item->error ? "tool_error" : NULL};
}
