// SPDX-License-Identifier: Apache-2.0
// Parcels: what goes from one part of a Pipe to another, and how it is announced to another rank: a
// header of a size that is known, and then the elements. Thread safety: values and pure functions.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/comm/group/process_group.h>

#include <cstdint>
#include <string>

namespace peal::nn {

// What the sender of a message is in: tags are the same in every call.
struct PipeCall {
  enum class What : std::int64_t { evaluate, step, forward };
  std::int64_t number;
  What what;
  std::int64_t rows;
  bool operator==(const PipeCall&) const = default;
};
// "step() of 8 rows, its call 1".
std::string in_words(const PipeCall& call);

struct Parcel {
  Tensor tensor;        // no tensor: the gradient of what wanted none
  bool wanted = false;  // an activation that wants a gradient
};

// A header of all zeros, to be received.
Tensor empty_header();
Tensor header_of(const Parcel& parcel, const PipeCall& call);
PipeCall call_of(const Tensor& header);
// Its elements are still to come.
Parcel parcel_of(const Tensor& header);

// A tensor on the CPU, or none, to who does not know its shape. All wait.
Tensor broadcast_tensor(const comm::ProcessGroup& group, const Tensor& mine, int root,
                        const comm::Label& label);
void send_tensor(const comm::ProcessGroup& group, const Tensor& tensor, int to);
Tensor recv_tensor(const comm::ProcessGroup& group, int from);

}  // namespace peal::nn
