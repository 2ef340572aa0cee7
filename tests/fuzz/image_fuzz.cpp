// SPDX-License-Identifier: Apache-2.0
// libFuzzer on the readers of JPEG and PNG. Whatever the bytes: an image of the size that its
// header says, or a peal::Error; and a box of it, or it at a smaller scale, likewise. Where the
// whole can be read, a box of a box is inside of it.
#include <peal/autograd/core/error.h>
#include <peal/data/formats/encoded_image.h>

#include <cstdlib>
#include <optional>

namespace {

using namespace peal;

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    data::EncodedImage image({data, size}, "F", std::int64_t{1} << 16);
    const data::ImageSize whole = image.size();
    const auto of = [&](std::size_t at, std::int64_t limit) {
      return static_cast<std::int64_t>(data[at % size]) * limit / 256;
    };
    data::Box box{of(size / 2, whole.height), of(size / 3, whole.width), 1, 1};
    box.height += of(size / 5, whole.height - box.top);
    box.width += of(size / 7, whole.width - box.left);
    const auto attempt = [](const auto& call) {
      try {
        call();
      } catch (const Error&) {
      }
    };
    attempt([&] {
      const data::Image part = image.decode(box);
      require(part.height == box.height && part.width == box.width &&
              part.pixels.size() == static_cast<std::size_t>(3 * box.height * box.width));
    });
    attempt([&] {
      const auto part = image.decode_about(box, {box.height / 5 + 1, box.width / 5 + 1});
      require(part.top >= 0 && part.left >= 0 && part.height > 0 && part.width > 0 &&
              part.top + part.height <= static_cast<double>(part.image.height) &&
              part.left + part.width <= static_cast<double>(part.image.width));
    });
    attempt([&] { require(image.decode().size() == whole); });
  } catch (const Error&) {
  }
  return 0;
}
