// SPDX-License-Identifier: Apache-2.0
// A trained model in one file, to be used by another program (fastai: export and load_learner). A
// class of C++ cannot be put into a file, so this is the model's state and what has to be known
// beside it: names of classes, how outputs are read, and the program's settings (sizes to make the
// model by, a vocabulary, statistics of a table). Whoever loads it makes the model:
//
//   learner.export_to("pets.learner");
//
//   const auto file = launch::exported("pets.learner");           // in another program
//   nn::ResNet18 net({.num_classes = std::ssize(file.classes)});
//   auto learner = launch::load_learner(job, "pets.learner", net, {.loss =
//   nn::CrossEntropyLoss{}}); fmt::print("{}\n", learner.predict(image).label);
//
// It is a safetensors file, which nn::load_model() and PyTorch read as well (nn/checkpoint.h).
// Thread safety: as of Learner.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/launch/training/learner/learner.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace peal::launch {

struct Exported {
  Metadata settings;                 // LearnerOptions::settings of who exported it
  std::vector<std::string> classes;  // in the order of their numbers
  std::string activation;            // by which outputs are read (outputs.h)
  std::string model;                 // the class that it was
};
// What stands beside the model. Error for a file that is damaged, or none of these.
Exported exported(const std::filesystem::path& file);

// Of its settings, by name. Error where there is none: it was exported by another than `maker`.
std::string setting_of(const Exported& there, const std::filesystem::path& file, const char* name,
                       std::string_view maker);

// A learner without data, to predict and to judge by loaders that are given then: of this model,
// which gets the file's state, with the file's classes and settings. Collective. Errors, on all
// ranks: as above; ranks see different files; a model of other keys or shapes; other names of
// classes; a loss whose outputs are read otherwise than the exported one's.
Learner load_learner(Job& job, const std::filesystem::path& file, nn::Module model,
                     LearnerOptions options);

}  // namespace peal::launch
