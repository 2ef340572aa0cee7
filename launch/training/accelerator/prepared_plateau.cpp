// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/group/agree.h>
#include <peal/launch/training/accelerator/prepared_plateau.h>

#include <fmt/format.h>

namespace peal::launch {

void PreparedPlateau::step(double measure) {
  if (!state_->sync()) return;
  comm::agree(state_->group, "[accelerator] ReduceLROnPlateau: the measure",
              fmt::format("{}", measure),
              "rates that are lowered on some ranks alone part their models; give it all ranks' "
              "mean: accelerator.reduce(), or a metric of gather_for_metrics()");
  inner_->step(measure);
}

}  // namespace peal::launch
