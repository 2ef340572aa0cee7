// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/engine/spans.h>

namespace peal::comm {

void Spans::fail_out_of_reach(const Span& span) const {
  const int owner = span.owner == self ? rank_ : span.owner;
  fail(concat(span.count, " elements of ", name(span.buffer), " of rank ", owner,
              " are out of this rank's reach: ",
              window_ == nullptr ? "the ranks of the group share no memory"
                                 : "they must lie in memory of ProcessGroup::allocate"));
}

}  // namespace peal::comm
