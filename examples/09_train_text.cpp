// SPDX-License-Identifier: Apache-2.0
// Texts of classes, as ULMFiT learns them: first a language model (AWD-LSTM) of all the texts, then
// a classifier on its encoder, thawed layer by layer.
//
//   launch/tools/peal-mpirun -n 2 build/release/examples/09_train_text --data reviews.tar.gz
//     --epochs 3 --save words.safetensors
//   launch/tools/peal-mpirun -n 2 build/release/examples/09_train_text --data reviews.tar.gz
//     --stage classifier --from words.safetensors --epochs 5 --save films.safetensors
//   build/release/examples/09_train_text --resume films.safetensors --evaluate my_review.txt
//
// --data is a folder or archive with train/ and test/ in it, of folders of .txt files, one a class;
// or a folder with train.csv and test.csv, columns "text" and "label". A language model may go on
// from another one (--from), of other words. The words are saved beside the model.
#include <peal/examples/text/stages.h>

using namespace peal;

int main(int argc, char** argv) {
  texts::Options o;
  launch::CommandLine line(
      "Trains a language model, then a classifier of texts; start it with peal-run or mpirun for "
      "several ranks.");
  line.option("--stage", &o.stage, "lm or classifier").one_of({"lm", "classifier"});
  line.option("--data", &o.data,
              "folder or archive with train/ and test/, or train.csv and test.csv");
  line.option("--from", &o.from, "checkpoint of a language model to begin with");
  line.option("--emb", &o.emb, "width of a word").positive();
  line.option("--hidden", &o.hidden, "width of a layer").positive();
  line.option("--layers", &o.layers, "how many").positive();
  line.option("--seq-len", &o.seq_len, "tokens that are learnt from at a time").positive();
  line.option("--max-words", &o.max_words, "of the vocabulary").positive();
  line.option("--min-count", &o.min_count, "how often a word of it comes").positive();
  line.option("--drop", &o.drop, "times the usual probabilities of dropout").not_negative();
  line.option("--unfreeze", &o.unfreeze, "epochs after which all layers of a classifier learn")
      .not_negative();
  line.option("--until", &o.until,
              "epoch to stop after, for a run to be taken up later (0: the last)");
  line.option("--export", &o.export_file, "file for first weights, batches and rates, of one rank");
  launch::add_training_options(line, o.run);
  if (const auto status = line.parse(argc, argv)) return *status;

  return launch::run_main([&](launch::Job& job) {
    launch::find_resume(job, o.run);
    if (!o.run.evaluate.empty())
      o.stage = texts::settings_of(launch::checkpoint_to_evaluate(o.run), o)["stage"];
    PEAL_CHECK(!o.run.evaluate.empty() || !o.data.empty(),
               "09_train_text: where are the texts? Name their folder or archive by --data");
    launch::check_all_read(o.run.evaluate.empty() ? o.data : o.run.evaluate, job.world());
    o.stage == "lm" ? texts::language_model(job, o) : texts::classifier(job, o);
  });
}
