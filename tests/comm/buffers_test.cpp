// SPDX-License-Identifier: Apache-2.0
// Where the spans of an operation lie, and what becomes of them before and after its rounds, over a
// transport of the CPU.
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/tensor.h>
#include <peal/comm/engine/buffers.h>
#include <peal/comm/schedule/plan.h>
#include <peal/comm/transport/threads/threads.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include "collective_values.h"

using namespace peal;
using namespace peal::comm;
using peal::comm::testing::element;

namespace {

Tensor counted(std::int64_t count, DType dtype) {
  return comm::testing::filled(count, dtype, [](std::int64_t i) { return static_cast<double>(i); });
}

// A rank's memory for one call, without rounds: a test plays their part.
class Opened {
 public:
  Opened(CollectiveCall call, Program program, int rank = 0, int world = 4)
      : Opened(std::move(call), Plan(std::move(program)), rank, world) {}
  Opened(CollectiveCall call, Plan plan, int rank = 0, int world = 4)
      : transport_(std::make_shared<Switchboard>(world), rank),
        call_(std::move(call)),
        plan_(std::move(plan)),
        buffers_(call_, &plan_, transport_, copies_, 64, nullptr) {
    buffers_.follow(caller_);
    buffers_.open();
    CHECK(buffers_.arrived(0));
  }
  Buffers& operator*() { return buffers_; }
  Buffers* operator->() { return &buffers_; }
  float* floats(Span span) { return reinterpret_cast<float*>(buffers_.at(span)); }
  void close() { buffers_.close(caller_); }

 private:
  ThreadsTransport transport_;
  CopyStreams copies_;
  CallerOrder caller_;
  CollectiveCall call_;
  Plan plan_;
  Buffers buffers_;
};

CollectiveCall all_reduce(const Tensor& out, const Tensor& in, ReduceOp op, double factor = 1) {
  return {.what = Collective::all_reduce,
          .in = in,
          .out = out,
          .op = op,
          .factor = factor,
          .counts = {in.numel()}};
}

constexpr Block all{0, 8};

}  // namespace

TEST_CASE("spans of f32 lie where the caller's tensors do, and no bytes are copied") {
  const Tensor in = counted(8, DType::f32), out = counted(8, DType::f32);
  Opened opened(all_reduce(out, in, ReduceOp::sum), Program{.scratch = 4, .rounds = {}});
  CHECK(opened.floats(comm::in({2, 3})) == in.data<float>() + 2);
  CHECK(opened.floats(comm::out({5, 1})) == out.data<float>() + 5);
  CHECK(opened->at(scratch({1, 2})) == opened->at(scratch({0, 4})) + 4);
  CHECK(opened->at(comm::in({0, 0})) == nullptr);
  CHECK(opened->dtype() == DType::f32);
  CHECK(opened->bytes(3) == 12);
  opened.close();
  CHECK(element(out, 7) == 7);
}

TEST_CASE("a span of another rank is an error that says what is missing") {
  const Tensor data = counted(8, DType::f32);
  Opened opened(all_reduce(data, data, ReduceOp::sum), Program{.scratch = 0, .rounds = {}});
  CHECK_THROWS_WITH_AS(
      static_cast<void>(opened->at({.owner = 2, .buffer = Buffer::in, .at = 0, .count = 5})),
      doctest::Contains("5 elements of in of rank 2 are out of this rank's reach: the ranks of the "
                        "group share no memory"),
      Error);
  CHECK(opened->at({.owner = 2, .buffer = Buffer::in, .at = 0, .count = 0}) == nullptr);
}

TEST_CASE("low precision is widened on the way in, and narrowed, once divided, on the way out") {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    CAPTURE(dtype);
    const Tensor data = counted(8, dtype);
    Opened opened(all_reduce(data, data, ReduceOp::avg), Program{.scratch = 8, .rounds = {}});
    REQUIRE(opened->dtype() == DType::f32);
    CHECK(opened->bytes(8) == 32);
    float *const in = opened.floats(comm::in(all)), *const out = opened.floats(comm::out(all));
    CHECK(in != out);
    for (int i = 0; i < 8; ++i) {
      CHECK(in[i] == static_cast<float>(i));
      out[i] = 4 * in[i] + 4;  // as if it were the sum
    }
    opened.close();
    for (std::int64_t i = 0; i < 8; ++i) CHECK(element(data, i) == static_cast<double>(i + 1));
  }
}

TEST_CASE("sums that are made at once are rounded and divided there, in the caller's memory") {
  Plan plan(Program{.scratch = 0, .rounds = {}});
  plan.sum_at_once(4);
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    CAPTURE(dtype);
    const Tensor data = counted(8, dtype);
    Opened opened(all_reduce(data, data, ReduceOp::avg), plan);
    CHECK(opened->dtype() == dtype);
    CHECK(opened->divisor() == 4);
    CHECK(opened->at(comm::in(all)) == data.view().data());
    CHECK(opened->at(comm::out(all)) == data.view().data());
    opened.close();
    for (std::int64_t i = 0; i < 8; ++i) CHECK(element(data, i) == static_cast<double>(i));
  }
  const Tensor data = counted(8, DType::f32);
  CHECK(Opened(all_reduce(data, data, ReduceOp::sum), plan)->divisor() == 1);
  const Program parts{.scratch = 0, .rounds = {}};
  CHECK(Opened(all_reduce(data, data, ReduceOp::avg), parts)->divisor() == 1);
}

TEST_CASE("premul_sum multiplies a copy of the input, or in place what is there") {
  const Tensor in = counted(8, DType::f32), out = counted(8, DType::f32);
  {
    Opened apart(all_reduce(out, in, ReduceOp::premul_sum, 3), Program{.scratch = 0, .rounds = {}});
    CHECK(apart.floats(comm::in(all)) != in.data<float>());
    CHECK(apart.floats(comm::in(all))[5] == 15);
    CHECK(element(in, 5) == 5);
    apart.close();
  }
  Opened same(all_reduce(in, in, ReduceOp::premul_sum, 3), Program{.scratch = 0, .rounds = {}});
  CHECK(same.floats(comm::in(all)) == in.data<float>());
  CHECK(element(in, 5) == 15);
}

TEST_CASE(
    "pieces are gathered at the start and scattered at the end, and only written for readers") {
  const Tensor first = counted(3, DType::f32), second = counted(5, DType::f32);
  for (const int rank : {0, 1}) {
    const Tensor packed = comm::testing::filled(8, DType::f32, [](std::int64_t) { return -1; });
    const std::vector<Piece> pieces = {{first, 0}, {second, 3}};
    Opened opened({.what = Collective::broadcast,
                   .in = packed,
                   .out = packed,
                   .root = 0,
                   .counts = {8},
                   .gathered = pieces,
                   .scattered = pieces},
                  Program{.scratch = 0, .rounds = {}}, rank);
    float* const data = opened.floats(comm::out(all));
    CHECK(data[0] == (rank == 0 ? 0 : -1));  // the root's alone is read
    CHECK(data[7] == (rank == 0 ? 4 : -1));
    const auto version = first.view().storage->version();
    std::fill(data, data + 8, 9.F);
    opened.close();
    CHECK(element(first, 2) == (rank == 0 ? 2 : 9));
    CHECK(element(second, 4) == (rank == 0 ? 4 : 9));
    CHECK((first.view().storage->version() != version) == (rank == 1));
  }
}
