// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/formats/idx.h>
#include <peal/data/mnist.h>

#include <string>
#include <utility>

namespace peal::data {
namespace {

std::filesystem::path find(const std::filesystem::path& folder, const std::string& name) {
  for (const std::string& tried : {name, name + ".gz"}) {
    if (std::filesystem::exists(folder / tried)) return folder / tried;
  }
  fail(concat(
      "[data] ", folder.string(), ": expected the file ", name, " or ", name,
      ".gz, found neither; name the folder that holds the four IDX files of MNIST's format"));
}

}  // namespace

ImageDatasetRef mnist(const std::filesystem::path& folder, bool train,
                      Normalisation normalisation) {
  PEAL_CHECK(std::filesystem::is_directory(folder), "[data] ", folder.string(),
             ": no such folder; it should hold the four IDX files of MNIST's format");
  const std::string part = train ? "train" : "t10k";
  const auto images_file = find(folder, part + "-images-idx3-ubyte");
  const auto labels_file = find(folder, part + "-labels-idx1-ubyte");
  Idx images = read_idx(images_file, 3);
  const Idx labels = read_idx(labels_file, 1);
  PEAL_CHECK(images.dims[0] == labels.dims[0], "[data] ", folder.string(),
             ": images and labels differ in number: ", images_file.filename().string(), " holds ",
             images.dims[0], " images, ", labels_file.filename().string(), " holds ",
             labels.dims[0], " labels");
  return std::make_shared<ImageDataset>(
      folder.string() + " (" + part + ")", Shape{1, images.dims[1], images.dims[2]},
      std::move(images.elements),
      std::vector<std::int64_t>(labels.elements.begin(), labels.elements.end()), 10, normalisation);
}

ImageDatasetRef fashion_mnist(bool train, const std::filesystem::path& folder) {
  PEAL_CHECK(std::filesystem::is_directory(folder), "[data] ", folder.string(),
             ": no such folder; install Debian's Fashion-MNIST with "
             "`apt-get install dataset-fashion-mnist`, or name another folder");
  return mnist(folder, train, fashion_mnist_normalisation);
}

}  // namespace peal::data
