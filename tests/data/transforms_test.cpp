// SPDX-License-Identifier: Apache-2.0
// What transforms draw, that opening a file gives what the whole image would, and their errors.
// That pixels are torchvision's, for given parameters, is shown by torch_images.
#include <doctest/doctest.h>
#include <peal/autograd/core/context.h>
#include <peal/data/images/auto_augment.h>
#include <peal/data/images/colour.h>
#include <peal/data/images/mixup.h>
#include <peal/data/images/normalisation.h>
#include <peal/data/images/random_transforms.h>
#include <peal/data/images/tones.h>
#include <peal/data/loader.h>
#include <peal/tests/data/encode.h>
#include <peal/tests/errors.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

using namespace peal;
using data::Box;
using data::Draw;
using data::Image;
using testing::drawn_image;
using testing::error_of;

namespace {

Draw draw_of(std::int64_t i) { return data::Draws{.seed = 7}.of(i); }

bool inside(const Box& box, const data::ImageSize& size) {
  return box.top >= 0 && box.left >= 0 && box.height >= 1 && box.width >= 1 &&
         box.top + box.height <= size.height && box.left + box.width <= size.width;
}

}  // namespace

TEST_CASE("RandomResizedCrop: boxes of the area and shape asked for, anywhere") {
  const data::RandomResizedCrop crop(24);
  const data::ImageSize size{90, 160};
  double areas = 0, tops = 0;
  constexpr int count = 2000;
  for (int i = 0; i < count; ++i) {
    Draw draw = draw_of(i);
    const Box box = crop.box_of(size, draw);
    REQUIRE(inside(box, size));
    const double area = static_cast<double>(box.height * box.width) / (90 * 160);
    CHECK(area > 0.07);
    const double ratio = static_cast<double>(box.width) / static_cast<double>(box.height);
    CHECK(ratio > 0.7);
    CHECK(ratio < 1.43);
    areas += area / count;
    if (box.height < 90)
      tops += static_cast<double>(box.top) / static_cast<double>(90 - box.height);
  }
  CHECK(areas > 0.25);  // of 0.08 to 1, but squares of more than half do not fit
  CHECK(areas < 0.5);
  CHECK(tops / count == doctest::Approx(0.5).epsilon(0.1));
  // Where nothing fits: the middle, of a shape in range.
  Draw draw = draw_of(0);
  CHECK(crop.box_of({10, 1000}, draw).height == 10);
  CHECK(data::RandomResizedCrop(8, {.scale = {1, 1}}).box_of({10, 1000}, draw) ==
        Box{0, 493, 10, 13});
  CHECK(data::RandomResizedCrop(8, {.scale = {1, 1}}).box_of({1000, 12}, draw) ==
        Box{492, 0, 16, 12});
  CHECK(data::RandomResizedCrop(8, {.scale = {1, 1}, .ratio = {1, 1}}).box_of({9, 9}, draw) ==
        Box{0, 0, 9, 9});
  CHECK(inside(crop.box_of({1, 1}, draw), {1, 1}));
}

TEST_CASE("what is opened from a file is what the whole image would give") {
  const Image image = drawn_image(120, 150);
  const data::Compose steps[]{
      data::Compose{},
      data::Compose{data::RandomResizedCrop(32), data::RandomHorizontalFlip()},
      data::Compose{data::Resize(48), data::CenterCrop(40)},
      data::Compose{data::CenterCrop(64), data::RandomErasing({.p = 1})},
      data::Compose{data::CenterCrop(data::ImageSize{200, 64})},
      data::Compose{data::Resize(data::ImageSize{30, 70}), data::RandomCrop(30, {.padding = 4})},
      data::Compose{data::Compose{data::RandomRotation(30)}, data::Pad(3), data::Grayscale()},
      data::Compose{data::ColorJitter({0.4, 0.4, 0.4, 0.1}), data::RandomVerticalFlip()},
      data::Compose{data::TrivialAugmentWide(), data::AutoAugment(), data::RandAugment()}};
  for (const bool jpeg : {true, false}) {
    const auto file = jpeg ? testing::jpeg_of(image) : testing::png_of(image);
    const Image whole = data::decode_image(file, "F");
    for (const data::Compose& step : steps) {
      for (std::int64_t i = 0; i < 5; ++i) {
        Draw one = draw_of(i), two = draw_of(i);
        data::EncodedImage encoded(file, "F");
        CHECK(step.open(encoded, one) == step.apply(whole, two));
      }
    }
  }
}

