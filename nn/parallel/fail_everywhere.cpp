// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/nn/parallel/fail_everywhere.h>

#include <string>

namespace peal::nn {

void fail_everywhere(const comm::ProcessGroup& group, std::string_view what) {
  const std::string message = concat("[ddp] rank ", group.global_rank(group.rank()), ": ", what);
  group.poison(message);
  fail(message);
}

}  // namespace peal::nn
