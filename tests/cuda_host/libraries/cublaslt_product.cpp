// SPDX-License-Identifier: Apache-2.0
// cuBLASLt's products: plain sums on the simulated stream, each by the algorithm that was found for
// it, and refusals of what the library documents that it refuses.
#include "cublaslt_state.h"

#include <cmath>
#include <numeric>
#include <vector>

using namespace cuda_host;

namespace {

thread_local unsigned last_epilogue = 0;

// An algorithm is for the problem that it was found for.
struct Algorithm {
  std::uint16_t marked, device;
  std::uint32_t rounds_partial_sums;
  std::uint64_t problem, workspace;
  std::uint16_t aligned_a, aligned_b, aligned_c, aligned_d, aligned_vector, aligned_aux;
};

Number number_of(cudaDataType type) {
  return type == CUDA_R_64F    ? Number::f64
         : type == CUDA_R_16F  ? Number::f16
         : type == CUDA_R_16BF ? Number::bf16
                               : Number::f32;
}

// m x n = (m x k) (k x n), column-major.
struct Problem {
  Operation operation;
  Layout a, b, d;
  std::int64_t m() const { return static_cast<std::int64_t>(d.rows); }
  std::int64_t n() const { return static_cast<std::int64_t>(d.columns); }
  std::int64_t k() const {
    return static_cast<std::int64_t>(operation.transpose_a == CUBLAS_OP_T ? a.rows : a.columns);
  }
  // A number that other problems have not.
  std::uint64_t hash() const {
    std::uint64_t hash = 0xcbf29ce484222325u;
    const auto add = [&](auto value) {
      hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x100000001b3u;
    };
    add(operation.compute), add(operation.scale), add(operation.epilogue);
    add(operation.transpose_a), add(operation.transpose_b), add(operation.aux_leading);
    for (const Layout& x : {a, b, d}) {
      add(x.type), add(x.rows), add(x.columns), add(x.leading), add(x.batch), add(x.offset);
    }
    return hash;
  }
};

// From the first element to behind the last.
std::int64_t extent(const Layout& x) {
  return (x.batch - 1) * x.offset + (static_cast<std::int64_t>(x.columns) - 1) * x.leading +
         static_cast<std::int64_t>(x.rows);
}

// No two elements of the matrices of a batch in one place.
bool is_disjoint(const Layout& x) {
  if (x.batch == 1) return true;
  const auto rows = static_cast<std::int64_t>(x.rows);
  const auto columns = static_cast<std::int64_t>(x.columns);
  const bool after = x.offset >= (columns - 1) * x.leading + rows;
  const bool between = x.offset >= rows && (x.batch - 1) * x.offset + rows <= x.leading;
  return after || between;
}

// Whether there is such a product at all, whatever the data.
cublasStatus_t check(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                     cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                     cublasLtMatrixLayout_t d, Problem& problem) {
  if (handle == nullptr) return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "the handle is null");
  if (handle->device != current_device()) {
    return refuse(CUBLAS_STATUS_ARCH_MISMATCH, "the handle is another device's");
  }
  if (!operation || !a || !b || !c || !d) return invalid("a descriptor is null");
  problem = {get<Operation>(operation), get<Layout>(a), get<Layout>(b), get<Layout>(d)};
  const Operation& o = problem.operation;
  const Layout addend = get<Layout>(c);
  if (o.marked != mark) return invalid("the operation was not initialised");
  for (const Layout& x : {problem.a, problem.b, problem.d, addend}) {
    if (x.marked != mark) return invalid("a layout was not initialised");
    if (x.rows == 0 || x.columns == 0) return invalid("a matrix is empty");
    if (x.leading < static_cast<std::int64_t>(x.rows)) {
      return invalid("a leading dimension of " + std::to_string(x.leading) + " for " +
                     std::to_string(x.rows) + " rows");
    }
    if (x.batch < 1 || x.batch != problem.d.batch) return invalid("batches differ");
    if (x.batch > 65535) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "a batch beyond 65535");
    if (x.rows > INT32_MAX || x.columns > INT32_MAX) {
      return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "sizes beyond int32");
    }
  }
  const bool ta = o.transpose_a == CUBLAS_OP_T, tb = o.transpose_b == CUBLAS_OP_T;
  const auto k = static_cast<std::uint64_t>(problem.k());
  if ((ta ? problem.a.columns : problem.a.rows) != problem.d.rows ||
      (tb ? problem.b.columns : problem.b.rows) != k ||
      (tb ? problem.b.rows : problem.b.columns) != problem.d.columns) {
    return invalid("the matrices do not chain");
  }
  if (addend.rows != problem.d.rows || addend.columns != problem.d.columns ||
      addend.type != problem.d.type) {
    return invalid("C is not as D");
  }
  if (!is_disjoint(problem.d)) return invalid("the results of a batch overlap");
  // The table of types in cublasLtMatmul's documentation.
  const cudaDataType in = problem.a.type, out = problem.d.type;
  const bool narrow = in == CUDA_R_16F || in == CUDA_R_16BF;
  const bool single = o.scale == CUDA_R_32F && problem.b.type == in;
  const bool types =
      (o.compute == CUBLAS_COMPUTE_32F && single &&
       ((in == CUDA_R_32F && out == in) || (narrow && (out == in || out == CUDA_R_32F)))) ||
      (o.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && single && in == CUDA_R_32F && out == in) ||
      (o.compute == CUBLAS_COMPUTE_64F && o.scale == CUDA_R_64F && in == CUDA_R_64F &&
       problem.b.type == in && out == in);
  if (!types) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "these types do not go together");
  if (o.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
  if (problem.d.batch > 1) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "an epilogue of a batch");
  switch (o.epilogue) {
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_BGRADB:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
      break;
    default:
      return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "an epilogue that the stand-in lacks");
  }
  if (o.has_vector() != (o.bias != nullptr))
    return invalid("a bias, and none in the epilogue, or the reverse");
  if (o.has_aux() != (o.aux != nullptr))
    return invalid("a matrix beside, and none in the epilogue, or the reverse");
  if (o.has_aux() &&
      (o.aux_leading % 8 != 0 || o.aux_leading < static_cast<std::int64_t>(problem.d.rows))) {
    return invalid("gelu's input with a leading dimension of " + std::to_string(o.aux_leading));
  }
  return CUBLAS_STATUS_SUCCESS;
}

