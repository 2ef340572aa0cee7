// SPDX-License-Identifier: Apache-2.0
// Images of any classes by the Learner, fastai's way: a body that was trained on other images, a
// head of one's own classes that learns first, and then both. As 12_train_images, which has
// checkpoints, other models and a loop that says more.
//
//   peal-run -n 2 build/release/examples/18_learner_images --data pets --size 224
//     --weights resnet18.safetensors --epochs 3 --export pets.learner
//   build/release/examples/18_learner_images --load pets.learner --predict photos
//
// --data is a folder or archive (.tar, .tar.gz) with train/<class>/ and test/<class>/ in it.
// --weights are torchvision's; without them all layers learn from the beginning.
//
// The book (docs/book): chapter 7, data-parallel training.
#include <peal/autograd/ops/ops.h>
#include <peal/data/images/transforms.h>
#include <peal/examples/learner_program.h>
#include <peal/launch/print.h>
#include <peal/launch/training/learner/exported.h>
#include <peal/launch/training/learner/image_data_loaders.h>
#include <peal/launch/training/learner/mixup.h>
#include <peal/launch/training/learner/progress.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/loss.h>
#include <peal/nn/metrics/classification.h>

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

using namespace peal;
using launch::print;

namespace {

struct Options : learner_program::Options {
  std::string weights;
  int epochs = 3;
  std::int64_t batch_size = 64, size = 32;
  double lr = 2e-3, mixup = 0, smoothing = 0;
};

nn::ResNet18 net_of(std::int64_t size, std::int64_t classes = 1000) {
  return nn::ResNet18({.num_classes = classes, .small_images = size <= 64});
}

void train(launch::Job& job, const Options& options) {
  auto dls = launch::ImageDataLoaders::from_folder(
      job, options.data,
      {.valid = "test",
       .size = options.size,
       .loaders = {.batch_size = options.batch_size, .workers = 1}});
  manual_seed(0);
  nn::ResNet18 net = net_of(options.size);
  if (!options.weights.empty()) nn::load_model(options.weights, net);
  std::vector<std::shared_ptr<launch::Callback>> callbacks{
      std::make_shared<launch::ProgressCallback>()};
  if (options.mixup > 0) callbacks.push_back(std::make_shared<launch::MixUp>(options.mixup));
  launch::Learner learner =
      launch::vision_learner(job, dls, net,
                             {.loss = nn::CrossEntropyLoss{.label_smoothing = options.smoothing},
                              .metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}},
                              .callbacks = callbacks,
                              .device = options.device,
                              .settings = {{"size", std::to_string(options.size)}},
                              .tell = print});
  const auto all_ranks = learner.distrib_ctx();
  if (options.weights.empty()) {
    learner.fit_one_cycle(options.epochs, options.lr);
  } else {
    learner.fine_tune(options.epochs, options.lr);
  }
  if (!options.exported.empty()) learner.export_to(options.exported);
}

void predict(launch::Job& job, const Options& options) {
  const launch::Exported file = launch::exported(options.loaded);
  const std::int64_t size = std::stoll(file.settings.at("size"));
  launch::Learner learner = launch::load_learner(
      job, options.loaded, launch::vision_model(net_of(size), std::ssize(file.classes)),
      {.loss = nn::CrossEntropyLoss{}});
  const auto images = data::image_files(
      options.asked, {.transform = data::Compose(data::Resize(size), data::CenterCrop(size)),
                      .normalisation = data::imagenet_normalisation});
  data::DataLoader loader(images, {.batch_size = 32});
  // Of images whose classes nobody knows.
  const auto found = learner.get_preds(&loader, {.with_targets = false, .with_decoded = true});
  if (!job.is_main()) return;
  const auto classes = found.decoded.to_vector<std::int64_t>();
  const auto shares = max(found.predictions, 1).values.to_vector<float>();
  for (std::size_t k = 0; k < classes.size(); ++k) {
    print(fmt::format("{}: {} ({:.1f} %)", images->item(static_cast<std::int64_t>(k)).path,
                      file.classes.at(static_cast<std::size_t>(classes[k])), 100 * shares[k]));
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  launch::CommandLine line("Trains a vision Learner on images, or asks one that was exported.");
  line.option("--weights", &options.weights, "a ResNet-18's, to begin with");
  line.option("--epochs", &options.epochs, "of all layers").positive();
  line.option("--batch-size", &options.batch_size, "of each rank").positive();
  line.option("--size", &options.size, "pixels of a side").positive();
  line.option("--lr", &options.lr, "learning rate");
  line.option("--mixup", &options.mixup, "alpha of mixup (0: none)").not_negative();
  line.option("--label-smoothing", &options.smoothing, "share of the loss that all classes have");
  return learner_program::run(
      line, argc, argv, options,
      {.data = "folder or archive with train/<class>/ and test/<class>/",
       .asked = "an image, or a folder of images",
       .missing = "18_learner_images: name images to learn from (--data), or a model and images to "
                  "judge (--load, --predict)"},
      [&](launch::Job& job) { train(job, options); },
      [&](launch::Job& job) { predict(job, options); });
}
