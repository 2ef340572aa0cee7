// SPDX-License-Identifier: Apache-2.0
// Replicas of a module in one process, as DataParallel has them: the module itself, and others that
// look at its parameters or have copies of them. Thread safety: as of Module; each_replica() runs
// what it is given on several threads.
#pragma once

#include <peal/autograd/core/device.h>
#include <peal/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace peal::nn {

// f(0) here, the others on threads of their own, which share the caller's cores; the first failure
// by number is thrown.
void each_replica(std::size_t count, const std::function<void(std::size_t)>& f);

// Error where names, shapes or types differ.
void check_alike(const NamedTensors& first, const NamedTensors& other, std::size_t replica);

struct Replicas {
  // What a replica's tensor was copied from, and what it was then: while neither is written there
  // is nothing to copy, and what an earlier forward saved of it stays valid.
  class Copied {
   public:
    void copy(const Tensor& from, const Tensor& to) {
      if (from_.is(from) && to_.is(to)) return;
      to.copy_(from);
      from_ = State(from);
      to_ = State(to);
    }

   private:
    struct State {
      State() = default;
      explicit State(const Tensor& t) : storage(t.storage()), version(t.storage()->version()) {}
      bool is(const Tensor& t) const {
        return storage.lock() == t.storage() && version == t.storage()->version();
      }
      std::weak_ptr<Storage> storage;
      std::uint64_t version = 0;
    };
    State from_, to_;
  };

  std::vector<Module> modules;
  std::vector<Device> devices;
  std::vector<std::vector<Copied>> parameters, buffers;  // by replica

  // It gets the first module's parameters, buffers and modes.
  void refresh(std::size_t replica);
};

}  // namespace peal::nn
