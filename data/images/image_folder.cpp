// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>
#include <peal/autograd/core/error.h>
#include <peal/data/formats/gzip.h>
#include <peal/data/formats/tar.h>
#include <peal/data/images/image_folder.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace peal::data {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view suffixes = ".jpg, .jpeg or .png";

bool is_image(const fs::path& path) {
  std::string suffix = path.extension().string();
  for (char& c : suffix) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return suffix == ".jpg" || suffix == ".jpeg" || suffix == ".png";
}

// By folder, then by name.
bool in_order(const fs::path& a, const fs::path& b) {
  return std::pair(a.parent_path().string(), a.filename().string()) <
         std::pair(b.parent_path().string(), b.filename().string());
}

std::vector<fs::path> images_below(const fs::path& folder) {
  std::vector<fs::path> found;
  constexpr auto follow = fs::directory_options::follow_directory_symlink;
  for (const auto& entry : fs::recursive_directory_iterator(folder, follow)) {
    if (entry.is_regular_file() && is_image(entry.path())) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end(), in_order);
  return found;
}

// Images by the names of their classes, as a set.
using ByClass = std::map<std::string, std::vector<ImageItem>>;

ImageFilesRef set_of(const std::string& name, ByClass found, ImageOptions options,
                     std::vector<std::string> classes, ImageFiles::Archive archive) {
  PEAL_CHECK(!found.empty(), "[data] ", name, ": expected a folder for each class, with its ",
             suffixes, " files, found no folder");
  std::vector<std::string> none;
  for (const auto& [label, items] : found) {
    if (items.empty()) none.push_back(label);
  }
  PEAL_CHECK(none.empty(), "[data] ", name, ": found no ", suffixes, " file in ",
             fmt::format("{}", fmt::join(none, ", ")));
  if (classes.empty()) {
    for (const auto& [label, items] : found) classes.push_back(label);
  }
  std::vector<ImageItem> all;
  for (auto& [label, items] : found) {
    const auto at = std::find(classes.begin(), classes.end(), label);
    PEAL_CHECK(at != classes.end(), "[data] ", name, ": '", label,
               "' is no class of the set: it knows ", fmt::format("{}", fmt::join(classes, ", ")));
    for (ImageItem& item : items) {
      item.label = at - classes.begin();
      all.push_back(std::move(item));
    }
  }
  return std::make_shared<ImageFiles>(name, std::move(all), std::move(classes), std::move(options),
                                      std::move(archive));
}

void check_folder(const fs::path& root) {
  PEAL_CHECK(fs::exists(root), "[data] ", root.string(), ": no such folder of images");
  PEAL_CHECK(fs::is_directory(root), "[data] ", root.string(),
             ": expected a folder of images, got a file");
}

}  // namespace

ImageFilesRef image_folder(const fs::path& root, ImageOptions options,
                           const std::vector<std::string>& classes) {
  check_folder(root);
  ByClass found;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (!entry.is_directory()) continue;
    auto& items = found[entry.path().filename().string()];
    for (const fs::path& path : images_below(entry.path())) items.push_back({path.string()});
  }
  return set_of(root.string(), std::move(found), std::move(options), classes, nullptr);
}

ImageFilesRef image_archive(const fs::path& archive, const std::string& under, ImageOptions options,
                            const std::vector<std::string>& classes) {
  const std::string name =
      under.empty() ? archive.string() : concat(archive.string(), " (", under, ")");
  const std::vector<std::uint8_t> packed = read_file(archive);
  TarReader reader(packed, archive.string());
  auto content = std::make_shared<std::vector<std::uint8_t>>();
  ByClass found;
  std::size_t at = 0;
  while (const auto path = reader.next(*content)) {
    const std::size_t size = content->size() - at;
    fs::path inside = fs::path(*path).lexically_normal();
    if (!under.empty()) inside = inside.lexically_relative(under);
    const auto first = inside.begin();
    const bool wanted = is_image(inside) && first != inside.end() && *first != ".." &&
                        std::next(first) != inside.end();
    if (wanted) {
      found[first->string()].push_back({concat(archive.string(), ": ", *path), -1, at, size});
      at += size;
    } else {
      content->resize(at);
    }
  }
  for (auto& [label, items] : found) {
    std::sort(items.begin(), items.end(),
              [](const ImageItem& a, const ImageItem& b) { return in_order(a.path, b.path); });
  }
  return set_of(name, std::move(found), std::move(options), classes, std::move(content));
}

ImageFilesRef image_files(const fs::path& path, ImageOptions options) {
  PEAL_CHECK(fs::exists(path), "[data] ", path.string(), ": no such image or folder of images");
  std::vector<fs::path> paths{path};
  if (fs::is_directory(path)) {
    paths = images_below(path);
    PEAL_CHECK(!paths.empty(), "[data] ", path.string(), ": found no ", suffixes,
               " file in it or below");
  }
  std::vector<ImageItem> items;
  for (const fs::path& each : paths) items.push_back({each.string()});
  return std::make_shared<ImageFiles>(path.string(), std::move(items), std::vector<std::string>{},
                                      std::move(options));
}

ImageFilesRef cifar10(const fs::path& path, bool train, ImageOptions options) {
  const std::vector<std::string> classes{"airplane", "automobile", "bird",  "cat",  "deer",
                                         "dog",      "frog",       "horse", "ship", "truck"};
  const std::string part = train ? "train" : "test";
  PEAL_CHECK(fs::exists(path), "[data] ", path.string(),
             ": no such file; it should be CIFAR-10's images, a folder or archive with "
             "train/<class>/ and test/<class>/");
  return fs::is_directory(path) ? image_folder(path / part, std::move(options), classes)
                                : image_archive(path, part, std::move(options), classes);
}

}  // namespace peal::data
