// SPDX-License-Identifier: Apache-2.0
// Loaders of images: how they are found, that ranks find the same, and how others are looked at.
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/training/learner/image_data_loaders.h>
#include <peal/tests/data/encode.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace peal;
using launch::ImageDataLoaders;
namespace fs = std::filesystem;

namespace {

const launch::ImageDataLoadersOptions options{.size = 8, .loaders = {.batch_size = 2}};
const std::vector<std::string> both{"cat", "dog"};

std::vector<std::uint8_t> grey_png(std::int64_t height, std::int64_t width, std::uint8_t grey) {
  data::Image image(height, width);
  std::fill_n(image.row(0), height * width * 3, grey);
  return testing::png_of(image);
}

void write(const fs::path& file, const std::vector<std::uint8_t>& bytes) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
}

// So many black cats and white dogs.
void write_classes(const fs::path& folder, int count) {
  for (int i = 0; i < count; ++i) {
    write(folder / "cat" / concat("cat_", i, ".png"), grey_png(8, 8, 0));
    write(folder / "dog" / concat("dog_", i, ".png"), grey_png(8, 8, 255));
  }
}

}  // namespace

TEST_CASE("variants are the validation's images, transformed as those of the training") {
  const testing::Folder folder;
  data::Image image(8, 8);  // no crop of it is another, and no flip
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<std::uint8_t>(i);
  for (const char* const set : {"train", "valid"}) {
    for (const char* const name : {"cat/1.png", "cat/2.png", "dog/1.png", "dog/2.png"})
      write(folder.path / set / name, testing::png_of(image));
  }
  launch::Job job;
  const auto values = [](data::DataLoader& loader, std::int64_t epoch) {
    std::vector<float> all;
    loader.set_epoch(epoch);
    for (const data::Batch& batch : loader) {
      const auto some = batch.x.to_vector<float>();
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  };
  auto parted = options;
  parted.valid_pct = 0.5;
  for (const bool by_chance : {false, true}) {
    CAPTURE(by_chance);
    auto dls = ImageDataLoaders::from_folder(job, by_chance ? folder.path / "train" : folder.path,
                                             by_chance ? parted : options);
    const auto variants = dls.tta_dl();
    const auto first = values(*variants, 0);
    CHECK(first.size() == values(dls.valid(), 0).size());
    CHECK(first != values(dls.valid(), 0));
    CHECK(first != values(*variants, 1));
    CHECK(first == values(*variants, 0));
    CHECK(values(dls.valid(), 0) == values(dls.valid(), 1));
  }
}

TEST_CASE("images' loaders: by folders, or by what their names say, alike on all ranks") {
  const testing::Folder folder;
  write_classes(folder.path / "train", 6);
  write_classes(folder.path / "valid", 2);
  // Of all batches of this rank: how many samples, and that each is of its class' colour.
  const auto samples = [](data::DataLoader& loader) {
    std::int64_t count = 0;
    for (const data::Batch& batch : loader) {
      CHECK(batch.x.shape() == Shape{batch.size(), 3, 8, 8});
      for (std::int64_t k = 0; k < batch.size(); ++k, ++count) {
        CHECK((mean(select(batch.x, 0, k)).item<float>() > 0) ==
              (batch.y.to_vector<std::int64_t>()[static_cast<std::size_t>(k)] == 1));
      }
    }
    return count;
  };
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    auto dls = ImageDataLoaders::from_folder(job, folder.path, options);
    CHECK(dls.vocab() == both);
    CHECK(samples(dls.train()) == 6);
    CHECK(samples(dls.valid()) == 2);
    CHECK(samples(*dls.tta_dl()) == 2);

    auto parted = options;
    parted.valid_pct = 0.25;
    auto by_chance = ImageDataLoaders::from_folder(job, folder.path / "train", parted);
    CHECK(by_chance.train().dataset().size() == 9);
    CHECK(by_chance.valid().dataset().size() == 3);
    CHECK(by_chance.tta_dl()->dataset().size() == 3);

    const auto images = data::image_files(folder.path);
    auto named = ImageDataLoaders::from_name_re(job, images, "^(.+)_[0-9]", parted);
    CHECK(named.vocab() == both);
    CHECK(samples(named.train()) == 6);
    CHECK(samples(named.valid()) == 2);
    parted.vocab = {"dog", "cat", "bird"};
    const auto first_three = [](const std::string& name) { return name.substr(0, 3); };
    CHECK(ImageDataLoaders::from_name_func(job, images, first_three, parted).vocab() ==
          parted.vocab);

    const auto failed = [&](const auto& make) { return testing::error_of([&] { make(); }); };
    testing::check_has(failed([&] { ImageDataLoaders::from_lists(job, images, both, options); }),
                       "there are 2 labels of 16 images");
    for (const char* const pattern : {"^([A-Z]+)", "^(bird)?.+_[0-9]"}) {  // the 2nd: found without
      testing::check_has(
          failed([&] { ImageDataLoaders::from_name_re(job, images, pattern, options); }),
          "has no first group of");
    }
    parted.vocab = {"cat", "cat", "dog"};
    testing::check_has(
        failed([&] { ImageDataLoaders::from_name_func(job, images, first_three, parted); }),
        "expected classes of different names, got 'cat' twice");
    testing::check_has(failed([&] {
                         ImageDataLoaders::from_name_func(
                             job, images,
                             [&](const std::string& name) {
                               if (job.rank() == 1) throw 42;
                               return name.substr(0, 3);
                             },
                             options);
                       }),
                       "rank 1: an exception that is no std::exception");
    parted.vocab = both;
    testing::check_has(failed([&] {
                         ImageDataLoaders::from_name_func(
                             job, images,
                             [&](const std::string&) { return job.rank() == 1 ? "cow" : "cat"; },
                             parted);
                       }),
                       "is 'cow', which vocab has not");
    testing::check_has(failed([&] {
                         ImageDataLoaders::from_folder(
                             job, job.rank() == 0 ? folder.path / "train" : folder.path / "valid",
                             {.valid_pct = 0.5, .size = 8});
                       }),
                       "every rank is to see the same files");
  });
}

