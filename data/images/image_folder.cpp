// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/data/formats/gzip.h>
#include <peal/data/formats/tar.h>
#include <peal/data/images/image_folder.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <span>
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

// Files by folder, then by name. Of texts: fs::path copies, for each of many comparisons.
bool in_order(std::string_view a, std::string_view b) {
  const auto parts = [](std::string_view path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string_view::npos
               ? std::pair(std::string_view(), path)
               : std::pair(path.substr(0, slash), path.substr(slash + 1));
  };
  return parts(a) < parts(b);
}

std::vector<fs::path> images_below(const fs::path& folder) {
  std::vector<fs::path> found;
  constexpr auto follow = fs::directory_options::follow_directory_symlink;
  for (const auto& entry : fs::recursive_directory_iterator(folder, follow)) {
    if (is_image(entry.path()) && entry.is_regular_file()) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end(),
            [](const fs::path& a, const fs::path& b) { return in_order(a.native(), b.native()); });
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

// The images of an archive below a folder of it, as they would lie there when it is unpacked: the
// last of several of one name, and links as the files that they are of.
struct Unpacked {
  Unpacked(std::string of_archive, const std::string& below, const ImageOptions& options)
      : archive(std::move(of_archive)),
        under(below),
        max_pixels(options.max_pixels),
        max_bytes(options.max_bytes) {}

  // Links to files that no class has are followed in another go.
  void read(std::span<const std::uint8_t> packed) {
    do {
      targets.merge(missing);
      missing.clear();
      content.clear();
      by_class.clear();
      kept.clear();
      pass(packed);
    } while (!missing.empty());
  }

  std::string archive;
  fs::path under;
  std::int64_t max_pixels;
  std::uint64_t max_bytes;
  std::vector<std::uint8_t> content;
  std::map<std::string, std::map<std::string, ImageItem>> by_class;  // by folder and path

 private:
  // Without the dots and the slash at its end that some writers put there.
  static std::string plain(const std::string& name) {
    std::string path = fs::path(name).lexically_normal().string();
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    return path;
  }

  void pass(std::span<const std::uint8_t> packed) {
    TarReader reader(packed, archive);
    while (const auto entry = reader.next()) {
      const std::string path = plain(entry->name);
      const fs::path inside =
          under.empty() ? fs::path(path) : fs::path(path).lexically_relative(under);
      const auto first = inside.begin();
      const bool below = first != inside.end() && *first != ".." && *first != ".";
      const bool of_class = below && std::next(first) != inside.end();
      if (of_class || (below && entry->kind == TarEntry::folder)) by_class[first->string()];
      const bool image = of_class && entry->kind != TarEntry::folder && is_image(inside);
      if (image || targets.contains(path)) keep(reader, *entry, path);
      const auto found = kept.find(path);
      if (!image || found == kept.end()) continue;
      const auto [at, size] = found->second;
      by_class[first->string()][path] = {concat(archive, ": ", path), -1, at, size};
    }
  }

  void keep(TarReader& reader, const TarEntry& entry, const std::string& path) {
    if (entry.kind == TarEntry::link) {
      const std::string target = plain(entry.target);
      if (const auto file = kept.find(target); file != kept.end()) {
        kept[path] = file->second;
        return;
      }
      PEAL_CHECK(!targets.contains(target), "[data] ", archive, ": ", entry.name,
                 ": expected a link to a file of the archive before it, got '", entry.target, "'");
      missing.insert(target);
    } else if (entry.kind == TarEntry::file) {
      check_file_size(entry.size, max_pixels, concat(archive, ": ", entry.name));
      const std::size_t at = content.size();
      PEAL_CHECK(entry.size <= max_bytes && at <= max_bytes - entry.size, "[data] ", archive,
                 ": expected images of at most ", max_bytes, " bytes together, got ",
                 at + entry.size, " up to ", entry.name,
                 "; where that is meant, allow it (max_bytes)");
      reader.read(content);
      kept[path] = {at, content.size() - at};
    }
  }

  std::map<std::string, std::pair<std::size_t, std::size_t>> kept;  // where they lie in content
  std::set<std::string> targets, missing;  // of links: to keep, too; to keep in another go
};

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
  std::int64_t beside = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (!entry.is_directory()) {
      beside += is_image(entry.path());
      continue;
    }
    auto& items = found[entry.path().filename().string()];
    for (const fs::path& path : images_below(entry.path())) items.push_back({path.string()});
  }
  if (beside > 0 && !found.empty()) {
    log_warning("[data] ", root.string(), ": ", beside,
                " images lie beside the folders of classes, and are left out");
  }
  return set_of(root.string(), std::move(found), std::move(options), classes, nullptr);
}

ImageFilesRef image_archive(const fs::path& archive, const std::string& under, ImageOptions options,
                            const std::vector<std::string>& classes) {
  const std::string name =
      under.empty() ? archive.string() : concat(archive.string(), " (", under, ")");
  const std::vector<std::uint8_t> packed = read_file(archive);
  Unpacked unpacked(archive.string(), under, options);
  unpacked.read(packed);
  ByClass found;
  for (auto& [label, items] : unpacked.by_class) {
    auto& sorted = found[label];
    for (auto& [inside, item] : items) sorted.push_back(std::move(item));
    std::sort(sorted.begin(), sorted.end(),
              [](const ImageItem& a, const ImageItem& b) { return in_order(a.path, b.path); });
  }
  unpacked.content.shrink_to_fit();
  return set_of(name, std::move(found), std::move(options), classes,
                std::make_shared<const std::vector<std::uint8_t>>(std::move(unpacked.content)));
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
