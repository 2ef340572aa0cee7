// SPDX-License-Identifier: Apache-2.0
// Images of any classes: a residual network on folders of JPEG and PNG files, CIFAR-10's or others.
//
//   launch/tools/peal-mpirun -n 2 build/release/examples/12_train_images
//     --data cifar10-images.tar.gz --epochs 3 --batch-size 64 --save cifar.safetensors
//   build/release/examples/12_train_images --resume cifar.safetensors --evaluate photos
//
// --data is a folder or archive (.tar, .tar.gz) with train/<class>/ and test/<class>/ in it. Images
// of other sizes than --size are cropped at random to train on, and to their middle to judge; those
// of this size are shifted a little. What is evaluated is a folder of such folders, or files whose
// classes nobody knows: then each one's likeliest class is printed. The names of the classes are in
// the checkpoint.
#include <peal/autograd/ops/ops.h>
#include <peal/data/images/image_folder.h>
#include <peal/data/images/mixup.h>
#include <peal/data/images/random_transforms.h>
#include <peal/data/loader.h>
#include <peal/launch/job.h>
#include <peal/launch/training/epoch_trainer.h>
#include <peal/launch/training/export_run.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/models/resnet.h>
#include <peal/nn/models/xresnet.h>
#include <peal/nn/optim/scheduler.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace peal;
namespace fs = std::filesystem;

namespace {

void print(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);  // at once, where it goes to a file
}

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
void print_classes(nn::Module& model, const data::ImageFilesRef& images,
                   const std::vector<std::string>& classes, Device device) {
  model.eval();
  const NoGrad guard;
  data::DataLoader loader(images, {.batch_size = 32, .device = device});
  std::int64_t at = 0;
  for (const data::Batch& batch : loader) {
    const auto [shares, likeliest] = max(softmax(model(batch.x)), -1);
    const Tensor share = shares.to(Device{}), which = likeliest.to(Device{});
    for (std::int64_t i = 0; i < batch.size(); ++i, ++at) {
      print(fmt::format("{}: {} ({:.1f} %)", images->item(at).path,
                        classes[static_cast<std::size_t>(which.data<std::int64_t>()[i])],
                        100 * share.data<float>()[i]));
    }
  }
}

bool has_folders(const fs::path& path) {
  if (!fs::is_directory(path)) return false;
  const fs::directory_iterator entries(path);
  return std::any_of(begin(entries), end(entries),
                     [](const fs::directory_entry& entry) { return entry.is_directory(); });
}

void judge(launch::Job& job, const launch::RunArguments& arguments) {
  const Autocast precision = launch::autocast(arguments);
  const Device device = job.device(arguments.device);
  const std::string& file = launch::checkpoint_to_evaluate(arguments);
  const Metadata saved = load_safetensors(file).metadata;
  const auto setting = [&](const std::string& name) {
    const auto found = saved.find(name);
    PEAL_CHECK(found != saved.end(), "12_train_images: ", file, " has no setting '", name,
               "'; is it a checkpoint of another program, or of an older version of this one?");
    return found->second;
  };
  const std::vector<std::string> classes = classes_of(setting("classes"));
  const std::int64_t size = std::stoll(setting("size"));
  nn::Module net = make_model(setting("model"), std::ssize(classes), size);
  nn::load_model(file, net);
  net.to(device);
  net.eval();
  // In low precision the norms' own f32 is closer to what training judged by.
  if (!context().autocast) nn::fuse_eval(net, randn({2, 3, size, size}).to(device));
  if (!has_folders(arguments.evaluate)) {
    const auto images = data::image_files(arguments.evaluate);
    if (!job.is_main()) return;
    const auto busy = job.group().busy("predicts");  // the others wait at the end
    return print_classes(net, transformed(images, size, false), classes, device);
  }
  const auto images = data::image_folder(arguments.evaluate, {}, classes);
  data::DataLoader loader(
      transformed(images, size, false),
      {.batch_size = 100, .shard = job.place(), .workers = 1, .exact = true, .device = device});
  const auto found =
      launch::evaluate(net, loader, job.group(), {{"accuracy", std::make_shared<nn::Accuracy>()}});
  if (!job.is_main()) return;
  print(concat(arguments.evaluate, ": ", images->size(), " images, ", launch::in_words(found)));
}

}  // namespace

