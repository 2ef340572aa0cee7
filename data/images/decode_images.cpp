// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/images/decode_images.h>

namespace peal::data {

Decode decode_images(const ImageOptions& options) {
  return [options, normalizer = Normalizer(options.normalisation)](const TarSample& files,
                                                                   Draw& draw) -> Sample {
    const auto* suffix = files.has("jpeg") ? "jpeg" : files.has("png") ? "png" : "jpg";
    EncodedImage encoded(files[suffix], files.name(), options.max_pixels);
    const Image image = options.transform.open(encoded, draw);
    PEAL_CHECK(image.channels == 3, "[data] ", files.name(),
               ": expected an image of 3 channels, its transform gives ", image.channels);
    Sample sample{Tensor::empty({3, image.height, image.width}, DType::f32, Device{}), {}};
    normalizer.planes(image, sample.x.data<float>());
    if (files.has("cls")) sample.y = Tensor::scalar(files.number("cls"));
    return sample;
  };
}

}  // namespace peal::data
