// SPDX-License-Identifier: Apache-2.0
// `kernelgate-agent --reach NAME=ADDRESS:PORT`: what a sandbox can reach, tried from inside one.
// With an engine whose network is not the gateway's, this shows whether its rules are enforced.
#pragma once

// Connects to all targets by TCP, several times, since rules for a new sandbox may take seconds.
// Returns an exit status: 0, nothing answered the last time; 1, something did, and its names are on
// stdout; 2, a target is none.
enum { REACH_MAX = 16 };
int reach_main(const char *const *targets, int n);
