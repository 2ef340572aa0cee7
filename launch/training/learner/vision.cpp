// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/training/learner/vision.h>
#include <peal/nn/loss.h>

#include <utility>

namespace peal::launch {

nn::VisionModel vision_model(const nn::ResNet& net, std::int64_t outputs,
                             const nn::HeadSettings& head) {
  return {nn::resnet_body(net), net.fc.weight.size(1), outputs, head};
}

Learner vision_learner(Job& job, Loaders loaders, const nn::ResNet& net,
                       std::vector<std::string> classes, LearnerOptions options,
                       const nn::HeadSettings& head) {
  PEAL_CHECK(!classes.empty(), "[launch] vision_learner: there is no class to learn");
  options.classes = std::move(classes);
  if (!options.loss) options.loss = nn::CrossEntropyLoss{};
  if (options.groups.empty()) {
    options.groups = {{"0.0", "0.1", "0.4", "0.5"}, {"0.6", "0.7"}, {"1"}};
  }
  const nn::Module model = vision_model(net, std::ssize(options.classes), head);
  return Learner(job, loaders, model, std::move(options));
}

}  // namespace peal::launch
