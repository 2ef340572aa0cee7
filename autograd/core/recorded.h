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

// The tape's record(), for one input.
using Record = Tensor (*)(std::string_view op, const Tensor& y, const Tensor& x,
                          std::function<Tensor(const Tensor& g)> backward);
void set_record(Record record);

}  // namespace peal
