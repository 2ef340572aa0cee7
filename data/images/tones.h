// SPDX-License-Identifier: Apache-2.0
// Tone curves: what becomes of a byte by its value alone, of each channel by itself: inverted,
// solarised, posterised, stretched to all values, or with a histogram that is about flat. Results
// are those of torchvision on PIL images (invert, solarize, posterize, autocontrast, equalize), to
// the byte. Thread safety: pure.
#pragma once

#include <peal/data/formats/image.h>

namespace peal::data {

// 255 - x.
Image inverted(Image image);
// 255 - x where x is at least the threshold.
Image solarized(Image image, double threshold);
// Only the upper bits of a byte. Error: other than 0 to 8 bits.
Image posterized(Image image, int bits);
// The darkest value becomes 0 and the lightest 255; where there is one alone it stays.
Image autocontrasted(Image image);
// Values are spread so that each is there about as often (histogram equalisation).
Image equalized(Image image);

}  // namespace peal::data
