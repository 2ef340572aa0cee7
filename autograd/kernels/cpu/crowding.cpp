// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/crowding.h>

#include <omp.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <semaphore>
#include <system_error>
#include <thread>

namespace peal::cpu {
namespace {

// As of the last tick of the system, which costs nothing to ask.
std::int64_t coarse_now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// How long the calling thread was ready and had no core; 0 where the system does not say.
std::int64_t waited_for_a_core() {
  std::ifstream file("/proc/thread-self/schedstat");
  std::int64_t ran = 0, waited = 0;
  return file >> ran >> waited ? waited : 0;
}

bool user_has_chosen() {
  static const bool chosen =
      std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr;
  return chosen;
}

// One for all threads that are crowded.
std::shared_ptr<ShortSpinning> shared_short_spinning() {
  static std::mutex mutex;
  static std::weak_ptr<ShortSpinning> current;
  const std::lock_guard lock(mutex);
  std::shared_ptr<ShortSpinning> team = current.lock();
  if (!team) current = team = std::make_shared<ShortSpinning>();
  return team;
}

struct Watch {
  std::int64_t next = 0;
  Crowding crowding;
  std::shared_ptr<ShortSpinning> relief;
};

}  // namespace

bool Crowding::look(std::int64_t now, std::int64_t waited) {
  if (begin_ >= 0 && now - begin_ < window) return crowded_;
  if (begin_ >= 0) {
    const bool contended = (waited - waited_) * 8 >= now - begin_;
    in_a_row_ = contended ? in_a_row_ + 1 : 0;
    if (contended) last_ = now;
    if (in_a_row_ >= patience) {
      crowded_ = true;
    } else if (now - last_ >= calm) {
      crowded_ = false;
    }
  }
  begin_ = now;
  waited_ = waited;
  return crowded_;
}

void watch_for_crowding() {
  thread_local unsigned calls = 0;
  if (calls++ % 8 != 0) return;  // even to ask for the time would show in the smallest ops
  thread_local Watch watch;
  const std::int64_t now = coarse_now();
  if (now < watch.next) return;
  watch.next = now + Crowding::window;
  if (omp_get_max_threads() == 1 || user_has_chosen()) return;
  const bool crowded = watch.crowding.look(now, waited_for_a_core());
  if (crowded == (watch.relief != nullptr)) return;
  watch.relief = crowded ? shared_short_spinning() : nullptr;
}

struct ShortSpinning::Team {
  std::atomic<int> size{0};
  std::binary_semaphore over{0};
  std::thread thread;
};

ShortSpinning::ShortSpinning() : team_(nullptr) {
  const int missing = std::max(2, omp_get_num_procs() + 2 - omp_get_max_threads());
  auto team = std::make_unique<Team>();
  try {
    team->thread = std::thread([missing, &team = *team] {
    // It has to do something, or the compiler leaves it out.
#pragma omp parallel num_threads(missing)
      ++team.size;
      team.over.acquire();
    });
  } catch (const std::system_error&) {
    return;  // no thread to be had: it goes on as it was
  }
  team_ = team.release();
}

ShortSpinning::~ShortSpinning() {
  if (team_ == nullptr) return;
  team_->over.release();
  team_->thread.join();
  delete team_;
}

}  // namespace peal::cpu
