// SPDX-License-Identifier: Apache-2.0
// CapturedOperations: what one group has in a captured graph (autograd/core/graph.h), and how each
// replay of it takes its place among the group's operations.
//
// A collective that is called while the current stream captures goes, whole, into the graph: its
// queue forks from the caller's and joins it again at Work::wait(), or at the capture's end. It has
// not run then, so nobody watches it, and there is nothing that the host could wait for. A replay
// is one operation of the group, with a number of its own, which is watched as others are: ranks
// that replay while others call something else, or die, are told as ever. It comes after what the
// group had in the device's queue, and before what it puts there next. Only a stream-ordered
// transport can be captured, for the host does nothing in a replay.
//
// Thread safety: the thread that captures and replays.
#pragma once

#include <peal/autograd/core/graph.h>
#include <peal/comm/engine/engine.h>

#include <memory>
#include <string>
#include <vector>

namespace peal::comm {

class CapturedOperations {
 public:
  // Of the graph that the thread captures, which keeps it.
  static std::shared_ptr<CapturedOperations> create(Graph& graph, std::shared_ptr<Lane> lane);
  CapturedOperations(Graph& graph, std::shared_ptr<Lane> lane)
      : graph_(graph), lane_(std::move(lane)) {}
  ~CapturedOperations() { leave(); }
  CapturedOperations(const CapturedOperations&) = delete;
  CapturedOperations& operator=(const CapturedOperations&) = delete;

  // Puts the operation into the graph.
  void add(const OperationRef& operation);
  bool takes_more() const { return !ended_; }
  // The group goes: the graph is of no more use.
  void drop();

 private:
  void end();
  void leave();
  void before_replay();
  void after_replay();
  OperationRef make_replay() const;

  Graph& graph_;
  std::shared_ptr<Lane> lane_;
  std::vector<OperationRef> operations_;
  std::uint64_t signature_ = 0;  // of all, in order
  bool ended_ = false;
  OperationRef replay_;  // that is being launched
};

}  // namespace peal::comm
