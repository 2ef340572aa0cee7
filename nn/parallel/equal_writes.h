// SPDX-License-Identifier: Apache-2.0
// Equal writes: a run of versions of a buffer, each of which a layer made of what it had from all
// ranks of a group (running statistics of synchronised batch norm). A buffer that was equal on them
// before the run is so after it, and need not be sent. Thread safety: as of the module.
#pragma once

#include <peal/autograd/core/storage.h>
#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <memory>

namespace peal::nn {

class EqualWrites {
 public:
  // While it lives, whoever writes the buffer writes the same on all ranks.
  class Scope {
   public:
    // The run gets what is written to the buffer, of any shape, until the end.
    Scope(EqualWrites& run, const Tensor& buffer)
        : run_(run), storage_(buffer.storage()), before_(storage_->version()) {}
    ~Scope() { run_.add(storage_, before_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    EqualWrites& run_;
    StorageRef storage_;
    std::uint64_t before_;
  };

  // Whether all writes of the storage since that version are of the run.
  bool cover(const StorageRef& storage, std::uint64_t since) const {
    return storage_.lock() == storage && first_ <= since && last_ == storage->version();
  }

 private:
  void add(const StorageRef& storage, std::uint64_t before) {
    if (storage_.lock() != storage || last_ != before) first_ = before;
    storage_ = storage;
    last_ = storage->version();
  }

  std::weak_ptr<Storage> storage_;
  std::uint64_t first_ = 0, last_ = 0;
};

}  // namespace peal::nn
