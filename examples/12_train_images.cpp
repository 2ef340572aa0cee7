// SPDX-License-Identifier: Apache-2.0
// Images of any classes: a residual network on folders of JPEG and PNG files, CIFAR-10's or others.
//
// The book (docs/book): chapter 8, batch norm over ranks.
//
//   launch/tools/peal-mpirun -n 2 build/release/examples/12_train_images
//     --data cifar10-images.tar.gz --num_train_epochs 3 --output_dir run --save_strategy epoch
//   build/release/examples/12_train_images --resume_from_checkpoint run --do_train false
//     --data photos
//
// --data is a folder or archive (.tar, .tar.gz) with train/<class>/ and test/<class>/ in it. Images
// of other sizes than --size are cropped at random to train on, and to their middle to judge; those
// of this size are shifted a little. What is judged is a folder of such folders, or files whose
// classes nobody knows: then each one's likeliest class is printed. The names of the classes are in
// the checkpoint. The Trainer's arguments are options, all of them: docs/training-arguments.md.
#include <peal/autograd/ops/ops.h>
#include <peal/data/images/image_folder.h>
#include <peal/data/images/mixup.h>
#include <peal/data/images/random_transforms.h>
#include <peal/examples/trainer_program.h>
#include <peal/launch/job.h>
#include <peal/launch/print.h>
#include <peal/launch/training/trainer/export_run.h>
#include <peal/nn/loss.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/models/resnet.h>
#include <peal/nn/models/xresnet.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace peal;
using launch::print;
namespace fs = std::filesystem;

namespace {

nn::Module make_model(const std::string& name, std::int64_t classes, std::int64_t size) {
  const nn::ResNetSettings settings{.num_classes = classes, .small_images = size <= 64};
  if (name == "resnet18") return nn::ResNet18(settings);
  if (name == "resnet34") return nn::ResNet34(settings);
  if (name == "resnet50") return nn::ResNet50(settings);
  PEAL_CHECK(name == "xresnet18",
             "12_train_images: expected the model resnet18, resnet34, resnet50 or xresnet18, got ",
             name);
  return nn::XResNet18({.num_classes = classes});
}

// One for images of the size asked for, another for those of any other, which may lie beside them.
class BySize : public data::Transform {
 public:
  BySize(std::int64_t size, data::Compose of_it, data::Compose of_others)
      : size_{size, size}, of_it_(std::move(of_it)), of_others_(std::move(of_others)) {}
  data::Image apply(data::Image image, data::Draw& draw) const override {
    return steps(image.size()).apply(std::move(image), draw);
  }
  data::Image open(data::EncodedImage& image, data::Draw& draw) const override {
    return steps(image.size()).open(image, draw);
  }

 private:
  const data::Compose& steps(const data::ImageSize& size) const {
    return size == size_ ? of_it_ : of_others_;
  }
  data::ImageSize size_;
  data::Compose of_it_, of_others_;
};

data::ImageFilesRef transformed(const data::ImageFilesRef& images, std::int64_t size,
                                bool training) {
  using data::Compose;
  const BySize to_learn(
      size,
      Compose(data::RandomCrop(size, {.padding = size / 8, .mode = data::BorderMode::reflect}),
              data::RandomHorizontalFlip()),
      Compose(data::RandomResizedCrop(size), data::RandomHorizontalFlip()));
  const BySize to_judge(size, Compose(),
                        Compose(data::Resize(size * 8 / 7), data::CenterCrop(size)));
  return images->with({.transform = Compose(training ? to_learn : to_judge),
                       .normalisation = data::imagenet_normalisation});
}

data::ImageFilesRef open_part(const fs::path& data, const std::string& part,
                              const std::vector<std::string>& classes = {}) {
  PEAL_CHECK(fs::exists(data), "12_train_images: ", data.string(),
             ": no such folder or archive of images; name one by --data");
  return fs::is_directory(data) ? data::image_folder(data / part, {}, classes)
                                : data::image_archive(data, part, {}, classes);
}

// Names of folders have no slash.
std::vector<std::string> classes_of(const std::string& joined) {
  std::vector<std::string> classes;
  std::istringstream words(joined);
  for (std::string word; std::getline(words, word, '/');) classes.push_back(word);
  return classes;
}

// Of images whose classes nobody knows.
void print_classes(const Tensor& predictions, const data::ImageFilesRef& images,
                   const std::vector<std::string>& classes) {
  const auto [shares, likeliest] = max(softmax(cast(predictions, DType::f32)), -1);
  for (std::int64_t i = 0; i < images->size(); ++i) {
    const auto which = likeliest.data<std::int64_t>()[i];
    print(fmt::format("{}: {} ({:.1f} %)", images->item(i).path,
                      classes[static_cast<std::size_t>(which)], 100 * shares.data<float>()[i]));
  }
}

bool has_folders(const fs::path& path) {
  if (!fs::is_directory(path)) return false;
  const fs::directory_iterator entries(path);
  return std::any_of(begin(entries), end(entries),
                     [](const fs::directory_entry& entry) { return entry.is_directory(); });
}

void judge(launch::Job& job, launch::TrainingArguments arguments, const std::string& data) {
  const std::string model = launch::checkpoint_to_judge(job, arguments);
  arguments.resume_from_checkpoint = model;  // this one, if a training saves another meanwhile
  const auto classes = classes_of(launch::setting_in(model, "classes"));
  const std::int64_t size = std::stoll(launch::setting_in(model, "size"));
  const bool are_sorted = has_folders(data);
  const auto images = are_sorted ? data::image_folder(data, {}, classes) : data::image_files(data);
  arguments.eval_strategy = "no";
  launch::TrainerOptions options{
      .eval_dataset = transformed(images, size, false),
      .loss = nn::CrossEntropyLoss{.ignore_index = -1},  // of images whose classes nobody knows
      .tell = print};
  if (are_sorted) options.compute_metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}};
  launch::Trainer trainer(job,
                          make_model(launch::setting_in(model, "model"), std::ssize(classes), size),
                          arguments, options);
  trainer.load_model();
  if (are_sorted) {
    trainer.evaluate();
  } else {
    const auto found = trainer.predict(options.eval_dataset);
    if (job.is_main()) print_classes(found.predictions, images, classes);
  }
}

}  // namespace

