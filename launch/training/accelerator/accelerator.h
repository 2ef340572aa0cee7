// SPDX-License-Identifier: Apache-2.0
// Accelerator (Accelerate has it by this name): the loop stays the program's own, and device,
// precision, the ranks' shares, gradient accumulation, clipping and the strategy come from here:
//
//   launch::Accelerator accelerator(job, {.mixed_precision = "bf16",
//                                         .gradient_accumulation_steps = 4, .strategy = "ddp"});
//   auto [model, optimizer, training, scheduler] =
//       accelerator.prepare(net, adam, loader, schedule);   // any of them, in any order
//   for (const data::Batch& batch : training) {
//     const auto turn = accelerator.accumulate(model);
//     const Tensor loss = loss_of(model(batch.x), batch.y);
//     accelerator.backward(loss);
//     if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(model.parameters(), 1.0);
//     optimizer.step();
//     scheduler.step();
//     optimizer.zero_grad();
//   }
//
// It has no machinery of its own: wrappers, loaders, scaler and checkpoints are those of nn/, data/
// and this folder, and what the prepared ones know of each other is gradient_state.h.
//
// Gradients of a step are those of the mean over all its samples, of all ranks and batches, also
// where these differ in size: a loss is the mean over its batch, and counts by the batch's samples
// (or by what backward(loss, samples) says: labels, tokens). So P ranks with G batches of b each
// train as one with a batch of P * G * b. At the end of an epoch the batches that are left make a
// step of their own, of as many.
//
// Samples. A rank gets every world-th batch of the loader's (data::Way::batches); where that does
// not add up, the first samples come again (even_batches), or ranks have unequally many. With
// split_batches each of the loader's batches is all ranks'. Ranks draw the same numbers until the
// first model is prepared, so models begin alike, and then each its own, so dropout differs; after
// set_seed() the same again, until the next model.
//
// All ranks make the same calls. Thread safety: a rank's thread.
#pragma once

#include <peal/launch/job.h>
#include <peal/launch/training/accelerator/gradient_state.h>
#include <peal/launch/training/accelerator/prepared_loader.h>
#include <peal/launch/training/accelerator/prepared_model.h>
#include <peal/launch/training/accelerator/prepared_optimizer.h>
#include <peal/launch/training/accelerator/prepared_plateau.h>
#include <peal/launch/training/accelerator/prepared_stream.h>
#include <peal/launch/training/accelerator/profile.h>
#include <peal/launch/training/accelerator/strategy.h>
#include <peal/launch/training/across_processes.h>
#include <peal/launch/training/tracker.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/nn/parallel/sharded/fsdp.h>

#include <concepts>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace peal::launch {

struct AcceleratorOptions {
  // As Job::device(); models and batches go there. Empty: they stay where they are.
  std::string device = "cpu";
  std::string mixed_precision = "no";  // "bf16" or "fp16": models compute in it, by Autocast
  std::int64_t gradient_accumulation_steps = 1;
  // What becomes of batches that are left at an epoch's end (Accelerate: sync_with_dataloader).
  LastGroup last_group = LastGroup::keep;
  std::string strategy = "ddp";  // strategy.h
  bool split_batches = false;    // the loader's batch_size is of all ranks together
  // Ranks have equally many. Else each sample comes once and ranks may have a batch more than
  // others: for loops in which nothing is sent at each batch, neither gradients nor what is found,
  // or those of join_uneven_inputs().
  bool even_batches = true;
  // A step of the optimizer is one of the scheduler, for schedules made for updates. Else it is as
  // many as there are ranks, or with split_batches one.
  bool scheduler_counts_updates = false;
  // Where save_state() saves, in the folder PROJECT_DIR/checkpoints; and how many stay, 0: all.
  std::string project_dir = ".";
  int total_limit = 0;
  std::vector<LogWith> log_with = {};  // "csv", "jsonl", objects: tracker.h
  nn::DDPOptions ddp = {};             // of the wrapper, but for "fsdp"
  nn::FSDPOptions fsdp = {};           // of "fsdp"
};

