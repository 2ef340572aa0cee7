// SPDX-License-Identifier: Apache-2.0
// What a state says of an epoch that was dealt (deal.h), and how it is taken up: "dealt", an i64
// tensor [n, 5] with a row for each deal, in turn: way, batch_size, world, batches, drop. Thread
// safety: pure functions.
#pragma once

#include <peal/autograd/core/stateful.h>
#include <peal/data/deal.h>
#include <peal/data/sampler.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace peal::data {

Tensor tensor_of(const std::vector<Dealt>& dealt);

struct TakenUp {
  std::vector<Dealt> before;          // what others were dealt
  std::int64_t batches = 0;           // that were taken since, by the deal that goes on
  std::optional<std::uint64_t> seed;  // of the state
};

// In the world that an epoch of `samples` was left in, it goes on where it was; in another, or by
// another way, what is left is dealt. `now` is how batches are dealt here, of an order of `mine`.
// Error for a state that does not fit, and of a deal that cannot have been.
TakenUp read_dealt(StateReader& reader, const NamedTensors& state, Dealt now, std::int64_t samples,
                   const HowOrdered& mine);

}  // namespace peal::data
