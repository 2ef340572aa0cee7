// SPDX-License-Identifier: Apache-2.0
// A Learner for images (fastai: vision_learner): the body of a ResNet, and a head of one's classes
// (nn/models/vision.h), in fastai's three layer groups: the stem and the first two layers, the last
// two, and the head.
//
//   nn::ResNet34 net;
//   nn::load_model("resnet34.safetensors", net);  // torchvision's
//   auto learner = launch::vision_learner(job, dls, net, train->classes(),
//                                         {.tell = launch::print});
//   learner.fine_tune(3);
//   learner.export_to("pets.learner");
//
//   const auto classes = launch::exported("pets.learner").classes;   // in another program
//   auto loaded = launch::load_learner(job, "pets.learner",
//                                      launch::vision_model(nn::ResNet34(), std::ssize(classes)),
//                                      {.loss = nn::CrossEntropyLoss{}});
//
// Thread safety: as of Learner.
#pragma once

#include <peal/launch/training/learner/learner.h>
#include <peal/nn/models/vision.h>

#include <cstdint>
#include <string>
#include <vector>

namespace peal::launch {

// Of all of `net` but its last layer.
nn::VisionModel vision_model(const nn::ResNet& net, std::int64_t outputs,
                             const nn::HeadSettings& head = {});

// Without a loss it is the cross entropy. Groups that are given take the place of fastai's. Errors:
// no class, and those of Learner.
Learner vision_learner(Job& job, Loaders loaders, const nn::ResNet& net,
                       std::vector<std::string> classes, LearnerOptions options = {},
                       const nn::HeadSettings& head = {});

}  // namespace peal::launch
