// SPDX-License-Identifier: Apache-2.0
// Profiler: where the time of training steps goes, by op, as a callback of the training loop (the
// profiler of autograd/profile.h). What is evaluated between steps does not count. Thread safety:
// the rank's thread.
#pragma once

#include <peal/autograd/core/trace.h>
#include <peal/launch/training/learner/loop.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace peal::launch {

struct ProfilerOptions {
  std::function<void(const std::string&)> tell = nullptr;  // gets the report, after a fit
  std::filesystem::path trace = {};  // file for the ops as a picture (ui.perfetto.dev), if any
};

// Of rank 0; the others' does nothing.
class Profiler : public Callback {
 public:
  // Measures nothing before the first fit.
  explicit Profiler(ProfilerOptions options) : options_(std::move(options)) {}
  ~Profiler() override { pause(); }
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;
  int order() const override { return 70; }
  void before_fit(Loop& loop) override;
  void before_train(Loop& loop) override;
  void after_step(Loop& loop) override;
  void before_validate(Loop& loop) override;
  void after_validate(Loop& loop) override;
  void after_train(Loop& loop) override;
  void after_fit(Loop& loop) override;
  // Traces no more, until the next epoch.
  void pause();

 private:
  void go_on();

  ProfilerOptions options_;
  std::shared_ptr<Trace> trace_, outside_;
  bool runs_ = false, trains_ = false;
  std::int64_t steps_ = 0;
};

}  // namespace peal::launch
