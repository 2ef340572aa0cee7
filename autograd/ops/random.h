// SPDX-License-Identifier: Apache-2.0
// New tensors with random elements. They draw from a generator (rng.h), the context's where none is
// named, and are equal on every device and for any number of threads; not PyTorch's numbers. None
// is recorded. Thread safety: a generator belongs to one thread.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>

namespace peal {

// Uniform in [low, high); rand: in [0, 1).
Tensor uniform(const Shape& shape, double low, double high, DType dtype = DType::f32,
               Device device = context().device, Generator& generator = context().generator);
Tensor rand(const Shape& shape, DType dtype = DType::f32, Device device = context().device,
            Generator& generator = context().generator);
Tensor rand_like(const Tensor& x, Generator& generator = context().generator);
// Normal with mean 0 and standard deviation 1 (Box-Muller), or those that are given, of each
// element where they are tensors, which broadcast.
Tensor randn(const Shape& shape, DType dtype = DType::f32, Device device = context().device,
             Generator& generator = context().generator);
Tensor randn_like(const Tensor& x, Generator& generator = context().generator);
Tensor normal(double mean, double deviation, const Shape& shape, DType dtype = DType::f32,
              Device device = context().device, Generator& generator = context().generator);
Tensor normal(const Tensor& mean, const Tensor& deviation,
              Generator& generator = context().generator);
Tensor normal(const Tensor& mean, double deviation, Generator& generator = context().generator);

// Integers in [low, high), of 2^48 places of the unit interval each.
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, DType dtype = DType::i64,
               Device device = context().device, Generator& generator = context().generator);
Tensor randint(std::int64_t high, const Shape& shape, DType dtype = DType::i64,
               Device device = context().device, Generator& generator = context().generator);
// 0 to n-1 in a random order (Fisher and Yates, on the host).
Tensor randperm(std::int64_t n, DType dtype = DType::i64, Device device = context().device,
                Generator& generator = context().generator);

// 1 with the probability that the element of x is, else 0; of x's type.
Tensor bernoulli(const Tensor& x, Generator& generator = context().generator);
// Indices i64 of [n] or [rows, n] weights (not negative, not all 0): `samples` of each row, each as
// likely as its weight says; without replacement none comes twice. The host looks at the weights.
Tensor multinomial(const Tensor& weights, std::int64_t samples, bool replacement = false,
                   Generator& generator = context().generator);

// Overwrite every element, as fill_() does (factory.h). exponential_: of this rate. random_:
// integers in [low, high), in x's type.
void uniform_(const Tensor& x, double low = 0, double high = 1,
              Generator& generator = context().generator);
void normal_(const Tensor& x, double mean = 0, double deviation = 1,
             Generator& generator = context().generator);
void bernoulli_(const Tensor& x, double probability = 0.5,
                Generator& generator = context().generator);
void exponential_(const Tensor& x, double rate = 1, Generator& generator = context().generator);
void random_(const Tensor& x, std::int64_t low, std::int64_t high,
             Generator& generator = context().generator);
void uniform_(Tensor&& x, double low = 0, double high = 1,
              Generator& generator = context().generator);
void normal_(Tensor&& x, double mean = 0, double deviation = 1,
             Generator& generator = context().generator);
void bernoulli_(Tensor&& x, double probability = 0.5, Generator& generator = context().generator);
void exponential_(Tensor&& x, double rate = 1, Generator& generator = context().generator);
void random_(Tensor&& x, std::int64_t low, std::int64_t high,
             Generator& generator = context().generator);

}  // namespace peal
