// SPDX-License-Identifier: Apache-2.0
// Notices, without looking periodically, that a path may have other content: the file was written,
// replaced by a rename, removed or made; or a symlink on the way to it now points elsewhere, which
// is how Kubernetes changes a mounted Secret.
#pragma once

#include "base.h"
#include "loop.h"

struct loop_file_watch;
// `on_change` is called once for changes that follow one another closely; it may free the watch.
// Never NULL; where the path cannot be watched (the log says why), it is never called.
struct loop_file_watch *loop_file_watch_new(struct loop *loop, const char *path, loop_fn on_change,
                                            void *arg);
void loop_file_watch_free(struct loop_file_watch *watch);
KG_DEFINE_AUTO(loop_file_watch, loop_file_watch_free)
