// SPDX-License-Identifier: Apache-2.0
// Recorded copies: how the methods of Tensor that copy or share a part (clone, to, rows) come onto
// the tape, which lies above them. Whoever first makes a tensor want a gradient brings the tape
// along, so nothing is recorded before that. Thread safety: as of the tensors.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <functional>
#include <string_view>

namespace peal {

// y, recorded as made from x where x wants a gradient: `backward` makes it from that of y. `op` has
// static storage.
Tensor recorded(std::string_view op, const Tensor& y, const Tensor& x,
                std::function<Tensor(const Tensor& g)> backward);

// What made x, where that is recorded: "mul"; else empty.
std::string_view recorded_as(const Tensor& x);

// The tape's record(), for one input, and the name that it keeps.
using Record = Tensor (*)(std::string_view op, const Tensor& y, const Tensor& x,
                          std::function<Tensor(const Tensor& g)> backward);
using RecordedAs = std::string_view (*)(const Node& node);
void set_record(Record record, RecordedAs name);

}  // namespace peal