TEST_CASE("decoded at a smaller scale, an image is about the same") {
  const Image image = drawn_image(240, 360);
  const auto file = testing::jpeg_of(image, {95, 1, 1, false, false});
  const auto difference = [](const Image& a, const Image& b) {
    REQUIRE(a.size() == b.size());
    double sum = 0;
    for (std::size_t i = 0; i < a.pixels.size(); ++i) sum += std::abs(a.pixels[i] - b.pixels[i]);
    return sum / static_cast<double>(a.pixels.size());
  };
  for (std::int64_t i = 0; i < 20; ++i) {
    const auto made = [&](bool scaled) {
      data::EncodedImage encoded(file, "F");
      Draw draw = draw_of(i);
      return data::RandomResizedCrop(24, {.scaled_decode = scaled}).open(encoded, draw);
    };
    CHECK(difference(made(true), made(false)) < 6);
  }
  data::EncodedImage one(file, "F"), two(file, "F");
  Draw draw = draw_of(0);
  CHECK(difference(data::Resize(24, {.scaled_decode = true}).open(one, draw),
                   data::Resize(24).open(two, draw)) < 4);
}

TEST_CASE("crops, flips, erasures and jitter draw what they say") {
  const data::RandomCrop crop(4, {.padding = 1});
  std::set<std::pair<std::int64_t, std::int64_t>> places;
  std::set<std::array<int, 4>> orders;
  int flips = 0, erasures = 0;
  double angles = 0;
  const data::ColorJitter jitter({0.5, 2, 0, 0.1});
  constexpr int count = 1000;
  for (int i = 0; i < count; ++i) {
    Draw draw = draw_of(i);
    const Box box = crop.box_of({6, 7}, draw);
    REQUIRE(inside(box, {6, 7}));
    places.emplace(box.top, box.left);
    const Image pair = [] {
      Image two(1, 2);
      two.pixels[0] = 1;
      return two;
    }();
    flips += data::RandomHorizontalFlip(0.3).apply(pair, draw) != pair;
    const auto erased = data::RandomErasing({.p = 0.5}).box_of({20, 30}, draw);
    erasures += erased.has_value();
    if (erased) {
      CHECK(inside(*erased, {20, 30}));
      CHECK(erased->height * erased->width < 230);
    }
    angles += data::RandomRotation(10).angle_of(draw) / count;
    const auto drawn = jitter.drawn(draw);
    orders.insert(drawn.order);
    CHECK((*drawn.factor[0] >= 0.5 && *drawn.factor[0] <= 1.5));
    CHECK((*drawn.factor[1] >= 0 && *drawn.factor[1] <= 3));
    CHECK(!drawn.factor[2]);
    CHECK(std::abs(*drawn.factor[3]) <= 0.1);
  }
  CHECK(places.size() == 12);
  CHECK(orders.size() == 24);
  CHECK(std::abs(flips - 300) < 60);
  CHECK(std::abs(erasures - 500) < 70);
  CHECK(std::abs(angles) < 1);
  // An erased box is the mean colour, which is nearly 0 once it is normalised.
  Draw draw = draw_of(3);
  const Image after = data::RandomErasing({.p = 1}).apply(Image(20, 30), draw);
  const auto grey =
      std::max_element(after.pixels.begin(), after.pixels.end()) - after.pixels.begin();
  REQUIRE(after.pixels[static_cast<std::size_t>(grey)] > 0);
  for (std::size_t c = 0; c < 3; ++c) {
    const float erased = static_cast<float>(after.pixels[static_cast<std::size_t>(grey) + c]) / 255;
    const auto& [mean, std] = data::imagenet_normalisation;
    CHECK(std::abs((erased - mean[c]) / std[c]) < 0.01f);
  }
  // The order counts.
  const Image image = drawn_image(9, 9);
  const auto jittered = [&](const std::array<int, 4>& order) {
    return data::ColorJitter::apply(image, {order, {1.4, 0.6, 1.2, 0.1}});
  };
  CHECK(
      jittered({0, 1, 2, 3}) ==
      hue_adjusted(
          saturation_adjusted(contrast_adjusted(brightness_adjusted(image, 1.4), 0.6), 1.2), 0.1));
  CHECK(jittered({3, 2, 1, 0}) != jittered({0, 1, 2, 3}));
}

