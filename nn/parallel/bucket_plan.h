// SPDX-License-Identifier: Apache-2.0
// The bucket plan: which gradients travel together, as a value. A pure function of the parameters,
// so every rank makes the same one, and start-up can compare hashes.
//
// Parameters go into buckets in reverse order of registration, which is about the order in which
// backward completes them; a bucket holds one dtype on one device, and is closed once it is as
// large as its cap. The order in which they came in an earlier step is better, where there was one
// (Reducer::arrival). The first bucket of a dtype and device is small, so that communication starts
// early. Buckets are numbered in the order in which they close, and are launched in that order on
// every rank. (PyTorch's Reducer: Li et al., "PyTorch Distributed", VLDB 2020, section 3.2.3.)
//
// A bucket also says by which collective it travels: one of everyone's is all-reduced, one that has
// an owner is reduced to that rank, which alone needs the gradients (sharded/sharded_ddp.h).
// Thread safety: pure functions and values.
#pragma once

#include <peal/autograd/core/dtype.h>
#include <peal/autograd/core/shape.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace peal::nn {

inline constexpr int everyone = -1;

struct ParameterSpec {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;  // of its gradient
  bool requires_grad = true;
  bool delayed = false;  // comes into the last buckets
  int part = 0;          // of a model on several devices: which, in the order in which they come
  int owner = everyone;  // the rank that gets its gradient; a bucket holds those of one owner
};

struct Bucket {
  struct Entry {
    int parameter;    // its index in the list that was planned
    std::int64_t at;  // first element in the bucket
    bool operator==(const Entry&) const = default;
  };
  DType dtype = DType::f32;
  int part = 0;
  std::vector<Entry> entries;
  std::int64_t count = 0;  // elements, gaps between entries included
  int owner = everyone;
  bool operator==(const Bucket&) const = default;
};

struct BucketCaps {
  std::int64_t first_bytes = std::int64_t{1} << 20;
  // 0: 25 MiB; DistributedDataParallel then chooses by a model of the machine (bucket_size.h).
  std::int64_t bytes = 0;
  // Above 0: the last buckets get smaller, down to this. What is exposed of a step is what is sent
  // once nothing is left to compute, so a bucket is closed, too, when it holds as much as is still
  // to come. 0: not.
  std::int64_t last_bytes = 0;
};

// Parameters that require no gradient are left out. Entries start at multiples of 64 bytes.
// `order`: numbers of parameters in the order in which their gradients come, where that is known;
// those that it leaves out come after it. Delayed ones come last. Errors: caps below 0 bytes, and
// of 0 for the first; a number that no parameter has.
std::vector<Bucket> plan_buckets(std::span<const ParameterSpec> parameters,
                                 const BucketCaps& caps = {}, std::span<const int> order = {});

// One line a parameter and a bucket: what ranks compare.
std::string describe(std::span<const ParameterSpec> parameters, std::span<const Bucket> buckets);

}  // namespace peal::nn
