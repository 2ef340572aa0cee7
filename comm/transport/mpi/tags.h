// SPDX-License-Identifier: Apache-2.0
// MPI tags: which tag a message of a channel travels under. Pure; sees no MPI.
//
// MPI allows tags from 0 to a limit of its own (MPI_TAG_UB: 2^31-1 for Open MPI over TCP and shared
// memory, 2^23-1 over UCX). A tag is made of whole bit fields, so that what must differ does:
// collectives have low bits of their number, and above them bits of their signature; messages have
// the user's tag, and above it what is left of the signature. Both use all of the bits, since they
// travel over communicators of their own. Thread safety: a value.
#pragma once

#include <peal/autograd/core/error.h>

#include <bit>
#include <cstdint>

namespace peal::comm {

class Tags {
 public:
  static constexpr int user_bits = 16;  // tags of send() and recv() are 0 to 65535

  // `limit`: the highest tag there is. Error where the user's tags do not fit.
  explicit Tags(std::int64_t limit)
      : bits_(std::bit_width(static_cast<std::uint64_t>(limit + 1)) - 1) {
    PEAL_CHECK(bits_ >= user_bits, "[mpi] this MPI has tags up to ", limit,
               " (MPI_TAG_UB), expected 65535 at least: choose a transport of MPI that has more "
               "(with Open MPI: mpirun --mca pml ob1; with Intel MPI: more "
               "MPIR_CVAR_CH4_OFI_TAG_BITS)");
  }
  // Operations of different numbers never meet, unless 2^sequence_bits() of them are in flight. Of
  // ranks that run different ones under one number, all but one in 2^(bits - sequence_bits()) do
  // not meet; those that do are found by their sizes, or on the board.
  int collective(std::uint64_t sequence, std::uint64_t signature) const {
    return pack(sequence, sequence_bits(), signature);
  }
  int message(int tag, std::uint64_t signature) const {
    return pack(static_cast<std::uint64_t>(tag), user_bits, signature);
  }
  int bits() const { return bits_; }
  int sequence_bits() const { return bits_ / 2 + 1; }

 private:
  static std::uint64_t low(std::uint64_t word, int bits) {
    return word & ((std::uint64_t{1} << bits) - 1);
  }
  int pack(std::uint64_t below, int below_bits, std::uint64_t above) const {
    const std::uint64_t folded = above ^ above >> 32;
    return static_cast<int>(low(folded, bits_ - below_bits) << below_bits | low(below, below_bits));
  }
  int bits_;
};

}  // namespace peal::comm
