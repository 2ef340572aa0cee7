// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/data/formats/open_file.h>
#include <peal/data/formats/sha256.h>
#include <peal/data/formats/tar.h>
#include <peal/data/untar_data.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace peal::data {
namespace {

namespace fs = std::filesystem;

// Held by one process, or thread, at a time.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& path)
      : file_(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666)) {
    PEAL_CHECK(file_ >= 0, "[data] ", path.string(), ": cannot be made: ", std::strerror(errno));
    if (::flock(file_, LOCK_EX | LOCK_NB) == 0) return;
    log_info("[data] another process unpacks ", path.string(), "; waiting for it");
    while (::flock(file_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FolderLock() { ::close(file_); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int file_;
};

// What a set is called: the archive's name without what says that it is one.
std::string name_of(const std::string& archive) {
  std::string name = archive.substr(0, archive.find_first_of("?#"));
  if (!path_of(archive).empty()) name = path_of(archive).string();
  while (name.ends_with('/')) name.pop_back();
  name = name.substr(name.find_last_of("/ ") + 1);
  for (const char* suffix : {".gz", ".tgz", ".tar"}) {
    if (name.ends_with(suffix)) name.resize(name.size() - std::strlen(suffix));
  }
  PEAL_CHECK(!name.empty() && name != "." && name != "..", "[data] untar_data: '", archive,
             "' has no name that a folder could have");
  return name;
}

// In the unpacked folder. Error where it leads out of it.
fs::path inside(const fs::path& folder, const std::string& name, const std::string& archive) {
  const fs::path path = fs::path(name).lexically_normal();
  const bool in = !path.is_absolute() && (path.empty() || *path.begin() != "..");
  PEAL_CHECK(in, "[data] ", archive, ": '", name,
             "' leads out of the folder that it is unpacked to; is it the archive that was meant?");
  return folder / path;
}

void write_file(TarReader& reader, const fs::path& path, const std::string& archive) {
  std::ofstream file(path, std::ios::binary);
  std::vector<std::uint8_t> step(std::size_t{1} << 18);
  while (const std::size_t got = reader.read_some(step)) {
    file.write(reinterpret_cast<const char*>(step.data()), static_cast<std::streamsize>(got));
  }
  file.close();
  PEAL_CHECK(file, "[data] ", archive, ": cannot write ", path.string(), ": ",
             std::strerror(errno));
}

// Later entries of a name replace earlier ones; symbolic links are passed over (tar.h), so no path
// leads through one.
void unpack(std::unique_ptr<ByteSource> from, const std::string& archive, const fs::path& folder) {
  TarReader reader(std::move(from), archive);
  std::int64_t entries = 0;
  while (const auto entry = reader.next()) {
    const fs::path path = inside(folder, entry->name, archive);
    ++entries;
    if (entry->kind == TarEntry::folder) {
      fs::create_directories(path);
      continue;
    }
    PEAL_CHECK(path.has_filename() && path != folder, "[data] ", archive,
               ": it has a file without a name");
    fs::create_directories(path.parent_path());
    if (entry->kind == TarEntry::link) {
      const fs::path target = inside(folder, entry->target, archive);
      PEAL_CHECK(fs::is_regular_file(target), "[data] ", archive, ": '", entry->name,
                 "' is a link to '", entry->target, "', which does not come before it");
      if (target != path) fs::copy_file(target, path, fs::copy_options::overwrite_existing);
    } else {
      write_file(reader, path, archive);
    }
  }
  PEAL_CHECK(entries > 0, "[data] ", archive, ": it is empty");
}

// Copies all of it, and returns its checksum.
std::string fetch(const std::string& archive, const fs::path& to) {
  const auto source = open_bytes(archive);
  std::ofstream file(to, std::ios::binary);
  Sha256 sum;
  std::vector<std::uint8_t> step(std::size_t{1} << 18);
  for (std::size_t got = step.size(); got == step.size();) {
    got = source->read(step);
    sum.add(std::span(step).first(got));
    file.write(reinterpret_cast<const char*>(step.data()), static_cast<std::streamsize>(got));
  }
  file.close();
  PEAL_CHECK(file, "[data] ", archive, ": cannot write ", to.string(), ": ", std::strerror(errno));
  return sum.digest();
}

std::string checked_sum(std::string sum) {
  for (char& c : sum) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool hex = sum.find_first_not_of("0123456789abcdef") == std::string::npos;
  PEAL_CHECK(sum.empty() || (hex && sum.size() == 64),
             "[data] untar_data: expected a sha256 of 64 hexadecimal digits, got '", sum, "'");
  return sum;
}

// What a set was made from; the checksum is its last line.
std::string origin_of(const std::string& archive, const fs::path& path) {
  if (path.empty()) return archive + "\n";
  const OpenFile::Stamp stamp = OpenFile(path).stamp();
  return concat(fs::absolute(path).string(), "\n", stamp.size, " ", stamp.written, "\n");
}

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

fs::path cache_folder() {
  const auto path = [](const char* text) { return fs::path(text == nullptr ? "" : text); };
  if (const fs::path home = path(std::getenv("PEAL_HOME")); !home.empty()) return home;
  if (const fs::path cache = path(std::getenv("XDG_CACHE_HOME")); !cache.empty()) {
    return cache / "peal";
  }
  const fs::path home = path(std::getenv("HOME"));
  PEAL_CHECK(!home.empty(),
             "[data] there is no place for data: set PEAL_HOME to a folder, or HOME");
  return home / ".cache" / "peal";
}

fs::path untar_data(const std::string& archive, const UntarOptions& options) {
  const std::string wanted = checked_sum(options.sha256), name = name_of(archive);
  const fs::path path = path_of(archive);
  const fs::path cache = (options.cache.empty() ? cache_folder() : options.cache) / "data";
  std::error_code code;
  fs::create_directories(cache, code);
  PEAL_CHECK(!code, "[data] ", cache.string(), ": cannot be made: ", code.message());
  const fs::path folder = cache / name, made_from = cache / (name + ".from");
  const fs::path fresh = cache / (name + ".tmp"), packed = cache / (name + ".archive.tmp");
  const FolderLock lock(cache / (name + ".lock"));
  const std::string kept = content_of(made_from);
  // Gone since, a file's set still serves.
  const bool gone = !path.empty() && !fs::exists(path) && fs::is_directory(folder);
  const std::string origin = gone ? kept.substr(0, kept.rfind('\n') + 1) : origin_of(archive, path);
  const bool same = kept.starts_with(origin) && kept.size() == origin.size() + 64;
  if (same && fs::is_directory(folder) && (wanted.empty() || kept.ends_with(wanted))) return folder;

  fs::remove_all(fresh);  // of one that was ended
  fs::remove_all(packed);
  try {
    const std::string sum = path.empty() ? fetch(archive, packed) : sha256_of(path);
    PEAL_CHECK(wanted.empty() || sum == wanted, "[data] ", archive, ": expected the sha256 ",
               wanted, ", got ", sum,
               "; it is damaged or another one: download it again, or see where the sum is from");
    fs::create_directories(fresh);
    unpack(file_bytes(path.empty() ? packed : path), archive, fresh);
    fs::remove(made_from);
    fs::remove_all(folder);
    fs::rename(fresh, folder);
    AtomicFile note(made_from);
    note.write((origin + sum).data(), origin.size() + sum.size());
    note.commit();
    fs::remove_all(packed);
  } catch (const fs::filesystem_error& failure) {
    fs::remove_all(fresh, code);
    fs::remove_all(packed, code);
    std::throw_with_nested(Error(concat("[data] ", archive, ": cannot be unpacked into ",
                                        folder.string(), ": ", failure.what())));
  } catch (...) {
    fs::remove_all(fresh, code);
    fs::remove_all(packed, code);
    throw;
  }
  return folder;
}

}  // namespace peal::data
