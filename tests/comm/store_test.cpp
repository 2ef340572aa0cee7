// SPDX-License-Identifier: Apache-2.0
// Stores over files and TCP: between threads and between processes, and every way to go wrong.
// Nothing here waits for a time to pass but ranks that wait in vain, by their deadline.
#include <peal/autograd/core/error.h>
#include <peal/comm/store/file_store.h>
#include <peal/comm/store/open_store.h>
#include <peal/comm/store/rendezvous.h>
#include <peal/comm/store/tcp_store.h>

#include <dlfcn.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::comm;
using std::chrono::milliseconds;

namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "peal_store_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  fs::path path;
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(path), fs::directory_iterator{}));
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

std::atomic<int> files_written{0}, kept_alive{0};

template <class Call>
Call* system_own(const char* name) {
  return reinterpret_cast<Call*>(dlsym(RTLD_NEXT, name));
}

// f on a thread for each rank; what each threw.
std::vector<std::string> on_ranks(int world, const std::function<void(int rank)>& f) {
  std::vector<std::string> errors(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back(
        [&, rank] { errors[static_cast<std::size_t>(rank)] = error_of([&] { f(rank); }); });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// A store of a rank, and the ranks' rendezvous over it.
template <class Kind>
class Over : public Rendezvous {
 public:
  template <class... Options>
  Over(int rank, int world, Options&&... options)
      : store(std::forward<Options>(options)...), ranks_(store, rank, world) {}
  int rank() const override { return ranks_.rank(); }
  int world() const override { return ranks_.world(); }
  std::vector<std::string> exchange(const std::string& mine) override {
    return ranks_.exchange(mine);
  }
  Kind store;

 private:
  StoreRendezvous ranks_;
};

// A rank over TCP.
class Tcp : public Over<TcpStore> {
 public:
  Tcp(const std::string& host, int port, int rank, int world, Patience patience = {},
      std::string run = {})
      : Over(rank, world, host, port, rank, world, std::move(patience), std::move(run)) {}
  int port() const { return store.port(); }
};

class Files : public Over<FileStore> {
 public:
  Files(const fs::path& folder, int rank, int world, Patience patience = {})
      : Over(rank, world, folder, rank, world, std::move(patience)) {}
};

using Maker = std::function<std::unique_ptr<Rendezvous>(int rank, int world)>;

Maker files_in(const fs::path& folder, milliseconds deadline = milliseconds(60'000)) {
  return [=](int rank, int world) {
    return std::make_unique<Files>(folder, rank, world, Patience{.deadline = deadline});
  };
}

// Rank 0 chooses the port; the others are made once it has.
class OverTcp {
 public:
  explicit OverTcp(milliseconds deadline = milliseconds(60'000)) : deadline_(deadline) {}
  std::unique_ptr<Tcp> make(int rank, int world, std::string run = "run 1") {
    auto store = std::make_unique<Tcp>("localhost", rank == 0 ? 0 : port(), rank, world,
                                       Patience{.deadline = deadline_}, std::move(run));
    if (rank == 0) chosen_.set_value(store->port());
    return store;
  }
  int port() { return port_.get(); }
  Maker maker() {
    return [this](int rank, int world) { return make(rank, world); };
  }

 private:
  milliseconds deadline_;
  std::promise<int> chosen_;
  std::shared_future<int> port_ = chosen_.get_future().share();
};

std::string text_of(int rank, int number) {
  if (number % 3 == 1 && rank % 2 == 1) return "";
  std::string text = concat("rank ", rank, " number ", number, ": ");
  text += '\0';
  text.append(static_cast<std::size_t>(rank * 7 + number), 'x');
  if (number == 2) text.append(std::size_t{1} << 20, static_cast<char>('a' + rank));
  return text;
}

void check_exchanges(Rendezvous& store, int numbers = 8) {
  for (int number = 0; number < numbers; ++number) {
    const auto all = store.exchange(text_of(store.rank(), number));
    PEAL_CHECK(static_cast<int>(all.size()) == store.world(), "got ", all.size(), " texts");
    for (int r = 0; r < store.world(); ++r) {
      PEAL_CHECK(all[static_cast<std::size_t>(r)] == text_of(r, number), "rank ", store.rank(),
                 ": the text of rank ", r, " in exchange ", number, " is wrong");
    }
  }
}

// What a stranger sends to the port, and then hangs on.
class Stranger {
 public:
  Stranger(int port, const std::string& says) : descriptor_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // The store may listen at ::1 alone.
    sockaddr_in6 other{};
    other.sin6_family = AF_INET6;
    other.sin6_port = address.sin_port;
    other.sin6_addr = in6addr_loopback;
    if (connect(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      close(descriptor_);
      descriptor_ = socket(AF_INET6, SOCK_STREAM, 0);
      REQUIRE(connect(descriptor_, reinterpret_cast<sockaddr*>(&other), sizeof other) == 0);
    }
    REQUIRE(::send(descriptor_, says.data(), says.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(says.size()));
  }
  ~Stranger() { close(descriptor_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

 private:
  int descriptor_;
};

// A process that runs f and ends with 0 if it did not throw.
pid_t in_process(const std::function<void()>& f) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const std::string error = error_of(f);
    _exit(error == "nothing" ? 0 : 1);
  }
  return child;
}

bool ended_well(pid_t child) {
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

// The system's own, counted. A file appears whole by being renamed.
extern "C" int rename(const char* from, const char* to) {
  ++files_written;
  return system_own<int(const char*, const char*)>("rename")(from, to);
}
extern "C" int setsockopt(int socket, int level, int name, const void* value, socklen_t size) {
  if (level == SOL_SOCKET && name == SO_KEEPALIVE) ++kept_alive;
  return system_own<int(int, int, int, const void*, socklen_t)>("setsockopt")(socket, level, name,
                                                                              value, size);
}

TEST_CASE("texts of every length go round at 1 to 5 ranks") {
  for (int world = 1; world <= 5; ++world) {
    CAPTURE(world);
    const Folder folder;
    OverTcp tcp;
    for (const Maker& make : {files_in(folder.path), tcp.maker()}) {
      const auto errors = on_ranks(world, [&](int rank) {
        const auto store = make(rank, world);
        CHECK(store->rank() == rank);
        CHECK(store->world() == world);
        check_exchanges(*store);
      });
      for (const std::string& error : errors) CHECK(error == "nothing");
    }
    CHECK(folder.files() == 0);  // each exchange has cleaned up
  }
}

TEST_CASE("ranks are processes") {
  const Folder folder;
  const Maker over_files = files_in(folder.path);
  std::vector<pid_t> children;
  for (int rank = 1; rank < 3; ++rank) {
    children.push_back(in_process([&] { check_exchanges(*over_files(rank, 3)); }));
  }
  check_exchanges(*over_files(0, 3));
  Tcp root("127.0.0.1", 0, 0, 3);
  for (int rank = 1; rank < 3; ++rank) {
    children.push_back(in_process([&] {
      Tcp store("127.0.0.1", root.port(), rank, 3);
      check_exchanges(store);
    }));
  }
  check_exchanges(root);
  for (const pid_t child : children) CHECK(ended_well(child));
}

TEST_CASE("a rank that never comes is named by those who waited") {
  const Folder folder;
  OverTcp tcp(milliseconds(1500));
  for (const Maker& make : {files_in(folder.path, milliseconds(1500)), tcp.maker()}) {
    const auto errors = on_ranks(4, [&](int rank) {
      const auto store = make(rank, 4);
      if (rank != 2) store->exchange("here");
    });
    CAPTURE(errors[0]);
    CHECK(contains(errors[0], "rank 0 of 4"));
    CHECK(contains(errors[0], "waited 1.5 s (PEAL_TIMEOUT) for "));
    CHECK(contains(errors[0], "rank 2"));
    for (const int rank : {1, 3}) CHECK(errors[static_cast<std::size_t>(rank)] != "nothing");
  }
}

TEST_CASE("a process that is killed between two exchanges is named, and all are told") {
  Tcp root("localhost", 0, 0, 3);
  const pid_t victim = in_process([&] {
    Tcp store("localhost", root.port(), 1, 3);
    store.exchange("");
    for (;;) pause();
  });
  const pid_t witness = in_process([&] {
    Tcp store("localhost", root.port(), 2, 3);
    store.exchange("");
    const std::string told = error_of([&] { store.exchange("again"); });
    PEAL_CHECK(contains(told, "rank 1 has closed its connection"), told);
    const std::string later = error_of([&] { store.exchange("again"); });
    PEAL_CHECK(contains(later, "an earlier call has failed"), later);
  });
  root.exchange("");
  kill(victim, SIGKILL);
  const std::string error = error_of([&] { root.exchange("again"); });
  CAPTURE(error);
  CHECK(contains(error, "rank 1 has closed its connection"));
  CHECK(!ended_well(victim));
  CHECK(ended_well(witness));

  // And rank 0 itself.
  auto lost = std::make_unique<Tcp>("localhost", 0, 0, 2);
  const int port = lost->port();
  const pid_t left = in_process([&] {
    Tcp store("localhost", port, 1, 2);
    store.exchange("");
    const std::string told = error_of([&] { store.exchange("again"); });
    PEAL_CHECK(contains(told, "rank 0 has closed its connection"), told);
  });
  lost->exchange("");
  lost.reset();
  CHECK(ended_well(left));
}

TEST_CASE("files of an earlier run are not believed") {
  const Folder folder;
  // Of ranks that were killed: rank 1 had seen rank 0, and the list of another run was there.
  const auto left = [&](const char* name, const char* text) {
    std::ofstream(folder.path / name) << text;
  };
  left("peal-store-2.0", "peal-store-2 2 0 00112233 -");
  left("peal-store-2.1", "peal-store-2 2 1 44556677 00112233");
  left("peal-store-2.all", "peal-store-2 2 00112233 44556677");
  left("peal-store-2.00112233.exchange%200%2c%20rank%201", "of a rank that was killed");
  left("peal-store-2.3", "half a fi");
  const Maker alone = files_in(folder.path, milliseconds(50));
  CHECK(contains(error_of([&] { alone(1, 2)->exchange("old"); }), "for rank 0, or a rank"));
  left("peal-store-2.1", "peal-store-2 2 1 44556677 00112233");
  CHECK(contains(error_of([&] { alone(0, 2)->exchange("old"); }), "for rank 1 to come"));
  left("peal-store-2.0", "peal-store-2 2 0 00112233 -");
  const Maker make = files_in(folder.path);
  for (const std::string& error : on_ranks(2, [&](int rank) { check_exchanges(*make(rank, 2)); })) {
    CHECK(error == "nothing");
  }
  CHECK(folder.files() == 2);  // strangers'
}

TEST_CASE("a folder is one job's, of one world, and can be written") {
  const Folder folder;
  const Maker make = files_in(folder.path);
  // Two processes are rank 0: the later takes the place, and the earlier says so.
  const auto first = make(0, 2), second = make(0, 2);
  const std::string twice = error_of([&] { first->exchange(""); });
  CAPTURE(twice);
  CHECK(contains(twice, "another process is rank 0"));
  const auto worlds = on_ranks(2, [&](int rank) { make(rank, 2 + rank)->exchange(""); });
  CAPTURE(worlds[0]);
  CHECK(contains(worlds[0], "met rank 1 of 3"));
  std::ofstream(folder.path / "file") << "not a folder";
  CHECK(contains(error_of([&] { FileStore(folder.path / "file" / "deep", 0, 1); }),
                 "cannot be made"));
}

TEST_CASE("strangers are turned away, and do no harm") {
  OverTcp tcp;
  const auto root = tcp.make(0, 3);
  std::string lie = "PEALsto2";
  lie += std::string("\x01\0\0\0\x01\0\0\0\x03\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f", 24);
  const Stranger scanner(tcp.port(), ""), browser(tcp.port(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
      hesitant(tcp.port(), "PEALst"), liar(tcp.port(), lie),
      noise(tcp.port(), std::string(5000, 0));
  { const Stranger passing(tcp.port(), "PEALsto2"); }
  std::vector<std::string> turned_away(4);
  const auto errors = on_ranks(3, [&](int rank) {
    if (rank == 0) return check_exchanges(*root);
    if (rank == 1) {
      turned_away[0] = error_of([&] { tcp.make(2, 4)->exchange(""); });
      turned_away[1] = error_of([&] { tcp.make(2, 3, "run 2")->exchange(""); });
    }
    check_exchanges(*tcp.make(rank, 3));
  });
  for (const std::string& error : errors) CHECK(error == "nothing");
  CAPTURE(turned_away[0]);
  CHECK(contains(turned_away[0], "rank 2 of 4, here is a world of 3"));
  CAPTURE(turned_away[1]);
  CHECK(contains(turned_away[1], "of the run 'run 2', which this is not"));
  CHECK(!contains(turned_away[1], "run 1"));
}

TEST_CASE("a rank is there once, and who waits in vain is told who was turned away") {
  OverTcp tcp;
  const auto root = tcp.make(0, 3);
  const auto errors = on_ranks(3, [&](int thread) {
    if (thread == 0) return check_exchanges(*root);
    // Two are rank 1. The one that comes second is turned away, and becomes rank 2.
    const auto store = tcp.make(1, 3);
    std::string first;
    try {
      first = store->exchange(text_of(1, 0)).at(1);
    } catch (const Error& error) {
      check_exchanges(*tcp.make(2, 3));
      throw;
    }
    PEAL_CHECK(first == text_of(1, 0), "another's text");
    for (int number = 1; number < 8; ++number) store->exchange(text_of(1, number));
  });
  CHECK(errors[0] == "nothing");
  const std::string& told = errors[1] == "nothing" ? errors[2] : errors[1];
  CAPTURE(told);
  CHECK((errors[1] == "nothing" || errors[2] == "nothing"));
  CHECK(contains(told, "rank 1 is here already"));

  Tcp lonely("localhost", 0, 0, 2, {.deadline = milliseconds(200)});
  const Stranger browser(lonely.port(), "GET / HTTP/1.1");
  const std::string vain = error_of([&] { lonely.exchange(""); });
  CAPTURE(vain);
  CHECK(contains(vain, "'exchange 0, rank 1'; rank 1 did not connect; "));
  CHECK(contains(vain, "does not speak as a store of this version of peal does"));
}

TEST_CASE("a port that is taken, or at which nobody listens") {
  const Tcp root("127.0.0.1", 0, 0, 2);
  const std::string taken = error_of([&] { Tcp("127.0.0.1", root.port(), 0, 2); });
  CAPTURE(taken);
  CHECK(contains(taken, "cannot listen: Address already in use"));
  CHECK(contains(taken, "choose a free port"));
  // A port that somebody has, and does not listen at.
  const Socket holder(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(bind(holder.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(getsockname(holder.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  Tcp rank("127.0.0.1", ntohs(address.sin_port), 1, 2, {.deadline = milliseconds(200)});
  const std::string refused = error_of([&] { rank.exchange(""); });
  CAPTURE(refused);
  CHECK(contains(refused, "for rank 0 (Connection refused)"));
}

TEST_CASE("waiting ends where it has become hopeless, and long texts are refused") {
  const Patience patience{.hopeless = [] { fail("rank 7 is on fire"); }};
  const Folder folder;
  Files files(folder.path, 0, 2, patience);
  CHECK(error_of([&] { files.exchange(""); }) == "rank 7 is on fire");
  Tcp root("localhost", 0, 0, 2, patience);
  CHECK(error_of([&] { root.exchange(""); }) == "rank 7 is on fire");
  Files one(folder.path / "deeper", 0, 1);
  CHECK(one.exchange("alone") == std::vector<std::string>{"alone"});
  CHECK(contains(error_of([&] { one.exchange(std::string(most_store_bytes + 1, 'x')); }),
                 "expected at most 67108864"));
  for (const int rank : {0, 1}) {
    const auto make = [&](std::size_t size) {
      Tcp store("localhost", rank, rank, 2, {}, std::string(size, 'x'));
    };
    CHECK(error_of([&] { make(257); }) == "[store] a run of 257 bytes; expected at most 256");
    CHECK(error_of([&] { make(256); }) == "nothing");
  }
}

TEST_CASE("a store is opened by its address") {
  const Folder folder;
  const auto files = open_store("file:" + folder.path.string(), 0, 1);
  files->set("key", "a");
  CHECK(files->get("key") == "a");
  for (const char* address : {"tcp://localhost:1", "tcp://[::1]:65535/run", "tcp://10.0.0.1:80/"}) {
    CHECK(open_store(address, 1, 2) != nullptr);
  }
  for (const char* address : {"", "file:", "tcp:", "tcp://", "tcp://host", "tcp://host:", "mpi",
                              "tcp://host:0", "tcp://host:65536", "tcp://:80", "tcp://host:80x"}) {
    CAPTURE(address);
    CHECK(contains(error_of([&] { open_store(address, 1, 2); }), "expected file:FOLDER"));
  }
}

namespace {

// Over files and over TCP, f on so many ranks, each with a store of its own.
void on_stores(int world, const std::function<void(Store&, int rank)>& f) {
  const Folder folder;
  OverTcp tcp;
  for (const std::string& error : on_ranks(world, [&](int rank) {
         FileStore store(folder.path, rank, world, {.deadline = milliseconds(60'000)});
         f(store, rank);
       })) {
    CHECK(error == "nothing");
  }
  for (const std::string& error : on_ranks(world, [&](int rank) {
         const auto over = tcp.make(rank, world);
         f(over->store, rank);
         over->exchange("");  // rank 0's store goes last
       })) {
    CHECK(error == "nothing");
  }
}

}  // namespace

TEST_CASE("who needs a value gets it when it is there, whoever sets it") {
  on_stores(4, [](Store& store, int rank) {
    const std::string odd = "a key/with\nanything: 100 %";
    if (rank == 3) store.set(odd, "first");
    CHECK(store.get(odd) == "first");
    // Round and round: each waits for the one before.
    for (int turn = 0; turn < 5; ++turn) {
      const auto key = [&](int r) { return concat("turn ", turn, ", rank ", r); };
      if (rank > 0) CHECK(store.get(key(rank - 1)) == concat(turn * 10 + rank - 1));
      store.set(key(rank), concat(turn * 10 + rank));
      CHECK(store.multi_get({key(3), key(0)}) ==
            std::vector<std::string>{concat(turn * 10 + 3), concat(turn * 10)});
    }
    CHECK(store.multi_get({}).empty());
    store.wait({});
  });
}

TEST_CASE("numbers are added one at a time") {
  std::mutex mutex;
  std::multiset<std::int64_t> sums;
  on_stores(4, [&](Store& store, int) {
    for (int i = 0; i < 25; ++i) {
      const std::int64_t sum = store.add("sum", 1);
      const std::lock_guard lock(mutex);
      sums.insert(sum);
    }
  });
  REQUIRE(sums.size() == 200);
  for (std::int64_t sum = 1; sum <= 100; ++sum) CHECK(sums.count(sum) == 2);  // over each
  on_stores(1, [](Store& store, int) {
    CHECK(store.add("n", -7) == -7);
    CHECK(store.add("n", 10) == 3);
    CHECK(store.add("n", 0) == 3);
    store.set("n", "12");
    CHECK(store.add("n", 1) == 13);
    store.set("n", "twelve");
    CHECK(contains(error_of([&] { store.add("n", 1); }), "the value of 'n' is no number"));
    store.remove({"n", "none"});
    CHECK(store.add("n", 1) == 1);
  });
}

TEST_CASE("values are replaced and removed, and who waits for one that went is told which") {
  const Folder folder;
  FileStore files(folder.path, 0, 1, {.deadline = milliseconds(100)});
  TcpStore tcp("localhost", 0, 0, 1, {.deadline = milliseconds(100)});
  for (Store* store : {static_cast<Store*>(&files), static_cast<Store*>(&tcp)}) {
    store->set("a", "1");
    store->set("a", "2");
    store->set("b", std::string("\0x", 2));
    CHECK(store->multi_get({"b", "a"}) == std::vector<std::string>{std::string("\0x", 2), "2"});
    store->remove({"a"});
    const std::string error = error_of([&] { store->multi_get({"b", "a"}); });
    CAPTURE(error);
    CHECK(contains(error, "waited 0.1 s (PEAL_TIMEOUT) for 'a'"));
  }
}

TEST_CASE("rank 0 serves the others whatever it does itself") {
  OverTcp tcp;
  std::promise<void> over;
  const auto errors = on_ranks(3, [&](int rank) {
    const auto ranks = tcp.make(rank, 3);
    if (rank == 0) return over.get_future().wait();  // no call of its own
    ranks->store.set(concat("from ", rank), "x");
    ranks->store.wait({"from 1", "from 2"});
    if (ranks->store.add("over", 1) == 2) over.set_value();
  });
  for (const std::string& error : errors) CHECK(error == "nothing");
}

TEST_CASE("meeting in a folder costs each rank a few files, however many ranks there are") {
  constexpr int world = 16;
  const Folder folder;
  const int before = files_written;
  for (const std::string& error :
       on_ranks(world, [&](int rank) { Files(folder.path, rank, world).exchange("here"); })) {
    CHECK(error == "nothing");
  }
  const int written = files_written - before;
  CHECK(written >= 2 * world);
  CHECK(written <= 4 * world);
}

TEST_CASE("where descriptors run out all are told, with what to do") {
  constexpr int world = 12;
  int channel[2];
  REQUIRE(pipe(channel) == 0);
  const pid_t root = in_process([&] {
    const auto open = static_cast<rlim_t>(dup(0));  // the lowest that is free
    const rlimit few{open + 8, open + 8};
    setrlimit(RLIMIT_NOFILE, &few);
    Tcp store("localhost", 0, 0, world, {.deadline = milliseconds(60'000)});
    const int port = store.port();
    PEAL_CHECK(write(channel[1], &port, sizeof port) == sizeof port, "no pipe");
    const std::string told = error_of([&] { store.exchange("here"); });
    PEAL_CHECK(contains(told, "Too many open files; raise the limit of open files (ulimit -n)"),
               told);
  });
  int port = 0;
  REQUIRE(read(channel[0], &port, sizeof port) == sizeof port);
  const auto errors = on_ranks(world - 1, [&](int thread) {
    Tcp("localhost", port, thread + 1, world, {.deadline = milliseconds(3000)}).exchange("here");
  });
  CHECK(ended_well(root));
  int told = 0;
  for (const std::string& error : errors) {
    CHECK(error != "nothing");
    told += contains(error, "ulimit -n") ? 1 : 0;
  }
  CHECK(told > 0);
  close(channel[0]);
  close(channel[1]);
}

TEST_CASE("both ends ask whether the other's host is there still") {
  const int before = kept_alive;
  OverTcp tcp;
  on_ranks(2, [&](int rank) { tcp.make(rank, 2)->exchange(""); });
  CHECK(kept_alive - before >= 2);
}
