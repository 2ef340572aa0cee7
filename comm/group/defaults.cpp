// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/group/defaults.h>

namespace peal::comm {

Rules default_rules(int world, int nodes, bool shared) {
  static_cast<void>(world), static_cast<void>(nodes);
  constexpr std::string_view in_memory =
      "all_reduce=slots:0-8192;direct_slices:8193-max,reduce=slots:0-8192;direct_slices:8193-max,"
      "broadcast=slots:0-8192;direct_slices:8193-max,all_gather=slots:0-8192;direct_slices:8193-"
      "max,reduce_scatter=slots:0-8192;direct_slices:8193-max,gather=slots:0-8192;direct_slices:"
      "8193-max,scatter=slots:0-8192;direct_slices:8193-max,all_to_all=slots:0-8192;direct_slices:"
      "8193-max,barrier=signals";
  constexpr std::string_view by_messages =
      "all_reduce=recursive_doubling:0-8192;circulant:8193-max";
  return {shared ? in_memory : by_messages, "the built-in rules"};
}

}  // namespace peal::comm
