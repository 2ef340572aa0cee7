// SPDX-License-Identifier: Apache-2.0
// Ranks as processes that this one starts: what they are told, how their errors and deaths come
// out, and that nothing of them remains.
#include <doctest/doctest.h>
#include <peal/autograd/core/context.h>
#include <peal/autograd/intra_op.h>
#include <peal/autograd/ops/ops.h>
#include <peal/launch/processes.h>
#include <peal/launch/spawn.h>
#include <peal/nn/loss.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/nn/parallel/pipeline/pipe.h>
#include <peal/tests/comm/process_ranks.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>
#include <peal/tests/segments.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace peal;
using namespace peal::testing;
using launch::Job;
using launch::StartMethod;
using std::chrono::milliseconds;

namespace {

// What ranks say, by files, for their memory is their own.
class Said {
 public:
  void say(int rank, const std::string& text) const {
    std::ofstream(folder_.path / concat(rank)) << text;
  }
  std::string of(int rank) const { return content_of(folder_.path / concat(rank)); }
  bool has(int rank) const { return std::filesystem::exists(folder_.path / concat(rank)); }

 private:
  Folder folder_;
};

struct Failure {
  std::string kind = "none", message, signal;
  int rank = -1, pid = -1, code = 0;
};

Failure failure_of(const std::function<void()>& f) {
  Failure failure;
  const auto note = [&](const char* kind, const launch::ProcessException& error) {
    failure.kind = kind;
    failure.message = error.what();
    failure.rank = error.error_index;
    failure.pid = error.error_pid;
  };
  try {
    f();
  } catch (const launch::ProcessRaisedException& error) {
    note("raised", error);
  } catch (const launch::ProcessExitedException& error) {
    note("exited", error);
    failure.code = error.exit_code;
    failure.signal = error.signal_name;
  }
  return failure;
}

void fork_ranks(int ranks, const std::function<void(Job&)>& f) {
  launch::spawn(ranks, f, StartMethod::fork);
}

// The rank that makes the shared memory is killed there.
bool dies_in_the_making = false;

// Of a process that is no child of this one's any more.
bool gone(int pid) {
  for (int look = 0; look < 1000; ++look) {
    if (kill(pid, 0) != 0 && errno == ESRCH) return true;
    // One that nobody has waited for yet.
    const std::string state = content_of(concat("/proc/", pid, "/stat"));
    if (contains(state, ") Z ")) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

}  // namespace

// Instead of the C library's.
extern "C" int posix_fallocate(int file, off_t at, off_t bytes) {
  if (dies_in_the_making) kill(getpid(), SIGKILL);
  return fallocate(file, 0, at, bytes) == 0 ? 0 : errno;
}

TEST_CASE("each process has a job of its own, and a copy of what f captures") {
  const auto before = segments();
  for (int world = 1; world <= 5; ++world) {
    const Said said;
    int captured = 7;
    const pid_t parent = getpid();
    fork_ranks(world, [&](Job& job) {
      PEAL_CHECK(job.world() == world && job.where().local_rank == job.rank(), "another rank");
      PEAL_CHECK(job.where().launcher == "processes", job.where().launcher);
      PEAL_CHECK(job.device("cpu") == Device{}, "another device");
      const Tensor x = full({2}, job.rank() + 1.);
      job.group().all_reduce(x).wait();
      captured += job.rank();
      said.say(job.rank(),
               concat(getppid() == parent, " ", captured, " ", x.to_vector<float>()[0]));
    });
    for (int rank = 0; rank < world; ++rank) {
      CHECK(said.of(rank) == concat("true ", 7 + rank, " ", world * (world + 1) / 2));
    }
    CHECK(captured == 7);
  }
  check_nothing_remains(before);
}

TEST_CASE("ranks whose messages go over TCP are processes, too") {
  Processes ranks(
      2, {.deadline = milliseconds(60'000)},
      [](const comm::ProcessGroup& group) {
        PEAL_CHECK(group.transport() == "tcp", "over ", group.transport());
        const Job job(group);
        PEAL_CHECK(job.where().launcher == "processes", job.where().launcher);
      },
      1);
  for (const std::string& end : ranks.ends()) CHECK(end == "nothing");
}

TEST_CASE("a rank that is killed before there is a group is named, not those that miss it") {
  for (int again = 0; again < 3; ++again) {
    dies_in_the_making = true;
    const Failure failure = failure_of([] { fork_ranks(3, [](Job&) {}); });
    dies_in_the_making = false;
    CAPTURE(failure.message);
    CHECK(failure.kind == "exited");
    CHECK(failure.rank == 0);
    CHECK(failure.signal == "SIGKILL");
  }
}

TEST_CASE("processes train what threads train, bit for bit") {
  const auto train = [](int world, StartMethod method) {
    const Said said;
    manual_seed(4);
    launch::notebook_launcher(
        world,
        [&](Job& job) {
          nn::Module net = nn::mlp({2, 4, 1});
          nn::DistributedDataParallel ddp(net, job.group());
          nn::SGD optimizer(ddp.parameters(), {.lr = 0.1});
          const Tensor x = randn({12, 2}), y = randn({12, 1});
          const std::int64_t each = 12 / world;
          for (int step = 0; step < 5; ++step) {
            optimizer.zero_grad();
            const std::int64_t begin = job.rank() * each;
            nn::MSELoss()(ddp(x.rows(begin, begin + each)), y.rows(begin, begin + each)).backward();
            optimizer.step();
          }
          std::string text;
          for (const float w : net.parameters()[0].to_vector<float>()) {
            text += fmt::format("{:a} ", w);
          }
          said.say(job.rank(), text);
        },
        method);
    std::vector<std::string> all;
    for (int rank = 0; rank < world; ++rank) all.push_back(said.of(rank));
    return all;
  };
  for (const int world : {1, 2, 3, 4}) {
    const auto processes = train(world, StartMethod::fork);
    CHECK(processes == train(world, StartMethod::threads));
    CHECK(processes.front().size() > 10);
    CHECK(processes.back() == processes.front());
  }
}

TEST_CASE("a pipe over processes, whose messages are in shared memory or go over TCP, is one") {
  const auto made = [] {
    manual_seed(4);
    nn::Sequential net{nn::Linear(3, 5), nn::Tanh(), nn::Linear(5, 4), nn::Tanh(),
                       nn::Linear(4, 4), nn::Tanh(), nn::Linear(4, 2)};
    net.to(DType::f64);
    return net;
  };
  const Tensor x = randn({10, 3}, DType::f64), target = randn({10, 2}, DType::f64);
  const auto squares = [](const Tensor& y, const Tensor& t) { return sum((y - t) * (y - t)); };
  nn::Sequential whole = made();
  nn::SGD expected(whole.parameters(), {.lr = 0.1});
  const Tensor loss = squares(whole(x), target) / 10.0;
  loss.backward();
  expected.step();
  const auto step = [&](const comm::ProcessGroup& group) {
    nn::Pipe pipe(group, made(), {.micro_batches = 4});  // 1F1B; of 3, 3, 2 and 2 rows
    nn::SGD optimizer(pipe.parameters(), {.lr = 0.1});
    const double mine = pipe.step(x, target, squares);
    PEAL_CHECK(std::abs(mine - loss.item<double>()) < 1e-12, "loss ", mine);
    optimizer.step();
    for (const auto& [name, tensor] : pipe.local().named_parameters()) {
      PEAL_CHECK(allclose(tensor, whole.get_parameter(name), 1e-12, 1e-12), name, " differs");
    }
  };
  for (const int world : {2, 3}) {
    CHECK_NOTHROW(fork_ranks(world, [&](Job& job) { step(job.group()); }));
    Processes over_tcp(world, {.deadline = milliseconds(60'000)}, step, 1);
    for (const std::string& end : over_tcp.ends()) CHECK(end == "nothing");
  }
}

TEST_CASE("the first rank that fails is the error, and the others have heard it") {
  for (const int guilty : {0, 1, 2}) {
    const Said said;
    const Failure failure = failure_of([&] {
      fork_ranks(3, [&](Job& job) {
        if (job.rank() == guilty) {
          job.group().barrier().wait();
          throw std::runtime_error("no more samples");
        }
        try {
          for (;;) job.group().barrier().wait();
        } catch (const Error& error) {
          said.say(job.rank(), error.what());
          throw Error("this one comes later");
        }
      });
    });
    CHECK(failure.kind == "raised");
    CHECK(failure.rank == guilty);
    CHECK(failure.message == concat("[rank ", guilty, "] no more samples"));
    for (int rank = 0; rank < 3; ++rank) {
      if (rank != guilty) check_has(said.of(rank), concat("[rank ", guilty, "] no more samples"));
    }
  }
  CHECK(failure_of([] {
          fork_ranks(2, [](Job& job) {
            if (job.rank() == 1) throw 42;
            job.group().barrier().wait();
          });
        }).message == "[rank 1] an exception that is no std::exception");
  // What all see at once is nobody's own: the lowest rank says it.
  const Failure differ = failure_of([] {
    fork_ranks(2, [](Job& job) { job.group().all_reduce(full({3 + job.rank()}, 1.)).wait(); });
  });
  CHECK(differ.kind == "raised");
  check_has(differ.message, "(sum of 3 f32)");
  check_has(differ.message, "(sum of 4 f32)");
}

TEST_CASE("a process that ends before its function is named, with its signal or exit code") {
  const auto before = segments();
  struct End {
    std::function<void()> f;
    int code;
    std::string signal, part;
  };
  const std::vector<End> ends{
      {[] { kill(getpid(), SIGKILL); }, -SIGKILL, "SIGKILL", "was ended by SIGKILL; where nobody"},
      {[] { ::signal(SIGSEGV, SIG_DFL), raise(SIGSEGV); }, -SIGSEGV, "SIGSEGV", "by SIGSEGV"},
      {[] { ::signal(SIGABRT, SIG_DFL), std::abort(); }, -SIGABRT, "SIGABRT", "by SIGABRT"},
      {[] { _exit(3); }, 3, "", "ended with exit code 3 before its function returned"},
      {[] { _exit(0); }, 0, "", "ended with exit code 0 before its function returned"}};
  for (const End& end : ends) {
    const Said said;
    const Failure failure = failure_of([&] {
      fork_ranks(3, [&](Job& job) {
        said.say(job.rank(), concat(getpid()));
        job.group().barrier().wait();
        if (job.rank() == 1) end.f();
        for (;;) job.group().barrier().wait();
      });
    });
    CHECK(failure.kind == "exited");
    CHECK(failure.rank == 1);
    CHECK(concat(failure.pid) == said.of(1));
    CHECK(failure.code == end.code);
    CHECK(failure.signal == end.signal);
    check_has(failure.message, concat("[launch] rank 1 (process ", failure.pid, ") "));
    check_has(failure.message, end.part);
  }
  check_nothing_remains(before);
}

TEST_CASE("ranks that do not hear of a failure are ended, those that do not listen too") {
  const Said said;
  const auto run = [&] {
    launch::start_processes(
        3,
        [&](Job& job) {
          said.say(job.rank(), concat(getpid()));
          if (job.rank() == 2) ::signal(SIGTERM, SIG_IGN);
          job.group().barrier().wait();
          if (job.rank() == 0) throw Error("rank 0 has had enough");
          for (;;) pause();
        },
        milliseconds(200))
        .join();
  };
  Failure failure;
  const std::string log = stderr_of([&] { failure = failure_of(run); });
  CHECK(failure.message == "[rank 0] rank 0 has had enough");
  check_has(log, "others have not ended within 0.2 s: they are ended");
  for (const int rank : {0, 1, 2}) CHECK(gone(std::stoi(said.of(rank))));
}

TEST_CASE("who starts processes may look at them, and ends them when he goes") {
  const Said said;
  std::vector<int> pids;
  {
    auto context = launch::start_processes(
        2,
        [&](Job& job) {
          job.group().barrier().wait();
          said.say(job.rank(), "here");
          for (;;) pause();
        },
        milliseconds(200));
    pids = context.pids();
    CHECK(pids.size() == 2);
    while (!said.has(0) || !said.has(1)) CHECK_FALSE(context.join(milliseconds(5)));
  }
  for (const int pid : pids) CHECK(gone(pid));
  CHECK(launch::start_processes(2, [](Job&) {}).join());
}

TEST_CASE("ranks go with the process that started them, and leave nothing") {
  const auto before = segments();
  for (const int microseconds : {1000, 20'000, 200'000}) {
    const Said said;
    const pid_t parent = fork();
    REQUIRE(parent >= 0);
    if (parent == 0) {
      auto context = launch::start_processes(3, [](Job& job) {
        const Tensor x = job.group().allocate({100'000});
        for (;;) job.group().all_reduce(x).wait();
      });
      std::string pids;
      for (const int pid : context.pids()) pids += concat(pid, " ");
      said.say(0, pids);
      usleep(static_cast<useconds_t>(microseconds));
      kill(getpid(), SIGKILL);
    }
    REQUIRE(waitpid(parent, nullptr, 0) == parent);
    std::istringstream pids(said.of(0));
    int count = 0;
    for (int pid = 0; pids >> pid; ++count) CHECK(gone(pid));
    CHECK(count == 3);
  }
  check_nothing_remains(before);
}

TEST_CASE("threads of ops, which this process has already, begin anew in its ranks") {
  const int threads = num_threads();
  set_num_threads(2);
  const Tensor x = full({600, 600}, 0.5f);
  const float want = matmul(x, x).to_vector<float>()[0];
  fork_ranks(2, [&](Job& job) {
    set_num_threads(2);
    PEAL_CHECK(matmul(x, x).to_vector<float>()[0] == want, "another product");
    job.group().barrier().wait();
  });
  set_num_threads(threads);
}

TEST_CASE("ranks may have ranks of their own, and a launcher's ranks none") {
  const Said said;
  fork_ranks(2, [&](Job& outer) {
    fork_ranks(2, [&](Job& inner) {
      const Tensor x = ones({1});
      inner.group().all_reduce(x).wait();
      PEAL_CHECK(x.item<int>() == 2, "sum ", x.item<int>());
    });
    launch::spawn(3, [&](Job& inner) {
      const Tensor x = ones({1});
      inner.group().all_reduce(x).wait();
      if (inner.is_main()) said.say(outer.rank(), concat(x.item<int>()));
    });
    const Tensor x = ones({1});
    outer.group().all_reduce(x).wait();
    PEAL_CHECK(x.item<int>() == 2, "sum ", x.item<int>());
  });
  CHECK(said.of(0) == "3");
  CHECK(said.of(1) == "3");
  check_has(failure_of([] {
              fork_ranks(2, [](Job&) { launch::notebook_launcher(2, [](Job&) {}); });
            }).message,
            "of a launch already; call it outside");
}

TEST_CASE("what cannot be started is said before anything is") {
  check_has(error_of([] { fork_ranks(0, [](Job&) {}); }), "a world of 0");
  check_has(error_of([] { fork_ranks(2, nullptr); }), "expected a function, got none");
  CHECK(launch::obstacle_to_fork({"/dev/null", "socket:[1]", "/tmp/nvidia"}).empty());
  for (const char* device : {"/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl", "/dev/nvmap"}) {
    check_has(launch::obstacle_to_fork({"/dev/null", device}),
              "CUDA is in use in this process, and a child by fork cannot use it");
  }
}
