// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/transport/tcp/own_socket.h>

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <set>

namespace peal::comm {
namespace {

struct Open {
  std::mutex mutex;
  std::set<int> descriptors;
};
// It outlives those that outlive main().
Open& open_ones() {
  static auto& all = *new Open;
  return all;
}

// No other thread has the lock while a child is made.
[[maybe_unused]] const int closes =
    pthread_atfork([] { open_ones().mutex.lock(); }, [] { open_ones().mutex.unlock(); },
                   [] {
                     for (const int descriptor : open_ones().descriptors) close(descriptor);
                     open_ones().descriptors.clear();  // the numbers are the child's to use
                     open_ones().mutex.unlock();
                   });

}  // namespace

OwnSocket::OwnSocket(int descriptor) : descriptor_(descriptor) {
  const std::lock_guard lock(open_ones().mutex);
  open_ones().descriptors.insert(descriptor);
}

OwnSocket::~OwnSocket() {
  if (inherited()) return;
  const std::lock_guard lock(open_ones().mutex);
  open_ones().descriptors.erase(descriptor_);
  close(descriptor_);
}

}  // namespace peal::comm
