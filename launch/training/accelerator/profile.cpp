// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/profile.h>
#include <peal/launch/training/accelerator/profile.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace peal::launch {

Profile::Profile(int rank, Device device, ProfileOptions options)
    : rank_(rank),
      options_(std::move(options)),
      trace_(std::make_shared<Trace>(options_.output_trace_dir.empty() ? 0 : Trace::picture_events,
                                     device)),
      outside_(std::exchange(context().trace, trace_)) {}

Profile::~Profile() {
  try {
    stop();
  } catch (const Error& error) {
    log_warning(error.what());
  }
}

void Profile::stop() {
  if (!runs_) return;
  // Who stops it later would set this one's trace to run again.
  PEAL_CHECK(context().trace == trace_, "[accelerator] profile: rank ", rank_,
             ": expected to stop the one that was made last in this thread, got one within which "
             "another runs; stop that one first");
  runs_ = false;
  context().trace = std::move(outside_);
  if (options_.output_trace_dir.empty()) return;
  std::error_code code;
  std::filesystem::create_directories(options_.output_trace_dir, code);
  PEAL_CHECK(!code, "[accelerator] profile: the folder ", options_.output_trace_dir.string(),
             " cannot be made: ", code.message());
  save_trace(options_.output_trace_dir / concat("profile_", rank_, ".json"), *trace_);
}

std::string Profile::table() const {
  return profile_report(*trace_, std::max<std::int64_t>(steps_, 1));
}

}  // namespace peal::launch
