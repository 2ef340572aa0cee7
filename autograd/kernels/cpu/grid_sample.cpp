// SPDX-License-Identifier: Apache-2.0
// Images read at places. What a place is made of is found once for all channels, some places at a
// time, so that it stays in the first cache. Threads split places, and of the image's gradient the
// planes: each sum has one order.
#include <peal/autograd/kernels/cpu/grid_line.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>

namespace peal::cpu {
namespace {

template <class T, GridTaps how>
class GridSampler {
 public:
  explicit GridSampler(const GridGeometry& o)
      : o_(o),
        row_(o.in_height, o),
        column_(o.in_width, o),
        in_(o.in_height * o.in_width),
        out_(o.out_height * o.out_width),
        blocks_((out_ + block - 1) / block) {}

  void forward(T* y, const T* x, const T* grid) const {
    parallel_for(o_.batch * blocks_, block * o_.channels * taps,
                 [&](std::int64_t begin, std::int64_t end) {
                   Places places;
                   for (std::int64_t i = begin; i < end; ++i) {
                     const Part part = this->part(i);
                     find(places, part, grid);
                     for (std::int64_t c = 0; c < o_.channels; ++c) {
                       read(part.of(y, c, out_), places, part.count,
                            x + (part.image * o_.channels + c) * in_);
                     }
                   }
                 });
  }

  void to_image(T* dx, const T* dy, const T* grid) const {
    const std::int64_t planes = o_.batch * o_.channels;
    std::fill_n(dx, planes * in_, T(0));
    parallel_for(planes, out_ * taps, [&](std::int64_t begin, std::int64_t end) {
      Places places;
      while (begin < end) {  // the planes of an image
        const std::int64_t image = begin / o_.channels;
        const std::int64_t stop = std::min(end, (image + 1) * o_.channels);
        for (std::int64_t b = 0; b < blocks_; ++b) {
          const Part part = this->part(image * blocks_ + b);
          find(places, part, grid);
          for (std::int64_t plane = begin; plane < stop; ++plane) {
            write(dx + plane * in_, places, part.count, dy + plane * out_ + part.first);
          }
        }
        begin = stop;
      }
    });
  }

  void to_grid(T* dgrid, const T* dy, const T* x, const T* grid) const {
    parallel_for(o_.batch * blocks_, block * o_.channels * taps,
                 [&](std::int64_t begin, std::int64_t end) {
                   Places places;
                   for (std::int64_t i = begin; i < end; ++i) {
                     const Part part = this->part(i);
                     find(places, part, grid);
                     std::fill_n(&places.weight[0][0], block * taps, T(0));
                     for (std::int64_t c = 0; c < o_.channels; ++c) {
                       weigh(places, part.count, part.of(dy, c, out_),
                             x + (part.image * o_.channels + c) * in_);
                     }
                     pull(dgrid, places, part, grid);
                   }
                 });
  }

 private:
  static constexpr int side = GridLine<T, how>::count, taps = side * side;
  static constexpr std::int64_t block = taps > 4 ? 64 : 128;

  // Of each place the elements in a plane, -1 outside of it, and what they count.
  struct Places {
    std::int64_t from[block][taps];
    T weight[block][taps];
  };
  // Places of an image, one after the other.
  struct Part {
    std::int64_t image, first, count, channels;
    // In a result's channel c.
    template <class U>
    U* of(U* result, std::int64_t c, std::int64_t plane) const {
      return result + (image * channels + c) * plane + first;
    }
  };
  Part part(std::int64_t i) const {
    const std::int64_t first = i % blocks_ * block;
    return {i / blocks_, first, std::min(block, out_ - first), o_.channels};
  }
  // x and y of each place of a part.
  template <class U>
  U* coordinates(U* grid, const Part& part) const {
    return grid + (part.image * out_ + part.first) * 2;
  }