// What was given to prepare() in one call, and what became of it, in its order.
struct Preparing {
  std::vector<nn::Module> models;
  std::vector<nn::Optimizer*> optimizers;
  std::vector<data::DataLoader*> loaders;
  std::vector<nn::LRScheduler*> schedulers;
  std::vector<std::shared_ptr<StreamBody>> streams;
  std::vector<nn::ReduceLROnPlateau*> plateaus;
};
struct Prepared {
  std::vector<PreparedModel> models;
  std::vector<PreparedOptimizer> optimizers;
  std::vector<PreparedLoader> loaders;
  std::vector<PreparedScheduler> schedulers;
  std::vector<PreparedStream> streams;
  std::vector<PreparedPlateau> plateaus;
};

class Accelerator {
 public:
  // Collective. Errors, on all ranks: options that differ or make no sense.
  explicit Accelerator(Job& job, AcceleratorOptions options = {});
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  // A model, optimizer, DataLoader or LRScheduler becomes a PreparedModel, PreparedOptimizer,
  // PreparedLoader, PreparedScheduler; several come as a tuple, in the order given. So do a
  // StreamLoader and a Dispatcher (prepared_stream.h), and a ReduceLROnPlateau. A model and
  // what trains it are given in one call with "zero2" and "fsdp". Optimizers are made of the
  // model's parameters, before. Optimizers and schedulers must live on, as long as one has what
  // this gave for them; of what nobody has any more (that of a fold that is over, say) the next
  // prepare() forgets all but models without an optimizer. Loaders are made again, from their set
  // and options. Collective. Errors, on all ranks: as of the wrappers; what they
  // give differs; a loader by a plan, or by a sampler of another world, of several ranks.
  template <class... T>
  [[nodiscard]] auto prepare(T&&... given) {
    Preparing all;
    (note<T>(all, given), ...);
    Prepared made = prepare_all(all);
    Next next;
    if constexpr (sizeof...(T) == 1) {
      return take<std::remove_cvref_t<T>...>(made, next);
    } else {
      return std::tuple{take<std::remove_cvref_t<T>>(made, next)...};
    }
  }

  // A loader that is this rank's share already, as it is: batches on the device where it puts them.
  // It is none of what save_state() saves. REQUIRES: it outlives what is returned.
  PreparedLoader as_prepared(data::DataLoader& share) const;
  // Forgets all that was prepared, which nobody uses any more, so that other models can be trained
  // (Accelerate: free_memory, clear): the program's model and optimizer are plain again. With
  // "fsdp" the parameters have no values then: take the model's state_dict() before.
  void free_memory();

  // From now on each rank draws random numbers of its own, as once a model is prepared, until
  // somebody sets a seed. Of several ranks; nothing where it does already.
  void draw_apart();

  // For one batch: while what is returned lives, it is that batch's turn, and backward sends
  // nothing unless the batch ends a step.
  class Turn {
   public:
    // accumulate() makes it.
    Turn(std::shared_ptr<GradientState> state, std::vector<std::shared_ptr<void>> local)
        : state_(std::move(state)), local_(std::move(local)), wanted_(state_->turn.wanted) {}
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
      state_->turn = {};
      state_->trained.reset();
    }
    // False: the batch is of a group that LastGroup::drop leaves out; backward does nothing.
    bool wanted() const { return wanted_; }

