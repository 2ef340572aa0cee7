// SPDX-License-Identifier: Apache-2.0
// An all_reduce that sends fewer bytes: what fits into few bits is exact, all ranks have the same
// bits, and ranks that want different ones are told so. What is rounded where it does not fit:
// ddp_compress_test.cpp.
#include <peal/nn/parallel/compressed_all_reduce.h>

#include <string>
#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;
using comm::ReduceOp;

namespace {

// Of even ranks whole numbers that every wire holds, as it does their double and half: the largest
// of a block is 127, so its scale is one. Of the others zeros.
Tensor whole_numbers(std::int64_t count, int rank, DType dtype) {
  const Tensor x = Tensor::zeros({count});
  for (std::int64_t i = 0; i < count && rank % 2 == 0; ++i) {
    x.data<float>()[i] = static_cast<float>(i % 256 == 0 ? 127 : (i * 7 + 3) % 32);
  }
  return cast(x, dtype);
}

std::vector<float> floats(const Tensor& x) { return cast(x, DType::f32).to_vector<float>(); }

}  // namespace

TEST_CASE(
    "an all_reduce by few bits is exact where they suffice, and sends no more than they are") {
  for (const int world : {1, 2, 3, 4}) {
    ranks(world, [&](const Group& group, int rank) {
      const double even = (world + 1) / 2;
      for (const DType wire : {DType::f16, DType::bf16, DType::i8}) {
        for (const DType dtype : {DType::f32, DType::f64}) {
          for (const std::int64_t count : {0, 1, 5, 1000}) {
            CAPTURE(wire);
            CAPTURE(count);
            const auto before = group.counters();
            const Tensor x = whole_numbers(count, rank, dtype);
            nn::compressed_all_reduce(group, x, wire).wait();
            CHECK(floats(x) == floats(whole_numbers(count, 0, DType::f32) * even));
            const auto sent = group.counters() - before;
            CHECK(sent[comm::Collective::all_reduce].calls == 0);
            if (wire != DType::i8) {
              const auto bytes = sent[comm::Collective::all_to_all].bytes;
              CHECK(bytes <= static_cast<std::uint64_t>(2 * (count + world)));
            }
            if (world == 3) continue;  // thirds
            const Tensor y = whole_numbers(count, rank, dtype);
            nn::compressed_all_reduce(group, y, wire, ReduceOp::avg).wait();
            CHECK(floats(y) == floats(whole_numbers(count, 0, DType::f32) * (even / world)));
          }
        }
      }
    });
  }
}

TEST_CASE("after an all_reduce by few bits all ranks have the same, and two are each their own") {
  ranks(3, [](const Group& group, int rank) {
    std::vector<Tensor> all;
    std::vector<comm::Work> works;
    for (const DType wire : {DType::f16, DType::bf16, DType::i8}) {
      all.push_back(rand({777}) * (0.1 + rank));
      works.push_back(nn::compressed_all_reduce(group, all.back(), wire));
    }
    // As many bytes an element, and as it is.
    const Tensor half = full({3}, rank + 1, DType::bf16);
    nn::compressed_all_reduce(group, half, DType::f16, ReduceOp::avg).wait();
    CHECK(floats(half) == std::vector<float>(3, 2));
    for (std::size_t i = 0; i < all.size(); ++i) {
      works[i].wait();
      CHECK(same_everywhere(all[i], group));
    }
  });
}

TEST_CASE("ranks that differ in what an all_reduce by few bits is are all told so") {
  const auto fails = [](const auto& call) {
    return failure([&](const Group& group, int rank) { call(group, rank).wait(); });
  };
  const auto by = [&](auto wire_of, auto op_of) {
    return fails([&](const Group& group, int rank) {
      return nn::compressed_all_reduce(group, zeros({600}), wire_of(rank), op_of(rank));
    });
  };
  const auto one = [](auto value) { return [value](int) { return value; }; };
  const std::string ops =
      by(one(DType::f16), [](int rank) { return rank == 0 ? ReduceOp::sum : ReduceOp::avg; });
  CHECK(ops.find("compressed sum") != std::string::npos);
  CHECK(ops.find("compressed avg") != std::string::npos);
  const std::string types =
      by([](int rank) { return rank == 0 ? DType::f16 : DType::bf16; }, one(ReduceOp::sum));
  CHECK(types.find("f16") != std::string::npos);
  CHECK(types.find("bf16") != std::string::npos);
  const std::string forms =
      by([](int rank) { return rank == 0 ? DType::f16 : DType::i8; }, one(ReduceOp::sum));
  CHECK(forms.find("u8") != std::string::npos);
  // Of which the same number of bytes travels.
  const auto of = [&](DType wire, auto count_of, auto dtype_of) {
    return fails([&](const Group& group, int rank) {
      return nn::compressed_all_reduce(group, zeros({count_of(rank)}, dtype_of(rank)), wire);
    });
  };
  const std::string counts = of(
      DType::f16, [](int rank) { return 9 + rank; }, one(DType::f32));
  CHECK(counts.find("compressed sum of 9 f32") != std::string::npos);
  CHECK(counts.find("compressed sum of 10 f32") != std::string::npos);
  const std::string blocks = of(
      DType::i8, [](int rank) { return rank == 0 ? 100 : 250; }, one(DType::f32));
  CHECK(blocks.find("of 100 f32") != std::string::npos);
  CHECK(blocks.find("of 250 f32") != std::string::npos);
  const std::string widths =
      of(DType::f16, one(9), [](int rank) { return rank == 0 ? DType::f32 : DType::f64; });
  CHECK(widths.find("of 9 f32") != std::string::npos);
  CHECK(widths.find("of 9 f64") != std::string::npos);

  const Group alone = Group::alone();
  CHECK_THROWS_WITH(static_cast<void>(nn::compressed_all_reduce(alone, zeros({2}), DType::i32)),
                    doctest::Contains("expected f16, bf16, f32 or i8 on the wire, got i32"));
  CHECK_THROWS_WITH(
      static_cast<void>(nn::compressed_all_reduce(alone, zeros({2}, DType::i32), DType::f16)),
      doctest::Contains("expected data of a floating type, got i32"));
  CHECK_THROWS_WITH(
      static_cast<void>(nn::compressed_all_reduce(alone, zeros({2}), DType::f16, ReduceOp::max)),
      doctest::Contains("expected sum or avg, got max"));
}
