// SPDX-License-Identifier: Apache-2.0
// image_loader: how many images a second the loader reads, decodes, crops, flips and normalises,
// from a folder of them; a pass over the folder for each line on standard input, so that another
// program can take turns (bench/peers/image_loader.py). A pass prints images a second and the
// processor's milliseconds an image.
//
//   yes '' | head -3 | build/release/bench/image_loader --data FOLDER --workers 2
#include <peal/autograd/intra_op.h>
#include <peal/bench/clock.h>
#include <peal/data/images/image_folder.h>
#include <peal/data/images/random_transforms.h>
#include <peal/data/loader.h>
#include <peal/launch/command_line.h>

#include <fmt/core.h>

#include <cstdio>
#include <iostream>
#include <string>

using namespace peal;

int main(int argc, char** argv) try {
  std::string folder;
  std::int64_t batch = 64, size = 224;
  int workers = 2;
  bool scaled = false;
  launch::CommandLine line("Images a second of a folder, a pass for each line of standard input");
  line.option("--data", &folder, "folder of images, one folder in it for each class");
  line.option("--batch", &batch, "images in a batch").positive();
  line.option("--size", &size, "of RandomResizedCrop").positive();
  line.option("--workers", &workers, "threads that make batches").positive();
  line.flag("--scaled-decode", &scaled, "let JPEGs be decoded at 1/2, 1/4 or 1/8 of their size");
  if (const auto status = line.parse(argc, argv)) return *status;

  set_num_threads(1);
  const auto images = data::image_folder(
      folder, {.transform = data::Compose{data::RandomResizedCrop(size, {.scaled_decode = scaled}),
                                          data::RandomHorizontalFlip()},
               .normalisation = data::imagenet_normalisation});
  data::DataLoader loader(images,
                          {.batch_size = batch, .shuffle = true, .seed = 1, .workers = workers});
  for (std::string go; std::getline(std::cin, go);) {
    const bench::Clock clock;
    std::int64_t count = 0;
    while (const auto made = loader.next()) count += made->size();
    const auto [wall, processor] = clock.since_start();
    fmt::print("{:.2f} {:.4f}\n", static_cast<double>(count) / wall,
               1e3 * processor / static_cast<double>(count));
    std::fflush(stdout);
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
