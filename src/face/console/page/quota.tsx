// SPDX-License-Identifier: Apache-2.0
// What one's account uses, and may use.

import type { Login } from "./api";
import { usePolled } from "./polling";

const POLL_MS = 5000;

export function Quota() {
    const { value } = usePolled<Login>("api/v1/login", POLL_MS);
    if (!value) return null;
    const { max_sessions, max_requests_per_second, max_memory_mb } = value.quota;
    return (
        <p class="quiet note">
            {`Your account uses ${value.sessions} of ${max_sessions} sandboxes. Each may have ${max_memory_mb} MiB of memory.`}
            {max_requests_per_second > 0 &&
                ` You may send ${max_requests_per_second} requests per second.`}
        </p>
    );
}
