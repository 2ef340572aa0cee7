// SPDX-License-Identifier: Apache-2.0
// JPEG, read by libjpeg-turbo into RGB, with PIL's results to the byte: its slow and exact inverse
// transform and smooth upsampling; a grey image has three equal channels, one of four inks is
// converted as PIL converts it. Of the whole image or of a box of it, at full size or at k eighths
// of it (the transform gives fewer pixels a block, which saves most of the work).
//
// Invariant: whatever the bytes, an image of the size that was asked for or an Error that has the
// name; a file that ends early is an Error (as in PIL), while damage that libjpeg can mend is
// mended. Thread safety: none; one reader, one thread. REQUIRES: the content outlives the reader.
#pragma once

#include <peal/data/formats/image.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace peal::data {

bool starts_as_jpeg(std::span<const std::uint8_t> content);

class JpegReader {
 public:
  // Reads the header. `name` is what errors call the content. Errors: no JPEG, more than
  // max_pixels.
  JpegReader(std::span<const std::uint8_t> content, std::string name,
             std::int64_t max_pixels = most_pixels);
  ~JpegReader();
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  // Of the whole image at k eighths, 1 <= k <= 8: each side rounded up.
  ImageSize size(int eighths = 8) const;
  // The image, or the box of it in pixels of size(eighths); once. Of a box the same bytes as in the
  // whole. Errors: a box outside of it, a broken or truncated file, a colour space that is not
  // RGB, YCbCr, grey, CMYK or YCCK.
  Image read(const std::optional<Box>& box = {}, int eighths = 8);

 private:
  struct State;

  std::string name_;
  std::unique_ptr<State> state_;
};

}  // namespace peal::data
