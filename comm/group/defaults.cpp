// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/group/defaults.h>

namespace peal::comm {

// In memory: where sums are made, slots lose early, for each rank then adds what all have; where
// elements are only copied, they cost a copy more and a meeting less. Where ranks wait for one
// another's core a meeting costs microseconds, and one less is worth most of a room.
// Between nodes of several ranks: on two levels each node sends what it must and no more. It takes
// two rounds between nodes for recursive doubling's one, which small messages notice, unless ranks
// wait for one another's core: then what costs is each message inside.
Rules default_rules(int world, int nodes, bool shared, bool crowded) {
  constexpr std::string_view in_memory =
      "all_reduce=slots:0-8192;direct_slices:8193-max,"
      "reduce=slots:0-16384;direct_slices:16385-max,"
      "broadcast=slots:0-262144;direct_slices:262145-max,"
      "all_gather=slots:0-32768;direct_slices:32769-max,"
      "reduce_scatter=slots:0-8192;direct_slices:8193-max,"
      "gather=slots:0-32768;direct_slices:32769-max,"
      "scatter=slots:0-32768;direct_slices:32769-max,"
      "all_to_all=slots:0-16384;direct_slices:16385-max,"
      "barrier=signals";
  constexpr std::string_view in_crowded_memory =
      "all_reduce=slots:0-32768;direct_slices:32769-max,"
      "reduce=slots:0-131072;direct_slices:131073-max,"
      "broadcast=slots:0-262144;direct_slices:262145-max,"
      "all_gather=slots:0-262144;direct_slices:262145-max,"
      "reduce_scatter=slots:0-131072;direct_slices:131073-max,"
      "gather=slots:0-262144;direct_slices:262145-max,"
      "scatter=slots:0-262144;direct_slices:262145-max,"
      "all_to_all=slots:0-131072;direct_slices:131073-max,"
      "barrier=signals";
  constexpr std::string_view by_messages =
      "all_reduce=recursive_doubling:0-8192;circulant:8193-max";
  constexpr std::string_view on_two_levels =
      "all_reduce=recursive_doubling:0-8192;hierarchical:8193-max";
  constexpr std::string_view on_two_crowded_levels = "all_reduce=hierarchical:0-max";
  const bool two_levels = nodes > 1 && nodes < world;
  const std::string_view memory = crowded ? in_crowded_memory : in_memory;
  const std::string_view messages = !two_levels ? by_messages
                                    : crowded   ? on_two_crowded_levels
                                                : on_two_levels;
  return {shared ? memory : messages, "the built-in rules"};
}

}  // namespace peal::comm
