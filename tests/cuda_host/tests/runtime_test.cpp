// SPDX-License-Identifier: Apache-2.0
// Streams, events and memory: that work runs in order and late, so that an order which nobody asked
// for is not there.
#include "device_arrays.h"
#include "memory.h"
#include "queue.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <string>
#include <thread>

using namespace cuda_host::testing;

namespace {

__global__ void set(int* x, int value) { *x = value; }
__global__ void add_to(int* out, const int* x) { *out += *x; }
__global__ void copy_from(int* out, const int* x) { *out = *x; }

// What a process that runs f and dies of it writes to stderr.
template <class F>
std::string last_words(F f) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], 2);
    f();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char part[256];
  for (ssize_t n; (n = ::read(ends[0], part, sizeof(part))) > 0;)
    text.append(part, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  return text;
}

}  // namespace

TEST_CASE("a stream runs in order, and synchronising waits for it") {
  const Stream stream;
  const Array<int> x(fresh, 1);
  for (int i = 0; i < 3000; ++i) check(start(stream, 1, 1, set, x.data(), i));
  check(cudaStreamSynchronize(stream));
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
  CHECK(x.read(stream)[0] == 2999);
}

TEST_CASE("asking often enough is answered") {
  const Stream stream;
  const Array<int> x(fresh, 1);
  check(start(stream, 1, 1, set, x.data(), 7));
  cudaError_t status;
  while ((status = cudaStreamQuery(stream)) == cudaErrorNotReady) {
  }
  check(status);
  CHECK(cudaGetLastError() == cudaSuccess);  // not ready is no error
}

TEST_CASE("an event orders streams; without it a value is read too early, or too late") {
  const Stream first, second;
  const Event event;
  int wrong_read = 0, wrong_write = 0, n = 40;
  for (int i = 0; i < n; ++i) {
    const Array<int> x({0}), y({0}), z({0});
    check(start(first, 1, 1, set, x.data(), 1));
    check(cudaEventRecord(event, first));
    check(cudaStreamWaitEvent(second, event));
    check(start(second, 1, 1, copy_from, y.data(), x.data()));
    CHECK(y.read(second)[0] == 1);

    check(start(first, 1, 1, set, x.data(), 2));
    check(start(second, 1, 1, copy_from, y.data(), x.data()));  // may not see 2
    wrong_read += y.read(second)[0] != 2;
    check(cudaDeviceSynchronize());

    check(start(first, 1, 1, copy_from, z.data(), x.data()));
    check(start(second, 1, 1, set, x.data(), 3));  // may come before z's copy
    check(cudaStreamSynchronize(second));
    wrong_write += z.read(first)[0] == 3;
  }
  CHECK(wrong_read > n / 2);
  CHECK(wrong_write > n / 2);
}

TEST_CASE("an event stands for its last record") {
  const Stream first, second;
  const Event event;
  const Array<int> x({0});
  check(cudaStreamWaitEvent(second, event));  // never recorded: nothing to wait for
  CHECK(cudaEventQuery(event) == cudaSuccess);
  check(start(first, 1, 1, set, x.data(), 1));
  check(cudaEventRecord(event, first));
  check(start(first, 1, 1, set, x.data(), 2));
  check(cudaEventSynchronize(event));
  check(cudaEventRecord(event, first));
  check(cudaEventSynchronize(event));
  CHECK(x.read(second)[0] == 2);
}

