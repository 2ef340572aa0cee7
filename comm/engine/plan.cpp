// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/engine/call.h>
#include <peal/comm/engine/plan.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace peal::comm {

Plan::Plan(Program made, std::string name) : program(std::move(made)), name(std::move(name)) {
  for (const Round& round : program.rounds) {
    std::int64_t sum = 0;
    for (const Step& step : round) {
      if (step.kind == Kind::recv_reduce) sum += step.dst.count;
      const bool local = step.kind == Kind::copy || step.kind == Kind::reduce;
      PEAL_CHECK(local || step.peer >= 0 || (step.kind == Kind::recv && step.peer == any_source),
                 "a program has a ", comm::name(step.kind), " with rank ", step.peer);
      PEAL_CHECK(!local || step.dst.count == step.src.count, "a program has a ",
                 comm::name(step.kind), " of ", step.src.count, " elements to ", step.dst.count);
      highest_peer = std::max(highest_peer, step.peer);
      from_any = from_any || (!local && step.peer == any_source);
      one_sided = one_sided || step.kind == Kind::signal || step.kind == Kind::await;
      for (const Span& span : {step.dst, step.src}) {
        PEAL_CHECK(span.at >= 0 && span.count >= 0 &&
                       span.at <= std::numeric_limits<std::int64_t>::max() - span.count,
                   "a program has a span of ", span.count, " elements at ", span.at);
        one_sided = one_sided || span.owner != self;
        std::int64_t& extent_of = extent[static_cast<int>(span.buffer)];
        if (span.count > 0) extent_of = std::max(extent_of, span.at + span.count);
      }
    }
    arriving = std::max(arriving, sum);
  }
}

std::shared_ptr<const Plan> plan_of(const MessageCall& message) {
  const Block all{0, message.data.count};
  const Step step = message.sends() ? send(message.peer, in(all)) : recv(message.peer, out(all));
  return std::make_shared<const Plan>(Program{.scratch = 0, .rounds = {{step}}}, "message");
}

}  // namespace peal::comm
