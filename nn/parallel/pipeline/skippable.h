// SPDX-License-Identifier: Apache-2.0
// Skippable: a layer of a Sequential that gives a tensor to a later one, past those between them: a
// skip connection (torchgpipe and FairScale: @skippable, stash, pop). Under Pipe it goes straight
// from the rank of the layer that stashes it to that of the one that pops it, and its gradient
// straight back.
//
//   struct Down : nn::Skippable {
//     explicit Down(std::string skip) : Skippable({.stash = {skip}}), skip(skip) {}
//     Tensor forward(const Tensor& x) override {
//       stash(skip, x);
//       return max_pool2d(x, 2);
//     }
//     std::string skip;
//   };
//   struct Up : nn::Skippable {
//     explicit Up(std::string skip) : Skippable({.pop = {skip}}), skip(skip) {}
//     Tensor forward(const Tensor& x) override { return interpolate(x) + pop(skip); }
//     std::string skip;
//   };
//   nn::Sequential net{Down("outer"), Down("inner"), Up("inner"), Up("outer")};
//
// A name is stashed once in a model, and popped once, by a layer behind: one that uses a class
// twice gives the two other names, as above. Pipe holds models to that when it is built, and
// forward to what the class declares. A tensor that does not want a gradient, or is of whole
// numbers, is passed on and gets none.
//
// Without Pipe the same model runs as it is: what is stashed waits in the thread until it is
// popped. A layer that is computed again by a checkpoint() of the caller's own would pop what is
// gone; Pipe's checkpoints (PipeOptions::checkpoint) keep it. Thread safety: as of Module.
#pragma once

#include <peal/nn/module.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace peal::nn {

struct SkipNames {
  std::vector<std::string> stash{}, pop{};
};

class Skippable : public Module {
 public:
  // What it stashes and pops, as the class declared it.
  const SkipNames& skips() const { return skips_; }

 protected:
  explicit Skippable(SkipNames skips) : skips_(std::move(skips)) {}
  // In forward. Error for a name that the class does not declare, and for no tensor.
  void stash(std::string_view name, const Tensor& tensor) const;
  // What was stashed, which is gone then. Error where nothing was.
  Tensor pop(std::string_view name) const;

 private:
  SkipNames skips_;
};

// What was stashed and is not popped yet, by name.
class SkipTable {
 public:
  // A tensor of any shape, in the place of one that has the name.
  void put(std::string_view name, const Tensor& tensor);
  // As it was put, of the shape that it had; undefined where there is none.
  Tensor take(std::string_view name);
  // Any that is left; empty where none is.
  std::string left() const { return tensors_.empty() ? "" : tensors_.begin()->first; }
  // All become leaves: what comes then is no part of the graph that made them.
  void detach();

  // The thread's own, or that of the innermost Use.
  static SkipTable& current();
  // While it lives, stash() and pop() of the thread are of that table.
  class Use {
   public:
    // REQUIRES: the table outlives it.
    explicit Use(SkipTable& table);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    SkipTable* before_;
  };

 private:
  std::map<std::string, Tensor, std::less<>> tensors_;
};

// Which layer stashes a name, and which pops it, by their places in the model.
struct SkipRoute {
  std::string name;
  int from, to;
};
// In the order of the stashes. Error for a name that is stashed twice, never popped, popped twice
// or before its stash.
std::vector<SkipRoute> skip_routes(const std::vector<std::pair<std::string, Module>>& layers);

}  // namespace peal::nn
