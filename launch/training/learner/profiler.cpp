// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/profile.h>
#include <peal/launch/training/learner/profiler.h>

namespace peal::launch {

void Profiler::go_on() {
  if (!trace_ || runs_) return;
  outside_ = std::exchange(context().trace, trace_);
  runs_ = true;
}

void Profiler::pause() {
  if (!std::exchange(runs_, false)) return;
  context().trace = std::move(outside_);
}

void Profiler::before_fit(Loop& loop) {
  pause();
  steps_ = 0;
  trace_.reset();
  if (!loop.job.is_main()) return;
  trace_ = std::make_shared<Trace>(options_.trace.empty() ? 0 : Trace::picture_events,
                                   loop.model.parameters().at(0).device());
}

void Profiler::before_train(Loop&) {
  trains_ = true;
  go_on();
}

void Profiler::after_train(Loop&) {
  trains_ = false;
  pause();
}

void Profiler::before_validate(Loop&) { pause(); }

void Profiler::after_validate(Loop&) {
  if (trains_) go_on();
}

void Profiler::after_step(Loop&) { ++steps_; }

void Profiler::after_fit(Loop&) {
  if (!trace_ || steps_ == 0) return;
  if (options_.tell) options_.tell("\na step, rank 0:\n" + profile_report(*trace_, steps_));
  if (!options_.trace.empty()) save_trace(options_.trace, *trace_);
}

}  // namespace peal::launch
