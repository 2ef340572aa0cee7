// SPDX-License-Identifier: Apache-2.0
// Images as they lie in files (JPEG, PNG), or in an archive that is kept in memory, and their
// classes: each is read, decoded and transformed when a batch is made, as bytes until the last
// moment, where it is normalised channel by channel. So a set costs the memory of its names.
//
//   const auto train = data::image_folder("train", {.transform = data::Compose{...},
//                                                   .normalisation =
//                                                   data::imagenet_normalisation});
//
// Invariant: classes of items are -1 (unknown) or in 0..classes-1. Thread safety: immutable.
#pragma once

#include <peal/data/dataset.h>
#include <peal/data/images/normalisation.h>
#include <peal/data/images/transform.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace peal::data {

struct ImageOptions {
  Compose transform = {};
  ChannelNormalisation normalisation = {};
  std::int64_t max_pixels = most_pixels;  // of a file: more is an error
  // Of an archive's images together, as they are kept in memory: more is an error.
  std::uint64_t max_bytes = std::uint64_t{1} << 36;
};

// One image: a file, or with `size` the bytes from `at` of an archive.
struct ImageItem {
  std::string path;
  std::int64_t label = -1;
  std::size_t at = 0, size = 0;
};

class ImageFiles : public Dataset {
 public:
  using Archive = std::shared_ptr<const std::vector<std::uint8_t>>;

  // `name` is what errors call the set. Errors: a class that comes twice, one outside of
  // -1..classes-1, bytes outside of the archive.
  ImageFiles(std::string name, std::vector<ImageItem> items, std::vector<std::string> classes,
             ImageOptions options, Archive archive = nullptr);

  std::int64_t size() const override { return static_cast<std::int64_t>(items_->size()); }
  // x [B, 3, H, W] f32, y [B] i64. Errors name the file: not there, broken, one that a transform
  // refuses, or, transformed, of another size than the first of the batch.
  Batch augmented(std::span<const std::int64_t> indices, const Draws& draws) const override;
  // With what Draws{} draws.
  Batch get(std::span<const std::int64_t> indices) const override {
    return augmented(indices, Draws{});
  }

  // The same images, made otherwise: of training and of evaluation.
  std::shared_ptr<const ImageFiles> with(ImageOptions options) const;

  const std::string& name() const { return name_; }
  const ImageOptions& options() const { return options_; }
  const std::vector<std::string>& classes() const { return *classes_; }
  const ImageItem& item(std::int64_t index) const;
  // As bytes, not transformed. Errors as above.
  Image image(std::int64_t index) const;

 private:
  template <class F>
  auto opened(std::int64_t index, const F& f) const;

  std::string name_;
  std::shared_ptr<const std::vector<ImageItem>> items_;
  std::shared_ptr<const std::vector<std::string>> classes_;
  ImageOptions options_;
  Normalizer normalizer_;
  Archive archive_;
};

using ImageFilesRef = std::shared_ptr<const ImageFiles>;

}  // namespace peal::data
