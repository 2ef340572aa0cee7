// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/schedule/plan.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

namespace peal::comm {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("a program has a " + what);
}

std::string text_of(Kind kind) { return std::string(name(kind)); }

}  // namespace

Plan::Plan(Program made, std::string name) : program(std::move(made)), name(std::move(name)) {
  for (const Round& round : program.rounds) {
    std::int64_t sum = 0;
    for (const Step& step : round) {
      if (step.kind == Kind::recv_reduce) sum += step.dst.count;
      const bool local = is_local(step.kind);
      if (!local && step.peer < 0 && !(step.kind == Kind::recv && step.peer == any_source)) {
        refuse(text_of(step.kind) + " with rank " + std::to_string(step.peer));
      }
      if (local && step.dst.count != step.src.count) {
        refuse(text_of(step.kind) + " of " + std::to_string(step.src.count) + " elements to " +
               std::to_string(step.dst.count));
      }
      highest_peer = std::max(highest_peer, step.peer);
      from_any = from_any || (!local && step.peer == any_source);
      one_sided = one_sided || is_one_sided(step);
      for (const Span& span : {step.dst, step.src}) {
        if (span.at < 0 || span.count < 0 ||
            span.at > std::numeric_limits<std::int64_t>::max() - span.count) {
          refuse("span of " + std::to_string(span.count) + " elements at " +
                 std::to_string(span.at));
        }
        std::int64_t& extent_of = extent[static_cast<int>(span.buffer)];
        if (span.count > 0) extent_of = std::max(extent_of, span.at + span.count);
      }
    }
    arriving = std::max(arriving, sum);
  }
}

}  // namespace peal::comm
