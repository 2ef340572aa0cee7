// SPDX-License-Identifier: Apache-2.0
// Buffers: the two that all calls of a program lie in, one to send from and one to receive in. A
// call takes a part of them, its place, and the next call the part behind it as long as there is
// one: so that caches do not flatter small messages, and a call that writes too late is found.
// Thread safety: one thread.
#pragma once

#include <peal/bench/perf/operation.h>
#include <peal/bench/perf/values.h>

#include <cstdint>
#include <vector>

namespace peal::bench {

// A test: what is called, on which memory.
struct Case {
  const Operation* operation;
  DType dtype;
  comm::ReduceOp op;
  int root;
  Layout layout;
  bool in_place;
  std::int64_t bytes() const { return layout.whole() * static_cast<std::int64_t>(size_of(dtype)); }
};

class Buffers {
 public:
  // Room for `most` bytes each, begun `unaligned` elements late; `shared`: memory for collectives
  // (ProcessGroup::allocate). Collective.
  Buffers(const comm::ProcessGroup& group, Device device, std::int64_t most, int unaligned,
          bool shared);

  // How many calls have a place of their own.
  std::int64_t places(const Case& test) const;
  Place place(const Case& test, std::int64_t number) const;

  // Gives the place fresh values, and what is to be received there something that is wrong.
  void fill(const Case& test, const Place& place, Values& values, int filling);
  // How many elements of what this rank has received are wrong.
  std::int64_t wrong(const Case& test, const Place& place, Values& values, int filling);

 private:
  View part(const Tensor& whole, const Case& test, std::int64_t at, std::int64_t count) const;

  const comm::ProcessGroup& group_;
  std::int64_t most_;
  int unaligned_;
  Tensor send_, recv_;              // bytes
  std::vector<std::byte> on_host_;  // for memory of a device
};

}  // namespace peal::bench
