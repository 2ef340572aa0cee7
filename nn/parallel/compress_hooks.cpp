// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/nn/parallel/compress_hooks.h>

#include <memory>
#include <utility>

namespace peal::nn {
namespace {

// A copy in f32, with zeros behind it up to `count`.
Tensor padded(const Tensor& x, std::int64_t count) {
  const Tensor wide = Tensor::zeros({count}, DType::f32, x.device());
  wide.detach(x.shape()).copy_(cast(x, DType::f32));
  return wide;
}

std::int64_t part_of(std::int64_t count, int world, std::int64_t multiple) {
  const std::int64_t each = (count + world - 1) / world;
  return (each + multiple - 1) / multiple * multiple;
}

// The average of what the ranks sent, in their order: `part(r)` is rank r's, in f32.
template <class Part>
Tensor average(int world, Part part) {
  const Tensor sum = part(0).clone();
  for (int r = 1; r < world; ++r) add_(sum, part(r));
  return sum / world;
}

// The floating type that travels. Its elements need not be many: a rank's part begins at a multiple
// of `part`.
CommHook narrow(comm::ProcessGroup group, DType dtype) {
  return [group = std::move(group), dtype](GradBucket& bucket) {
    const Tensor memory = bucket.buffer;
    if (size_of(memory.dtype()) <= size_of(dtype)) {
      return group.all_reduce(memory, comm::ReduceOp::avg, bucket.label);
    }
    const int world = group.world();
    const std::int64_t part = part_of(memory.numel(), world, 1);
    const Tensor sent = cast(padded(memory, part * world), dtype);
    const Tensor got = Tensor::empty(sent.shape(), dtype, memory.device());
    const std::uint64_t tag = bucket.label.tag;
    return group.all_to_all(got, sent, bucket.label)
        .then([=] {
          const Tensor own = sent.detach({part}, part * group.rank());
          own.copy_(cast(
              average(world, [&](int r) { return cast(got.detach({part}, part * r), DType::f32); }),
              dtype));
          return group.all_gather(sent, own, {"compressed gradients", tag});
        })
        .then([=] {
          memory.copy_(cast(sent.detach(memory.shape()), memory.dtype()));
          return comm::Work();
        });
  };
}

}  // namespace

CommHook reduce_hook(comm::ProcessGroup group, DType dtype) {
  return narrow(std::move(group), dtype);
}

CommHook fp16_compress_hook(comm::ProcessGroup group) {
  return narrow(std::move(group), DType::f16);
}

CommHook bf16_compress_hook(comm::ProcessGroup group) {
  return narrow(std::move(group), DType::bf16);
}

Int8Blocks to_int8(const Tensor& x) {
  const std::int64_t rows = x.numel() / Int8Blocks::size;
  const Tensor blocks = x.detach({rows, Int8Blocks::size});
  if (rows == 0) {
    return {Tensor::empty({0}, DType::u8, x.device()),
            Tensor::empty({0, 1}, DType::f32, x.device())};
  }
  const Tensor scales = max(abs(blocks), 1, true).values / 127.0;
  // NaN where the block is zeros, or not finite: any code will do.
  const Tensor ratio = blocks / scales;
  const Tensor whole =
      where(eq(ratio, ratio), ratio, Tensor::zeros(ratio.shape(), DType::f32, x.device()));
  return {cast(whole + 128.5, DType::u8).detach({x.numel()}), scales};
}

Tensor from_int8(const Int8Blocks& blocks) {
  const std::int64_t rows = blocks.codes.numel() / Int8Blocks::size;
  const Tensor whole = cast(blocks.codes, DType::f32).detach({rows, Int8Blocks::size}) - 128.0;
  return (whole * blocks.scales).detach({blocks.codes.numel()});
}

CommHook int8_compress_hook(comm::ProcessGroup group) {
  return [group = std::move(group)](GradBucket& bucket) {
    const Tensor memory = bucket.buffer;
    const int world = group.world();
    const std::int64_t part = part_of(memory.numel(), world, Int8Blocks::size);
    const std::int64_t rows = part / Int8Blocks::size;
    const Int8Blocks sent = to_int8(padded(memory, part * world));
    const Int8Blocks got{Tensor::empty(sent.codes.shape(), DType::u8, memory.device()),
                         Tensor::empty(sent.scales.shape(), DType::f32, memory.device())};
    const std::uint64_t tag = bucket.label.tag;
    return comm::Work::all({group.all_to_all(got.codes, sent.codes, bucket.label),
                            group.all_to_all(got.scales, sent.scales, bucket.label)})
        .then([=] {
          const Int8Blocks own = to_int8(average(world, [&](int r) {
            return from_int8(
                {got.codes.detach({part}, part * r), got.scales.detach({rows, 1}, rows * r)});
          }));
          const Tensor codes = sent.codes.detach({part}, part * group.rank());
          const Tensor scales = sent.scales.detach({rows, 1}, rows * group.rank());
          codes.copy_(own.codes);
          scales.copy_(own.scales);
          return comm::Work::all(
              {group.all_gather(sent.codes, codes, {"compressed gradients", tag}),
               group.all_gather(sent.scales, scales, {"their scales", tag})});
        })
        .then([=] {
          memory.copy_(cast(from_int8(sent).detach(memory.shape()), memory.dtype()));
          return comm::Work();
        });
  };
}

}  // namespace peal::nn
