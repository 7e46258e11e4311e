// SPDX-License-Identifier: Apache-2.0
// The routes below /files and /uploads.
//
//   GET    /files?path=&after=&limit=          a page of names
//   GET    /files/{path}?first=&last=&if_etag=  the bytes, announced by X-Kg-… headers
//   GET    /files/{path}?stat=1                size, mtime_ms, etag
//   PUT    /files/{path}?keep=1                a small file, whole
//   DELETE /files/{path}
//   POST   /uploads {path, size, keep}         a file in pieces: its id
//   PUT    /uploads/{id}?offset=               the next piece, at most 1 MiB
//   POST   /uploads/{id}/commit
//   DELETE /uploads/{id}
#pragma once

#include "agent_priv.h"

struct file_write;

void files_api_add_routes(struct agent *agent);
// Puts a file in its place and answers with what it is now.
void files_api_commit(struct agent *agent, struct http_request *request, struct file_write *write);

struct uploads;
struct uploads *uploads_new(struct loop *loop);
void uploads_free(struct uploads *uploads);
void uploads_add_routes(struct agent *agent);
