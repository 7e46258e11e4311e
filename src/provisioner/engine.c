// SPDX-License-Identifier: Apache-2.0
// The part of an engine's struct that all engines share.
#include <errno.h>
#include <stdlib.h>

#include "provisioner_engine.h"

char *
provisioner_real_path(const char *what, const char *path, struct kg_error *err)
{
    char *real = realpath(path, NULL);
    if (!real)
        kg_error_set(err, KG_INVALID, errno, "%s: cannot find %s", what, path);
    return real;
}

int
provisioner_init(struct provisioner *provisioner, const struct provisioner_engine *engine,
                 struct loop *loop, const struct provisioner_settings *settings,
                 struct kg_error *err)
{
    provisioner->engine = engine;
    provisioner->loop = loop;
    provisioner->gateway_id = kg_strdup(settings->gateway_id);
    provisioner->gateway_key = settings->gateway_key ? kg_strdup(settings->gateway_key) : NULL;
    TAILQ_INIT(&provisioner->watches);
    op_queue_init(provisioner);
    // With a helper it may be one that only this process can name.
    provisioner->state_dir =
        settings->helper ? kg_strdup(settings->state_dir)
                         : provisioner_real_path("setting state-dir", settings->state_dir, err);
    if (!provisioner->state_dir)
        return -1;
    provisioner->root_dir =
        kg_strdup(settings->root_dir ? settings->root_dir : provisioner->state_dir);
    if (settings->gateway_key && !engine->dial)
        return kg_error_set(err, KG_INVALID, 0, "a gateway cannot dial the agents of this engine");
    return 0;
}

void
provisioner_fini(struct provisioner *provisioner)
{
    op_queue_fini(provisioner);
    watch_stop_all(provisioner);
    free(provisioner->gateway_id);
    free(provisioner->gateway_key);
    free(provisioner->state_dir);
    free(provisioner->root_dir);
}
