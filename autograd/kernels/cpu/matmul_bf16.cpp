// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/bf16.h>
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/onednn.h>
#include <peal/autograd/kernels/cpu/pair_panels.h>

#include <omp.h>

#include <cstdlib>
#include <vector>

namespace peal::cpu {
namespace {

using dnnl::memory;

constexpr auto bf16 = memory::data_type::bf16;

struct Sizes {
  std::int64_t batch, m, n, k;
  bool transpose_a, transpose_b, bias, wide;  // wide: the result is f32
  int threads;
  bool operator==(const Sizes&) const = default;
};

memory::desc matrices(std::int64_t batch, std::int64_t rows, std::int64_t columns, bool transposed,
                      memory::data_type type = bf16) {
  return {{batch, rows, columns},
          type,
          memory::dims{rows * columns, transposed ? 1 : columns, transposed ? rows : 1}};
}

struct Prepared {
  Sizes sizes;
  memory::desc a, b, bias, out;
  dnnl::matmul run;
};

// The calling thread's, since code is compiled for a number of OpenMP threads.
const Prepared& prepared(const Sizes& o) {
  thread_local std::vector<Prepared> all;
  for (const Prepared& entry : all) {
    if (entry.sizes == o) return entry;
  }
  Prepared entry{o,
                 matrices(o.batch, o.m, o.k, o.transpose_a),
                 matrices(o.batch, o.k, o.n, o.transpose_b),
                 matrices(1, 1, o.n, false),
                 matrices(o.batch, o.m, o.n, false, o.wide ? memory::data_type::f32 : bf16),
                 {}};
  entry.run = dnnl::matmul(
      o.bias ? onednn_describe<dnnl::matmul>({}, entry.a, entry.b, entry.bias, entry.out)
             : onednn_describe<dnnl::matmul>({}, entry.a, entry.b, entry.out));
  constexpr std::size_t most = 256;  // shapes that never come again must not pile up
  if (all.size() == most) all.erase(all.begin());
  all.push_back(std::move(entry));
  return all.back();
}

bool multiply(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias, Sizes o) {
  const auto is_bf16 = [](const Tensor& x) { return x.dtype() == DType::bf16; };
  o.bias = bias.defined();
  o.wide = out.dtype() == DType::f32;
  if (!(is_bf16(out) || o.wide) || !multiplies_bf16() || !is_bf16(a) || !is_bf16(b) ||
      out.numel() == 0 || o.k == 0 || (o.bias && !is_bf16(bias))) {
    return false;
  }
  if (o.batch == 1 &&
      multiply_in_pair_panels(out, a, b, bias, {o.m, o.n, o.k, o.transpose_a, o.transpose_b})) {
    return true;
  }
  o.threads = omp_get_max_threads();
  try {
    const Prepared& product = prepared(o);
    std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, onednn_memory(product.a, a)},
                                              {DNNL_ARG_WEIGHTS, onednn_memory(product.b, b)},
                                              {DNNL_ARG_DST, onednn_memory(product.out, out)}};
    if (o.bias) arguments.emplace(DNNL_ARG_BIAS, onednn_memory(product.bias, bias));
    product.run.execute(onednn_stream(), arguments);
    onednn_stream().wait();
  } catch (const dnnl::error&) {
    return false;
  }
  return true;
}

}  // namespace

bool multiplies_bf16() {
  static const bool does = [] {
    if (!onednn_uses(dnnl::cpu_isa::avx512_core_bf16) || current_level() != Level::avx512)
      return false;
#if defined(__x86_64__)
    // Intel's cores with AMX, of which a virtual machine may hide just that.
    const bool slow = __builtin_cpu_is("intel") != 0 && __builtin_cpu_supports("avx512fp16") != 0 &&
                      !onednn_uses(dnnl::cpu_isa::avx512_core_amx);
    return !slow || std::getenv("PEAL_CPU_LEVEL") != nullptr;
#else
    return true;
#endif
  }();
  return does;
}

bool multiplies_bf16_in_pairs() {
  static const bool does = multiplies_bf16() && !onednn_uses(dnnl::cpu_isa::avx512_core_amx);
  return does;
}

bool matmul_bf16(const Tensor& out, const Tensor& a, const Tensor& b, bool transpose_a,
                 bool transpose_b, const Tensor& bias) {
  return multiply(out, a, b, bias,
                  {1, out.size(0), out.size(1), a.size(transpose_a ? 0 : 1), transpose_a,
                   transpose_b, false, false, 0});
}

bool batched_matmul_bf16(const Tensor& out, const Tensor& a, const Tensor& b, bool transpose_a,
                         bool transpose_b) {
  return multiply(out, a, b, {},
                  {out.size(0), out.size(1), out.size(2), a.size(transpose_a ? 1 : 2), transpose_a,
                   transpose_b, false, false, 0});
}

}  // namespace peal::cpu
