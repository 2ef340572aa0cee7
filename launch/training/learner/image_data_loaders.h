// SPDX-License-Identifier: Apache-2.0
// ImageDataLoaders (fastai has it by this name): from images as they lie in folders to the loaders
// of a training and of its validation, in one call.
//
//   auto dls = launch::ImageDataLoaders::from_folder(job, "imagenette", {.valid = "val",
//                                                                        .size = 224});
//   auto dls = launch::ImageDataLoaders::from_name_func(
//       job, data::image_files("pets/images"),
//       [](const std::string& name) { return name[0] < 'a' ? "cat" : "dog"; }, {.size = 224});
//   auto learner = launch::vision_learner(job, dls, net, {.tell = launch::print});
//
// Training images are cropped at random and flipped, others cut out of the middle, unless
// transforms are given. Collective: ranks find the same images (names, classes and which of them
// judge are compared, not what is in files), or all get an Error. Thread safety: the rank's thread.
#pragma once

#include <peal/data/images/image_folder.h>
#include <peal/launch/training/learner/data_loaders.h>
#include <peal/launch/training/learner/vision.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace peal::launch {

struct ImageDataLoadersOptions {
  // Of from_folder(): below its path.
  std::string train = "train", valid = "valid";
  // Of from_folder() too: as of data::ImageOptions. Other images have limits of their own.
  std::int64_t max_pixels = data::most_pixels;
  std::uint64_t max_bytes = data::ImageOptions{}.max_bytes;
  // That share of all images, which `seed` chooses, is the validation. None: from_folder() has two
  // folders; of others it is 0.2.
  std::optional<double> valid_pct = {};
  std::uint64_t seed = 0;
  std::vector<std::string> vocab = {};  // the classes, in this order; none: all that there are
  std::int64_t size = 224;              // pixels of a side
  // Of training and of validation; none: as above.
  std::optional<data::Compose> item_tfms = {}, valid_tfms = {};
  data::ChannelNormalisation normalisation = data::imagenet_normalisation;
  DataLoadersOptions loaders = {};
};

class ImageDataLoaders : public DataLoaders {
 public:
  using Options = ImageDataLoadersOptions;

  // A folder or archive (.tar, .tar.gz) with train/<class>/ and valid/<class>/ in it; with
  // valid_pct with <class>/. Errors, on all ranks: as of image_folder().
  static ImageDataLoaders from_folder(const Job& job, const std::filesystem::path& path,
                                      const Options& options = {});
  // Of these images, and the class of each. Errors, on all ranks: not as many labels as images; an
  // archive's images; a label that vocab has not, or a class that it has twice.
  static ImageDataLoaders from_lists(const Job& job, const data::ImageFilesRef& images,
                                     const std::vector<std::string>& labels,
                                     const Options& options = {});
  // The class is a function of the file's name, without its folder. Errors, on all ranks: no
  // images; what the function throws; those of from_lists().
  static ImageDataLoaders from_name_func(
      const Job& job, const data::ImageFilesRef& images,
      const std::function<std::string(const std::string& name)>& label_func,
      const Options& options = {});
  // It is the first group of the expression (ECMAScript), which is searched for in the name. Error,
  // on all ranks: a name without it, also where the rest of the expression is found.
  static ImageDataLoaders from_name_re(const Job& job, const data::ImageFilesRef& images,
                                       const std::string& pattern, const Options& options = {});

  // The classes, in the order of their numbers.
  const std::vector<std::string>& vocab() const { return vocab_; }
  using DataLoaders::test_dl;
  // Of other images, transformed and normalised as those of the validation, whatever was asked of
  // them before. Error: no images.
  std::unique_ptr<data::DataLoader> test_dl(const data::ImageFilesRef& images) const;
  // Those of the validation, transformed as those of the training, for Learner::tta(). Error where
  // there are none.
  std::unique_ptr<data::DataLoader> tta_dl() const;

 private:
  struct Sets {
    data::DatasetRef training, validation;
    data::DatasetRef augmented;  // the validation's
    std::vector<std::string> vocab;
    std::string outline;  // what ranks compare
  };
  ImageDataLoaders(const Job& job, Sets sets, const Options& options)
      : DataLoaders(job, std::move(sets.training), std::move(sets.validation), options.loaders),
        augmented_(std::move(sets.augmented)),
        vocab_(std::move(sets.vocab)),
        options_(options) {}
  static Sets alike(const Job& job, const std::function<Sets()>& find);
  static Sets split(const data::ImageFilesRef& images, const Options& options);
  static Sets labelled(const data::ImageFilesRef& images, const std::vector<std::string>& labels,
                       const Options& options);

  data::DatasetRef augmented_;
  std::vector<std::string> vocab_;
  Options options_;
};

// Of the loaders' classes.
inline Learner vision_learner(Job& job, ImageDataLoaders& dls, const nn::ResNet& net,
                              LearnerOptions options = {}, const nn::HeadSettings& head = {}) {
  return vision_learner(job, Loaders(dls), net, dls.vocab(), std::move(options), head);
}

}  // namespace peal::launch
