// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/memory/shared_segment.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace peal::comm {
namespace {

std::string random_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

// Of this process, and of no other, wherever it runs.
std::string process() {
  static const std::string drawn = random_name();
  return concat(drawn, " ", getpid());  // a child by fork has the same draw
}

// Segments on their way from the thread that made them to the others.
struct HandedOn {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<SharedSegment>> by_name;
};
HandedOn& handed_on() {
  static HandedOn all;
  return all;
}

// By rank.
void check_alike(const std::vector<std::string>& bytes, std::string_view what) {
  for (const std::string& each : bytes) {
    PEAL_CHECK(each == bytes.front(), what, ": rank 0 of the group wants ", bytes.front(),
               " bytes of shared memory, and rank ", &each - bytes.data(), " ", each,
               "; all must ask for the same");
  }
}

std::string reason_and_advice(int problem, std::size_t rank) {
  const std::string reason = std::strerror(problem);
  if (problem == ENOSPC || problem == ENOMEM) {
    return reason +
           "); give /dev/shm more room (mount -o remount,size=64M /dev/shm, or docker "
           "--shm-size=64m)";
  }
  const bool forbidden = problem == EACCES || problem == EPERM || problem == EROFS;
  if (forbidden && rank == 0) {
    return reason + "); let this user write to /dev/shm (mount -o remount,rw,mode=1777 /dev/shm)";
  }
  const std::string who = concat(reason, ", on rank ", rank, " of them)");
  return forbidden ? who + "; start all ranks as one user" : who;
}

// A file in /dev/shm. It has a name only where it needs one, and until this ends.
class File {
 public:
  File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    close();
    unlink();
  }
  bool is_open() const { return file_ >= 0; }
  // A new one, which has no pages yet. The number of an error, or 0.
  int create(std::size_t bytes) {
    close();
    // Without a name from its first moment, so that whoever is killed leaves none.
    file_ = ::open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file_ < 0) {  // a file system that has no such files; or the reason is told below
      if (const int problem = create_named(); problem != 0) return problem;
      unlink();
    }
    return resize(bytes);
  }
  // The same, with a name until unlink().
  int create_with_name(std::size_t bytes) {
    close();
    const int problem = create_named();
    return problem != 0 ? problem : resize(bytes);
  }
  // Nothing remains of it if all that have it open are killed.
  void unlink() {
    if (!name_.empty()) shm_unlink(name_.c_str());
    name_.clear();
  }
  // Gets it its pages. The number of an error, or 0.
  int fill(std::size_t bytes) const {
    int problem = EINTR;
    while (problem == EINTR) problem = posix_fallocate(file_, 0, static_cast<off_t>(bytes));
    return problem;
  }
  void open(const std::string& name) {
    close();
    file_ = shm_open(name.c_str(), O_RDWR, 0600);
  }
  // Where processes of this one's user find it without a name, as long as this lives; and which
  // file it is, for in another namespace of processes another one lies there.
  std::string place() const {
    struct stat status {};
    if (file_ < 0 || fstat(file_, &status) != 0) return "";
    return concat("/proc/", getpid(), "/fd/", file_, " ", status.st_dev, " ", status.st_ino);
  }
  void open_place(const std::string& said) {
    const auto space = said.find(' ');
    if (space == std::string::npos) return;
    const std::string path = said.substr(0, space);
    struct stat status {};
    const auto is_it = [&] {
      return said.substr(space) == concat(" ", status.st_dev, " ", status.st_ino);
    };
    // Another one, a device of the machine's perhaps, is not even opened.
    if (stat(path.c_str(), &status) != 0 || !is_it()) return;
    file_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (file_ < 0 || fstat(file_, &status) != 0 || !is_it()) close();
  }
  void* map(std::size_t bytes) const {
    return file_ < 0 ? MAP_FAILED
                     : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  }
  const std::string& name() const { return name_; }

 private:
  int create_named() {
    // Another's may lie there under any name: of a job that was killed, or of another namespace.
    for (int attempt = 0; attempt < 100; ++attempt) {
      const std::string name = "/peal-" + random_name();
      file_ = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
      if (file_ >= 0) {
        name_ = name;
        return 0;
      }
      if (errno != EEXIST) return errno;
    }
    return EEXIST;
  }
  int resize(std::size_t bytes) const {
    return ftruncate(file_, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  }
  void close() {
    if (file_ >= 0) ::close(file_);
    file_ = -1;
  }
  std::string name_;  // empty where there is none that is ours to remove
  int file_ = -1;
};

}  // namespace