TEST_CASE("automatic augmentation draws from its space, with either sign") {
  using data::AugmentOp;
  std::map<AugmentOp, int> trivial, randomly, pairs;
  std::set<double> degrees;
  std::size_t most = 0;
  int skipped = 0;
  constexpr int count = 2000;
  const data::ImageSize size{331, 662};
  for (int i = 0; i < count; ++i) {
    Draw draw = draw_of(i);
    const data::AugmentStep step = data::TrivialAugmentWide(5).drawn(draw);
    ++trivial[step.op];
    if (step.op == AugmentOp::rotate) degrees.insert(step.magnitude);
    const auto two = data::RandAugment().drawn(size, draw);
    REQUIRE(two.size() == 2);
    for (const data::AugmentStep& each : two) {
      ++randomly[each.op];
      if (each.op == AugmentOp::translate_x) CHECK(std::abs(each.magnitude) == 90);
      if (each.op == AugmentOp::translate_y) CHECK(std::abs(each.magnitude) == 45);
    }
    const auto pair = data::AutoAugment(data::AutoAugmentPolicy::svhn).drawn(size, draw);
    most = std::max(most, pair.size());
    skipped += pair.empty();
    for (const data::AugmentStep& each : pair) ++pairs[each.op];
  }
  CHECK(degrees == std::set<double>{-135, -101.25, -67.5, -33.75, 0, 33.75, 67.5, 101.25, 135});
  CHECK(trivial.size() == 14);
  CHECK(randomly.size() == 14);
  for (const auto& [op, times] : trivial) {
    CHECK(op != AugmentOp::invert);
    CHECK(std::abs(times - count / 14) < 60);
    CHECK(std::abs(randomly[op] - count / 7) < 85);
  }
  CHECK(most == 2);
  CHECK(skipped > 0);
  CHECK(pairs.count(AugmentOp::posterize) == 0);  // in no pair of it
  CHECK(pairs[AugmentOp::invert] > count / 5);
  const Image image = drawn_image(9, 9);
  CHECK(data::augmented(image, {AugmentOp::identity}) == image);
  CHECK(data::augmented(image, {AugmentOp::sharpness, 0.5}) == sharpness_adjusted(image, 1.5));
  const Image gone = data::augmented(image, {AugmentOp::translate_y, -8.9}, {.fill = {1, 2, 3}});
  CHECK(std::equal(gone.row(0), gone.row(1), image.row(8)));
  CHECK(std::vector<std::uint8_t>(gone.row(1), gone.row(1) + 3) ==
        std::vector<std::uint8_t>{1, 2, 3});
  CHECK(data::posterized(image, 0) == Image(9, 9));
  CHECK(data::inverted(data::inverted(image)) == image);
}

TEST_CASE("what automatic augmentation refuses") {
  const Image image = drawn_image(4, 4);
  CHECK(
      error_of([] { data::RandAugment(2, 31); }) ==
      "[data] augment: expected a magnitude below the number of bins, and at least 2 of these, got "
      "magnitude 31 of 31");
  CHECK(error_of([] { data::TrivialAugmentWide(1); }).find("magnitude 0 of 1") !=
        std::string::npos);
  CHECK(error_of([] { data::RandAugment(0); }) ==
        "[data] RandAugment: expected at least 1 operation, got 0");
  CHECK(error_of([&] { data::posterized(image, 9); }) ==
        "[data] posterize: expected 0 to 8 bits, got 9");
  CHECK(error_of([] { data::augmented(Image(4, 4, 1), {data::AugmentOp::equalize}); }) ==
        "[data] augment: expected an image of 3 channels, got 1");
  CHECK(error_of([&] {
          affine(image, 0, {0, 0}, 0, {0, 0});
        }).find("a scale above 0") != std::string::npos);
  CHECK(error_of([&] {
          affine(image, 0, {0, 0}, 1, {90, 0});
        }).find("a picture to be left") != std::string::npos);
}

