// SPDX-License-Identifier: Apache-2.0
// Told choices: the log lines of PEAL_DEBUG=algo, which say what runs a collective, and why. One
// for each collective, type and power of two of bytes. Thread safety: any thread.
#pragma once

#include <peal/autograd/core/dtype.h>
#include <peal/comm/group/selection.h>

#include <compare>
#include <cstdint>
#include <mutex>
#include <set>
#include <string_view>
#include <tuple>

namespace peal::comm {

class ToldChoices {
 public:
  struct Asked {
    Collective what;
    std::int64_t bytes;
    DType dtype;
    int world;
    bool shared;  // in memory that the ranks share
  };
  void tell(std::string_view who, const Asked& asked, const Choice& choice);

 private:
  std::mutex mutex_;
  std::set<std::tuple<Collective, int, DType, bool>> told_;
};

}  // namespace peal::comm
