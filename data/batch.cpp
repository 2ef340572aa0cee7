// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/batch.h>

#include <string>

namespace peal::data {

const Tensor& Batch::operator[](std::string_view name) const {
  if (name == "x") return x;
  if (name == "y") return y;
  std::string names = "x, y";
  for (const auto& [key, tensor] : more) {
    if (key == name) return tensor;
    names += concat(", ", key);
  }
  fail(concat("[data] batch: it has no tensor '", name, "', but ", names));
}

Batch Batch::to(Device device, bool non_blocking) const {
  const auto move = [&](const Tensor& tensor) {
    return tensor.defined() ? tensor.to(device, non_blocking) : tensor;
  };
  Batch moved{move(x), move(y)};
  for (const auto& [name, tensor] : more) moved.more.emplace_back(name, move(tensor));
  return moved;
}

}  // namespace peal::data
