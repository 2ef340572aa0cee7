// SPDX-License-Identifier: Apache-2.0
// Image files that PIL wrote (torch_images.py) against what it reads from them, and transforms with
// given parameters against torchvision's functions on PIL images, and grids of images and what is
// written of them: to the byte; but where PIL computes in floating point, with hues and rotations,
// one off is good enough.
// usage: torch_images FOLDER
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/safetensors.h>
#include <peal/data/images/auto_augment.h>
#include <peal/data/images/colour.h>
#include <peal/data/images/geometry.h>
#include <peal/data/images/image_folder.h>
#include <peal/data/images/mixup.h>
#include <peal/data/images/normalisation.h>
#include <peal/data/images/save_image.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace peal;

namespace {

// The largest difference of two images, -1 where their sizes differ.
int difference(const data::Image& image, const Tensor& expected) {
  if (expected.shape() != Shape{image.height, image.width, image.channels}) return -1;
  int largest = 0;
  const auto* other = expected.data<std::uint8_t>();
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    largest = std::max(largest, std::abs(image.pixels[i] - other[i]));
  }
  return largest;
}

bool check_files(const std::filesystem::path& folder) {
  int wrong = 0, count = 0;
  for (const auto& [name, expected] : load_safetensors(folder / "files").tensors) {
    const int off = difference(data::image_files(folder / name)->image(0), expected);
    ++count;
    if (off == 0) continue;
    ++wrong;
    std::fprintf(stderr, "%s: pixels differ by %d\n", name.c_str(), off);
  }
  std::printf("%d files, %d with other bytes than PIL's\n", count, wrong);
  return count > 50 && wrong == 0;
}

data::Interpolation interpolation_of(const std::string& name) {
  using data::Interpolation;
  const std::map<std::string, Interpolation> all{
      {"nearest", Interpolation::nearest}, {"bilinear", Interpolation::bilinear},
      {"bicubic", Interpolation::bicubic}, {"lanczos", Interpolation::lanczos},
      {"box", Interpolation::box},         {"hamming", Interpolation::hamming}};
  return all.at(name);
}

// Reads parameters in the order in which they are asked for.
class Words {
 public:
  explicit Words(const std::string& text) : words_(text) {}
  template <class T = std::int64_t>
  T next() {
    T value{};
    PEAL_CHECK(words_ >> value, "a parameter is missing");
    return value;
  }
  data::Box box() {
    const auto top = next(), left = next(), height = next();
    return {top, left, height, next()};
  }
  data::ImageSize size() {
    const auto height = next();
    return {height, next()};
  }

 private:
  std::istringstream words_;
};

// torchvision's names, in the order of AugmentOp.
const std::vector<std::string> operations{"Identity",     "ShearX",    "ShearY",     "TranslateX",
                                          "TranslateY",   "Rotate",    "Brightness", "Color",
                                          "Contrast",     "Sharpness", "Posterize",  "Solarize",
                                          "AutoContrast", "Equalize",  "Invert"};

