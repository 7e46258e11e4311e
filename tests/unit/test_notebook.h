// SPDX-License-Identifier: Apache-2.0
// The tests of test_notebook_websocket.c, and their fixture; bench_tear_down() ends it.
#pragma once

int websocket_set_up(void **state);
void test_pings_without_an_answer(void **state);
void test_pings_with_answers(void **state);
void test_pings_of_a_client_that_takes_nothing(void **state);
