// SPDX-License-Identifier: Apache-2.0
// What terminado, the library behind Jupyter's terminals, says and is told
// (https://terminado.readthedocs.io/en/latest/websocket.html).
#pragma once

#include "terminals.h"

enum { TERMINADO_VALUES_MAX = 4 << 20 }; // bytes of memory of one message

extern const struct terminal_dialect terminado_dialect;
