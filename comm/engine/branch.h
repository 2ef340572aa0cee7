// SPDX-License-Identifier: Apache-2.0
// Branch: reserved sequence numbers, set aside for the collectives of a continuation. A
// continuation runs when its operation is done, which is sooner on one rank than on another, and
// between other calls there. Numbers taken then would differ between ranks. So they are set aside
// when the continuation is given, which is at the same call on all ranks, and what it starts takes
// them in order. Thread safety: the thread that runs the continuation.
#pragma once

#include <peal/comm/transport/transport.h>

#include <cstdint>

namespace peal::comm {

class Lane;

class Branch {
 public:
  static constexpr std::uint64_t size = 16, nested_size = 4;

  Branch(const Lane& lane, std::uint64_t first, std::uint64_t count, std::uint64_t history)
      : lane_(&lane), next_(first), end_(first + count), history_(history) {}

  // Of the continuation that the calling thread runs; null: it takes numbers as calls do.
  static Branch* current();
  // While it lives, this one is current; null: none is.
  class Scope {
   public:
    explicit Scope(Branch* branch);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Branch* before_;
  };

  // As Lane::next_channel(). Error where the lane is another group's, or no number is left.
  Channel next_channel(const Lane& lane, std::uint64_t signature);
  // Numbers of these for a continuation within it.
  Branch nested(const Lane& lane);

 private:
  void check(const Lane& lane, std::uint64_t wanted) const;

  const Lane* lane_;
  std::uint64_t next_, end_, history_;
};

}  // namespace peal::comm
