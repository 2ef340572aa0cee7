// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/data/formats/gzip.h>
#include <peal/data/images/image_files.h>

#include <exception>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

namespace peal::data {

ImageFiles::ImageFiles(std::string name, std::vector<ImageItem> items,
                       std::vector<std::string> classes, ImageOptions options, Archive archive)
    : name_(std::move(name)),
      options_(std::move(options)),
      normalizer_(options_.normalisation),
      archive_(std::move(archive)) {
  std::set<std::string_view> names;
  for (const std::string& each : classes) {
    PEAL_CHECK(names.insert(each).second, "[data] ", name_, ": expected classes of different ",
               "names, got '", each, "' twice");
  }
  const auto count = static_cast<std::int64_t>(classes.size());
  for (const ImageItem& each : items) {
    PEAL_CHECK(each.label >= -1 && each.label < count, "[data] ", name_,
               ": expected classes from 0 to ", count - 1, ", or -1 where it is unknown, ",
               each.path, " has ", each.label);
    const std::size_t bytes = archive_ ? archive_->size() : 0;
    PEAL_CHECK(each.at <= bytes && each.size <= bytes - each.at, "[data] ", name_,
               ": expected bytes inside of its archive of ", bytes, ", ", each.path, " has ",
               each.size, " from ", each.at);
  }
  items_ = std::make_shared<const std::vector<ImageItem>>(std::move(items));
  classes_ = std::make_shared<const std::vector<std::string>>(std::move(classes));
}

std::shared_ptr<const ImageFiles> ImageFiles::with(ImageOptions options) const {
  auto made = std::make_shared<ImageFiles>(*this);
  made->normalizer_ = Normalizer(options.normalisation);
  made->options_ = std::move(options);
  return made;
}

const ImageItem& ImageFiles::item(std::int64_t index) const {
  PEAL_CHECK(index >= 0 && index < size(), "[data] ", name_, ": expected an index from 0 to ",
             size() - 1, ", got ", index);
  return (*items_)[static_cast<std::size_t>(index)];
}

// f of the image that is not decoded yet.
template <class F>
auto ImageFiles::opened(std::int64_t index, const F& f) const {
  const ImageItem& one = item(index);
  std::vector<std::uint8_t> file;
  std::span<const std::uint8_t> content;
  if (archive_) {
    content = std::span(*archive_).subspan(one.at, one.size);
  } else {
    std::error_code none;  // read_file says what there is to say
    const auto bytes = std::filesystem::file_size(one.path, none);
    if (!none) check_file_size(bytes, options_.max_pixels, one.path);
    file = read_file(one.path);
    content = file;
  }
  EncodedImage image(content, one.path, options_.max_pixels);
  try {
    return f(image);
  } catch (const std::exception& failure) {  // a transform's knows of no file
    if (ran_out_of_memory()) throw;
    std::string_view words = failure.what();
    if (words.find(one.path) != std::string_view::npos) throw;
    constexpr std::string_view mark = "[data] ";
    if (words.starts_with(mark)) words.remove_prefix(mark.size());
    std::throw_with_nested(Error(concat(mark, one.path, ": ", words)));
  }
}

Image ImageFiles::image(std::int64_t index) const {
  return opened(index, [](EncodedImage& image) { return image.decode(); });
}

Batch ImageFiles::augmented(std::span<const std::int64_t> indices, const Draws& draws) const {
  const auto count = static_cast<std::int64_t>(indices.size());
  Batch batch{{}, Tensor::empty({count}, DType::i64, Device{})};
  if (count == 0) batch.x = Tensor::empty({0, 3, 0, 0}, DType::f32, Device{});
  std::int64_t* y = batch.y.data<std::int64_t>();
  float* x = nullptr;
  ImageSize first;
  for (const std::int64_t index : indices) {
    const Image made = opened(index, [&](EncodedImage& image) {
      Draw draw = draws.of(index);
      return options_.transform.open(image, draw);
    });
    const ImageItem& one = item(index);
    if (x == nullptr) {
      first = made.size();
      batch.x = Tensor::empty({count, 3, first.height, first.width}, DType::f32, Device{});
      x = batch.x.data<float>();
    }
    PEAL_CHECK(made.channels == 3, "[data] ", one.path, ": expected an image of 3 channels, its ",
               "transform gives ", made.channels);
    PEAL_CHECK(made.size() == first, "[data] ", one.path, ": expected an image of ", first.height,
               " x ", first.width, " as ", item(indices[0]).path, " in the same batch, got ",
               made.height, " x ", made.width,
               "; end the transform with what makes sizes equal (Resize({h, w}), CenterCrop)");
    normalizer_.planes(made, x);
    x += 3 * first.height * first.width;
    *y++ = one.label;
  }
  return batch;
}

}  // namespace peal::data
