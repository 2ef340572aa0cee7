// SPDX-License-Identifier: Apache-2.0
// Learner (fastai has it by this name): a model, its data, a loss and an optimizer, and the fits of
// fastai, with its schedules and numbers, on any number of ranks.
//
//   launch::Learner learner(job, {&training, &validation}, net,
//                           {.loss = nn::CrossEntropyLoss{},
//                            .metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}},
//                            .tell = launch::print});
//   const double lr = learner.lr_find().valley;
//   learner.fit_one_cycle(5, lr);
//   learner.recorder().plot_loss("loss.svg");
//
// On several ranks loaders are whole, and each rank takes its part, or are each rank's shard
// already (data::LoaderOptions::shard; `exact` for validation). A fit has the model wrapped for as
// long as it runs, by the strategy; what the program holds of the model stays the module that it
// made, and has all values when the fit is over; a fit begins with the order of gradients that the
// last one has learnt. With "zero1", "zero2" and "fsdp" each fit has an
// optimizer made anew, with the state of the one before. Collective in all; rank 0 alone tells.
// Thread safety: the rank's thread.
#pragma once

#include <peal/launch/training/learner/predictions.h>
#include <peal/launch/training/learner/schedule.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace peal::launch {

struct Loaders {
  data::DataLoader* training = nullptr;
  data::DataLoader* validation = nullptr;  // null: no validation
};

// Makes an optimizer of these groups, one for each, in order.
using OptimizerFactory =
    std::function<std::unique_ptr<nn::Optimizer>(const std::vector<nn::Parameters>& groups)>;
template <class Made, class Options>
OptimizerFactory optimizer_of(Options options) {
  return [options](const std::vector<nn::Parameters>& groups) -> std::unique_ptr<nn::Optimizer> {
    std::vector<nn::ParameterGroup<Options>> all;
    for (const nn::Parameters& each : groups) all.push_back({each, options});
    return std::make_unique<Made>(all);
  };
}

struct LearnerOptions {
  // By those of peal's that leave out or weigh targets a batch counts by what they count, for which
  // a device is waited for.
  Loop::LossFunction loss = nullptr;
  Loop::ForwardFunction forward = nullptr;  // null: model(batch.x)
  // Null: fastai's Adam (beta2 0.99, eps 1e-5, decoupled weight decay of 0.01).
  OptimizerFactory optimizer = nullptr;
  double lr = 1e-3;
  std::optional<double> wd = {};  // weight decay, but of biases and norms; none: the optimizer's
  std::vector<NamedMetric> metrics = {};
  std::vector<std::shared_ptr<Callback>> callbacks = {};
  // Layer groups, the first layers first, by paths of modules; every parameter is in one. None: all
  // are one group.
  std::vector<std::vector<std::string>> groups = {};
  std::vector<double> moms = {};  // of fit_one_cycle; none: 0.95, 0.85, 0.95
  // Of the Accelerator; without a device the model and batches stay where they are.
  std::string device = {};
  std::string strategy = "ddp";
  nn::DDPOptions ddp = {};
  nn::FSDPOptions fsdp = {};
  // How outputs are read (outputs.h). Null: as the loss says.
  std::function<Tensor(const Tensor&)> activation = nullptr, decodes = nullptr;
  std::vector<std::string> classes = {};  // their names, in the order of their numbers
  Metadata settings = {};                 // what the model is used by, for export_to()
  std::function<void(const std::string&)> tell = nullptr;  // gets rank 0's lines
};

struct OneCycle {
  double div = 25, div_final = 1e5, pct_start = 0.25;
};
struct FlatCos {
  double div_final = 1e5, pct_start = 0.75;
};
// What every fit takes.
struct FitOptions {
  std::optional<double> wd = {};                    // as of LearnerOptions, from this fit on
  std::vector<std::shared_ptr<Callback>> cbs = {};  // of this fit alone
  bool reset_opt = false;                           // the optimizer is made anew
};

