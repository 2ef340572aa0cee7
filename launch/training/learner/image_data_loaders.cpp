// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/group/failure_while.h>
#include <peal/data/images/random_transforms.h>
#include <peal/data/subset.h>
#include <peal/launch/training/learner/image_data_loaders.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

namespace peal::launch {
namespace {

namespace fs = std::filesystem;
using data::Compose;
using ImagesOptions = ImageDataLoadersOptions;

data::ImageFilesRef transformed_images(const data::ImageFilesRef& images, const ImagesOptions& of,
                                       bool training) {
  const Compose usual =
      training ? Compose(data::RandomResizedCrop(of.size), data::RandomHorizontalFlip())
               : Compose(data::Resize(of.size), data::CenterCrop(of.size));
  const auto& given = training ? of.item_tfms : of.valid_tfms;
  data::ImageOptions made = images->options();  // whose limits stay
  made.transform = given.value_or(usual);
  made.normalisation = of.normalisation;
  return images->with(std::move(made));
}

std::string name_of_file(const data::ImageFiles& images, std::int64_t k) {
  return fs::path(images.item(k).path).filename().string();
}

// Below the set's folder, which hosts may have elsewhere; of others their names.
std::string place_in_set(const data::ImageFiles& images, std::int64_t k) {
  const std::string &path = images.item(k).path, &root = images.name();
  // Where there is nothing to resolve: fs::path takes seconds for a million.
  if (!root.empty() && path.starts_with(root) && path.size() > root.size() + 1 &&
      path[root.size()] == '/' && path.find("//", root.size()) == std::string::npos &&
      path.find("/.", root.size()) == std::string::npos) {
    return path.substr(root.size() + 1);
  }
  const fs::path inside = fs::path(path).lexically_relative(root);
  const bool is_below = !inside.empty() && *inside.begin() != ".." && inside != ".";
  return is_below ? inside.string() : name_of_file(images, k);
}

// What ranks compare: each class with its number of images, a line each, and which they are.
std::string outline_of(const data::ImageFiles& images) {
  std::vector<std::int64_t> counts(images.classes().size());
  std::string places;
  for (std::int64_t k = 0; k < images.size(); ++k) {
    const std::int64_t label = images.item(k).label;
    ++counts.at(static_cast<std::size_t>(label));
    places += concat(place_in_set(images, k), '\n', label, '\n');
  }
  std::string all;
  for (std::size_t c = 0; c < counts.size(); ++c) {
    all += concat("class ", images.classes()[c], " of ", counts[c], " images\n");
  }
  const auto [first, second] = comm::digest(places);
  return all + concat("names and classes of digest ", first, ' ', second, '\n');
}

}  // namespace

ImageDataLoaders::Sets ImageDataLoaders::alike(const Job& job, const std::function<Sets()>& find) {
  Sets found;
  const std::string wrong =
      comm::failure_while(job.group(), "finds images", [&] { found = find(); });
  comm::agree_unless(job.group(), "[launch] ImageDataLoaders: the set", found.outline, wrong,
                     "every rank is to see the same files and to have the same options");
  return found;
}

ImageDataLoaders::Sets ImageDataLoaders::split(const data::ImageFilesRef& images,
                                               const Options& options) {
  const double share = options.valid_pct.value_or(0.2);
  PEAL_CHECK(share >= 0 && share < 1, "valid_pct: expected a share from 0 to below 1, got ", share);
  const auto parts = data::random_parts(images->size(), {1 - share, share}, options.seed);
  const auto part = [&](std::size_t k, bool training) -> data::DatasetRef {
    if (k == 1 && parts[k].empty()) return nullptr;
    return std::make_shared<data::Subset>(transformed_images(images, options, training), parts[k]);
  };
  // Which images judge is a function of how many, and of the seed.
  return {part(0, true), part(1, false), part(1, true), images->classes(),
          outline_of(*images) +
              concat("validation of ", parts[1].size(), " images by seed ", options.seed, '\n')};
}

ImageDataLoaders ImageDataLoaders::from_folder(const Job& job, const fs::path& path,
                                               const Options& options) {
  const data::ImageOptions limits{.max_pixels = options.max_pixels, .max_bytes = options.max_bytes};
  const auto open = [&](const std::string& part, const std::vector<std::string>& classes) {
    return fs::is_directory(path) ? data::image_folder(path / part, limits, classes)
                                  : data::image_archive(path, part, limits, classes);
  };
  Sets sets = alike(job, [&]() -> Sets {
    if (options.valid_pct) return split(open("", options.vocab), options);
    const auto learnt = open(options.train, options.vocab);
    const auto judged = open(options.valid, learnt->classes());
    return {transformed_images(learnt, options, true), transformed_images(judged, options, false),
            transformed_images(judged, options, true), learnt->classes(),
            outline_of(*learnt) + "validation\n" + outline_of(*judged)};
  });
  return {job, std::move(sets), options};
}

ImageDataLoaders::Sets ImageDataLoaders::labelled(const data::ImageFilesRef& images,
                                                  const std::vector<std::string>& labels,
                                                  const Options& options) {
  PEAL_CHECK(images && std::ssize(labels) == images->size(), "there are ", labels.size(),
             " labels of ", images ? images->size() : 0, " images; give one of each");
  std::vector<std::string> vocab = options.vocab;
  if (vocab.empty()) {
    const std::set<std::string> sorted(labels.begin(), labels.end());
    vocab.assign(sorted.begin(), sorted.end());
  }
  std::map<std::string, std::int64_t> numbers;
  for (const std::string& each : vocab) numbers.emplace(each, std::ssize(numbers));
  std::vector<data::ImageItem> items;
  for (std::int64_t k = 0; k < images->size(); ++k) {
    data::ImageItem item = images->item(k);
    const std::string& label = labels[static_cast<std::size_t>(k)];
    PEAL_CHECK(item.size == 0, item.path, " is in an archive; give images of files");
    const auto number = numbers.find(label);
    PEAL_CHECK(number != numbers.end(), item.path, " is '", label, "', which vocab has not");
    item.label = number->second;
    items.push_back(std::move(item));
  }
  return split(std::make_shared<data::ImageFiles>(images->name(), std::move(items),
                                                  std::move(vocab), images->options()),
               options);
}

ImageDataLoaders ImageDataLoaders::from_lists(const Job& job, const data::ImageFilesRef& images,
                                              const std::vector<std::string>& labels,
                                              const Options& options) {
  return {job, alike(job, [&] { return labelled(images, labels, options); }), options};
}

ImageDataLoaders ImageDataLoaders::from_name_func(
    const Job& job, const data::ImageFilesRef& images,
    const std::function<std::string(const std::string& name)>& label_func, const Options& options) {
  Sets sets = alike(job, [&] {
    PEAL_CHECK(images, "there are no images; give data::image_files(folder)");
    std::vector<std::string> labels;
    for (std::int64_t k = 0; k < images->size(); ++k) {
      labels.push_back(label_func(name_of_file(*images, k)));
    }
    return labelled(images, labels, options);
  });
  return {job, std::move(sets), options};
}

ImageDataLoaders ImageDataLoaders::from_name_re(const Job& job, const data::ImageFilesRef& images,
                                                const std::string& pattern,
                                                const Options& options) {
  auto label_of = [&, expression = std::optional<std::regex>()](
                      const std::string& name) mutable -> std::string {
    if (!expression) expression.emplace(pattern);  // here, where its error is everybody's
    std::smatch found;
    PEAL_CHECK(std::regex_search(name, found, *expression) && found.size() > 1 && found[1].matched,
               name, " has no first group of '", pattern, "'");
    return found[1].str();
  };
  return from_name_func(job, images, label_of, options);
}

std::unique_ptr<data::DataLoader> ImageDataLoaders::tta_dl() const {
  PEAL_CHECK(augmented_,
             "[launch] ImageDataLoaders: there is no validation, of whose images "
             "tta_dl() would make variants");
  return test_dl(augmented_);
}

std::unique_ptr<data::DataLoader> ImageDataLoaders::test_dl(
    const data::ImageFilesRef& images) const {
  PEAL_CHECK(images, "[launch] ImageDataLoaders: there are no images; give data::image_files()");
  return test_dl(data::DatasetRef(transformed_images(images, options_, false)));
}

}  // namespace peal::launch
