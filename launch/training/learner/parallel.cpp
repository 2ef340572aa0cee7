// SPDX-License-Identifier: Apache-2.0
// The learner's model on several devices of one process, and back.
#include <peal/autograd/core/error.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/nn/parallel/data_parallel.h>

#include <utility>

namespace peal::launch {

std::shared_ptr<void> Learner::parallel_ctx(std::vector<Device> devices,
                                            const std::function<nn::Module()>& another) {
  PEAL_CHECK(job.world() == 1, "[launch] learner: parallel_ctx is of one process, and there are ",
             job.world(), " ranks; give each a device (distrib_ctx)");
  if (model.as<nn::DataParallel>() != nullptr) return nullptr;
  const nn::Module module = model;
  nn::Module parallel = nn::DataParallel(module, std::move(devices), another);
  model = nn::Module();
  model = std::move(parallel);
  return std::shared_ptr<void>(nullptr, [this, module](void*) {
    model = nn::Module();
    model = module;
  });
}

}  // namespace peal::launch