int main(int argc, char** argv) {
  launch::RunArguments arguments;
  arguments.batch_size = 64;
  std::string folder, name = "resnet18", run_file;
  std::int64_t size = 32;
  int until = 0;
  double mixup = 0, smoothing = 0;
  launch::CommandLine line(
      "Trains a residual network on folders of images; start it with peal-run or mpirun for "
      "several ranks.");
  line.option("--data", &folder, "folder or archive with train/<class>/ and test/<class>/");
  line.option("--model", &name, "resnet18, resnet34, resnet50 or xresnet18");
  line.option("--size", &size, "pixels of a side").positive();
  line.option("--mixup", &mixup, "alpha of mixup (0: none)");
  line.option("--label-smoothing", &smoothing, "share of the loss that all classes have");
  line.option("--until", &until,
              "epoch to stop after, for a run to be taken up later (0: the last)");
  line.option("--export", &run_file, "file for first weights, batches and rates, of one rank");
  launch::add_training_options(line, arguments);
  if (const auto status = line.parse(argc, argv)) return *status;

  return launch::run_main([&](launch::Job& job) {
    launch::find_resume(job, arguments);
    if (!arguments.evaluate.empty()) return judge(job, arguments);
    const Device device = job.device(arguments.device);
    const auto train = open_part(folder, "train");
    const auto test = open_part(folder, "test", train->classes());
    const std::int64_t classes = std::ssize(train->classes());
    data::DatasetRef learnt = transformed(train, size, true);
    if (mixup > 0) {
      learnt = std::make_shared<data::Mixed>(learnt, data::MixOptions{classes, mixup, 0});
    }
    data::DataLoader training(learnt, {.batch_size = arguments.batch_size,
                                       .shuffle = true,
                                       .shard = job.place(),
                                       .seed = arguments.seed,
                                       .workers = 1,
                                       .device = device});
    data::DataLoader testing(
        transformed(test, size, false),
        {.batch_size = 100, .shard = job.place(), .workers = 1, .exact = true, .device = device});

    manual_seed(arguments.seed);  // parameters are drawn where the model is made
    nn::Module net = make_model(name, classes, size);
    net.to(device);
    if (job.world() > 1) nn::convert_sync_batchnorm(net, job.group());
    nn::DistributedDataParallel model(net, job.group());
    const double rate = arguments.lr.value_or(0.1);
    nn::SGD optimizer(model.parameters(),
                      {.lr = rate, .momentum = 0.9, .weight_decay = 5e-4, .nesterov = true});
    // Up and down again over all epochs, also of a run that stops before.
    nn::LRScheduler scheduler(
        optimizer,
        nn::one_cycle_lr({.max_lr = rate, .total_steps = training.size() * arguments.epochs + 1}));

    if (!run_file.empty()) {
      launch::export_run(run_file, model, training, testing, arguments.epochs, scheduler);
    }
    launch::RunArguments now = arguments;
    if (until > 0) now.epochs = std::min(until, arguments.epochs);
    launch::EpochTrainer trainer(
        job, now, model, optimizer,
        {.settings = {{"data", folder},
                      {"train_samples", std::to_string(train->size())},
                      {"classes", fmt::format("{}", fmt::join(train->classes(), "/"))},
                      {"model", name},
                      {"size", std::to_string(size)},
                      {"mixup", fmt::format("{}", mixup)},
                      {"label-smoothing", fmt::format("{}", smoothing)}},
         .tell = print,
         .parts = {{"scheduler", scheduler}},
         .after_step = [&] { scheduler.step(); }});
    trainer.fit(training, testing, [&](const Tensor& output, const Tensor& y) {
      return cross_entropy(output, y, Reduction::mean, -100, smoothing);
    });
  });
}
