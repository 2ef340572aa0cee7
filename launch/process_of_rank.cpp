// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/told_here.h>
#include <peal/comm/start/processes.h>
#include <peal/comm/store/tcp_store.h>
#include <peal/launch/process_of_rank.h>
#include <peal/launch/spawned_rank.h>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <system_error>
#include <thread>

namespace peal::launch {

SharedPage::SharedPage(int ranks)
    : bytes_(sizeof(Page) + static_cast<std::size_t>(ranks) * sizeof(Slot)) {
  void* const memory =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  PEAL_CHECK(memory != MAP_FAILED, "[launch] no memory to share with ", ranks,
             " processes: ", std::strerror(errno));
  page_ = static_cast<Page*>(memory);
}

SharedPage::~SharedPage() { munmap(page_, bytes_); }

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* host = "127.0.0.1";

void tell(const Start& start, const std::string& message, std::atomic<int>* first) {
  int nobody = 0;
  if (first != nullptr) first->compare_exchange_strong(nobody, start.rank + 1);
  Slot& slot = start.page.slot(start.rank);
  if (slot.has_error) return;
  const std::size_t length = std::min(message.size(), sizeof slot.error - 1);
  std::memcpy(slot.error, message.data(), length);
  slot.has_error = true;
}

// Rank 0 serves, and the others learn where.
std::unique_ptr<comm::Store> open_store(const Start& start, const comm::Patience& patience) {
  if (start.rank == 0) {
    auto store =
        std::make_unique<comm::TcpStore>(host, 0, 0, start.world, patience, "spawn", start.secret);
    start.page->port = store->port();
    return store;
  }
  const auto end = Clock::now() + patience.deadline;
  while (start.page->port == 0) {
    PEAL_CHECK(Clock::now() < end, "[launch] rank ", start.rank, " waited ",
               std::chrono::duration<double>(patience.deadline).count(),
               " s (PEAL_TIMEOUT) for rank 0 to start");
    std::this_thread::sleep_for(milliseconds(1));
  }
  return std::make_unique<comm::TcpStore>(host, start.page->port.load(), start.rank, start.world,
                                          patience, "spawn", start.secret);
}

// A rank's whole life: true where all went well.
bool live(const Start& start) {
  bool began = false;
  try {
    context().log_tag = concat("rank ", start.rank);
    const auto options = comm::ProcessGroup::Options::from_environment();
    const auto store = open_store(start, {.deadline = options.deadline});
    comm::StoreRendezvous ranks(*store, start.rank, start.world);
    {
      const comm::ProcessGroup group = comm::processes_group(ranks, options);
      began = true;
      run_spawned(group, start.f, [&](const std::string& message, bool first) {
        tell(start, message, first ? &start.page->first : nullptr);
      });
      // Nobody is done while another may still fail.
      group.barrier("the end of its program").wait();
      group.write_trace();
    }
    ranks.exchange("the end");  // a process that goes has died, to those that have the group still
    start.page.slot(start.rank).returned = true;
    return true;
  } catch (const std::exception& error) {
    tell(start, error.what(), began ? nullptr : &start.page->early);
  }
  return false;
}

}  // namespace

void be_rank(const Start& start, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGTERM, SIG_DFL);  // what ends a rank is not for its parent's handler
  if (getppid() != parent) std::_Exit(1);
  bool well = false;
  try {
    // OpenMP's threads are the parent's; a thread that is new here gets new ones.
    std::thread(with_context([&] { well = live(start); })).join();
  } catch (const std::system_error& error) {
    tell(start, concat("[launch] rank ", start.rank, ": no thread: ", error.what()),
         &start.page->early);
  }
  tell_repeated_warnings();
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(well ? 0 : 1);
}

}  // namespace peal::launch
