// SPDX-License-Identifier: Apache-2.0
// The tests of test_upstream_parts.c. After <cmocka.h>.
#pragma once

void test_a_file(void **state);
void test_wrong_files(void **state);
void test_patterns(void **state);
void test_secrets_are_hidden(void **state);
void test_values(void **state);
void test_messages_that_are_refused(void **state);
void test_an_offer(void **state);
void test_an_offer_has_bounds(void **state);