  void find(Places& places, const Part& part, const T* grid) const {
    const T* at = coordinates(grid, part);
    for (std::int64_t p = 0; p < part.count; ++p) {
      GridTap<T> rows[side], columns[side];
      row_(at[2 * p + 1], rows);
      column_(at[2 * p], columns);
      for (int i = 0; i < taps; ++i) {
        const GridTap<T>&row = rows[i / side], &column = columns[i % side];
        const bool outside = row.from < 0 || column.from < 0;
        places.from[p][i] = outside ? -1 : row.from * o_.in_width + column.from;
        places.weight[p][i] = row.weight * column.weight;
      }
    }
  }

  static void read(T* y, const Places& places, std::int64_t count, const T* plane) {
    const T nothing = 0;
    for (std::int64_t p = 0; p < count; ++p) {
      T sum = 0;
      for (int i = 0; i < taps; ++i) {
        const std::int64_t from = places.from[p][i];
        sum += *(from < 0 ? &nothing : plane + from) * places.weight[p][i];
      }
      y[p] = sum;
    }
  }
  static void write(T* plane, const Places& places, std::int64_t count, const T* dy) {
    for (std::int64_t p = 0; p < count; ++p) {
      for (int i = 0; i < taps; ++i) {
        const std::int64_t from = places.from[p][i];
        if (from >= 0) plane[from] += dy[p] * places.weight[p][i];
      }
    }
  }
  // The gradients of the weights, in their place.
  static void weigh(Places& places, std::int64_t count, const T* dy, const T* plane) {
    for (std::int64_t p = 0; p < count; ++p) {
      for (int i = 0; i < taps; ++i) {
        const std::int64_t from = places.from[p][i];
        if (from >= 0) places.weight[p][i] += dy[p] * plane[from];
      }
    }
  }
  void pull(T* dgrid, const Places& places, const Part& part, const T* grid) const {
    const T* at = coordinates(grid, part);
    T* to = coordinates(dgrid, part);
    if constexpr (how == GridTaps::nearest) {  // 0 beside NaN, too
      std::fill_n(to, 2 * part.count, T{0});
      return;
    }
    for (std::int64_t p = 0; p < part.count; ++p) {
      GridTap<T> rows[side], columns[side];
      row_(at[2 * p + 1], rows);
      column_(at[2 * p], columns);
      T along_row = 0, along_column = 0;
      for (int i = 0; i < taps; ++i) {
        const GridTap<T>&row = rows[i / side], &column = columns[i % side];
        along_row += places.weight[p][i] * row.weight * column.slope;
        along_column += places.weight[p][i] * row.slope * column.weight;
      }
      to[2 * p] = along_row;
      to[2 * p + 1] = along_column;
    }
  }

  GridGeometry o_;
  GridLine<T, how> row_, column_;
  std::int64_t in_, out_, blocks_;
};

template <class F>
bool with_sampler(const GridGeometry& o, DType dtype, F&& f) {
  return with_real(dtype, [&]<class T>() {
    switch (o.taps) {
      case GridTaps::bilinear:
        return f.template operator()<T>(GridSampler<T, GridTaps::bilinear>(o));
      case GridTaps::nearest:
        return f.template operator()<T>(GridSampler<T, GridTaps::nearest>(o));
      case GridTaps::bicubic:
        return f.template operator()<T>(GridSampler<T, GridTaps::bicubic>(o));
    }
  });
}

}  // namespace

bool grid_sample(const GridGeometry& o, const Tensor& y, const Tensor& x, const Tensor& grid) {
  return with_sampler(o, y.dtype(), [&]<class T>(const auto& sampler) {
    sampler.forward(y.data<T>(), x.data<T>(), grid.data<T>());
  });
}

bool grid_sample_backward(const GridGeometry& o, const Tensor& dx, const Tensor& dgrid,
                          const Tensor& dy, const Tensor& x, const Tensor& grid) {
  return with_sampler(o, dy.dtype(), [&]<class T>(const auto& sampler) {
    if (dx.defined()) sampler.to_image(dx.data<T>(), dy.data<T>(), grid.data<T>());
    if (dgrid.defined()) {
      sampler.to_grid(dgrid.data<T>(), dy.data<T>(), x.data<T>(), grid.data<T>());
    }
  });
}

}  // namespace peal::cpu