struct DistribOptions {
  bool sync_bn = true;  // batch norms become SyncBatchNorms
};

// What lr_find() saw, and suggests.
struct LearningRates {
  std::vector<double> lrs, losses;  // all that was tried; smooth losses
  double valley = 0, valley_loss = 0;
  // fastai's other suggestions: a tenth of the rate of the least loss; where it falls the steepest.
  double minimum = 0, steep = 0;
  void plot(const std::filesystem::path& path) const;  // losses over rates, as SVG
};
// Where the longest fall of the losses is about half over (fastai: valley): an
// index. Error where none falls.
std::size_t valley(const std::vector<double>& losses);

class Learner : public Loop {
 public:
  // Without a training loader it does all but to train. Errors: no loss, groups that leave a
  // parameter out or name one twice.
  Learner(Job& job, Loaders loaders, nn::Module model, LearnerOptions options);

  // Trains at one rate; callbacks of `fit` are of this training alone. Errors, here and below:
  // fewer than 1 epoch, no training loader, a pct_start outside of [0, 1], and a wd of an optimizer
  // without weight_decay.
  void fit(int epochs, std::optional<Rates> lr = {}, const FitOptions& fit = {});
  // The rate rises to lr_max and falls by cosines, the momentum the other way (source: Smith 2018,
  // arXiv 1803.09820).
  void fit_one_cycle(int epochs, std::optional<Rates> lr_max = {}, OneCycle cycle = {},
                     const FitOptions& fit = {});
  void fit_one_cycle(int epochs, std::optional<Rates> lr_max, const FitOptions& fit) {
    fit_one_cycle(epochs, lr_max, OneCycle{}, fit);
  }
  // The rate stays lr for the share pct_start of all batches, and falls by a cosine to lr /
  // div_final.
  void fit_flat_cos(int epochs, std::optional<Rates> lr = {}, FlatCos flat = {},
                    const FitOptions& fit = {});
  void fit_flat_cos(int epochs, std::optional<Rates> lr, const FitOptions& fit) {
    fit_flat_cos(epochs, lr, FlatCos{}, fit);
  }
  // Cycles of cycle_len epochs, each cycle_mult times as long as the one before, in which the rate
  // falls from lr_max to 0 by a cosine (source: Loshchilov, Hutter 2017, SGDR). Error for fewer
  // than 1 of any of the three.
  void fit_sgdr(int cycles, int cycle_len, std::optional<Rates> lr_max = {}, int cycle_mult = 2,
                const FitOptions& fit = {});
  // One cycle of the last group alone, then one of all groups at rates of their own.
  void fine_tune(int epochs, double base_lr = 2e-3, int freeze_epochs = 1, double lr_mult = 100,
                 double pct_start = 0.3, double div = 5, const FitOptions& fit = {});
  // Rates from start to end over num_it batches; afterwards model, optimizer, scaler, random
  // numbers, records and the training loader are as before. Errors: rates that do not rise from
  // above 0, no training loader.
  LearningRates lr_find(double start_lr = 1e-7, double end_lr = 10, int num_it = 100);

  // Groups before number n (from the end where it is below 0) learn nothing, but for norms. Error
  // where there is no such group.
  void freeze_to(int n);
  void freeze() { freeze_to(-1); }
  void unfreeze() { freeze_to(0); }

