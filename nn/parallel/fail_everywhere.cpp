// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/nn/parallel/fail_everywhere.h>

#include <string>

namespace peal::nn {

void fail_everywhere(const comm::ProcessGroup& group, std::string_view what, std::string_view who) {
  const std::string message =
      concat("[", who, "] rank ", group.global_rank(group.rank()), ": ", what);
  group.poison(message);
  fail(message);
}

}  // namespace peal::nn