TEST_CASE("shares of mixtures come from the beta distribution") {
  for (const double alpha : {0.1, 0.4, 1.0, 3.0}) {
    constexpr int count = 4000;
    double sum = 0, squares = 0;
    Draw draw(9);
    for (int i = 0; i < count; ++i) {
      const double x = data::drawn_beta(alpha, draw);
      REQUIRE((x >= 0 && x <= 1));
      sum += x / count;
      squares += x * x / count;
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    CHECK(std::abs(sum - 0.5) < 5 * std::sqrt(variance / count));
    CHECK(std::abs(squares - sum * sum - variance) < 0.15 * variance);
  }
  Draw draw(4);
  double kept = 0;
  for (int i = 0; i < 500; ++i) {
    const Box box = data::cutmix_box({16, 24}, 0.75, draw);
    CHECK((box.top >= 0 && box.left >= 0 && box.height >= 0 && box.width >= 0));
    CHECK((box.top + box.height <= 16 && box.left + box.width <= 24));
    CHECK((box.height <= 8 && box.width <= 12));
    kept += 1 - static_cast<double>(box.height * box.width) / (16 * 24.0);
  }
  CHECK(kept / 500 > 0.75);  // boxes are cut at the edges
  CHECK(data::cutmix_box({16, 24}, 1, draw).height == 0);
}

TEST_CASE("a mixed batch has its sums of classes, and others are errors") {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor y = Tensor::from<std::int64_t>({0, 2, 2}, {3});
  const auto mixed = data::mixup({x, y}, 3, 0.75);
  CHECK(mixed.x.to_vector<float>() == std::vector<float>{2, 3, 2.5, 3.5, 4.5, 5.5});
  CHECK(mixed.y.to_vector<float>() ==
        std::vector<float>{0.75f, 0, 0.25f, 0.25f, 0, 0.75f, 0, 0, 1});
  CHECK(data::mixup({Tensor::zeros({0, 2}), Tensor::zeros({0}, DType::i64)}, 3, 0.5).y.shape() ==
        Shape{0, 3});
  CHECK(error_of([&] {
          data::mixup({x, y}, 2, 0.5);
        }) == "[data] mixup: expected classes from 0 to 1, sample 1 has 2");
  CHECK(error_of([&] {
          data::mixup({x, y}, 3, 1.5);
        }) == "[data] mixup: expected a share from 0 to 1, got 1.5");
  CHECK(error_of([&] {
          data::mixup({x, x}, 3, 0.5);
        }) == "[data] mixup: expected x of f32 [B, ...] and classes y of i64 [B], both on the CPU");
  CHECK(error_of([&] {
          data::cutmix({x, y}, 3, {});
        }) == "[data] cutmix: expected images x [B, C, H, W]");
  CHECK(error_of([&] {
          data::cutmix({Tensor::zeros({3, 1, 4, 4}), y}, 3, {2, 0, 3, 1});
        }) == "[data] cutmix: expected a box inside of 4 x 4 pixels, got 3 x 1 at row 2, column 0");
}

TEST_CASE("a set that mixes: batches for training, the same on any workers") {
  struct Ramp : data::Dataset {
    std::int64_t size() const override { return 20; }
    data::Batch get(std::span<const std::int64_t> indices) const override {
      const auto count = static_cast<std::int64_t>(indices.size());
      data::Batch batch{Tensor::zeros({count, 1, 4, 4}), Tensor::zeros({count}, DType::i64)};
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t sample = indices[static_cast<std::size_t>(i)];
        for (int j = 0; j < 16; ++j) {
          batch.x.data<float>()[16 * i + j] = static_cast<float>(sample);
        }
        batch.y.data<std::int64_t>()[i] = sample % 3;
      }
      return batch;
    }
  };
  const auto ramp = std::make_shared<Ramp>();
  for (const data::MixOptions& options : {data::MixOptions{3, 0.4, 0}, {3, 0, 1}, {3, 0.4, 1}}) {
    const auto mixed = std::make_shared<data::Mixed>(ramp, options);
    const auto batches = [&](int workers, std::int64_t epoch) {
      data::DataLoader loader(mixed,
                              {.batch_size = 6, .shuffle = true, .seed = 2, .workers = workers});
      loader.set_epoch(epoch);
      std::vector<float> values;
      while (const auto batch = loader.next()) {
        CHECK(batch->y.shape() == Shape{batch->size(), 3});
        for (std::int64_t i = 0; i < batch->size(); ++i) {
          const float* row = batch->y.data<float>() + 3 * i;
          CHECK(row[0] + row[1] + row[2] == doctest::Approx(1));
        }
        for (const Tensor& each : {batch->x, batch->y}) {
          const auto all = each.to_vector<float>();
          values.insert(values.end(), all.begin(), all.end());
        }
      }
      return values;
    };
    const auto once = batches(0, 0);
    CHECK(batches(2, 0) == once);
    CHECK(batches(0, 1) != once);
    CHECK(mixed->get(std::vector<std::int64_t>{4}).y.item<std::int64_t>() == 1);
    CHECK(mixed->augmented({}, {}).y.shape() == Shape{0, 3});
  }
  CHECK(error_of([&] {
          data::Mixed(ramp, {3, 0, 0});
        }) == "[data] mixup: expected an alpha above 0 of mixup or cutmix, got 0 and 0");
  CHECK(error_of([&] { data::Mixed(ramp, {.mixup = 1}); }) ==
        "[data] mixup: expected at least 1 class, got 0");
}

