// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/channel_blocks.h>
#include <peal/autograd/kernels/cpu/convolution_winograd.h>
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/cpu/winograd_pairs.h>

#include <algorithm>

namespace peal::cpu {

#if defined(__x86_64__)

namespace {

using avx512bf16::Bf16Pair;
using avx512bf16::pair_columns;
using avx512bf16::positions;
using avx512bf16::TiledPlanes;
using avx512bf16::TileRows;

// Between positions, and between cells of kernels, beyond what one takes: so that all do not meet
// in the same sets of a cache.
constexpr std::int64_t apart = 64;
// Results whose sums stay in a second-level cache.
constexpr std::int64_t result_rows = 48;
// Tiles over which the sums of a kernel's gradient go at once.
constexpr std::int64_t summed_tiles = 4 * pair_columns;

std::uint16_t* bits_of(const Tensor& x) { return static_cast<std::uint16_t*>(x.raw()); }

// Room for so many elements of 16 bits at each position.
struct Positions {
  std::int64_t step;
  Tensor room;
  std::uint16_t* first;  // asked for once, not for each row of tiles
  explicit Positions(std::int64_t elements)
      : step(elements + apart),
        room(Tensor::empty({positions * step / 2}, DType::i32, Device{})),
        first(bits_of(room)) {}
  std::uint16_t* bits() const { return first; }
  Bf16Pair* pairs() const { return reinterpret_cast<Bf16Pair*>(first); }
};

// The rows of tiles of all images, in blocks that panels have room for.
struct TileBlocks {
  std::int64_t rows, most, count;
  TileBlocks(std::int64_t batch, const TiledPlanes& o)
      : rows(batch * o.down), most(pair_columns / o.across), count((rows + most - 1) / most) {}
  TileRows block(std::int64_t i) const { return {i * most, std::min(most, rows - i * most)}; }
};

// y = x convolved with `to` kernels, transformed [to, from] at each position.
void convolve(const Tensor& y, const TiledPlanes& y_planes, const Tensor& x,
              const TiledPlanes& x_planes, std::int64_t batch, const Positions& kernels,
              const Tensor& bias) {
  const std::int64_t from = x_planes.channels, to = y_planes.channels;
  const TileBlocks blocks(batch, y_planes);
  const std::uint16_t* images = bits_of(x);
  std::uint16_t* results = bits_of(y);
  const float* added = bias.defined() ? bias.data<float>() : nullptr;
  parallel_for(blocks.count, positions * from * to * 2, [&](std::int64_t begin, std::int64_t end) {
    const Positions tiles(from * pair_columns);
    const std::int64_t step = result_rows * pair_columns + apart;
    const Tensor room = Tensor::empty({positions, step}, DType::f32, Device{});
    float* sums = room.data<float>();
    for (std::int64_t i = begin; i < end; ++i) {
      const TileRows rows = blocks.block(i);
      for (std::int64_t c = 0; c < from; c += 2) {
        avx512bf16::tiles_to_pairs(tiles.pairs() + c / 2 * pair_columns, tiles.step / 2, images, c,
                                   x_planes, rows);
      }
      for (std::int64_t first = 0; first < to; first += result_rows) {
        const std::int64_t count = std::min(result_rows, to - first);
        for (std::int64_t p = 0; p < positions; ++p) {
          avx512bf16::multiply_pairs(
              {sums + p * step, nullptr}, kernels.pairs() + (p * kernels.step + first * from) / 2,
              tiles.pairs() + p * tiles.step / 2, nullptr,
              {count, rows.count * y_planes.across, from / 2, from / 2, 1, pair_columns, 0});
        }
        for (std::int64_t c = first; c < first + count; ++c) {
          avx512bf16::sums_to_results(results, sums + (c - first) * pair_columns, step,
                                      added != nullptr ? added[c] : 0.0f, c, y_planes, rows);
        }
      }
    }
  });
}

Tensor f32_weight(const Tensor& weight) {
  if (weight.dtype() == DType::f32) return weight;
  const Tensor wide = Tensor::empty(weight.shape(), DType::f32, Device{});
  cast(wide, weight);
  return wide;
}

// Transformed [out, in].
Positions forward_kernels(const Conv2dGeometry& o, const Tensor& weight) {
  const std::int64_t in = o.in_channels, row = in + apart;
  Positions kernels(o.out_channels * in);
  const float* w = weight.data<float>();
  parallel_for(o.out_channels, 64 * in, [&](std::int64_t begin, std::int64_t end) {
    const Tensor cells = Tensor::empty({9, row}, DType::f32, Device{});
    float* cell = cells.data<float>();
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t c = 0; c < in; ++c) {
        for (std::int64_t k = 0; k < 9; ++k) cell[k * row + c] = w[(i * in + c) * 9 + k];
      }
      avx512bf16::kernels_to_row(kernels.bits() + i * in, kernels.step, cell, row, in);
    }
  });
  return kernels;
}

