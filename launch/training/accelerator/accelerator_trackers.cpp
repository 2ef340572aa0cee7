// SPDX-License-Identifier: Apache-2.0
// Where the run's figures go.
#include <peal/autograd/core/failure_words.h>
#include <peal/comm/group/agree.h>
#include <peal/launch/training/accelerator/accelerator.h>

namespace peal::launch {

void Accelerator::init_trackers(const std::string& run, const Metadata& config, bool goes_on) {
  const std::string wrong = failure_in(
      [&] { trackers_->start(options_.project_dir, run, config, goes_on, is_main_process()); });
  comm::agree_unless(group(), "[accelerator] init_trackers",
                     concat("'", run, "'", goes_on ? ", going on" : ""), wrong,
                     "give all ranks the same");
}

void Accelerator::log(const std::vector<Value>& values, std::optional<std::int64_t> step) const {
  trackers_->log(values, step);
}

void Accelerator::end_training() {
  const std::string wrong = failure_in([&] { trackers_->finish(); });
  comm::agree_unless(group(), "[accelerator] end_training", "", wrong, "");
}

}  // namespace peal::launch
