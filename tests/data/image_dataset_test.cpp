// SPDX-License-Identifier: Apache-2.0
// Batches of images, and MNIST's folder of four files with everything that can be wrong with it.
#include <doctest/doctest.h>
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/data/mnist.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <random>
#include <string>

using peal::Shape;
using peal::data::ImageDataset;
using peal::testing::check_has;
using peal::testing::error_of;
namespace fs = std::filesystem;

namespace {

using Bytes = std::vector<std::uint8_t>;

struct Folder : peal::testing::Folder {
  void write(const std::string& name, const Bytes& bytes) const {
    std::ofstream(path / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
};

Bytes images(std::uint8_t count) {
  Bytes file{0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 2, 0, 0, 0, 3};
  for (int i = 0; i < count * 6; ++i) file.push_back(static_cast<std::uint8_t>(i * 5));
  return file;
}

Bytes labels(const Bytes& values) {
  Bytes file{0, 0, 8, 1, 0, 0, 0, static_cast<std::uint8_t>(values.size())};
  for (const std::uint8_t value : values) file.push_back(value);
  return file;
}

fs::path mnist_folder() {
  if (const char* named = std::getenv("PEAL_TEST_DATA")) return fs::path(named) / "mnist";
  return fs::path(PEAL_SOURCE_ROOT) / ".." / "shared" / "data" / "mnist";
}

// Mean of the normalised pixels of every 20th image.
double mean_pixel(const ImageDataset& set) {
  std::vector<std::int64_t> some;
  for (std::int64_t i = 0; i < set.size(); i += 20) some.push_back(i);
  const auto x = set.get(some).x.to_vector<float>();
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

}  // namespace

TEST_CASE("a batch has the images asked for, in order, normalised as torchvision does") {
  const ImageDataset set("S", Shape{2, 1, 2}, {0, 255, 10, 20, 30, 40, 50, 60}, {7, 1}, 10,
                         {0.5f, 0.25f});
  const std::vector<std::int64_t> indices{1, 0, 1};
  const auto batch = set.get(indices);
  CHECK(batch.x.shape() == Shape{3, 2, 1, 2});
  CHECK(batch.y.to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 7, 1});
  std::vector<float> expected;
  for (const int pixel : {30, 40, 50, 60, 0, 255, 10, 20, 30, 40, 50, 60}) {
    expected.push_back((static_cast<float>(pixel) / 255.0f - 0.5f) / 0.25f);
  }
  CHECK(batch.x.to_vector<float>() == expected);
  CHECK(set.get({}).x.shape() == Shape{0, 2, 1, 2});
}

TEST_CASE("every pixel is torchvision's, bit for bit, whatever the normalisation and the width") {
  Bytes every(256);
  std::iota(every.begin(), every.end(), std::uint8_t{0});
  std::mt19937 random(3);
  std::uniform_real_distribution<float> draw(0.01f, 1.0f);
  for (int turn = 0; turn < 200; ++turn) {
    peal::data::Normalisation by{draw(random), draw(random)};
    if (turn == 0) by = peal::data::mnist_normalisation;
    if (turn == 1) by = peal::data::fashion_mnist_normalisation;
    if (turn == 2) by = {0, 1};
    const std::int64_t width = turn % 40 + 1, images = 256 / width;
    const Bytes pixels(every.begin(), every.begin() + images * width);
    const std::vector<std::int64_t> classes(static_cast<std::size_t>(images), 0);
    const ImageDataset set("S", Shape{1, 1, width}, pixels, classes, 10, by);
    std::vector<std::int64_t> all(static_cast<std::size_t>(images));
    std::iota(all.begin(), all.end(), std::int64_t{0});
    std::vector<float> expected;
    for (const std::uint8_t pixel : pixels) {
      const float scaled = static_cast<float>(pixel) / 255.0f;
      expected.push_back((scaled - by.mean) / by.std);
    }
    CHECK(set.get(all).x.to_vector<float>() == expected);
  }
}

TEST_CASE("bad sets and bad indices are errors with the set's name") {
  const auto make = [](Bytes pixels, std::vector<std::int64_t> classes, float std) {
    return error_of([&] { ImageDataset("S", Shape{1, 1, 2}, pixels, classes, 10, {0, std}); });
  };
  CHECK(make({1, 2, 3}, {0, 1}, 1) ==
        "[data] S: expected 4 pixels for 2 labels and images [1, 1, 2], got 3");
  CHECK(make({1, 2, 3, 4}, {0, 10}, 1) ==
        "[data] S: expected classes from 0 to 9, sample 1 has 10");
  CHECK(make({1, 2}, {0}, 0) == "[data] S: expected a std above 0, got 0");
  const ImageDataset set("S", Shape{1, 1, 2}, {1, 2}, {0}, 10, {});
  for (const std::int64_t index : {std::int64_t{1}, std::int64_t{-1}}) {
    CHECK(error_of([&] { set.get(std::vector<std::int64_t>{index}); }) ==
          "[data] S: expected an index from 0 to 0, got " + std::to_string(index));
  }
}

TEST_CASE("a folder in MNIST's format") {
  const Folder folder;
  const auto message = [&] { return error_of([&] { peal::data::mnist(folder.path, true); }); };
  check_has(message(), folder.path.string() +
                           ": expected the file train-images-idx3-ubyte or "
                           "train-images-idx3-ubyte.gz, found neither");
  folder.write("train-images-idx3-ubyte", images(3));
  check_has(message(), "expected the file train-labels-idx1-ubyte or");
  folder.write("train-labels-idx1-ubyte", labels({4, 9, 0}));
  const auto set = peal::data::mnist(folder.path, true, {0, 1});
  CHECK(set->size() == 3);
  CHECK(set->image() == Shape{1, 2, 3});
  CHECK(set->label(1) == 9);
  CHECK(set->pixels(2)[5] == 85);

  folder.write("train-labels-idx1-ubyte", labels({4, 9}));
  check_has(message(),
            "images and labels differ in number: train-images-idx3-ubyte holds 3 images, "
            "train-labels-idx1-ubyte holds 2 labels");
  folder.write("train-labels-idx1-ubyte", labels({4, 9, 10}));
  check_has(message(), "(train): expected classes from 0 to 9, sample 2 has 10");
  folder.write("train-labels-idx1-ubyte", images(3));
  check_has(message(), "train-labels-idx1-ubyte: expected 1 IDX dimensions, got 3");
  Bytes cut = images(3);
  cut.resize(20);
  folder.write("train-images-idx3-ubyte", cut);
  check_has(message(), "train-images-idx3-ubyte: expected 18 elements for [3, 2, 3], got 4");
}

TEST_CASE("a missing folder: the error says what to do") {
  check_has(error_of([] { peal::data::mnist("/nonexistent/mnist", false); }),
            "/nonexistent/mnist: no such folder; it should hold the four IDX files");
  check_has(error_of([] { peal::data::fashion_mnist(true, "/nonexistent/fashion"); }),
            "apt-get install dataset-fashion-mnist");
}

TEST_CASE("MNIST itself") {
  if (!fs::is_directory(mnist_folder())) {
    MESSAGE("SKIPPED: no MNIST in ", mnist_folder().string(),
            "; set PEAL_TEST_DATA to a folder with mnist/ in it");
    return;
  }
  const auto train = peal::data::mnist(mnist_folder(), true);
  CHECK(train->size() == 60000);
  CHECK(train->label(0) == 5);
  CHECK(std::abs(mean_pixel(*train)) < 0.05);
  const auto test = peal::data::mnist(mnist_folder(), false);
  CHECK(test->size() == 10000);
  CHECK(test->image() == Shape{1, 28, 28});
  CHECK(test->label(0) == 7);
}

TEST_CASE("Fashion-MNIST itself") {
  if (!fs::is_directory(peal::data::fashion_mnist_folder)) {
    MESSAGE("SKIPPED: no Fashion-MNIST; install dataset-fashion-mnist");
    return;
  }
  const auto train = peal::data::fashion_mnist(true);
  CHECK(train->size() == 60000);
  CHECK(train->label(0) == 9);
  CHECK(std::abs(mean_pixel(*train)) < 0.05);
  std::array<int, 10> counts{};
  for (std::int64_t i = 0; i < train->size(); ++i)
    ++counts[static_cast<std::size_t>(train->label(i))];
  for (const int count : counts) CHECK(count == 6000);
  CHECK(peal::data::fashion_mnist(false)->size() == 10000);
}