// Turned by half a turn, transformed [in, out].
Positions backward_kernels(const Conv2dGeometry& o, const Tensor& weight) {
  constexpr std::int64_t together = 8;  // so that what comes from memory is used
  const std::int64_t in = o.in_channels, out = o.out_channels, row = out + apart;
  Positions kernels(in * out);
  const float* w = weight.data<float>();
  parallel_for((in + together - 1) / together, 64 * together * out,
               [&](std::int64_t begin, std::int64_t end) {
                 const Tensor cells = Tensor::empty({together, 9, row}, DType::f32, Device{});
                 float* cell = cells.data<float>();
                 for (std::int64_t first = begin * together; first < std::min(in, end * together);
                      first += together) {
                   const std::int64_t count = std::min(together, in - first);
                   for (std::int64_t i = 0; i < out; ++i) {
                     const float* from = w + (i * in + first) * 9;
                     for (std::int64_t c = 0; c < 9 * count; c += 9) {
                       for (std::int64_t k = 0; k < 9; ++k)
                         cell[(c + 8 - k) * row + i] = from[c + k];
                     }
                   }
                   for (std::int64_t c = 0; c < count; ++c) {
                     avx512bf16::kernels_to_row(kernels.bits() + (first + c) * out, kernels.step,
                                                cell + c * 9 * row, row, out);
                   }
                 }
               });
  return kernels;
}

// The sums over all tiles for the gradient of the kernels: at each position [out, in], or turned
// [in, out] where that fills panels better.
struct KernelSums {
  bool turned;
  std::int64_t rows, columns, step;
  Tensor sums;
  explicit KernelSums(const Conv2dGeometry& o)
      : turned(o.in_channels < pair_columns && o.in_channels < o.out_channels),
        rows(turned ? o.in_channels : o.out_channels),
        columns(turned ? o.out_channels : o.in_channels),
        step(rows * columns + apart),
        sums(Tensor::empty({positions, step}, DType::f32, Device{})) {}
  float* at(std::int64_t position) const { return sums.data<float>() + position * step; }
};

// Tiles of channels side by side, [channels, summed_tiles] at each position.
void add_products(const KernelSums& to, const Positions& left, const Positions& right,
                  std::int64_t pairs, bool first) {
  parallel_for(
      positions, to.rows * to.columns * pairs / 8, [&](std::int64_t begin, std::int64_t end) {
        const Tensor panel = Tensor::empty({pairs, pair_columns}, DType::f32, Device{});
        for (std::int64_t p = begin; p < end; ++p) {
          for (std::int64_t c = 0; c < to.columns; c += pair_columns) {
            const std::int64_t n = std::min(pair_columns, to.columns - c);
            // Pairs are whole elements here, which keep their bits.
            product_loops<float>().transpose(
                panel.data<float>(),
                reinterpret_cast<const float*>(right.bits() + p * right.step + c * summed_tiles), n,
                pairs, summed_tiles / 2, pair_columns);
            float* sums = to.at(p) + c;
            avx512bf16::multiply_pairs(
                {sums, nullptr}, left.pairs() + p * left.step / 2,
                reinterpret_cast<const Bf16Pair*>(panel.raw()), first ? nullptr : sums,
                {to.rows, n, pairs, summed_tiles / 2, 1, to.columns, to.columns});
          }
        }
      });
}

void sum_over_tiles(const KernelSums& to, const Tensor& dy, const TiledPlanes& dy_planes,
                    const Tensor& x, const TiledPlanes& x_planes, std::int64_t batch) {
  const std::int64_t in = x_planes.channels, out = dy_planes.channels;
  const TileBlocks blocks(batch, dy_planes);
  constexpr std::int64_t together = summed_tiles / pair_columns;
  const Positions tiles(in * summed_tiles), grads(out * summed_tiles);
  const std::uint16_t *images = bits_of(x), *slopes = bits_of(dy);
  for (std::int64_t first = 0; first < blocks.count; first += together) {
    const std::int64_t count = std::min(together, blocks.count - first);
    const std::int64_t pairs = count * pair_columns / 2;
    const auto each_row = [&](std::int64_t channels, const auto& transform) {
      parallel_for(channels, 32 * pairs, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t c = begin; c < end; ++c) {
          for (std::int64_t i = 0; i < count; ++i) {
            transform(c, c * summed_tiles + i * pair_columns, blocks.block(first + i));
          }
        }
      });
    };
    each_row(in, [&](std::int64_t c, std::int64_t at, const TileRows& rows) {
      avx512bf16::tiles_to_row(tiles.bits() + at, tiles.step, images, c, x_planes, rows);
    });
    each_row(out, [&](std::int64_t c, std::int64_t at, const TileRows& rows) {
      avx512bf16::gradients_to_row(grads.bits() + at, grads.step, slopes, c, dy_planes, rows);
    });
    add_products(to, to.turned ? tiles : grads, to.turned ? grads : tiles, pairs, first == 0);
  }
}