SharedSegment::~SharedSegment() {
  if (mapped_) {
    munmap(data_, bytes_);
  } else {
    std::free(data_);
  }
}

void agree_on_bytes(Rendezvous& ranks, std::size_t bytes, std::string_view what) {
  check_alike(ranks.exchange(concat(bytes)), what);
}

std::shared_ptr<SharedSegment> SharedSegment::create(Rendezvous& ranks, std::size_t bytes,
                                                     std::string_view what) {
  std::vector<std::string> wanted, who;
  for (const std::string& each : ranks.exchange(concat(bytes, " ", process()))) {
    const auto space = each.find(' ');
    wanted.push_back(each.substr(0, space));
    who.push_back(each.substr(space));
  }
  check_alike(wanted, what);
  const bool threads = std::ranges::count(who, who.front()) == ranks.world();
  return threads ? between_threads(ranks, bytes) : between_processes(ranks, bytes, what);
}

std::shared_ptr<SharedSegment> SharedSegment::between_threads(Rendezvous& ranks,
                                                              std::size_t bytes) {
  constexpr std::size_t page = 4096;
  HandedOn& table = handed_on();
  std::string name;
  std::shared_ptr<SharedSegment> segment;
  if (ranks.rank() == 0) {
    const std::size_t whole = (bytes + page - 1) / page * page;
    auto* const data = static_cast<std::byte*>(std::aligned_alloc(page, whole));
    if (data != nullptr) {
      std::memset(data, 0, whole);
      segment = std::shared_ptr<SharedSegment>(new SharedSegment(data, bytes, false));
      name = random_name();
      const std::lock_guard lock(table.mutex);
      table.by_name[name] = segment;
    }
  }
  const auto forget = [&](void*) {
    const std::lock_guard lock(table.mutex);
    table.by_name.erase(name);
  };
  const std::shared_ptr<void> finally(nullptr, forget);
  const std::string said = ranks.exchange(name)[0];
  if (ranks.rank() != 0 && !said.empty()) {
    const std::lock_guard lock(table.mutex);
    segment = table.by_name.at(said);
  }
  ranks.exchange("");                              // all have it
  for (int i = 0; i < 3; ++i) ranks.exchange("");  // as often as processes do
  if (said.empty()) throw NoSharedMemory(concat("no memory for ", bytes, " bytes"));
  return segment;
}

std::shared_ptr<SharedSegment> SharedSegment::between_processes(Rendezvous& ranks,
                                                                std::size_t bytes,
                                                                std::string_view what) {
  const bool makes = ranks.rank() == 0;
  File file;
  int problem = makes ? file.create(bytes) : 0;
  const std::string place = ranks.exchange(makes && problem == 0 ? file.place() : "")[0];
  if (!makes) file.open_place(place);
  const auto opened = ranks.exchange(file.is_open() ? "yes" : "no");
  const bool needs_name = std::ranges::count(opened, "yes") != ranks.world();
  if (makes && problem == 0 && needs_name) problem = file.create_with_name(bytes);
  const std::string said =
      ranks.exchange(problem != 0 ? concat("!", std::strerror(problem)) : file.name())[0];
  void* memory = MAP_FAILED;
  if (!said.starts_with('!')) {
    if (!makes && needs_name) file.open(said);
    memory = file.map(bytes);
    if (memory == MAP_FAILED) problem = errno;
  }
  std::shared_ptr<SharedSegment> segment;
  if (memory != MAP_FAILED) {
    segment = std::shared_ptr<SharedSegment>(
        new SharedSegment(static_cast<std::byte*>(memory), bytes, true));
  }
  // Who made none has none to map: rank 0's reason is the reason.
  const auto mapped = ranks.exchange(concat(problem));
  file.unlink();
  const auto failed = [](const std::vector<std::string>& all) {
    return std::ranges::find_if(all, [](const std::string& each) { return each != "0"; });
  };
  auto first = failed(mapped);
  std::size_t rank = static_cast<std::size_t>(first - mapped.begin());
  if (ranks.rank() == 0 && first == mapped.end()) problem = file.fill(bytes);
  const auto filled = ranks.exchange(concat(problem));
  if (first == mapped.end()) {
    first = failed(filled);
    if (first == filled.end()) return segment;
    rank = static_cast<std::size_t>(first - filled.begin());
  }
  throw NoSharedMemory(concat(what, ": no shared memory of ", bytes,
                              " bytes among the ranks of this node (",
                              reason_and_advice(std::stoi(*first), rank)));
}

}  // namespace peal::comm
