// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/comm/schedule/mix.h>
#include <peal/nn/parallel/compressed_all_reduce.h>

#include <string_view>

namespace peal::nn {
namespace {

// As `dtype`, rounded to f32 before, with zeros behind it up to `count`; x itself where it is so.
Tensor padded(const Tensor& x, std::int64_t count, DType dtype) {
  const Tensor given = cast(cast(x, DType::f32), dtype);
  const std::int64_t lacking = count - x.numel();
  if (lacking == 0) return given.detach({count});
  const Tensor all = Tensor::empty({count}, dtype, x.device());
  all.detach(x.shape()).copy_(given);
  const Tensor rest = all.detach({lacking}, x.numel());
  rest.zero_();
  return all;
}

std::int64_t part_of(std::int64_t count, int world, std::int64_t multiple) {
  const std::int64_t each = (count + world - 1) / world;
  return (each + multiple - 1) / multiple * multiple;
}

// What the ranks sent, reduced in their order: `part(r)` is rank r's, in f32, and the first takes
// the sum.
template <class Part>
Tensor reduced(int world, comm::ReduceOp op, Part part) {
  const Tensor sum = part(0);
  for (int r = 1; r < world; ++r) add_(sum, part(r));
  return op == comm::ReduceOp::avg ? sum / world : sum;
}

// Its elements need not be many: a rank's part begins at a multiple of `part`.
comm::Work reduce_in_floats(const comm::ProcessGroup& group, const Tensor& data, DType wire,
                            comm::ReduceOp op, const comm::Label& label) {
  const int world = group.world();
  const std::int64_t part = part_of(data.numel(), world, 1);
  const Tensor sent = padded(data, part * world, wire);  // a copy: data's elements are wider
  const Tensor got = Tensor::empty(sent.shape(), wire, data.device());
  const std::uint64_t tag = label.tag;
  return group.all_to_all(got, sent, label)
      .then([=] {
        const Tensor own = sent.detach({part}, part * group.rank());
        own.copy_(
            cast(reduced(world, op,
                         [&](int r) { return cast(got.detach({part}, part * r), DType::f32); }),
                 wire));
        return group.all_gather(sent, own, {"what was compressed", tag});
      })
      .then([=] {
        data.copy_(cast(sent.detach(data.shape()), data.dtype()));
        return comm::Work();
      });
}

comm::Work reduce_in_int8(const comm::ProcessGroup& group, const Tensor& data, comm::ReduceOp op,
                          const comm::Label& label) {
  const int world = group.world();
  const std::int64_t part = part_of(data.numel(), world, Int8Blocks::size);
  const std::int64_t rows = part / Int8Blocks::size;
  const Int8Blocks sent = to_int8(padded(data, part * world, DType::f32));
  const Int8Blocks got{Tensor::empty(sent.codes.shape(), DType::u8, data.device()),
                       Tensor::empty(sent.scales.shape(), DType::f32, data.device())};
  const std::uint64_t tag = label.tag;
  return comm::Work::all({group.all_to_all(got.codes, sent.codes, label),
                          group.all_to_all(got.scales, sent.scales, label)})
      .then([=] {
        const Int8Blocks own = to_int8(reduced(world, op, [&](int r) {
          return from_int8(
              {got.codes.detach({part}, part * r), got.scales.detach({rows, 1}, rows * r)});
        }));
        const Tensor codes = sent.codes.detach({part}, part * group.rank());
        const Tensor scales = sent.scales.detach({rows, 1}, rows * group.rank());
        codes.copy_(own.codes);
        scales.copy_(own.scales);
        return comm::Work::all({group.all_gather(sent.codes, codes, {"what was compressed", tag}),
                                group.all_gather(sent.scales, scales, {"its scales", tag})});
      })
      .then([=] {
        data.copy_(cast(from_int8(sent).detach(data.shape()), data.dtype()));
        return comm::Work();
      });
}

}  // namespace

comm::Work compressed_all_reduce(const comm::ProcessGroup& group, const Tensor& data, DType wire,
                                 comm::ReduceOp op, const comm::Label& label) {
  const auto refuse = [&](std::string_view what, const auto& got) {
    fail(concat("compressed_all_reduce: expected ", what, ", got ", got));
  };
  if (!is_floating(data.dtype())) refuse("data of a floating type", data.dtype());
  if (wire != DType::i8 && !is_floating(wire)) refuse("f16, bf16, f32 or i8 on the wire", wire);
  if (op != comm::ReduceOp::sum && op != comm::ReduceOp::avg) refuse("sum or avg", name(op));
  if (wire != DType::i8 && size_of(data.dtype()) <= size_of(wire)) {
    return group.all_reduce(data, op, label);
  }
  // What travels says neither which, nor of what (its size is rounded up), and ranks that differ in
  // that must not meet. A tag of the caller's says of what, and times are looked up by it
  // (a sum's by it and that it is one).
  comm::Label told = label;
  if (op == comm::ReduceOp::sum) comm::mix(told.tag, 1);
  std::string text(label.text);
  if (text.empty()) text = concat("compressed ", name(op));
  if (label.tag == 0) {
    comm::mix(told.tag, static_cast<std::uint64_t>(data.numel()));
    comm::mix(told.tag, static_cast<std::uint64_t>(data.dtype()));
    text += concat(" of ", data.numel(), " ", data.dtype());
  }
  told.text = text;
  return wire == DType::i8 ? reduce_in_int8(group, data.detach(), op, told)
                           : reduce_in_floats(group, data.detach(), wire, op, told);
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

}  // namespace peal::nn