TEST_CASE("a batch is mixed where it is, whatever the thread's device") {
  const Tensor x = Tensor::zeros({2, 1, 4, 4}, DType::f32, Device{});
  const Tensor y = Tensor::zeros({2}, DType::i64, Device{});
  context().device = {DeviceType::cuda, 0};
  const std::string failure = error_of([&] {
    CHECK(data::mixup({x, y}, 3, 0.75).y.device() == Device{});
    CHECK(data::cutmix({x, y}, 3, {0, 0, 2, 2}).y.device() == Device{});
  });
  context().device = {};
  CHECK(failure == "nothing");
}

TEST_CASE("transforms say what they cannot do") {
  const Image image = drawn_image(8, 9);
  Draw draw(1);
  CHECK(error_of([] { data::RandomHorizontalFlip(1.5); }) ==
        "[data] RandomHorizontalFlip: expected a probability from 0 to 1, got 1.5");
  CHECK(error_of([] {
          data::RandomResizedCrop(data::ImageSize{0, 3});
        }) == "[data] RandomResizedCrop: expected a size of at least 1 x 1, got 0 x 3");
  CHECK(error_of([] {
          data::RandomResizedCrop(4, {.scale = {0.5, 1.5}});
        }) ==
        "[data] RandomResizedCrop: expected shares of the area of 0 < low <= high <= 1 and ratios "
        "of 0 < low <= high, got 0.5 to 1.5 and 0.75 to 1.3333333333333333");
  CHECK(
      error_of([&] { data::RandomCrop(9).apply(image, draw); }) ==
      "[data] RandomCrop: expected an image of at least 9 x 9 pixels, got 8 x 9 with its padding");
  CHECK(error_of([&] {
          resized(image, {0, 4});
        }) == "[data] resize: expected a size from 1 x 1 to 89478485 pixels, got 0 x 4");
  CHECK(error_of([&] {
          resized(image, {0, 0, 8.5, 9}, {4, 4});
        }) ==
        "[data] resize: expected a box inside of 8 x 9 pixels, got 8.5 x 9 at row 0, column 0");
  CHECK(error_of([&] {
          padded(image, {0, 8, 0, 0}, {}, data::BorderMode::reflect);
        }) == "[data] pad: a border of 8 pixels cannot mirror an image of 8 x 9");
  CHECK(error_of([&] {
          padded(image, {10'000, 10'000, 0, 0});
        }) ==
        "[data] pad: expected a result of at most 89478485 pixels, got 10008 x 10009; give a "
        "smaller border");
  testing::check_has(
      error_of([] { rotated(Image(1, 14'000), 45, data::Interpolation::nearest, true); }),
      "[data] rotate: expected a result of at most 89478485 pixels, got 990");
  CHECK(error_of([] { data::RandomCrop(4, {.padding = -4}); }) ==
        "[data] RandomCrop: expected a padding of at least 0, got -4");
  CHECK(error_of([&] { data::drawn_beta(std::numeric_limits<double>::infinity(), draw); }) ==
        "[data] mixup: expected a finite alpha above 0, got inf");
  CHECK(error_of([&] { brightness_adjusted(image, -1); }) ==
        "[data] brightness: expected a factor of at least 0, got -1");
  CHECK(error_of([&] { hue_adjusted(image, 0.6); }) ==
        "[data] hue: expected a share from -0.5 to 0.5, got 0.6");
  CHECK(error_of([&] { rotated(image, 5, data::Interpolation::bicubic); }) ==
        "[data] rotate: expected the interpolation nearest or bilinear");
  CHECK(error_of([&] {
          erased(image, {0, 0, 9, 1});
        }) == "[data] erase: expected a box inside of 8 x 9 pixels, got 9 x 1 at row 0, column 0");
  CHECK(error_of([] { data::Resize(8, {.max_size = 8}); }) ==
        "[data] resize: expected a shorter side of at least 1, and a longest one above it, got 8 "
        "and 8");
}

TEST_CASE("to_tensor: each channel's bytes over 255, of however many channels") {
  const Image image = drawn_image(5, 7);
  std::vector<float> planes(3 * 5 * 7);
  data::Normalizer().planes(image, planes.data());
  const Tensor made = data::to_tensor(image);
  CHECK(made.shape() == Shape{3, 5, 7});
  CHECK(made.to_vector<float>() == planes);
  Image grey(2, 2, 1);
  grey.pixels = {0, 51, 102, 255};
  CHECK(data::to_tensor(grey).shape() == Shape{1, 2, 2});
  CHECK(data::to_tensor(grey).to_vector<float>() ==
        std::vector<float>{0, 51 / 255.0f, 102 / 255.0f, 1});
  grey.pixels.pop_back();
  CHECK(error_of([&] { data::to_tensor(grey); }) ==
        "[data] to_tensor: expected 2 x 2 x 1 bytes, got 3");
}