data::Image transformed(const std::string& what, data::Image image, Words words) {
  if (what == "resize") {
    const auto how = interpolation_of(words.next<std::string>());
    return resized(image, words.size(), how);
  }
  if (what == "resized_crop") {
    const auto how = interpolation_of(words.next<std::string>());
    const data::Box box = words.box();
    return resized(cropped(image, box), words.size(), how);
  }
  if (what == "real_box") {
    const auto how = interpolation_of(words.next<std::string>());
    const auto left = words.next<double>(), top = words.next<double>();
    const auto right = words.next<double>(), bottom = words.next<double>();
    return resized(image, {top, left, bottom - top, right - left}, words.size(), how);
  }
  if (what == "shorter") {
    const auto size = words.next(), longest = words.next();
    const auto limit = longest == 0 ? std::nullopt : std::optional(longest);
    return resized(image, data::size_by_shorter(image.size(), size, limit));
  }
  if (what == "center_crop") return center_cropped(image, words.size());
  if (what == "hflip") return hflipped(image);
  if (what == "vflip") return vflipped(image);
  if (what == "pad") {
    const auto left = words.next(), top = words.next(), right = words.next();
    const auto bottom = words.next();
    const auto name = words.next<std::string>();
    const auto mode = name == "constant"  ? data::BorderMode::constant
                      : name == "edge"    ? data::BorderMode::edge
                      : name == "reflect" ? data::BorderMode::reflect
                                          : data::BorderMode::symmetric;
    return padded(image, {left, top, right, bottom}, {9, 200, 31}, mode);
  }
  if (what == "greyscale") return greyscale(image);
  if (what == "brightness") return brightness_adjusted(image, words.next<double>());
  if (what == "contrast") return contrast_adjusted(image, words.next<double>());
  if (what == "saturation") return saturation_adjusted(image, words.next<double>());
  if (what == "hue") return hue_adjusted(image, words.next<double>());
  if (what == "rotate") {
    const auto angle = words.next<double>();
    const auto how = interpolation_of(words.next<std::string>());
    return rotated(image, angle, how, words.next() != 0, {5, 6, 7});
  }
  if (what == "affine") {
    const auto degrees = words.next<double>(), right = words.next<double>();
    const auto down = words.next<double>(), scale = words.next<double>();
    const auto along_x = words.next<double>(), along_y = words.next<double>();
    const auto how = interpolation_of(words.next<std::string>());
    return affine(image, degrees, {right, down}, scale, {along_x, along_y}, {how, {5, 6, 7}});
  }
  if (what == "augment") {
    const auto op = std::ranges::find(operations, words.next<std::string>()) - operations.begin();
    const auto magnitude = words.next<double>();
    const auto how = interpolation_of(words.next<std::string>());
    return augmented(image, {static_cast<data::AugmentOp>(op), magnitude}, {how, {5, 6, 7}});
  }
  if (what == "erase") return erased(image, words.box(), {255, 0, 3});
  fail(concat("no transform '", what, "'"));
}

bool equal(const float* made, const Tensor& expected) {
  return std::memcmp(made, expected.data<float>(), expected.view().bytes()) == 0;
}

bool same_normalised(const data::Image& image, Words words, const Tensor& expected) {
  data::ChannelNormalisation by;
  for (float& mean : by.mean) mean = static_cast<float>(words.next<double>());
  for (float& std : by.std) std = static_cast<float>(words.next<double>());
  std::vector<float> made(image.pixels.size());
  data::Normalizer(by).planes(image, made.data());
  return expected.shape() == Shape{3, image.height, image.width} && equal(made.data(), expected);
}

// By what: how many, how many other bytes, the largest difference.
struct Tally {
  int cases = 0, off = 0, largest = 0;
};

bool check_transforms(const std::filesystem::path& folder) {
  std::map<std::string, data::Image> images;
  std::map<std::string, Tally> tallies;
  bool good = true, newer = false;
  for (const auto& [key, expected] : load_safetensors(folder / "transforms").tensors) {
    std::istringstream head(key);
    std::string what, which, rest;
    head >> what >> which;
    std::getline(head, rest);
    if (what == "pillow") {
      newer = expected.item<std::int64_t>() >= 13;
      continue;
    }
    if (what == "image") {
      data::Image image(expected.size(0), expected.size(1));
      std::memcpy(image.pixels.data(), expected.raw(), image.pixels.size());
      images[which] = image;
      continue;
    }
    Tally& tally = tallies[what];
    ++tally.cases;
    int off = 0;
    if (what == "normalize") {
      off = same_normalised(images.at(which), Words(rest), expected) ? 0 : 255;
    } else {
      off = difference(transformed(what, images.at(which), Words(rest)), expected);
    }
    int allowed = what == "hue" || what == "rotate" || what == "affine" ? 1 : 0;
    if (what == "augment" && rest.ends_with("bilinear")) allowed = 1;
    // Pillow 13 weighs some parts of images otherwise than all before it, whose bytes these are.
    if (newer && (what == "resized_crop" || what == "real_box")) allowed = 8;
    if (off < 0 || off > allowed) {
      good = false;
      std::fprintf(stderr, "%s: differs by %d\n", key.c_str(), off);
    }
    tally.off += off != 0;
    tally.largest = std::max(tally.largest, off);
  }
  for (const auto& [what, tally] : tallies) {
    std::printf("%-12s %4d cases, %d of them not to the byte, largest difference %d\n",
                what.c_str(), tally.cases, tally.off, tally.largest);
  }
  return good && tallies.size() == 18;
}

