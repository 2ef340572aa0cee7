# The tape, the ops, and the kernels behind their table. The hot loops are compiled once for each vector level
# of x86-64 and chosen at run time; elsewhere the baseline alone.
set(kernels kernels/gradients.cpp kernels/optimizer.cpp kernels/table.cpp kernels/cpu/attention.cpp kernels/cpu/average_pool.cpp
  kernels/cpu/batch_norm.cpp kernels/cpu/class_loss.cpp  kernels/cpu/choose.cpp kernels/cpu/convolution.cpp kernels/cpu/convolution_columns.cpp
  kernels/cpu/convolution_onednn.cpp kernels/cpu/crowding.cpp kernels/cpu/elementwise.cpp
  kernels/cpu/gemm.cpp kernels/cpu/index.cpp kernels/cpu/layer_norm.cpp kernels/cpu/loops.cpp kernels/cpu/loops_baseline.cpp kernels/cpu/loops_narrow.cpp kernels/cpu/matmul.cpp kernels/cpu/matmul_bf16.cpp
  kernels/cpu/optimizer.cpp kernels/cpu/pair_loss.cpp kernels/cpu/panels.cpp kernels/cpu/pointwise.cpp kernels/cpu/pool.cpp kernels/cpu/random.cpp kernels/cpu/reduce.cpp
  kernels/cpu/softmax.cpp kernels/cpu/strided.cpp kernels/cpu/table.cpp)
set(loop_options -O3 -fopenmp-simd -fno-math-errno -fno-trapping-math)
set_source_files_properties(kernels/cpu/loops_baseline.cpp PROPERTIES COMPILE_OPTIONS "${loop_options}")
set_source_files_properties(kernels/cpu/loops_baseline.cpp kernels/cpu/loops_avx2.cpp kernels/cpu/loops_avx512.cpp
  PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND kernels kernels/cpu/loops_avx2.cpp kernels/cpu/loops_avx512.cpp)
  set_source_files_properties(kernels/cpu/loops_avx2.cpp PROPERTIES
    COMPILE_OPTIONS "${loop_options};-march=x86-64-v3")
  # GCC 12 warns about its own header (avx512fintrin.h, _mm512_undefined).
  set_source_files_properties(kernels/cpu/loops_avx512.cpp PROPERTIES
    COMPILE_OPTIONS "${loop_options};-march=x86-64-v4;-mprefer-vector-width=512;-Wno-maybe-uninitialized")
endif()

peal_library(autograd
  SOURCES autocast.cpp ceilings.cpp grad_slot.cpp intra_op.cpp profile.cpp tape.cpp
    ops/activation.cpp ops/arithmetic.cpp ops/attention.cpp ops/broadcast.cpp ops/choose.cpp ops/concatenate.cpp ops/convolution.cpp
    ops/dropout.cpp ops/factory.cpp ops/feed_forward.cpp ops/index.cpp ops/loss.cpp ops/math.cpp ops/matmul.cpp ops/pair_loss.cpp ops/pool.cpp ops/reduce.cpp
    ops/norm.cpp ops/permute.cpp ops/shape.cpp ops/softmax.cpp
    ${kernels}
  LINKS peal::core
  PRIVATE OneDnn::OneDnn Eigen3::Eigen OpenMP::OpenMP_CXX)
peal_precompile(peal_autograd HEADERS <fmt/core.h>)

# CUDA's kernels. peal_cuda_parts is all that sees CUDA, for a build of nothing else.
if(PEAL_CUDA)
  peal_library(autograd_cuda SOURCES kernels/cuda/attention.cu kernels/cuda/batch_norm.cu kernels/cuda/choose.cu
    kernels/cuda/class_loss.cu kernels/cuda/convolution.cpp kernels/cuda/cublaslt.cpp kernels/cuda/cudnn.cpp
    kernels/cuda/elementwise.cu kernels/cuda/fused_attention.cu kernels/cuda/index.cu kernels/cuda/indices.cu kernels/cuda/layer_norm.cu kernels/cuda/matmul.cpp
    kernels/cuda/optimizer.cu kernels/cuda/pointwise.cu kernels/cuda/pool.cu kernels/cuda/random.cu
    kernels/cuda/reduce.cu kernels/cuda/softmax.cu kernels/cuda/strided.cu kernels/cuda/table.cpp
    LINKS peal::core PRIVATE CUDA::cublasLt CuDnn::CuDnn)
  peal_cuda_options(peal_autograd_cuda)
  target_link_libraries(peal_autograd PRIVATE peal::autograd_cuda)
  target_compile_definitions(peal_autograd PRIVATE PEAL_CUDA)
  add_custom_target(peal_cuda_parts DEPENDS peal_core peal_autograd_cuda)
endif()
