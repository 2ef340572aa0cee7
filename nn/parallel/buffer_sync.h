// SPDX-License-Identifier: Apache-2.0
// Buffer synchronisation: a model's buffers (running statistics, for example) become rank 0's, on
// all ranks. Only those that somebody wrote since the last time are sent, as one message for each
// type; which they are the ranks agree on first, with one bit for each, for a rank may have written
// what another has not. What synchronised batch norm over this group has written is equal by itself
// (equal_writes.h), and is not sent.
//
// In a captured graph nobody can look at bits: there those are sent that the last agreement found,
// in the calls before the capture; all, where there was none. One that the captured step writes and
// those calls did not (statistics, where they evaluated) is an Error by name. Thread safety: the
// thread that runs forward and backward.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/comm/group/process_group.h>
#include <peal/nn/module.h>
#include <peal/nn/parallel/equal_writes.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace peal::nn {

class BufferSync {
 public:
  // Buffers of `model`. REQUIRES: equal values on all ranks. `tag` is the wrapper's, for labels.
  BufferSync(const Module& model, NamedTensors buffers, comm::ProcessGroup group,
             std::uint64_t tag);

  // The three are collective. ask() starts the agreement, and settle() ends it and sends; in
  // between something else may go on.
  // `where`: for Errors, "step 3".
  void ask(std::string_view where);
  void settle();
  // All buffers, whoever wrote them. For hosts that know more than versions do.
  void send_all();
  // Whose they become, instead of rank 0's; `all`: every rank has a batch, and so what layers
  // write. The same on all ranks.
  void set_root(int rank, bool all) {
    root_ = rank;
    all_write_ = all;
    doubtful_ = doubtful_ || !all;
  }
  // They may not be equal: the next agreement finds all of them.
  void doubt_all() {
    for (Seen& seen : seen_) seen.storage.reset();
  }

 private:
  struct Seen {
    std::weak_ptr<Storage> storage;
    std::uint64_t version;
  };
  bool written(std::size_t buffer) const;
  void choose_all();
  void check_captured() const;
  void send();

  NamedTensors buffers_;
  comm::ProcessGroup group_;
  std::uint64_t tag_;
  int root_ = 0;
  bool all_write_ = true, doubtful_ = false;  // doubtful: since they were equal, some did not
  std::vector<std::shared_ptr<const EqualWrites>> equal_writes_;  // by buffer
  std::vector<Seen> seen_;                                        // when they were last equal
  std::string text_;                                              // of its label
  Tensor bits_;                                                   // of an agreement under way
  comm::Work asked_;
  std::vector<std::size_t> written_;  // what the last agreement found
};

}  // namespace peal::nn
