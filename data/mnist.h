// SPDX-License-Identifier: Apache-2.0
// MNIST and the sets in its format: four IDX files in a folder, plain or .gz, with 28x28 grey
// images of ten classes:
//   train-images-idx3-ubyte  train-labels-idx1-ubyte  t10k-images-idx3-ubyte t10k-labels-idx1-ubyte
// Thread safety: free functions without state.
#pragma once

#include <peal/data/image_dataset.h>

#include <filesystem>

namespace peal::data {

// Where Debian's package dataset-fashion-mnist puts its files.
inline constexpr const char* fashion_mnist_folder = "/usr/share/datasets/fashion-mnist";

// The training set (60000 images in MNIST itself), or the test set (10000), of `folder`. Errors: no
// such folder or file, what read_idx() reports, images and labels of different counts, a class
// above 9.
ImageDatasetRef mnist(const std::filesystem::path& folder, bool train,
                      Normalisation normalisation = mnist_normalisation);

// The same for Fashion-MNIST, normalised by its own constants. Error: where the folder is not
// there, which package to install.
ImageDatasetRef fashion_mnist(bool train,
                              const std::filesystem::path& folder = fashion_mnist_folder);

}  // namespace peal::data