TEST_CASE("the legacy stream and blocking streams wait for each other") {
  cudaStream_t blocking;
  check(cudaStreamCreate(&blocking));
  const Array<int> x({0}), y({0});
  check(start(nullptr, 1, 1, set, x.data(), 1));
  check(start(blocking, 1, 1, add_to, x.data(), x.data()));
  check(start(nullptr, 1, 1, add_to, x.data(), x.data()));
  check(start(cudaStreamPerThread, 1, 1, copy_from, y.data(), x.data()));
  CHECK(y.read(cudaStreamPerThread)[0] == 4);
  check(cudaStreamDestroy(blocking));
  CHECK(cudaStreamSynchronize(blocking) == cudaErrorInvalidResourceHandle);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("a destroyed stream's work still runs") {
  const Array<int> x({0});
  {
    const Stream stream;
    check(start(stream, 1, 1, set, x.data(), 9));
  }
  check(cudaDeviceSynchronize());
  CHECK(x.read()[0] == 9);
}

TEST_CASE("fresh and freed memory is poison") {
  float* x;
  check(cudaMalloc(&x, 4 * sizeof(float)));
  std::vector<float> values(4, 1.0f);
  check(cudaMemcpy(values.data(), x, 16, cudaMemcpyDefault));
  for (const float value : values) CHECK(std::isnan(value));
  check(cudaMemset(x, 0, 16));
  check(cudaMemcpy(values.data(), x, 16, cudaMemcpyDefault));
  CHECK(values == std::vector<float>(4, 0.0f));
  CHECK(cudaMemcpy(values.data(), x, 20, cudaMemcpyDefault) == cudaErrorInvalidValue);
  check(cudaFree(x));
  CHECK(cudaFree(x) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(values.data(), x, 16, cudaMemcpyDefault) == cudaErrorInvalidValue);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("pinned memory is read and written when the copy runs, pageable memory at the call") {
  const Stream stream;
  const Array<int> x({0});
  int pageable = 1, *pinned;
  check(cudaMallocHost(&pinned, sizeof(int)));
  check(cudaMemcpyAsync(x.data(), &pageable, sizeof(int), cudaMemcpyHostToDevice, stream));
  pageable = 2;
  CHECK(x.read(stream)[0] == 1);
  *pinned = 3;
  check(cudaMemcpyAsync(x.data(), pinned, sizeof(int), cudaMemcpyHostToDevice, stream));
  *pinned = 4;  // too early: the copy has not run
  CHECK(x.read(stream)[0] == 4);
  check(start(stream, 1, 1, set, x.data(), 5));
  check(cudaMemcpyAsync(pinned, x.data(), sizeof(int), cudaMemcpyDeviceToHost, stream));
  check(cudaStreamSynchronize(stream));
  CHECK(*pinned == 5);
  cudaPointerAttributes what;
  check(cudaPointerGetAttributes(&what, pinned));
  CHECK(what.type == cudaMemoryTypeHost);
  check(cudaPointerGetAttributes(&what, &pageable));
  CHECK(what.type == cudaMemoryTypeUnregistered);
  check(cudaPointerGetAttributes(&what, x.data()));
  CHECK(what.type == cudaMemoryTypeDevice);
  check(cudaFreeHost(pinned));
  CHECK(cudaMemcpy(&pageable, x.data(), 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("memory ends") {
  cuda_host::limit_memory(0, 1 << 20);
  void* x;
  CHECK(cudaMalloc(&x, 2 << 20) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  std::size_t free, total;
  check(cudaMemGetInfo(&free, &total));
  CHECK(total == 1 << 20);
  CHECK(free <= total);
  cuda_host::limit_memory(0, std::size_t{2} << 30);
}

TEST_CASE(
    "the host that touches device memory is named, and a kernel that touches another device's") {
  const Array<int> x({1});
  std::string words = last_words([&] { *static_cast<volatile int*>(x.data()) = 2; });
  CAPTURE(words);
  CHECK(words.find("the host touched device memory") != std::string::npos);
  check(cudaSetDevice(1));
  const Array<int> other({2});
  check(cudaSetDevice(0));
  words = last_words([&] {
    check(start(nullptr, 1, 1, copy_from, x.data(), other.data()));
    static_cast<void>(cudaDeviceSynchronize());
  });
  CHECK(words.find("copy_from") != std::string::npos);
  check(cudaDeviceEnablePeerAccess(1, 0));
  check(start(nullptr, 1, 1, copy_from, x.data(), other.data()));
  CHECK(x.read()[0] == 2);
  check(cudaDeviceDisablePeerAccess(1));
}

TEST_CASE("threads use streams at once") {
  const Array<int> x(std::vector<int>(4, 0));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        static_cast<void>(start(cudaStreamPerThread, 1, 1, set, x.data() + t, i));
        if (i % 50 == 0) static_cast<void>(cudaStreamSynchronize(cudaStreamPerThread));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  check(cudaDeviceSynchronize());
  CHECK(x.read() == std::vector<int>(4, 199));
}

TEST_CASE("work that waits for another thread lets it come") {
  const Stream first, second;
  bool came = false, done = false;
  check(cuda_host::enqueue(cuda_host::stream_of(first),
                           {.run = [&] { done = true; }, .ready = [&] { return came; }}));
  std::thread other([&] {
    static_cast<void>(
        cuda_host::enqueue(cuda_host::stream_of(second), {.run = [&] { came = true; }}));
  });
  check(cudaStreamSynchronize(first));
  other.join();
  CHECK(done);
}

TEST_CASE("host functions run in their stream's order") {
  const Stream stream;
  std::vector<int> order;
  check(cudaLaunchHostFunc(
      stream, [](void* list) { static_cast<std::vector<int>*>(list)->push_back(1); }, &order));
  check(cudaLaunchHostFunc(
      stream, [](void* list) { static_cast<std::vector<int>*>(list)->push_back(2); }, &order));
  CHECK(order.empty());
  check(cudaStreamSynchronize(stream));
  CHECK(order == std::vector<int>{1, 2});
}