// [out] from [N, out, H, W].
void sum_channels(const Tensor& sums, const Tensor& dy) {
  const ChannelBlocks<BFloat16> blocks(
      Planes(dy.detach({dy.size(0), dy.size(1), dy.size(2) * dy.size(3)})));
  blocks.each([&](const auto& block) {
    ChannelsOwn<double> totals{};
    blocks.each_group(block, [&](const auto& part) {
      blocks.loops().add_sums(totals.data(), dy.data<BFloat16>() + part.at, part.planes);
    });
    set_numbers(sums, block.first, totals.data(), block.channels);
  });
}

TiledPlanes x_planes_of(const Conv2dGeometry& o) {
  return {o.in_channels, o.in_height, o.in_width, o.out_height / 2, o.out_width / 2, o.padding[0]};
}
TiledPlanes y_planes_of(const Conv2dGeometry& o) {
  return {o.out_channels, o.out_height, o.out_width, o.out_height / 2, o.out_width / 2, 0};
}

}  // namespace

bool winograd_bf16_serves(const Conv2dGeometry& o) {
  const auto is = [](const std::array<std::int64_t, 2>& a, std::int64_t n) {
    return a[0] == n && a[1] == n;
  };
  const auto even = [](std::int64_t n) { return n % 2 == 0; };
  constexpr std::int64_t widest = 2 * pair_columns;
  return o.kernel_height == 3 && o.kernel_width == 3 && o.groups == 1 && is(o.stride, 1) &&
         is(o.dilation, 1) && is(o.padding, o.padding[0]) && o.padding[0] <= 2 &&
         even(o.in_height) && even(o.in_width) && o.out_height >= 2 && o.out_width >= 2 &&
         o.in_width <= widest && o.out_width <= widest && even(o.in_channels) &&
         even(o.out_channels) && o.in_channels >= 16 && o.out_channels >= 16;
}

void conv2d_winograd_bf16(const Conv2dGeometry& o, const Tensor& y, const Tensor& x,
                          const Tensor& weight, const Tensor& bias) {
  convolve(y, y_planes_of(o), x, x_planes_of(o), o.batch, forward_kernels(o, f32_weight(weight)),
           bias);
}

void conv2d_winograd_bf16_backward(const Conv2dGeometry& o, const Tensor& dx, const Tensor& dweight,
                                   const Tensor& dbias, const Tensor& dy, const Tensor& x,
                                   const Tensor& weight) {
  if (dbias.defined()) sum_channels(dbias, dy);
  if (dx.defined()) {
    // A convolution of dy, whose tiles are those of dx.
    TiledPlanes from = y_planes_of(o), to = x_planes_of(o);
    from.down = to.down = o.in_height / 2;
    from.across = to.across = o.in_width / 2;
    from.padding = 2 - o.padding[0];
    convolve(dx, to, dy, from, o.batch, backward_kernels(o, f32_weight(weight)), {});
  }
  if (!dweight.defined()) return;
  const KernelSums sums(o);
  sum_over_tiles(sums, dy, y_planes_of(o), x, x_planes_of(o), o.batch);
  float* to = dweight.data<float>();
  const std::int64_t n = sums.columns;
  const std::int64_t row_step = sums.turned ? 9 : 9 * n,
                     column_step = sums.turned ? 9 * sums.rows : 9;
  parallel_for(sums.rows, 64 * n, [&](std::int64_t begin, std::int64_t end) {
    const Tensor cells = Tensor::empty({9, n}, DType::f32, Device{});
    float* cell = cells.data<float>();
    for (std::int64_t row = begin; row < end; ++row) {
      avx512bf16::sums_to_kernels(cell, sums.at(0) + row * n, sums.step, n);
      for (std::int64_t c = 0; c < n; ++c) {
        for (std::int64_t k = 0; k < 9; ++k) {
          to[row * row_step + c * column_step + k] = cell[k * n + c];
        }
      }
    }
  });
}

#else

bool winograd_bf16_serves(const Conv2dGeometry&) { return false; }
void conv2d_winograd_bf16(const Conv2dGeometry&, const Tensor&, const Tensor&, const Tensor&,
                          const Tensor&) {}
void conv2d_winograd_bf16_backward(const Conv2dGeometry&, const Tensor&, const Tensor&,
                                   const Tensor&, const Tensor&, const Tensor&, const Tensor&) {}

#endif

}  // namespace peal::cpu
