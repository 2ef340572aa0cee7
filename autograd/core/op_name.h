// SPDX-License-Identifier: Apache-2.0
// Diagnostic context: which op this thread runs. Whatever it calls can name it in an error, and ask
// whether it may call kernels. Thread safety: each thread has its own.
#pragma once

#include <string_view>
#include <utility>

namespace peal {

// While one of these lives, this thread runs that op. REQUIRES: the name outlives this.
class OpName {
 public:
  explicit OpName(std::string_view name) : name_(name), outer_(std::exchange(innermost_, this)) {}
  ~OpName() { innermost_ = outer_; }
  OpName(const OpName&) = delete;
  OpName& operator=(const OpName&) = delete;

  // Empty outside of all ops.
  static std::string_view current() { return innermost_ ? innermost_->name_ : std::string_view(); }
  std::string_view name() const { return name_; }
  // False while MadeOfOps holds for the innermost op.
  static bool may_call_kernels() { return of_ops_ == nullptr || of_ops_ != innermost_; }

 private:
  friend class MadeOfOps;
  static inline thread_local constinit OpName* innermost_ = nullptr;
  static inline thread_local constinit const OpName* of_ops_ = nullptr;
  std::string_view name_;
  OpName* outer_;
};

// While one of these lives the innermost op may call ops, but no kernels by itself, which nothing
// would record.
class MadeOfOps {
 public:
  explicit MadeOfOps(bool on)
      : before_(std::exchange(OpName::of_ops_, on ? OpName::innermost_ : nullptr)) {}
  ~MadeOfOps() { OpName::of_ops_ = before_; }
  MadeOfOps(const MadeOfOps&) = delete;
  MadeOfOps& operator=(const MadeOfOps&) = delete;

 private:
  const OpName* before_;
};

}  // namespace peal
