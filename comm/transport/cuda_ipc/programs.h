// SPDX-License-Identifier: Apache-2.0
// Programs: a plan cache: which program (comm/algorithms/in_strips.h) runs a collective here, from
// what all ranks know alike; made once for calls that differ in their buffers, type and reduction
// alone. Slots where the rooms hold the data, direct or staged slices elsewhere. Thread safety: one
// thread at a time.
#pragma once

#include <peal/comm/schedule/flat_program.h>
#include <peal/comm/transport/cuda_ipc/window.h>
#include <peal/comm/transport/transport.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace peal::comm::ipc {

struct Ready {
  FlatProgram program;
  int blocks = 1;
  bool asks = false;             // whether all reach all buffers
  std::int64_t in = 0, out = 0;  // elements of this rank's buffers
};

class Programs {
 public:
  // All-reduces of more than `one_shot` bytes are done by slices.
  Programs(const Group& group, std::int64_t one_shot);

  // Valid until the next call.
  const Ready& of(const NativeCall& call);

 private:
  struct Key {
    Collective what;
    int root;
    std::size_t element;
    std::vector<std::int64_t> counts;
    auto operator<=>(const Key&) const = default;
  };
  Ready make(const Key& key) const;

  int rank_, world_, blocks_;
  std::int64_t half_, one_shot_;  // bytes
  std::map<Key, Ready> made_;
  std::map<Key, Ready>::const_iterator last_;
};

// 16 bits that differ, most likely, between operations that differ.
unsigned signature(const NativeCall& call);

}  // namespace peal::comm::ipc
