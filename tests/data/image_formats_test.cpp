// SPDX-License-Identifier: Apache-2.0
// Decoders of JPEG and PNG on good and bad bytes. That their pixels are PIL's is shown by
// torch_images.
#include <doctest/doctest.h>
#include <peal/data/formats/encoded_image.h>
#include <peal/data/formats/jpeg.h>
#include <peal/data/formats/png.h>
#include <peal/tests/data/encode.h>
#include <peal/tests/errors.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

using namespace peal;
using data::Box;
using data::Image;
using testing::check_has;
using testing::drawn_image;
using testing::jpeg_of;
using testing::png_of;

namespace {

using Bytes = std::vector<std::uint8_t>;

std::string decode_error(const Bytes& bytes, std::int64_t most = data::most_pixels) {
  return testing::error_of([&] { data::decode_image(bytes, "F", most); });
}

double mean_difference(const Image& a, const Image& b) {
  REQUIRE(a.size() == b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.pixels.size(); ++i) sum += std::abs(a.pixels[i] - b.pixels[i]);
  return sum / static_cast<double>(a.pixels.size());
}

}  // namespace

TEST_CASE("a PNG gives back every pixel") {
  for (const bool interlaced : {false, true}) {
    for (const auto& [height, width] : {std::pair{1, 1}, {7, 5}, {33, 64}}) {
      const Image image = drawn_image(height, width);
      CHECK(data::decode_image(png_of(image, interlaced), "F") == image);
    }
  }
}

TEST_CASE("what is written as PNG is read again") {
  for (const auto& [height, width] : {std::pair{1, 1}, {7, 5}, {33, 64}}) {
    const Image image = drawn_image(height, width);
    CHECK(data::decode_image(data::encode_png(image, "F"), "F") == image);
  }
  Image grey(2, 3, 1), three(2, 3);
  for (std::size_t i = 0; i < 6; ++i) {
    grey.pixels[i] = static_cast<std::uint8_t>(40 * i);
    std::fill_n(three.pixels.begin() + static_cast<std::ptrdiff_t>(3 * i), 3, grey.pixels[i]);
  }
  CHECK(data::decode_image(data::encode_png(grey, "F"), "F") == three);
  check_has(testing::error_of([] { data::encode_png(Image(2, 3, 4), "F"); }),
            "F: a PNG is written of one or three channels and at least one pixel, got 2 x 3 of 4");
  check_has(testing::error_of([] { data::encode_png(Image(0, 3), "F"); }), "got 0 x 3 of 3");
}

TEST_CASE("a PNG of any depth, grey or with a palette, becomes eight bits of three colours") {
  using testing::PngForm;
  std::vector<PngForm> forms;
  for (const bool interlaced : {false, true}) {
    for (const bool transparent : {false, true}) {
      for (const int depth : {1, 2, 4, 8, 16}) {
        forms.push_back({PNG_COLOR_TYPE_GRAY, depth, interlaced, transparent});
        if (depth < 16) forms.push_back({PNG_COLOR_TYPE_PALETTE, depth, interlaced, transparent});
        if (depth < 8) continue;
        forms.push_back({PNG_COLOR_TYPE_RGB, depth, interlaced, transparent});
        if (transparent) continue;
        forms.push_back({PNG_COLOR_TYPE_GRAY_ALPHA, depth, interlaced, false});
        forms.push_back({PNG_COLOR_TYPE_RGB_ALPHA, depth, interlaced, false});
      }
    }
  }
  const Image image = drawn_image(13, 11);
  for (const PngForm& form : forms) {
    CAPTURE(form.type);
    CAPTURE(form.depth);
    CAPTURE(form.interlaced);
    CAPTURE(form.transparent);
    Image expected = image;
    for (std::size_t i = 0; i < expected.pixels.size(); i += 3) {
      std::uint8_t* pixel = &expected.pixels[i];
      const int level = pixel[0] >> std::max(0, 8 - form.depth);
      if (form.type == PNG_COLOR_TYPE_PALETTE) {
        const png_color colour = testing::palette_colour(level);
        pixel[0] = colour.red, pixel[1] = colour.green, pixel[2] = colour.blue;
      } else if ((form.type & PNG_COLOR_MASK_COLOR) == 0) {
        const int top = (1 << std::min(8, form.depth)) - 1;
        std::fill_n(pixel, 3, static_cast<std::uint8_t>(level * 255 / top));
      }
    }
    const Bytes file = png_of(image, form);
    CHECK(data::decode_image(file, "F") == expected);
    CHECK(data::EncodedImage(file, "F").decode(Box{2, 3, 4, 5}) == cropped(expected, {2, 3, 4, 5}));
  }
}

