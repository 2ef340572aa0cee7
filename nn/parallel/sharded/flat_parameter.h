// SPDX-License-Identifier: Apache-2.0
// Flat parameter: the memory of one of a unit's flat plans, on one rank. The rank keeps its chunk;
// the whole comes by an all-gather, where the unit's modules read it, and goes again. Gradients are
// written into one such whole, too, and their average goes into the chunk's.
//
// The model's parameters look into the whole, with their names and shapes, for good. While it is
// freed they have no bytes: whoever reads one then gets an Error that names it. The same holds of
// their gradients: once these are reduced, a parameter says that it has one, and reading that is
// an Error. What has bytes always, and what an optimizer trains, are the rank's pieces, flat runs
// of the chunk, of which some may be empty.
//
// Where a whole is gathered again and the chunks were not written meanwhile, it is what it was, and
// what saved it for backward may read it (core/storage.h). Chunks are written alike on all ranks,
// as optimizers and load_state_dict do it, empty pieces too.
//
// With mixed precision (mixed_precision.h) the chunk and the pieces are masters, in the model's
// type. The whole is of the type that is computed in, as the model's parameters are then, and of
// the masters' type, in memory of its own, where values are read and written between steps. Whole
// gradients are, and add up, in the type that they travel in; the pieces' are of the masters' type.
// Thread safety: one thread.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/comm/group/process_group.h>
#include <peal/nn/parallel/mixed_precision.h>
#include <peal/nn/parallel/sharded/shard_plan.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace peal::nn {

// Whom a model is shared between.
struct ShardGroups {
  comm::ProcessGroup all;         // who train it
  comm::ProcessGroup shards;      // each of these has another chunk
  comm::ProcessGroup replicas{};  // and each of these the same one; none: nobody else has it
};

class FlatParameter {
 public:
  // Takes the chunk out of the parameters' values, which go: the model's parameters, of whose
  // numbers the plan is. `complete` is called with each gradient that is complete. Communicates
  // nothing. on_host: the chunk, its gradient and so what an optimizer keeps are in the host's
  // memory, wherever the model is. REQUIRES: `complete` outlives this.
  FlatParameter(FlatPlan plan, const NamedTensors& parameters, ShardGroups groups,
                const MixedPrecision& precision, bool on_host,
                const std::function<void()>& complete);
  // Parameters stay without bytes; nothing hears of their gradients any more.
  ~FlatParameter();
  FlatParameter(const FlatParameter&) = delete;
  FlatParameter& operator=(const FlatParameter&) = delete;

  // The whole: its all-gather starts, and is over; and its memory goes back.
  void gather(const comm::Label& label);
  void wait();
  void free();
  // The whole that is there is of other values than the chunks, or is not there after all.
  bool stale() const {
    return whole_.gathered_at != chunk_.storage()->version() || !whole().has_bytes();
  }
  // What an exception has left of it goes, whatever state it is in.
  void abandon();
  // The model's parameters look at the masters' whole from now on, or at the other. Neither is
  // there then.
  void turn(bool to_masters);
  // Who wrote into the whole: the chunk gets this rank's part of it. What is written and not given
  // back by this would be lost with free(), which is an Error on all ranks.
  void write_back();
  // Names of those that are frozen now and were not when the plan was made, or otherwise.
  std::string changed() const;

  // Before a backward: gradients that zero_grad() has dropped, of the model or of the pieces, are
  // dropped on the other side as well.
  void begin_backward();
  void reconcile();
  // Of this backward or those before, not averaged yet.
  bool has_some() const;
  // After a backward that opened memory for gradients of which none came.
  void close_gradients();
  // Before the first gradient of a backward: memory for them.
  void open_gradients();
  // All have come in this backward.
  bool complete() const { return came_ == plan_.entries.size(); }
  // Some are to be reduced, of this backward or of those before; and names of those that are not
  // there.
  bool waits() const { return gradients_ == Gradients::whole; }
  std::string missing() const;
  // The reduce-scatter of the average starts, and is over. Between replicas an all-reduce of the
  // chunk follows, in memory of its own, which finish() waits for. Then the pieces have it; the
  // whole goes before that all-reduce, or here.
  void reduce(const comm::Label& label);
  void settle(const comm::Label& label);
  void finish();
  // A backward is over that reduced nothing: gradients stay where they are, and go with the next.
  // Until then nobody steps with the pieces', which are not all of them.
  void keep();

  const FlatPlan& plan() const { return plan_; }
  const NamedTensors& pieces() const { return pieces_; }
  // "fc1.weight, fc1.bias"
  const std::string& names() const { return names_; }

 private:
  struct Own {
    FlatParameter* flat;
    Tensor parameter;
    bool came = false;  // its gradient, in this backward
    Tensor aside{};     // the piece's average, while more waits to be averaged
  };
  // What is gathered, [world * chunk], and of which version of the chunk it was, and its own then.
  struct Whole {
    Tensor memory;
    std::optional<std::uint64_t> gathered_at{};
    std::uint64_t at = 0;
  };
  Storage& whole() const { return *whole_.memory.storage(); }
  void look();  // at the whole
  void note(Own& own);
  // Reduced: the model's parameters say that they have some, and these have no bytes.
  enum class Gradients : std::uint8_t { none, whole, reduced };

  FlatPlan plan_;
  ShardGroups groups_;
  const std::function<void()>& complete_;
  std::string names_;
  std::vector<Own> own_;  // by entry
  NamedTensors pieces_;   // by entry
  Whole whole_, other_;   // the one that parameters look at; none: they are one
  Tensor gradient_;       // [world * chunk]
  Tensor reduced_;        // [chunk], of it, while replicas average
  Tensor chunk_;          // [chunk]
  Tensor sent_;           // the chunk in the whole's type, beside it, while it is gathered
  comm::Work gathering_, reducing_;
  bool in_flight_ = false;
  bool unchanged_ = false;  // the chunk, since the gather before
  std::size_t came_ = 0;
  Gradients gradients_ = Gradients::none;
};

}  // namespace peal::nn
