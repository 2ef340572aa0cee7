// SPDX-License-Identifier: Apache-2.0
// Copies between a dense array and a strided part of another. Where elements lie side by side in
// both, several move as one of up to 16 bytes. Where the strided array runs along another dimension
// than the dense one (a transpose), squares of both go through shared memory, so that each is
// accessed in runs. Else every element finds its own place.
#include <peal/autograd/core/cuda/launch.h>
#include <peal/autograd/kernels/cuda/element.h>
#include <peal/autograd/kernels/cuda/places.h>
#include <peal/autograd/kernels/cuda/table.h>

#include <algorithm>

namespace peal::cuda {
namespace {

// Which of the two is written.
enum class Direction : std::uint8_t { read, write };

template <class E>
__device__ void move(Direction direction, E& dense, E& strided) {
  if (direction == Direction::read) {
    dense = strided;
  } else {
    strided = dense;
  }
}

template <class E>
struct MoveEach {
  Direction direction;
  Places<1> places;
  E *dense, *strided;
  __device__ void operator()(std::int64_t i) const {
    std::int64_t at[1];
    places.find(i, at);
    move(direction, dense[i], strided[at[0]]);
  }
};

// Dimension `across` has step 1 in the strided array, the last one in the dense array; the others
// count the squares' planes.
struct Planes {
  std::int64_t rows = 0, columns = 0;  // sizes of `across` and of the last dimension
  std::int64_t dense_step = 0,
               strided_step = 0;    // of a row in the dense array; of a column in the other
  Divisor tiles_down, tiles_right;  // squares along rows and columns
  int dims = 0;                     // of the planes
  Divisor size[Shape::max_dims];
  std::int64_t dense[Shape::max_dims] = {}, strided[Shape::max_dims] = {};
};

constexpr int side = 32;

template <class E>
__global__ void transpose_tiles(Direction direction, Planes planes, E* dense_array,
                                E* strided_array) {
  __shared__ E square[side][side + 1];  // one more, so that columns lie in different banks
  const int x = static_cast<int>(threadIdx.x) % side, y = static_cast<int>(threadIdx.x) / side;
  const int steps = static_cast<int>(blockDim.x) / side;
  const std::int64_t tile = blockIdx.x;
  std::int64_t rest = planes.tiles_right.quotient(tile);
  const std::int64_t column = (tile - rest * planes.tiles_right.by) * side;
  std::int64_t plane = planes.tiles_down.quotient(rest);
  const std::int64_t row = (rest - plane * planes.tiles_down.by) * side;
  E *dense = dense_array, *strided = strided_array;
  for (int d = planes.dims - 1; d >= 0; --d) {
    rest = planes.size[d].quotient(plane);
    const std::int64_t place = plane - rest * planes.size[d].by;
    dense += place * planes.dense[d];
    strided += place * planes.strided[d];
    plane = rest;
  }
  const bool reads = direction == Direction::read;
  for (int k = y; k < side; k += steps) {
    if (reads && row + x < planes.rows && column + k < planes.columns) {
      square[k][x] = strided[row + x + (column + k) * planes.strided_step];
    }
    if (!reads && row + k < planes.rows && column + x < planes.columns) {
      square[x][k] = dense[(row + k) * planes.dense_step + column + x];
    }
  }
  __syncthreads();
  for (int k = y; k < side; k += steps) {
    if (reads && row + k < planes.rows && column + x < planes.columns) {
      dense[(row + k) * planes.dense_step + column + x] = square[x][k];
    }
    if (!reads && row + x < planes.rows && column + k < planes.columns) {
      strided[row + x + (column + k) * planes.strided_step] = square[k][x];
    }
  }
}

// False where there is no transpose that is worth it.
template <class E>
bool moved_in_tiles(On on, Direction direction, const Places<1>& places, E* dense, E* strided) {
  const int last = places.dims - 1;
  int across = -1;
  for (int d = 0; d < last; ++d) {
    if (places.step[0][d] == 1 && places.size[d].by >= 8) across = d;
  }
  if (across < 0 || places.step[0][last] == 1 || places.size[last].by < 8) return false;
  Planes planes;
  std::int64_t dense_step = 1, count = 1;
  for (int d = last; d >= 0; --d) {
    if (d == across) {
      planes.rows = places.size[d].by;
      planes.dense_step = dense_step;
    } else if (d == last) {
      planes.columns = places.size[d].by;
      planes.strided_step = places.step[0][d];
    } else {
      planes.size[planes.dims] = places.size[d];
      planes.dense[planes.dims] = dense_step;
      planes.strided[planes.dims++] = places.step[0][d];
      count *= places.size[d].by;
    }
    dense_step *= places.size[d].by;
  }
  planes.tiles_down = (planes.rows + side - 1) / side;
  planes.tiles_right = (planes.columns + side - 1) / side;
  const std::int64_t tiles = count * planes.tiles_down.by * planes.tiles_right.by;
  launch(on, tiles, block, transpose_tiles<E>, direction, planes, dense, strided);
  return true;
}

// The most bytes that move as one: whole elements, in rows of both arrays.
std::size_t unit_of(const Tensor& dense, const Steps& steps, const std::byte* strided) {
  std::size_t bytes = size_of(dense.dtype());
  const Shape& shape = dense.shape();
  const Places<1> places(shape, {steps});
  const int last = places.dims - 1;
  if (places.step[0][last] != 1) return bytes;
  const auto fits = [&](std::size_t unit) {
    const auto elements = static_cast<std::int64_t>(unit / size_of(dense.dtype()));
    bool even = places.row() % elements == 0 &&
                reinterpret_cast<std::uintptr_t>(strided) % unit == 0 &&
                reinterpret_cast<std::uintptr_t>(dense.raw()) % unit == 0;
    for (int d = 0; d < last; ++d) even = even && places.step[0][d] % elements == 0;
    return even;
  };
  while (bytes < 16 && fits(2 * bytes)) bytes *= 2;
  return bytes;
}

bool move_strided(Direction direction, const Tensor& dense, const Tensor& other, const Steps& steps,
                  std::int64_t at) {
  if (dense.numel() == 0) return true;
  const std::size_t element = size_of(dense.dtype());
  std::byte* strided =
      static_cast<std::byte*>(other.raw()) + at * static_cast<std::int64_t>(element);
  const std::size_t unit = unit_of(dense, steps, strided);
  const auto elements = static_cast<std::int64_t>(unit / element);
  Places<1> places(dense.shape(), {steps});
  const int last = places.dims - 1;
  if (elements > 1) {
    places.size[last] = places.size[last].by / elements;
    for (int d = 0; d < last; ++d) places.step[0][d] /= elements;
  }
  with_bytes(unit, [&]<class E>() {
    E *to = static_cast<E*>(dense.raw()), *from = reinterpret_cast<E*>(strided);
    if constexpr (sizeof(E) <= 8) {
      if (moved_in_tiles(dense, direction, places, to, from)) return;
    }
    for_each(dense, dense.numel() / elements, MoveEach<E>{direction, places, to, from});
  });
  return true;
}

}  // namespace

bool read_strided(const Tensor& out, const Tensor& x, const Steps& steps, std::int64_t at) {
  return move_strided(Direction::read, out, x, steps, at);
}

bool write_strided(const Tensor& out, const Tensor& x, const Steps& steps, std::int64_t at) {
  return move_strided(Direction::write, x, out, steps, at);
}

}  // namespace peal::cuda