TEST_CASE("JPEGs of grey, of inks and of coarse colours, and boxes of them") {
  const Image image = drawn_image(61, 83);
  for (const bool progressive : {false, true}) {
    const testing::JpegForm forms[]{
        {95, 4, 1, progressive},
        {95, 1, 1, progressive, false, JCS_CMYK},
        {95, 1, 1, progressive, false, JCS_YCCK},
        {95, 1, 1, progressive, true},
    };
    for (const testing::JpegForm& form : forms) {
      CAPTURE(progressive);
      CAPTURE(form.inks);
      CAPTURE(form.grey);
      const Bytes file = jpeg_of(image, form);
      const Image whole = data::decode_image(file, "F");
      if (!form.grey) CHECK(mean_difference(whole, image) < 12);
      for (const Box& box : {Box{0, 0, 61, 83}, Box{60, 82, 1, 1}, Box{7, 33, 20, 9},
                             Box{31, 0, 30, 83}, Box{0, 17, 61, 40}}) {
        CAPTURE(box.left);
        CHECK(data::EncodedImage(file, "F").decode(box) == cropped(whole, box));
      }
      const Image half = data::JpegReader(file, "F").read({}, 4);
      CHECK(data::JpegReader(file, "F").read(Box{3, 17, 20, 9}, 4) ==
            cropped(half, {3, 17, 20, 9}));
    }
  }
}

TEST_CASE("a JPEG of more scans than any has, or of two colours, is refused") {
  CHECK(decode_error(jpeg_of(drawn_image(8, 8), {.across = 1, .down = 1, .many_scans = true})) ==
        "[data] F: cannot be read as JPEG: more than 500 scans; copy or download the file again, "
        "or leave it out");
  // Two of grey's components, by its headers: of the frame and of the scan.
  Bytes two = jpeg_of(drawn_image(8, 8), {.grey = true});
  const auto grown = [&](std::uint8_t marker, std::size_t count_at, std::size_t each) {
    for (std::size_t i = 2; i + 1 < two.size(); ++i) {
      if (two[i] != 0xff || two[i + 1] != marker) continue;
      const std::size_t at = i + count_at;
      two[i + 3] = static_cast<std::uint8_t>(two[i + 3] + each);
      two[at] = 2;
      Bytes more(two.begin() + static_cast<std::ptrdiff_t>(at + 1),
                 two.begin() + static_cast<std::ptrdiff_t>(at + 1 + each));
      more[0] = 2;
      two.insert(two.begin() + static_cast<std::ptrdiff_t>(at + 1 + each), more.begin(),
                 more.end());
      return;
    }
  };
  grown(0xc0, 9, 3);
  grown(0xda, 4, 2);
  check_has(decode_error(two), "[data] F: cannot be read as JPEG: ");
}

TEST_CASE("a JPEG is nearly what was packed, whatever its form") {
  const Image image = drawn_image(61, 83);
  for (const bool progressive : {false, true}) {
    for (const auto& [across, down] : {std::pair{1, 1}, {2, 1}, {2, 2}, {1, 2}}) {
      const Image got =
          data::decode_image(jpeg_of(image, {95, across, down, progressive, false}), "F");
      CHECK(mean_difference(got, image) < 12);
    }
  }
  const Image grey = data::decode_image(jpeg_of(image, {.grey = true}), "F");
  for (std::size_t i = 0; i < grey.pixels.size(); i += 3) {
    REQUIRE(grey.pixels[i] == grey.pixels[i + 1]);
    REQUIRE(grey.pixels[i] == grey.pixels[i + 2]);
  }
}

TEST_CASE("a box of a JPEG has the bytes of the whole, wherever it is") {
  std::mt19937 random(5);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(n));
  };
  for (const bool progressive : {false, true}) {
    for (const auto& [across, down] : {std::pair{1, 1}, {2, 1}, {2, 2}, {1, 2}}) {
      CAPTURE(progressive);
      CAPTURE(across);
      CAPTURE(down);
      const Bytes file = jpeg_of(drawn_image(97, 131), {80, across, down, progressive, false});
      for (const int eighths : {8, 4, 2, 1}) {
        data::JpegReader reader(file, "F");
        const data::ImageSize size = reader.size(eighths);
        const Image whole = reader.read({}, eighths);
        REQUIRE(whole.size() == size);
        for (int turn = 0; turn < 60; ++turn) {
          Box box{below(size.height), below(size.width), 1, 1};
          box.height += below(size.height - box.top);
          box.width += below(size.width - box.left);
          if (turn == 0) box = {0, 0, size.height, size.width};
          if (turn == 1) box = {size.height - 1, size.width - 1, 1, 1};
          CAPTURE(eighths);
          CAPTURE(box.top);
          CAPTURE(box.left);
          CAPTURE(box.height);
          CAPTURE(box.width);
          REQUIRE(data::JpegReader(file, "F").read(box, eighths) == cropped(whole, box));
        }
      }
    }
  }
}