bool check_mixed(const std::filesystem::path& folder) {
  std::map<std::string, Tensor> all;
  for (const auto& [name, tensor] : load_safetensors(folder / "mixed").tensors) all[name] = tensor;
  const data::Batch batch{all.at("x"), all.at("y")};
  const data::Batch mixed = data::mixup(batch, 4, 0.3125),
                    cut = data::cutmix(batch, 4, {2, 1, 5, 4});
  const bool good = equal(mixed.x.data<float>(), all.at("mixup.x")) &&
                    equal(mixed.y.data<float>(), all.at("mixup.y")) &&
                    equal(cut.x.data<float>(), all.at("cutmix.x")) &&
                    equal(cut.y.data<float>(), all.at("cutmix.y"));
  std::printf("mixup and cutmix: %s\n", good ? "the same bits" : "other values");
  return good;
}

// The pairs that AutoAugment draws from, and the strengths of operations.
bool check_policies(const std::filesystem::path& folder) {
  int cases = 0, wrong = 0;
  for (const auto& [key, expected] : load_safetensors(folder / "policies").tensors) {
    std::istringstream head(key);
    std::string what, which;
    head >> what >> which;
    bool good = true;
    if (what == "policy") {
      const auto policy = which == "imagenet"  ? data::AutoAugmentPolicy::imagenet
                          : which == "cifar10" ? data::AutoAugmentPolicy::cifar10
                                               : data::AutoAugmentPolicy::svhn;
      std::vector<float> own;
      for (const auto& pair : data::pairs_of(policy)) {
        for (const data::PolicyStep& step : pair) {
          own.push_back(static_cast<float>(step.op));
          own.push_back(step.p);
          own.push_back(static_cast<float>(step.bin.value_or(-1)));
        }
      }
      good = own == expected.to_vector<float>();
    } else {
      int op = 0;
      std::int64_t bins = 0, bin = 0;
      head >> op >> bins;
      for (const double magnitude : expected.to_vector<double>()) {
        const auto of = static_cast<data::AugmentOp>(op);
        const double own = which == "wide" ? data::wide_augment_magnitude(of, bin, bins)
                                           : data::augment_magnitude(of, bin, bins, {240, 321});
        good = good && std::abs(own - magnitude) <= 1e-6 * std::abs(magnitude);
        ++bin;
      }
    }
    ++cases;
    if (good) continue;
    ++wrong;
    std::fprintf(stderr, "%s: other numbers\n", key.c_str());
  }
  std::printf("%d policies and spaces, %d other than torchvision's\n", cases, wrong);
  return cases == 3 + 4 * 2 * 14 && wrong == 0;
}

bool check_grids(const std::filesystem::path& folder) {
  const std::vector<data::GridOptions> options{
      {},
      {.nrow = 3, .padding = 1},
      {.normalize = true, .pad_value = 0.7},
      {.nrow = 2, .padding = 0, .normalize = true, .scale_each = true},
      {.normalize = true, .value_range = std::pair{-0.5, 0.75}}};
  std::map<std::string, Tensor> all;
  for (const auto& [name, tensor] : load_safetensors(folder / "grids").tensors) all[name] = tensor;
  int cases = 0, wrong = 0;
  for (const auto& [key, expected] : all) {
    std::istringstream head(key);
    std::string what, which;
    std::size_t k = 0;
    head >> what >> which >> k;
    if (what == "images") continue;
    const Tensor& images = all.at("images " + which);
    bool good = false;
    if (what == "grid") {
      const Tensor grid = data::make_grid(images, options.at(k));
      good = grid.shape() == expected.shape() && equal(grid.data<float>(), expected);
    } else {
      data::save_image(images, folder / "own.png", options.at(k));
      good = difference(data::image_files(folder / "own.png")->image(0), expected) == 0;
    }
    ++cases;
    if (good) continue;
    ++wrong;
    std::fprintf(stderr, "%s: other values\n", key.c_str());
  }
  std::printf("%d grids and files of grids, %d other than torchvision's\n", cases, wrong);
  return cases == 40 && wrong == 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  const bool files = check_files(argv[1]), transforms = check_transforms(argv[1]);
  const bool grids = check_grids(argv[1]), policies = check_policies(argv[1]);
  return check_mixed(argv[1]) && files && transforms && grids && policies ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