TEST_CASE("ranks that find other images, or let others judge, all get an Error") {
  const testing::Folder folder;
  for (const char* const host : {"here", "there", "other"}) write_classes(folder.path / host, 6);
  fs::rename(folder.path / "other" / "dog" / "dog_5.png", folder.path / "other" / "dog" / "z.png");
  auto parted = options;
  parted.valid_pct = 0.25;
  const std::string words = "every rank is to see the same files and to have the same options";
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    const auto by_folder = [&](const char* first, const char* second, std::uint64_t seed) {
      auto mine = parted;
      mine.seed = seed;
      const auto root = folder.path / (job.rank() == 0 ? first : second);
      return testing::error_of([&] { ImageDataLoaders::from_folder(job, root, mine); });
    };
    CHECK(by_folder("here", "there", 3) == "nothing");  // equal copies, elsewhere
    testing::check_has(by_folder("here", "here", 3 + static_cast<std::uint64_t>(job.rank())),
                       "'validation of 3 images by seed 3' on rank 0 and");
    testing::check_has(by_folder("here", "other", 3), words);

    const auto images = data::image_files(folder.path / "here");
    const auto by_labels = [&](bool turned) {
      std::vector<std::string> labels(12, "cat");
      for (std::size_t k = 0; k < 6; ++k) labels[turned ? 11 - k : k] = "dog";
      return testing::error_of([&] { ImageDataLoaders::from_lists(job, images, labels, parted); });
    };
    CHECK(by_labels(true) == "nothing");
    testing::check_has(by_labels(job.rank() == 1), words);
  });
}

TEST_CASE("other images are looked at as those of the validation are") {
  const testing::Folder folder;
  write_classes(folder.path / "set", 4);
  write(folder.path / "asked" / "a.png", grey_png(12, 8, 0));
  write(folder.path / "asked" / "b.png", grey_png(8, 16, 255));
  auto parted = options;
  parted.valid_pct = 0.25;
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    auto dls = ImageDataLoaders::from_folder(job, folder.path / "set", parted);
    const auto loader = dls.test_dl(data::image_files(folder.path / "asked"));
    std::int64_t count = 0;
    for (const data::Batch& batch : *loader) {
      CHECK(batch.x.shape() == Shape{1, 3, 8, 8});
      const float red = job.rank() == 0 ? 0.0F : 1.0F;  // which is normalised
      CHECK(mean(select(batch.x, 1, 0)).item<float>() ==
            doctest::Approx((red - 0.485F) / 0.229F).epsilon(1e-5));
      ++count;
    }
    CHECK(count == 1);
  });
}

TEST_CASE("limits of images hold in their loaders: from_folder's, or those they were found with") {
  const testing::Folder folder;
  write_classes(folder.path / "set", 4);
  const auto png = grey_png(8, 8, 0);
  std::vector<std::uint8_t> packed = testing::tar_entry("cat/1.png", testing::text_of(png));
  for (const auto byte : testing::tar_entry("dog/1.png", testing::text_of(png))) {
    packed.push_back(byte);
  }
  packed.resize(packed.size() + 1024);
  write(folder.path / "set.tar", packed);
  launch::Job job;
  auto parted = options;
  parted.valid_pct = 0.25;
  const auto refused = [](data::DataLoader& loader) {
    return testing::error_of([&] { loader.next(); });
  };
  const std::string words = "where that is meant, allow it (max_pixels)";
  auto few = parted;
  few.max_pixels = 63;
  auto by_folder = ImageDataLoaders::from_folder(job, folder.path / "set", few);
  testing::check_has(refused(by_folder.train()), words);
  testing::check_has(refused(by_folder.valid()), words);
  const auto images = data::image_files(folder.path / "set", {.max_pixels = 63});
  auto named = ImageDataLoaders::from_name_re(job, images, "^(.+)_[0-9]", parted);
  testing::check_has(refused(named.train()), words);
  testing::check_has(refused(*named.test_dl(images)), words);
  few.max_pixels = 64;
  auto enough = ImageDataLoaders::from_folder(job, folder.path / "set", few);
  CHECK(refused(enough.train()) == "nothing");

  parted.loaders.batch_size = 1;
  CHECK(ImageDataLoaders::from_folder(job, folder.path / "set.tar", parted).vocab() == both);
  parted.max_bytes = png.size();
  testing::check_has(testing::error_of([&] {
                       ImageDataLoaders::from_folder(job, folder.path / "set.tar", parted);
                     }),
                     "allow it (max_bytes)");
}
