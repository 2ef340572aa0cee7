// SPDX-License-Identifier: Apache-2.0
// What becomes of colours: grey, brightness, contrast, saturation, sharpness, hue, of parameters
// that are given (ColorJitter of random_transforms.h and auto_augment.h draw them). A factor of 0
// gives the least of it (black, one grey, a grey image, a smooth one), 1 the image as it is, more
// exaggerates. Results are those of
// torchvision on PIL images, to the byte. Of images of three channels. Thread safety: pure.
#pragma once

#include <peal/data/formats/image.h>

namespace peal::data {

// Three equal channels: 0.299 red, 0.587 green, 0.114 blue, in PIL's fixed point.
Image greyscale(Image image);
// Errors of all of these: a factor below 0, other than three channels.
Image brightness_adjusted(Image image, double factor);
Image contrast_adjusted(Image image, double factor);
Image saturation_adjusted(Image image, double factor);
Image sharpness_adjusted(Image image, double factor);
// Turns the circle of hues by a share of it, -0.5 to 0.5. Error: another one.
Image hue_adjusted(Image image, double share);

}  // namespace peal::data