struct Data {
  const void *a, *b, *c;
  void* d;
  void *vector, *aux;  // the epilogue's, null where there are none
  void* workspace;
  std::size_t workspace_bytes;
  double alpha, beta;
};

// By tanh, as the library's.
constexpr double gelu_width = 0.79788456080286535588, gelu_cubic = 0.044715;
double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(gelu_width * (x + gelu_cubic * x * x * x)));
}
double gelu_slope(double x) {
  const double t = std::tanh(gelu_width * (x + gelu_cubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * gelu_width * (1 + 3 * gelu_cubic * x * x);
}

void run(const Problem& o, const Data& data) {
  if (data.workspace_bytes > 0) std::memset(data.workspace, 0xa5, data.workspace_bytes);
  const Number in = number_of(o.a.type), out = number_of(o.d.type);
  const bool tf32 = o.operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const std::int64_t m = o.m(), n = o.n(), k = o.k();
  const auto element = [&](const void* x, std::int64_t at) {
    const double value = load(x, in, at);
    return tf32 ? to_tf32(value) : value;
  };
  const std::int64_t row_a = o.operation.transpose_a == CUBLAS_OP_T ? o.a.leading : 1;
  const std::int64_t column_a = o.operation.transpose_a == CUBLAS_OP_T ? 1 : o.a.leading;
  const std::int64_t row_b = o.operation.transpose_b == CUBLAS_OP_T ? o.b.leading : 1;
  const std::int64_t column_b = o.operation.transpose_b == CUBLAS_OP_T ? 1 : o.b.leading;
  // A as rows, which all columns of the result read.
  std::vector<double> rows(static_cast<std::size_t>(m * k)), column(static_cast<std::size_t>(k));
  for (std::int64_t batch = 0; batch < o.d.batch; ++batch) {
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t p = 0; p < k; ++p) {
        rows[static_cast<std::size_t>(i * k + p)] =
            element(data.a, batch * o.a.offset + i * row_a + p * column_a);
      }
    }
    std::vector<double> sums(static_cast<std::size_t>(m));  // of D's rows
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t p = 0; p < k; ++p) {
        column[static_cast<std::size_t>(p)] =
            element(data.b, batch * o.b.offset + p * row_b + j * column_b);
      }
      if (o.operation.epilogue == CUBLASLT_EPILOGUE_BGRADB) {
        store(data.vector, out, j, std::accumulate(column.begin(), column.end(), 0.0));
      }
      for (std::int64_t i = 0; i < m; ++i) {
        const double* row = rows.data() + i * k;
        double sum = 0;
        for (std::int64_t p = 0; p < k; ++p) sum += row[p] * column[static_cast<std::size_t>(p)];
        sum *= data.alpha;
        const std::int64_t at = batch * o.d.offset + j * o.d.leading + i;
        if (data.beta != 0) sum += data.beta * load(data.c, out, at);
        if (o.operation.has(4)) sum += load(data.vector, out, i);
        const std::int64_t beside = j * o.operation.aux_leading + i;
        if (o.operation.has(32)) {
          if (data.aux != nullptr) store(data.aux, out, beside, sum);
          sum = gelu(sum);
        } else if (o.operation.has(64)) {
          sum *= gelu_slope(load(data.aux, out, beside));
        }
        sums[static_cast<std::size_t>(i)] += sum;
        store(data.d, out, at, sum);
      }
    }
    if (o.operation.sums_rows_of_d()) {
      for (std::int64_t i = 0; i < m; ++i) {
        store(data.vector, out, i, sums[static_cast<std::size_t>(i)]);
      }
    }
  }
}

}  // namespace