int main(int argc, char** argv) {
  launch::TrainingArguments arguments = trainer_program::defaults;
  arguments.per_device_train_batch_size = 64;
  arguments.per_device_eval_batch_size = 100;
  arguments.learning_rate = 0.1;
  arguments.dataloader_num_workers = 1;
  std::string folder, name = "resnet18", run_file;
  std::int64_t size = 32;
  double mixup = 0;
  launch::CommandLine line(
      "Trains a residual network on folders of images, or with --do_train false judges others by "
      "the model of --resume_from_checkpoint; start it with peal-run or mpirun for several ranks.");
  line.option("--data", &folder,
              "folder or archive with train/<class>/ and test/<class>/, or images to judge");
  line.option("--model", &name, "resnet18, resnet34, resnet50 or xresnet18");
  line.option("--size", &size, "pixels of a side").positive();
  line.option("--mixup", &mixup, "alpha of mixup (0: none)");
  line.option("--export", &run_file, "file for first weights, batches and rates, of one rank");
  if (const auto status = launch::parse_arguments(line, arguments, argc, argv)) return *status;

  return launch::run_main([&](launch::Job& job) {
    if (!arguments.do_train) return judge(job, arguments, folder);
    const auto train = open_part(folder, "train");
    const auto test = open_part(folder, "test", train->classes());
    const std::int64_t classes = std::ssize(train->classes());
    data::DatasetRef learnt = transformed(train, size, true);
    if (mixup > 0) {
      learnt = std::make_shared<data::Mixed>(learnt, data::MixOptions{classes, mixup, 0});
    }

    manual_seed(static_cast<std::uint64_t>(arguments.seed));  // parameters are drawn from it
    nn::Module net = make_model(name, classes, size);
    if (job.world() > 1) nn::convert_sync_batchnorm(net, job.group());
    const double smoothing = arguments.label_smoothing_factor;
    launch::TrainerOptions options{
        .train_dataset = learnt,
        .eval_dataset = transformed(test, size, false),
        .compute_metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}},
        .optimizer = launch::optimizer_of<nn::SGD>(
            nn::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 5e-4, .nesterov = true}),
        // Up and down again over all epochs.
        .lr_scheduler =
            [](std::int64_t done, std::int64_t updates) {
              return nn::one_cycle_lr({.max_lr = 1, .total_steps = updates + 1})(1, done);
            },
        .settings = {{"data", folder},
                     {"train_samples", std::to_string(train->size())},
                     {"classes", fmt::format("{}", fmt::join(train->classes(), "/"))},
                     {"model", name},
                     {"size", std::to_string(size)},
                     {"mixup", fmt::format("{}", mixup)},
                     {"label_smoothing_factor", fmt::format("{}", smoothing)}},
        .tell = print};
    if (!run_file.empty()) options.callbacks = {std::make_shared<launch::ExportRun>(run_file)};
    launch::Trainer(job, net, arguments, options).train();
  });
}
