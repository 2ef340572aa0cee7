// SPDX-License-Identifier: Apache-2.0
// Secrets that the ranks of one start share, so that no others are taken for one of them
// (PEAL_STORE_SECRET, tcp_store.h). Thread safety: any thread.
#pragma once

#include <string>

namespace peal::launch {

// 128 random bits, as 32 hexadecimal digits.
std::string fresh_secret();

}  // namespace peal::launch
