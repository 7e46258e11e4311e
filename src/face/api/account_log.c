// SPDX-License-Identifier: Apache-2.0
// The lines of the log that say who has done what with accounts.

#include "account_store.h"
#include "api_priv.h"

void
account_log(const char *event, const struct account_event *of)
{
    char id[ACCOUNT_KEY_ID_LEN + 1];
    const char *with = of->credential && account_key_id(of->credential, id) ? id : "";
    const struct log_field all[] = {
        LOG_STR("what", of->what),       LOG_STR("by", of->by),           LOG_STR("of", of->user),
        LOG_STR("key", of->key_id),      LOG_STR("changed", of->changed), LOG_STR("with", with),
        LOG_STR("network", of->network),
    };
    struct log_field fields[KG_ARRAY_LEN(all) + 1] = {0};
    size_t n = 0;
    for (size_t i = 0; i < KG_ARRAY_LEN(all); i++) {
        if (all[i].str[0])
            fields[n++] = all[i];
    }
    if (log_enabled(LOG_LEVEL_INFO))
        log_write(LOG_LEVEL_INFO, event, fields);
}
