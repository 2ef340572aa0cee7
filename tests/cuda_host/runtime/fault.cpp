// SPDX-License-Identifier: Apache-2.0
#include "fault.h"

#include "memory.h"
#include "symbols.h"

#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>

namespace cuda_host {
namespace {

const void* running = nullptr;
struct sigaction before;

// What it does is no more than a dying process should: it writes one line and the stack.
void on_fault(int signal, siginfo_t* info, void* context) {
  static_cast<void>(context);
  const int device = device_of(info->si_addr);
  if (device >= 0) {
    char line[512];
    const int length =
        running == nullptr
            ? std::snprintf(
                  line, sizeof(line),
                  "CUDA on the host: the host touched device memory: %p of device %d; copy "
                  "it with cudaMemcpy or to(Device{})\n",
                  info->si_addr, device)
            : std::snprintf(
                  line, sizeof(line),
                  "CUDA on the host: kernel %s touched %p of device %d, which it may not: "
                  "another device's without peer access, or outside all allocations\n",
                  name_of(running).c_str(), info->si_addr, device);
    [[maybe_unused]] const auto written = ::write(2, line, static_cast<std::size_t>(length));
    void* frames[32];
    ::backtrace_symbols_fd(frames, ::backtrace(frames, 32), 2);
  }
  ::sigaction(signal, &before, nullptr);  // the access is tried again, and ends the process
}

}  // namespace

void catch_faults() {
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, &before);
}

void set_running(const void* kernel) { running = kernel; }

}  // namespace cuda_host
