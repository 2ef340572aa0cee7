// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/group/agree.h>
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
  return images->with({.transform = given.value_or(usual), .normalisation = of.normalisation});
}

// "dog 1200" for each class, a line each.
std::string classes_in(const data::ImageFiles& images) {
  std::map<std::int64_t, std::int64_t> counts;
  for (std::int64_t k = 0; k < images.size(); ++k) ++counts[images.item(k).label];
  std::string all;
  for (const auto& [label, count] : counts) {
    all += concat("class ", images.classes().at(static_cast<std::size_t>(label)), " of ", count,
                  " images\n");
  }
  return all;
}

std::string name_of_file(const data::ImageFiles& images, std::int64_t k) {
  return fs::path(images.item(k).path).filename().string();
}

}  // namespace

ImageDataLoaders::Sets ImageDataLoaders::alike(const Job& job, const std::function<Sets()>& find) {
  Sets found;
  std::string wrong;
  try {
    found = find();
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  comm::agree_unless(job.group(), "[launch] ImageDataLoaders: the set", found.outline, wrong,
                     "every rank is to see the same files");
  return found;
}

ImageDataLoaders::Sets ImageDataLoaders::split(const data::ImageFilesRef& images,
                                               const Options& options) {
  const double share = options.valid_pct.value_or(0.2);
  PEAL_CHECK(share >= 0 && share < 1, "valid_pct: expected a share from 0 to below 1, got ", share);
  const auto parts = data::random_parts(images->size(), {1 - share, share}, options.seed);
  const auto part = [&](std::size_t k) {
    return std::make_shared<data::Subset>(transformed_images(images, options, k == 0), parts[k]);
  };
  return {part(0), parts[1].empty() ? nullptr : part(1), images->classes(), classes_in(*images)};
}

ImageDataLoaders ImageDataLoaders::from_folder(const Job& job, const fs::path& path,
                                               const Options& options) {
  const auto open = [&](const std::string& part, const std::vector<std::string>& classes) {
    return fs::is_directory(path) ? data::image_folder(path / part, {}, classes)
                                  : data::image_archive(path, part, {}, classes);
  };
  Sets sets = alike(job, [&]() -> Sets {
    if (options.valid_pct) return split(open("", options.vocab), options);
    const auto learnt = open(options.train, options.vocab);
    const auto judged = open(options.valid, learnt->classes());
    return {transformed_images(learnt, options, true), transformed_images(judged, options, false),
            learnt->classes(), classes_in(*learnt) + "validation\n" + classes_in(*judged)};
  });
  return {job, std::move(sets), options.loaders};
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
                                                  std::move(vocab), data::ImageOptions{}),
               options);
}

ImageDataLoaders ImageDataLoaders::from_lists(const Job& job, const data::ImageFilesRef& images,
                                              const std::vector<std::string>& labels,
                                              const Options& options) {
  return {job, alike(job, [&] { return labelled(images, labels, options); }), options.loaders};
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
  return {job, std::move(sets), options.loaders};
}

ImageDataLoaders ImageDataLoaders::from_name_re(const Job& job, const data::ImageFilesRef& images,
                                                const std::string& pattern,
                                                const Options& options) {
  auto label_of = [&, expression = std::optional<std::regex>()](
                      const std::string& name) mutable -> std::string {
    if (!expression) expression.emplace(pattern);  // here, where its error is everybody's
    std::smatch found;
    PEAL_CHECK(std::regex_search(name, found, *expression) && found.size() > 1, name,
               " has no first group of '", pattern, "'");
    return found[1].str();
  };
  return from_name_func(job, images, label_of, options);
}

}  // namespace peal::launch
