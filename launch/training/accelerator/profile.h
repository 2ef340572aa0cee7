// SPDX-License-Identifier: Apache-2.0
// Profile (PyTorch: torch.profiler.profile; Accelerate: Accelerator.profile(), ProfileKwargs):
// which ops the time of a loop goes to, of this rank, from when it is made until stop() or its end.
//
//   auto profile = accelerator.profile({.output_trace_dir = "profiles"});
//   for (const data::Batch& batch : training) {
//     ...
//     profile.step();
//   }
//   profile.stop();                // writes profiles/profile_0.json, for ui.perfetto.dev
//   if (accelerator.is_main_process()) {
//     accelerator.print(profile.table());   // ms a step, beside what they could take
//   }
//
// The numbers are those of autograd/profile.h. Thread safety: the rank's thread, whose ops it
// times.
#pragma once

#include <peal/autograd/core/trace.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace peal::launch {

struct ProfileOptions {
  // Gets profile_RANK.json, of each rank; none: no file.
  std::filesystem::path output_trace_dir = {};
};

class Profile {
 public:
  // Accelerator::profile() makes it.
  Profile(int rank, Device device, ProfileOptions options);
  // As stop(), but that its errors are warnings.
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // A step is over: table() has times of one.
  void step() { ++steps_; }
  // Times no more. Errors: one that was made after it in this thread still runs, and then so does
  // this one; the file cannot be written. Only the first that stops it does anything.
  void stop();
  // Times by op, the largest first (PyTorch: key_averages()).
  const Trace& trace() const { return *trace_; }
  // The report of autograd/profile.h, of a step; measures what the machine can do, which takes a
  // moment, and is less than it can where several ranks of it measure at once.
  std::string table() const;

 private:
  int rank_;
  ProfileOptions options_;
  std::shared_ptr<Trace> trace_, outside_;
  std::int64_t steps_ = 0;
  bool runs_ = true;
};

}  // namespace peal::launch
