// SPDX-License-Identifier: Apache-2.0
// What the simulator has of PTX: matrices of a warp against a plain product, copies that are late,
// and what it says of their misuse.
#include <cuda_host_ptx.h>
#include <peal/autograd/core/half.h>

#include "device_arrays.h"
#include "queue.h"

#include <string>

using namespace cuda_host::testing;

namespace {

using Element = unsigned short;

// out [16, 8] = 1 + a [16, 16] b [16, 8], of f16: registers as NVIDIA documents them.
__global__ void multiply(const Element* a, const Element* b, float* out) {
  alignas(16) static thread_local Element left[16 * 16], right[16 * 8];
  const unsigned own = threadIdx.x, g = own / 4, t = own % 4;
  for (unsigned i = own; i < 16 * 16; i += 32) left[i] = a[i];
  for (unsigned i = own; i < 16 * 8; i += 32) right[i] = b[i];
  __syncwarp();
  std::uint32_t x[4], y[4];
  cuda_host::load_matrices(x, left + own % 16 * 16 + own / 16 * 8, false);
  cuda_host::load_matrices(y, right + own % 16 * 8, true);
  float sum[4] = {1, 1, 1, 1};
  cuda_host::multiply_add(cuda_host::MatrixType::f16, sum, x, y[0], y[1]);
  for (unsigned i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sum[i];
}

enum class Use { right, odd_address, no_wait, lane_gone };

__global__ void copy(Use use, const int* from, int* out) {
  alignas(16) static thread_local int room[32 * 4 + 4];
  int* place = room + 4 * threadIdx.x;
  const int* source = from + 4 * threadIdx.x;
  cuda_host::copy_later(use == Use::odd_address ? place + 1 : place, source, 8);
  if (use == Use::no_wait) return;
  const int before = place[0];
  cuda_host::copies_arrive();
  for (int i = 0; i < 4; ++i) out[5 * threadIdx.x + i] = place[i];
  out[5 * threadIdx.x + 4] = before;
  if (use == Use::lane_gone && threadIdx.x == 7) return;
  std::uint32_t words[4];
  cuda_host::load_matrices(words, place, false);
}

}  // namespace

TEST_CASE("a product of a warp is the product") {
  std::vector<Element> a(16 * 16), b(16 * 8);
  std::vector<float> expected(16 * 8, 1);
  const auto number = [](std::size_t i) { return static_cast<float>(i * i % 13) - 6; };
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = peal::Half(number(i)).bits;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = peal::Half(number(i + 5)).bits;
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      for (std::size_t k = 0; k < 16; ++k) {
        expected[i * 8 + j] += number(i * 16 + k) * number(k * 8 + j + 5);
      }
    }
  }
  const Array<Element> left(a), right(b);
  const Array<float> out(fresh, 16 * 8);
  check(start(nullptr, 1, 32, multiply, left.data(), right.data(), out.data()));
  CHECK(out.read() == expected);
}

TEST_CASE("a copy comes when it is waited for, with zeros behind it") {
  std::vector<int> values(32 * 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int>(i) + 1;
  const Array<int> from(values), out(fresh, 32 * 5);
  check(start(nullptr, 1, 32, copy, Use::right, from.data(), out.data()));
  const std::vector<int> got = out.read();
  for (std::size_t i = 0; i < 32; ++i) {
    const std::vector<int> mine(got.begin() + static_cast<std::ptrdiff_t>(5 * i),
                                got.begin() + static_cast<std::ptrdiff_t>(5 * i + 5));
    CHECK(mine == std::vector<int>{values[4 * i], values[4 * i + 1], 0, 0, -1});
  }
}

TEST_CASE("what a GPU would not do is named") {
  const std::vector<std::pair<Use, std::string>> cases = {
      {Use::odd_address, "not on boundaries of 16"},
      {Use::no_wait, "ends while its copies are under way"},
      {Use::lane_gone, "a whole warp, without some of its lanes"}};
  const Array<int> from(std::vector<int>(32 * 4)), out(fresh, 32 * 5);
  for (const auto& [use, what] : cases) {
    check(start(nullptr, 1, 32, copy, use, from.data(), out.data()));
    CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
    const std::string text = cudaGetErrorString(cudaErrorLaunchFailure);
    CAPTURE(text);
    CHECK(text.find(what) != std::string::npos);
    cuda_host::forget_failure();
  }
}
