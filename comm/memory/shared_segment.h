// SPDX-License-Identifier: Apache-2.0
// Shared-memory segment: bytes that all ranks of a node have, and that go with the last of them.
// It has no name in /dev/shm, for the others open it through the maker's files in /proc, so that
// nothing is left of a job that is killed. Where they cannot, in other
// namespaces, it has one until all have mapped it. Ranks that are threads of one process have
// ordinary memory. Thread safety: create() as its rendezvous; else a constant.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/comm/store/rendezvous.h>

#include <cstddef>
#include <memory>
#include <string_view>

namespace peal::comm {

// There is no memory that all ranks of the node can share.
class NoSharedMemory : public Error {
 public:
  using Error::Error;
};

// Collective. Error on all ranks where they do not want as many, with both.
void agree_on_bytes(Rendezvous& ranks, std::size_t bytes, std::string_view what);

class SharedSegment {
 public:
  // Zeroed. Collective over ranks of one node. NoSharedMemory, on all of them, where /dev/shm is
  // too small or cannot be written, with what to do; `what` is what it was for. Error, on all of
  // them, where their sizes differ; else it takes six exchanges, whatever comes, so that the nodes
  // of a group can do it side by side, each over its PartOfRendezvous.
  static std::shared_ptr<SharedSegment> create(Rendezvous& ranks, std::size_t bytes,
                                               std::string_view what);
  // The same, of /dev/shm also where one process has all ranks: its children share it. Five
  // exchanges.
  static std::shared_ptr<SharedSegment> between_processes(Rendezvous& ranks, std::size_t bytes,
                                                          std::string_view what);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  // Its ranks are threads of one process, which reach all of each other's memory.
  bool one_process() const { return !mapped_; }

 private:
  SharedSegment(std::byte* data, std::size_t bytes, bool mapped)
      : data_(data), bytes_(bytes), mapped_(mapped) {}
  static std::shared_ptr<SharedSegment> between_threads(Rendezvous& ranks, std::size_t bytes);

  std::byte* data_;
  std::size_t bytes_;
  bool mapped_;
};

}  // namespace peal::comm
