// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/sha256.h>
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
    int problem = errno;
    if (problem == EWOULDBLOCK) {
      log_info("[data] another process unpacks ", path.string(), "; waiting for it");
      do {
        problem = ::flock(file_, LOCK_EX) == 0 ? 0 : errno;
      } while (problem == EINTR);
    }
    if (problem == 0) return;
    ::close(file_);
    fail(concat("[data] ", path.string(), ": cannot be locked: ", std::strerror(problem),
                "; set PEAL_HOME to a folder of a file system that has locks"));
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
  reader.warn_of_links();
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

// Which archive a set is of: the first line of its note.
std::string archive_line(const std::string& archive, const fs::path& path) {
  return (path.empty() ? archive : fs::absolute(path).string()) + "\n";
}

// And in which state, of a file; the checksum is the note's last line.
std::string origin_of(const std::string& archive, const fs::path& path) {
  const std::string line = archive_line(archive, path);
  if (path.empty()) return line;
  const OpenFile::Stamp stamp = OpenFile(path).stamp();
  return concat(line, stamp.size, " ", stamp.written, "\n");
}

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Where a set may be, and the note of what is there.
struct CachedSet {
  fs::path folder, made_from;
  std::string note = content_of(made_from);

  bool taken() const { return !note.empty() && fs::is_directory(folder); }
  bool is_of(const std::string& line) const { return taken() && note.starts_with(line); }
  bool has(const std::string& sum) const {
    return taken() && note.size() > 64 && note.ends_with("\n" + sum);
  }
  void write_note(const std::string& text) const {
    AtomicFile file(made_from);
    file.write(text.data(), text.size());
    file.commit();
  }
};

CachedSet set_at(const fs::path& cache, const std::string& name) {
  return {cache / name, cache / (name + ".from")};
}

// Of another archive that has the name.
std::string name_beside(const std::string& name, const std::string& line) {
  Sha256 sum;
  sum.add(std::span(reinterpret_cast<const std::uint8_t*>(line.data()), line.size()));
  return name + "-" + sum.digest().substr(0, 8);
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
  const fs::path fresh = cache / (name + ".tmp"), packed = cache / (name + ".archive.tmp");
  const FolderLock lock(cache / (name + ".lock"));
  const std::string line = archive_line(archive, path);
  const CachedSet first = set_at(cache, name), beside = set_at(cache, name_beside(name, line));
  const CachedSet& mine = beside.is_of(line) && !first.is_of(line) ? beside : first;
  // Gone since, a file's set still serves: this file's, and no other's.
  const bool gone = !path.empty() && !fs::exists(path) && mine.is_of(line);
  const std::string origin =
      gone ? mine.note.substr(0, mine.note.rfind('\n') + 1) : origin_of(archive, path);
  const bool same = mine.note.starts_with(origin) && mine.note.size() == origin.size() + 64;
  if (same && mine.taken() && (wanted.empty() || mine.note.ends_with(wanted))) return mine.folder;

  fs::remove_all(fresh);  // of one that was ended
  fs::remove_all(packed);
  try {
    const std::string sum = path.empty() ? fetch(archive, packed) : sha256_of(path);
    PEAL_CHECK(wanted.empty() || sum == wanted, "[data] ", archive, ": expected the sha256 ",
               wanted, ", got ", sum,
               "; it is damaged or another one: download it again, or see where the sum is from");
    for (const CachedSet& set : {first, beside}) {  // who reads it goes on
      if (!set.has(sum)) continue;
      set.write_note(origin + sum);
      fs::remove_all(packed);
      return set.folder;
    }
    const CachedSet& to = first.taken() && !first.is_of(line) ? beside : first;
    fs::create_directories(fresh);
    unpack(file_bytes(path.empty() ? packed : path), archive, fresh);
    fs::remove(to.made_from);
    fs::remove_all(to.folder);
    fs::rename(fresh, to.folder);
    to.write_note(origin + sum);
    fs::remove_all(packed);
    return to.folder;
  } catch (const fs::filesystem_error& failure) {
    fs::remove_all(fresh, code);
    fs::remove_all(packed, code);
    std::throw_with_nested(Error(concat("[data] ", archive, ": cannot be unpacked into ",
                                        cache.string(), ": ", failure.what())));
  } catch (...) {
    fs::remove_all(fresh, code);
    fs::remove_all(packed, code);
    throw;
  }
}

}  // namespace peal::data
