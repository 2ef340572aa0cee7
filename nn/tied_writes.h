// SPDX-License-Identifier: Apache-2.0
// Tied weights, loaded: names of one tensor are written in the model's order, so that the last
// one's value stays, as in PyTorch, and a warning names two that have other values. Thread safety:
// one thread.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace peal::nn {

// Of one load.
class TiedWrites {
 public:
  explicit TiedWrites(std::string_view who) : who_(who) {}
  // own becomes value, in its type and on its device. REQUIRES: they have as many elements.
  void write(const std::string& name, const Tensor& own, const Tensor& value);

 private:
  std::string who_;
  std::map<std::pair<const Storage*, std::int64_t>, std::string> written_;  // by which name last
};

}  // namespace peal::nn
