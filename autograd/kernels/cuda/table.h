// SPDX-License-Identifier: Apache-2.0
// CUDA's kernels by name, one file a few families beside this one; table.cpp puts them into the
// table of kernels/table.h, whose comments say what each takes. All are queued and none waits.
// Thread safety: all may run on several threads.
#pragma once

#include <peal/autograd/kernels/table.h>

namespace peal::cuda {

// elementwise.cu
bool fill(const Tensor& out, double value);
bool arange(const Tensor& out);
bool binary(Binary op, const Tensor& out, const Tensor& a, const Tensor& b);
bool unary(Unary op, const Tensor& out, const Tensor& x, double s);
bool axpy(const Tensor& x, const Tensor& y, double alpha);
bool expand(const Tensor& out, const Tensor& x, double scale);

// pointwise.cu
bool pointwise(Pointwise op, const Tensor& out, const Tensor& x, double s, double t);
bool pointwise_backward(Pointwise op, const Tensor& dx, const Tensor& dy, const Tensor& kept,
                        double s, double t);

// choose.cu
bool compare(Compare op, const Tensor& out, const Tensor& a, const Tensor& b);
bool where(const Tensor& out, const Tensor& condition, const Tensor& a, const Tensor& b);
bool cast(const Tensor& out, const Tensor& x);

// strided.cu
bool read_strided(const Tensor& out, const Tensor& x, const Steps& steps, std::int64_t at);
bool write_strided(const Tensor& out, const Tensor& x, const Steps& steps, std::int64_t at);

// index.cu
bool index_select(const Tensor& out, const Tensor& x, const Tensor& index, int dim);
bool index_add(const Tensor& out, const Tensor& x, const Tensor& index, int dim);
bool gather(const Tensor& out, const Tensor& x, const Tensor& index, int dim);
bool scatter_add(const Tensor& out, const Tensor& x, const Tensor& index, int dim);

// indices.cu
bool check_indices(const Tensor& counted, const Tensor& index, std::int64_t limit,
                   std::int64_t ignored);

// random.cu
bool uniform(const Tensor& out, RandomRange words, double low, double high);
bool normal(const Tensor& out, RandomRange words);
bool dropout(const Tensor& y, const Tensor& mask, const Tensor& x, RandomRange words,
             std::uint32_t threshold, double scale);
bool dropout_backward(const Tensor& dx, const Tensor& dy, const Tensor& mask, double scale);

// reduce.cu
bool sum(const Tensor& out, const Tensor& x, std::uint32_t dims, double scale);
bool argmax(const Tensor& out, const Tensor& x, int dim);
bool argmin(const Tensor& out, const Tensor& x, int dim);

// matmul.cpp
bool matmul(const Tensor& out, const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b,
            const Tensor& bias);
bool matmul_and_sums(const Tensor& out, const Tensor& a, const Tensor& b, bool transpose_a,
                     bool transpose_b, const Tensor& sums);
bool matmul_gelu(const Tensor& out, const Tensor& kept, const Tensor& a, const Tensor& b,
                 const Tensor& bias);
bool matmul_gelu_backward(const Tensor& out, const Tensor& sums, const Tensor& a, const Tensor& b,
                          const Tensor& kept);
bool batched_matmul(const Tensor& out, const Tensor& a, const Tensor& b, bool transpose_a,
                    bool transpose_b);

// attention.cu
bool attention_recomputes(const AttentionGeometry& geometry, DType dtype);
bool attention(const AttentionGeometry& geometry, const AttentionResult& result, const Tensor& q,
               const Tensor& k, const Tensor& v);
bool attention_backward(const AttentionGeometry& geometry, const Tensor& dq, const Tensor& dk,
                        const Tensor& dv, const Tensor& dy, const AttentionResult& result,
                        const Tensor& q, const Tensor& k, const Tensor& v);
bool self_attention(const AttentionGeometry& geometry, const AttentionResult& result,
                    const Tensor& qkv);
bool self_attention_backward(const AttentionGeometry& geometry, const Tensor& dqkv,
                             const Tensor& dy, const AttentionResult& result, const Tensor& qkv);

// layer_norm.cu
bool layer_norm(const Tensor& y, const Tensor& mean, const Tensor& inverse, const Tensor& x,
                const Tensor& weight, const Tensor& bias, double eps);
bool layer_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                         const Tensor& dy, const Tensor& x, const Tensor& mean,
                         const Tensor& inverse, const Tensor& weight);

// batch_norm.cu
bool channel_statistics(const Tensor& mean, const Tensor& variance, const Tensor& x);
bool batch_norm(const Tensor& y, const Tensor& x, const Tensor& mean, const Tensor& variance,
                const Tensor& weight, const Tensor& bias, double eps);
bool batch_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                         const Tensor& dy, const Tensor& x, const Tensor& mean,
                         const Tensor& variance, const Tensor& weight, double eps, bool own);

// softmax.cu
bool softmax(const Tensor& y, const Tensor& x);
bool softmax_backward(const Tensor& dx, const Tensor& y, const Tensor& dy);
bool log_softmax(const Tensor& y, const Tensor& x);
bool log_softmax_backward(const Tensor& dx, const Tensor& y, const Tensor& dy);

// class_loss.cu
bool nll(const Tensor& loss, const Tensor& log_probabilities, const Tensor& target,
         const ClassTargets& classes);
bool nll_backward(const Tensor& dx, const Tensor& dloss, const Tensor& target,
                  const ClassTargets& classes, double scale);
bool cross_entropy_backward(const Tensor& dx, const Tensor& log_probabilities, const Tensor& target,
                            const Tensor& dloss, const ClassTargets& classes, double scale);

// pointwise.cu
bool pair_loss(PairLoss which, const Tensor& loss, const Tensor& x, const Tensor& target,
               double beta);
bool pair_loss_backward(PairLoss which, const Tensor& dx, const Tensor& dtarget,
                        const Tensor& dloss, const Tensor& x, const Tensor& target, double beta,
                        double scale);

// convolution.cpp
bool conv2d(const Conv2dGeometry& geometry, const Tensor& y, const Tensor& x, const Tensor& weight,
            const Tensor& bias);
bool conv2d_backward(const Conv2dGeometry& geometry, const Tensor& dx, const Tensor& dweight,
                     const Tensor& dbias, const Tensor& dy, const Tensor& x, const Tensor& weight);

// pool.cu
bool max_pool2d(const Pool2dGeometry& geometry, const Tensor& y, const Tensor& x,
                const Tensor& index);
bool max_pool2d_backward(const Pool2dGeometry& geometry, const Tensor& dx, const Tensor& dy,
                         const Tensor& index);

// pool.cu
bool avg_pool2d(const AveragePool2d& geometry, const Tensor& y, const Tensor& x);
bool avg_pool2d_backward(const AveragePool2d& geometry, const Tensor& dx, const Tensor& dy);

// optimizer.cu
bool sgd(std::span<const Stepped> list, const SgdStep& options);
bool adam(std::span<const Stepped> list, const AdamStep& options);
bool power_sum(const Tensor& out, std::span<const Tensor> list, double power);
bool clip_norm(const Tensor& norm, std::span<const Tensor> list, double power, double most);
bool scale_all(std::span<const Tensor> list, double factor, const Tensor& found);

}  // namespace peal::cuda