   private:
    std::shared_ptr<GradientState> state_;
    std::vector<std::shared_ptr<void>> local_;
    bool wanted_;
  };
  // What it gives has to be kept: its life is the turn.
  template <std::same_as<PreparedModel>... More>
  [[nodiscard]] Turn accumulate(const PreparedModel& model, const More&... more) {
    return accumulate(std::vector<std::shared_ptr<ModelBody>>{model.body(), more.body()...});
  }
  // The same where the program itself says which batch ends a step, by its samples or tokens, say.
  [[nodiscard]] Turn turn(const PreparedModel& model, bool ends_step);
  // Whether the batch under way ends a step. True outside of a turn.
  bool sync_gradients() const { return state_->sync(); }
  // Backward without communication, whatever the turn is.
  [[nodiscard]] std::shared_ptr<void> no_sync(PreparedModel& model) const {
    return model.no_sync();
  }
  // While what is returned lives, ranks may have different numbers of batches in their loops
  // (uneven_inputs.h); with even_batches loaders deal so, or so no longer, meanwhile, but for those
  // by a sampler or a plan. Of one rank without effect. Collective. Errors, on all ranks: other
  // strategies than "ddp", "fp16", within a step; with even_batches within an epoch.
  [[nodiscard]] std::shared_ptr<void> join_uneven_inputs(const std::vector<PreparedModel>& models,
                                                         std::optional<bool> even_batches = {});
  // The batch's loss, a mean over its samples: those of the batch that a prepared loader gave last,
  // or as many as are named. Gradients of backwards outside of accumulate(), without zero_grad()
  // between them, add up ("zero2" excepted), so who accumulates by hand divides losses by the
  // number of batches; in a turn, and under no_sync(), that is done here, where a step ends: once.
  // Where models are several, and the turn is not of one of them, each batch of a step counts alike
  // instead. Errors: a number named then; a second one in the turn that ends a step of several;
  // with fp16, one of a model whose gradients were clipped and neither stepped with nor zeroed.
  void backward(const Tensor& loss);
  void backward(const Tensor& loss, double samples);

  // As nn::clip_grad_norm_ and nn::clip_grad_value_, of the step's gradients as they are (unscaled,
  // of all ranks). Where the batch does not end a step nothing happens, and no tensor is returned.
  // Errors: with "zero2" and "fsdp" others than all parameters of one prepared model (a bound for
  // values: any, of their own gradients).
  Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                         double norm_type = 2.0);
  void clip_grad_value_(const std::vector<Tensor>& parameters, double bound);
  // Whether the last step was left out, since gradients were not finite.
  bool optimizer_step_was_skipped() const;
  // What models compute in, for what a program computes beside them (a loss of its own).
  [[nodiscard]] Autocast autocast() const {
    return Autocast(state_->lowered.value_or(DType::bf16), state_->lowered.has_value());
  }
  // That of fp16, which multiplies losses; of other precisions it is off.
  nn::GradScaler& scaler() {
    state_->update_scaler();
    return state_->scaler;
  }
  // Batches a step, and the model that was prepared, whose parameters they train.
  std::int64_t gradient_accumulation_steps() const { return state_->accumulation_steps; }
  // From now on. Collective. Errors, on all ranks: less than 1, others than other ranks', within a
  // step.
  void set_gradient_accumulation_steps(std::int64_t steps);
  const nn::Module& unwrap_model(const PreparedModel& model) const { return model.unwrap(); }

  // All ranks' rows, rank 0's first; of numbers [], one of each. Ranks have equally many.
  // Collective.
  Tensor gather(const Tensor& tensor) const;
  template <std::same_as<Tensor>... More>
  auto gather(const Tensor& a, const Tensor& b, const More&... more) const {
    return std::tuple{gather(a), gather(b), gather(more)...};
  }
  // The same of what was found for each sample of the batch under way, in the order of one rank and
  // without samples that came again, so that an epoch's are each there once. An nn::Metric that is
  // given these counts all ranks' (value(), without the group). Collective. Errors: outside of a
  // prepared loader; a number, which cannot be taken apart any more.
  //   auto [outputs, classes] = accelerator.gather_for_metrics(model(batch.x), batch.y);
  Tensor gather_for_metrics(const Tensor& rows) const;
  template <std::same_as<Tensor>... More>
  auto gather_for_metrics(const Tensor& a, const Tensor& b, const More&... more) const {
    return std::tuple{gather_for_metrics(a), gather_for_metrics(b), gather_for_metrics(more)...};
  }
  // The ranks' tensors as one, element by element: sum, avg, max ... Collective; the tensor stays
  // as it is.
  Tensor reduce(const Tensor& tensor, comm::ReduceOp op = comm::ReduceOp::sum) const;
  // As long along `dim` as the longest of the ranks', by elements of `value`, in the tensor's unit
  // (across_processes.h).
  Tensor pad_across_processes(const Tensor& tensor, int dim = 0, double value = 0,
                              bool pad_first = false) const {
    return launch::pad_across_processes(group(), tensor, dim, value, pad_first);
  }
  template <class All>
  All split_between_processes(const All& all, bool apply_padding = false) const {
    return launch::split_between_processes(all, job_.place(), apply_padding);
  }
  void wait_for_everyone() const { group().barrier("wait_for_everyone").wait(); }
  // f on rank 0 (of each node) before the others, whatever its time, and what it gives. If it
  // throws there, all ranks throw. Collective.
  template <class F>
  auto main_process_first(F&& f) const {
    return rank0_first(group(), std::forward<F>(f));
  }
  void local_main_process_first(const std::function<void()>& f) const;
  // On rank 0 alone, as a line.
  void print(const std::string& text) const;
  // Which ops the time goes to on this rank, while what is returned lives.
  [[nodiscard]] Profile profile(ProfileOptions options = {}) const {
    return Profile(process_index(), device_, std::move(options));
  }
  // A wish of any rank (to stop early, say), which all hear of: check_trigger() says whether there
  // was one since it last said so. Collective.
  void set_trigger() { triggered_ = true; }
  bool check_trigger();
  // Leaves out the first batches of the epoch that comes; after load_state() those that were over
  // are left out already, and are among them.
  void skip_first_batches(PreparedLoader& loader, std::int64_t count) const {
    loader.skip_first_batches(count);
  }

  // The model alone, as Hugging Face's libraries read it, in the folder's files of at most so many
  // bytes (nn/model_shards.h; nn::load_checkpoint_in_model() takes it). Collective; Error on all
  // ranks.
  void save_model(const PreparedModel& model, const std::string& folder,
                  std::int64_t max_shard_size = 5'000'000'000) const;

  // A run begins, whose figures log() tells to the trackers of log_with, on rank 0; or it goes on,
  // as after load_state(), and files get more lines. Collective; Error on all ranks, where one
  // cannot be made, or ranks differ.
  void init_trackers(const std::string& run, const Metadata& config = {}, bool goes_on = false);
  // On rank 0; nothing on others. Errors: before init_trackers(); what a tracker throws.
  void log(const std::vector<Value>& values, std::optional<std::int64_t> step = {}) const;
  // The run is over, and trackers have told all. Collective; Error as above.
  void end_training();

  // What save_state() saves beside what was prepared. REQUIRES: it outlives this.
  template <Stateful T>
  void register_for_checkpointing(T& object) {
    registered_.emplace_back(concat("object_", registered_.size()), object);
  }
  // A checkpoint of models, optimizers, schedulers, scaler, loaders, random numbers and what was
  // registered (checkpoints.h), in `to`, a file or a folder (FOLDER/), for which folders are made;
  // where that is empty, in the project's. Collective. Error within a step.
  void save_state(const std::string& to = {});
  // The file, a folder's newest that is whole, or the project's newest. Collective.
  void load_state(const std::string& from = {});

  // Where prepared models and batches lie. Then this process's number, in the job and on its node,
  // from 0; how many there are; and whether it is the first of the job, or of its node.
  Device device() const { return device_; }
  int process_index() const { return job_.rank(); }
  int local_process_index() const { return job_.where().local_rank; }
  int num_processes() const { return job_.world(); }
  bool is_main_process() const { return job_.rank() == 0; }
  bool is_local_main_process() const { return job_.where().local_rank == 0; }
  // How models are prepared: as AcceleratorOptions::strategy says.
  Strategy strategy() const { return strategy_; }
  // Whether it was this accelerator that prepared it.
  bool has_prepared(const PreparedModel& model) const {
    return model.body()->state.lock() == state_;
  }
  // What it was made with, and the job's group of now.
  const AcceleratorOptions& options() const { return options_; }
  Job& job() const { return job_; }
  const comm::ProcessGroup& group() const { return job_.group(); }

 private:
  struct Next {
    std::size_t model = 0, optimizer = 0, loader = 0, scheduler = 0, stream = 0, plateau = 0;
  };
  template <class T>
  static constexpr bool is_stream =
      std::same_as<T, data::StreamLoader> || std::same_as<T, Dispatcher>;
  template <class T, class Given>
  static void note(Preparing& all, Given& given) {
    using Plain = std::remove_cvref_t<T>;
    if constexpr (std::derived_from<Plain, nn::Module>) {
      static_assert(!std::same_as<Plain, PreparedModel>, "prepare: this model is prepared already");
      all.models.push_back(nn::Module(given));
    } else {
      static_assert(std::is_lvalue_reference_v<T>,
                    "prepare: give optimizers, loaders and schedulers names, they must live on");
      if constexpr (std::derived_from<Plain, nn::Optimizer>) {
        all.optimizers.push_back(&given);
      } else if constexpr (std::derived_from<Plain, nn::LRScheduler>) {
        all.schedulers.push_back(&given);
      } else if constexpr (std::same_as<Plain, nn::ReduceLROnPlateau>) {
        all.plateaus.push_back(&given);
      } else if constexpr (is_stream<Plain>) {
        all.streams.push_back(stream_of(given));
      } else {
        static_assert(std::derived_from<Plain, data::DataLoader>,
                      "prepare takes models, optimizers, data::DataLoaders, nn::LRSchedulers, "
                      "data::StreamLoaders, Dispatchers and nn::ReduceLROnPlateau");
        all.loaders.push_back(&given);
      }
    }
  }
  template <class T>
  static auto take(Prepared& made, Next& next) {
    if constexpr (std::derived_from<T, nn::Module>) {
      return made.models.at(next.model++);
    } else if constexpr (std::derived_from<T, nn::Optimizer>) {
      return made.optimizers.at(next.optimizer++);
    } else if constexpr (std::derived_from<T, nn::LRScheduler>) {
      return made.schedulers.at(next.scheduler++);
    } else if constexpr (std::same_as<T, nn::ReduceLROnPlateau>) {
      return made.plateaus.at(next.plateau++);
    } else if constexpr (is_stream<T>) {
      return made.streams.at(next.stream++);
    } else {
      return made.loaders.at(next.loader++);
    }
  }
  Prepared prepare_all(const Preparing& given);
  void forget_unheld();
  std::shared_ptr<OptimizerBody> begin_optimizer(nn::Optimizer& optimizer);
  std::shared_ptr<ModelBody> wrap(const nn::Module& model,
                                  const std::vector<std::shared_ptr<OptimizerBody>>& optimizers);
  void give_pieces(OptimizerBody& optimizer) const;
  std::shared_ptr<LoaderBody> share(const data::DataLoader& loader, std::uint64_t seed) const;
  Turn accumulate(const std::vector<std::shared_ptr<ModelBody>>& models);
  // Whose gradients a backward adds to, if that is one model; Error as of backward().
  std::shared_ptr<ModelBody> model_of_backward();
  void unscale_gradients_of(const std::vector<Tensor>& parameters);
  std::string project_folder() const { return options_.project_dir + "/checkpoints/"; }
  std::vector<nn::Part> parts();

  Job& job_;
  AcceleratorOptions options_;
  Strategy strategy_ = Strategy::ddp;
  Device device_;
  std::shared_ptr<GradientState> state_;
  std::optional<std::uint64_t> own_seed_;  // of the random numbers that this rank alone draws
  bool triggered_ = false;
  std::deque<PreparedLoader> loaders_;  // what was prepared
  std::deque<PreparedScheduler> schedulers_;
  std::optional<Trackers> trackers_;
  std::deque<PreparedStream> streams_;
  std::deque<PreparedPlateau> plateaus_;
  std::vector<nn::Part> registered_;
  std::int64_t saves_ = 0;
};

// The seed of this rank's random numbers, the same on all ranks until models are prepared.
// `reproducible`: operations give the same bits each time, too.
void set_seed(std::uint64_t seed, bool reproducible = false);

// f(batch_size), again with nine tenths of it as long as memory runs out on any rank (OutOfMemory,
// std::bad_alloc): all ranks try the same sizes (128, 115, 103, 92, ...). Gives the one that was
// enough. Collective. Error where a batch of one is too large. What f has made is to go with it,
// and a rank that runs out of memory where others wait for it in a collective of f is an Error on
// all.
std::int64_t find_executable_batch_size(const comm::ProcessGroup& group, std::int64_t starting,
                                        const std::function<void(std::int64_t batch_size)>& f);

}  // namespace peal::launch