unsigned cuda_host::last_product_epilogue() { return last_epilogue; }

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  if (requested < 1 || results == nullptr || found == nullptr)
    return invalid("no room for results");
  *found = 0;
  if (preference == nullptr || get<Preference>(preference).marked != mark) {
    return invalid("the preference was not initialised");
  }
  Problem problem;
  const cublasStatus_t status = check(handle, operation, a, b, c, d, problem);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const auto wanted = get<Preference>(preference);
  // Where packs of 16 bytes do not fit a bias, its gradient or what is beside, and where f64 is to
  // have gelu: no algorithm, which is not an error.
  const void *vector = problem.operation.bias, *aux = problem.operation.aux;
  if (vector != nullptr && alignment_of(vector) < 16) return CUBLAS_STATUS_SUCCESS;
  if (aux != nullptr && alignment_of(aux) < 16) return CUBLAS_STATUS_SUCCESS;
  const bool gelus = problem.operation.has(32) || problem.operation.has(64);
  if (gelus && problem.d.type == CUDA_R_64F) return CUBLAS_STATUS_SUCCESS;
  Algorithm algorithm{};
  algorithm.marked = mark;
  algorithm.device = static_cast<std::uint16_t>(handle->device);
  algorithm.problem = problem.hash();
  // Every other size wants workspace, for sums over parts of k.
  const std::uint64_t workspace = problem.k() % 2 == 0 ? 512 + 64 * (algorithm.problem % 64) : 0;
  algorithm.workspace = workspace <= wanted.workspace ? workspace : 0;
  const auto bytes = [](std::uint64_t alignment) { return static_cast<std::uint16_t>(alignment); };
  algorithm.aligned_a = bytes(wanted.aligned_a);
  algorithm.aligned_b = bytes(wanted.aligned_b);
  algorithm.aligned_c = bytes(wanted.aligned_c);
  algorithm.aligned_d = bytes(wanted.aligned_d);
  if (vector != nullptr) algorithm.aligned_vector = bytes(alignment_of(vector));
  if (aux != nullptr) algorithm.aligned_aux = bytes(alignment_of(aux));
  algorithm.rounds_partial_sums = (wanted.reductions & ~2u) != 0 ? 1 : 0;
  results[0] = {};
  put(&results[0].algo, algorithm);
  results[0].workspaceSize = algorithm.workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t layout_a,
                              const void* b, cublasLtMatrixLayout_t layout_b, const void* beta,
                              const void* c, cublasLtMatrixLayout_t layout_c, void* d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  Problem problem;
  const cublasStatus_t status =
      check(handle, operation, layout_a, layout_b, layout_c, layout_d, problem);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (alpha == nullptr || beta == nullptr) return invalid("alpha or beta is null");
  if (algo == nullptr) return invalid("no algorithm");
  const auto algorithm = get<Algorithm>(algo);
  if (algorithm.marked != mark || algorithm.problem != problem.hash()) {
    return invalid("the algorithm is another problem's");
  }
  if (algorithm.device != handle->device) return invalid("the algorithm is another device's");
  // In low precision the sums over parts of k would be rounded to it.
  if (algorithm.rounds_partial_sums != 0 && bytes_of(number_of(problem.d.type)) == 2) {
    return invalid("partial sums in low precision");
  }
  const int device = handle->device;
  Data data{a,
            b,
            c,
            d,
            const_cast<void*>(problem.operation.bias),
            const_cast<void*>(problem.operation.aux),
            workspace,
            algorithm.workspace,
            0,
            0};
  const Number scale = problem.operation.scale == CUDA_R_64F ? Number::f64 : Number::f32;
  data.alpha = load(alpha, scale, 0);
  data.beta = load(beta, scale, 0);
  std::string wrong = wrong_with(stream, device);
  const auto look = [&](const char* name, const void* x, std::int64_t bytes,
                        std::uint64_t aligned) {
    if (wrong.empty()) wrong = wrong_with(name, x, bytes, device);
    if (wrong.empty() && alignment_of(x) < aligned) {
      wrong = std::string(name) + " is less aligned than the algorithm was told";
    }
  };
  const auto look_at = [&](const char* name, const void* x, const Layout& layout,
                           std::uint64_t aligned) {
    const std::int64_t bytes = bytes_of(number_of(layout.type));
    look(name, x, extent(layout) * bytes, aligned);
    if (layout.batch > 1) {
      look(name, static_cast<const std::byte*>(x) + layout.offset * bytes, 1, aligned);
    }
  };
  look_at("A", a, problem.a, algorithm.aligned_a);
  look_at("B", b, problem.b, algorithm.aligned_b);
  look_at("D", d, problem.d, algorithm.aligned_d);
  if (data.beta != 0) look_at("C", c, problem.d, algorithm.aligned_c);
  if (data.vector != nullptr) {
    const std::int64_t n =
        problem.operation.epilogue == CUBLASLT_EPILOGUE_BGRADB ? problem.n() : problem.m();
    look("the bias or its gradient", data.vector, n * bytes_of(number_of(problem.d.type)),
         algorithm.aligned_vector);
  }
  if (data.aux != nullptr) {
    look("gelu's input", data.aux,
         ((problem.n() - 1) * problem.operation.aux_leading + problem.m()) *
             bytes_of(number_of(problem.d.type)),
         algorithm.aligned_aux);
  }
  if (workspace_bytes < algorithm.workspace) return invalid("the workspace is too small");
  if (algorithm.workspace > 0) {
    look("the workspace", workspace, static_cast<std::int64_t>(algorithm.workspace), 256);
  }
  if (!wrong.empty()) return invalid(wrong);
  const Lock guard;
  const cudaError_t queued =
      enqueue(stream_of(stream),
              {.run = [problem, data] { run(problem, data); }, .devices = reach_of(device)});
  last_epilogue = problem.operation.epilogue;
  if (queued == cudaSuccess) return CUBLAS_STATUS_SUCCESS;
  return refuse(CUBLAS_STATUS_EXECUTION_FAILED, cudaGetErrorString(queued));
}
