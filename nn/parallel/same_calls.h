// SPDX-License-Identifier: Apache-2.0
// Advice for ranks that are in different calls. The Error that tells them names both; where one is
// of a layer that has collectives of its own, it says besides what to do, on all ranks.
// Thread safety: functions.
#pragma once

#include <peal/autograd/core/error.h>

#include <string>
#include <string_view>

namespace peal::nn {

// How such a layer's collectives are called begins so.
inline constexpr std::string_view synchronised_layer = "SyncBatchNorm";

// The message and, where it is of that kind, the advice.
std::string advised(std::string_view message);

// f(), with Errors that advise.
template <class F>
void with_advice(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    const std::string message = advised(error.what());
    if (message == error.what()) throw;
    throw Error(message);
  }
}

}  // namespace peal::nn
