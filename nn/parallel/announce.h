// SPDX-License-Identifier: Apache-2.0
// Announcements, for uneven inputs (join.h): ranks that have no batch left take part in the
// collectives of those that have one, with zeros. So whoever starts a collective inside a step says
// so first: the reducer, and layers that have collectives of their own (synchronised batch norm):
//
//   announce(group, {.what = Announcement::What::all_reduce, .count = 2 * channels,
//                    .dtype = sums.dtype(), .tag = label.tag}, label.text);
//   group.all_reduce(sums, comm::ReduceOp::sum, label);
//
// As long as every rank has a batch, and where nobody joins, nobody is told. Else the lowest rank
// that has one broadcasts it, and those without follow. So nothing rests on steps being alike.
//
// What a layer announces, reducers hear before it is sent (before_layers()): their buckets are to
// be sent at the same places among such collectives on all ranks. Thread safety: as of the group.
#pragma once

#include <peal/autograd/core/dtype.h>
#include <peal/comm/group/process_group.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

namespace peal::nn {

struct Announcement {
  enum class What : std::int64_t {
    all_gather,  // a layer's: `count` zeros of a rank, which count for nothing
    all_reduce,  // a layer's: a sum over `count` elements
    buffers,     // those of the wrapper are made equal
    samples,     // how many there are in a step, for the first time
    begin,       // a synchronised backward begins
    bucket,      // the next one is sent
    finish,      // it has visited everything
    next         // Join::next(): where the wrapper is then
  };
  What what = What::next;
  std::int64_t count = 0;
  DType dtype = DType::f32;
  std::uint64_t tag = 0;  // of the collective's label; of begin: what tells the step from others
  std::uint64_t wrapper = 0;  // whose, of several over the group; 0: a layer's
  // Of begin and next: the counts of the reducer; of begin, whether counts of samples are sent; and
  // of next, whether a forward in training came since buffers were equal.
  std::uint64_t steps = 0, forward_calls = 0, without_backward = 0;
  bool weighted = false, stale = false;
};

// To those who follow over this group, if any do. `layer`: how a layer calls its collective.
void announce(const comm::ProcessGroup& group, const Announcement& what,
              std::string_view layer = "a layer's");

// Until what is returned goes, announcements over the group, of this rank, go to `listener`. Error
// where another one listens.
[[nodiscard]] std::shared_ptr<void> listen(const comm::ProcessGroup& group,
                                           std::function<void(const Announcement&)> listener);

using BeforeLayer = std::function<void(std::string_view layer)>;
// Until what is returned goes, f is called before each collective of a layer over the group, on
// this rank, also where the rank only follows; and, of no layer, before a step of which one of
// several wrappers is the first. Those that were given first are called first.
[[nodiscard]] std::shared_ptr<void> before_layers(const comm::ProcessGroup& group, BeforeLayer f);
void call_before_layer(const comm::ProcessGroup& group, std::string_view layer);

}  // namespace peal::nn