  // valid_loss and metrics over the loader, or that of the validation. Errors: there is none, or no
  // rank has a sample.
  std::vector<Value> validate(data::DataLoader* loader = nullptr);
  // What the model says about all samples of the loader, or of that of the validation: a validation
  // with its events. Errors: losses without targets; of several ranks, a loader by a plan.
  Predictions get_preds(data::DataLoader* loader = nullptr, const PredictionOptions& options = {});
  // Test-time augmentation: the same about samples as they are in `loader`, or that of the
  // validation, and in variants, those of `augmented` in its first n epochs, such as
  // ImageDataLoaders::tta_dl(); with decoded. Errors also: other samples, fewer than 1 variant, a
  // beta that is no share.
  Predictions tta(data::DataLoader& augmented, data::DataLoader* loader = nullptr,
                  const TTAOptions& options = {});
  // The same about one sample x [...], or of one row of several inputs, by this rank alone. Errors:
  // not one sample, and a class without a name.
  Prediction predict(const Tensor& x);
  Prediction predict(const data::Batch& sample);
  // A table of the layers: what comes out of each for the first batch of the data set, how many
  // parameters it has, and whether they learn. By this rank alone. Error where there is no loader.
  std::string summary();

  // The model, and the optimizer, in a file, which rank 0 writes; and back, on all ranks. Errors,
  // on all ranks: the file cannot be written or read, or is not the same on all; a model or
  // optimizer that it does not fit; an optimizer within a fit by "zero1", "zero2" or "fsdp".
  void save(const std::filesystem::path& file, bool with_opt = true);
  void load(const std::filesystem::path& file, bool with_opt = true);
  // The model to be used elsewhere (exported.h): its state, classes and settings, by rank 0.
  // Errors: the file cannot be written, a setting has a name of the learner's own.
  void export_to(const std::filesystem::path& file);

  // Computes in bf16 from now on, or in f16 with a scaled loss; parameters stay f32. Error once
  // something was prepared.
  Learner& to_bf16();
  Learner& to_fp16();
  // Until what is returned goes, exceptions included, the model's layers are such as several ranks
  // train together. Within another one, and of one rank, nothing happens.
  [[nodiscard]] std::shared_ptr<void> distrib_ctx(const DistribOptions& options = {});
  // The model runs on several devices of this process while what is returned lives, each on its
  // part of a batch (nn/parallel/data_parallel.h); `another` makes one like it. A forward of one's
  // own calls nn::DataParallel's call(), as another is on the first device alone. Error for several
  // ranks.
  [[nodiscard]] std::shared_ptr<void> parallel_ctx(std::vector<Device> devices,
                                                   const std::function<nn::Module()>& another);
  // The names of the classes, by number, and what it has recorded.
  const std::vector<std::string>& classes() const { return options_.classes; }
  Recorder& recorder() { return *recorder_; }
  // The optimizer is made anew by the next fit.
  void reset_optimizer() { optimizer.reset(); }

  void prepare() override;
  void release() override;
  void abandon() noexcept override;

 private:
  // The optimizer is shared out, or trains pieces.
  bool shards_optimizer() { return accelerator().strategy() > Strategy::ddp; }
  void create_optimizer();
  void set_decay(double wd, bool of_decaying);
  void begin_fit(const FitOptions& fit);
  bool are_those_that_learn(const std::vector<std::string>& names) const;
  void check_saves_optimizer(bool with_opt);
  Device device_of_model() const;
  // By group of the optimizer, of rates by layer group.
  std::vector<double> by_optimizer_group(const Rates& rates) const;
  void fit_with(int epochs, std::map<std::string, std::vector<Phase>> settings,
                const FitOptions& fit);
  std::map<std::string, std::vector<Phase>> cosines(const Rates& rates, double pct, double div,
                                                    double div_final) const;

  LearnerOptions options_;
  std::shared_ptr<Recorder> recorder_;
  OutputReading reading_;
  std::vector<std::vector<std::string>> groups_;  // names of parameters
  std::set<std::string> norms_;                   // of parameters of norms
  std::vector<std::size_t> layer_group_of_;       // by group of the optimizer
  std::vector<bool> decays_;                      // by group of the optimizer
  std::vector<std::string> order_;                // of gradients, as the last fit has learnt it
  std::weak_ptr<void> context_;                   // that distrib_ctx() gave
};

}  // namespace peal::launch