TEST_CASE("about a size: the smallest scale that has enough pixels, and where the box is in it") {
  const Image image = drawn_image(120, 200);
  const Bytes jpeg = jpeg_of(image, {95, 1, 1, false, false}), png = png_of(image);
  data::EncodedImage encoded(jpeg, "F");
  const Box box{9, 31, 101, 150};
  for (const auto& [least, eighths] : {std::pair{101, 8}, {50, 4}, {51, 8}, {25, 2}, {12, 1}}) {
    const auto part = encoded.decode_about(box, {least, least});
    const double scale = eighths / 8.0;
    CHECK(part.height == 101 * scale);
    CHECK(part.width == 150 * scale);
    CHECK(part.top >= 0);
    CHECK(part.left >= 0);
    CHECK(part.top < 1);
    CHECK(part.left < 1);
    CHECK(part.top + part.height <= static_cast<double>(part.image.height));
    CHECK(part.left + part.width <= static_cast<double>(part.image.width));
  }
  CHECK(encoded.decode_about(box, {101, 101}).image == cropped(encoded.decode(), box));
  data::EncodedImage other(png, "F");
  CHECK(other.decode_about(box, {12, 12}).image == cropped(image, box));
  // At half the size each pixel is about the mean of four.
  const auto half = encoded.decode_about({0, 0, 120, 200}, {60, 100}).image;
  Image mean(60, 100);
  const Image whole = encoded.decode();
  for (std::int64_t y = 0; y < 60; ++y) {
    for (std::int64_t i = 0; i < 300; ++i) {
      const auto at = [&](std::int64_t dy, std::int64_t dx) {
        return int{whole.row(2 * y + dy)[3 * (2 * (i / 3) + dx) + i % 3]};
      };
      mean.row(y)[i] = static_cast<std::uint8_t>((at(0, 0) + at(0, 1) + at(1, 0) + at(1, 1)) / 4);
    }
  }
  CHECK(mean_difference(half, mean) < 3);
}

TEST_CASE("every truncation is an error that names the file, or has all pixels") {
  const Image image = drawn_image(40, 56);
  for (const bool jpeg : {true, false}) {
    const Bytes file = jpeg ? jpeg_of(image) : png_of(image);
    const Image whole = data::decode_image(file, "F");
    int good = 0;
    for (std::size_t size = 0; size < file.size(); ++size) {
      CAPTURE(jpeg);
      CAPTURE(size);
      const Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
      const std::string error = decode_error(cut);
      if (error == "nothing") {  // all but what follows the pixels
        CHECK(data::decode_image(cut, "F") == whole);
        ++good;
      } else {
        check_has(error, "[data] F: ");
      }
    }
    CHECK(good <= 20);
  }
  Bytes cut = jpeg_of(image);
  cut.resize(cut.size() / 2);
  CHECK(decode_error(cut) ==
        "[data] F: cannot be read as JPEG: Premature end of JPEG file; copy or download the file "
        "again, or leave it out");
  cut = png_of(image);
  cut.resize(cut.size() / 2);
  CHECK(decode_error(cut) ==
        "[data] F: cannot be read as PNG: the file is truncated; copy or download the file again, "
        "or leave it out");
}

TEST_CASE("damaged files are errors with the name, or images of the same size") {
  const Image image = drawn_image(24, 30);
  for (const Bytes& file : {jpeg_of(image), jpeg_of(image, {.progressive = true}), png_of(image)}) {
    int errors = 0;
    for (std::size_t at = 0; at < file.size(); ++at) {
      Bytes damaged = file;
      damaged[at] ^= 0x55;
      const std::string error = decode_error(damaged, 1 << 20);
      if (error == "nothing") continue;
      check_has(error, "[data] F: ");
      ++errors;
    }
    CHECK(errors > 20);
  }
}

TEST_CASE("what is no image, and what asks for too much") {
  CHECK(decode_error({}) ==
        "[data] F: expected a JPEG or PNG image, got 0 bytes that are neither (an empty file)");
  CHECK(decode_error({'G', 'I', 'F', '8', '9', 'a'}) ==
        "[data] F: expected a JPEG or PNG image, got 6 bytes that are neither");
  const Image image = drawn_image(20, 30);
  for (const Bytes& file : {jpeg_of(image), png_of(image)}) {
    CHECK(decode_error(file, 600) == "nothing");
    CHECK(decode_error(file, 599) ==
          "[data] F: expected at most 599 pixels, its header says 20 x 30; where that is meant, "
          "allow it (max_pixels)");
    data::EncodedImage encoded(file, "F");
    CHECK(testing::error_of([&] {
            encoded.decode(Box{10, 0, 11, 30});
          }) ==
          "[data] F: expected a box inside of 20 x 30 pixels, got 11 x 30 at row 10, column 0");
    for (const Box& box :
         {Box{0, 0, 0, 1}, Box{-1, 0, 5, 5}, Box{0, 30, 1, 1}, Box{0, 1, 20, 30}}) {
      check_has(testing::error_of([&] { encoded.decode(box); }), "expected a box inside");
    }
    CHECK(encoded.decode(Box{3, 4, 5, 6}) == cropped(encoded.decode(), Box{3, 4, 5, 6}));
  }
  Bytes png = png_of(image);
  for (std::size_t i = 16; i < 24; ++i) png[i] = 0;
  check_has(decode_error(png), "expected an image of at least 1 x 1 pixels");
}
