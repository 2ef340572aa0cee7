// SPDX-License-Identifier: Apache-2.0
// Texts of classes, as ULMFiT learns them: first a language model (AWD-LSTM) of all the texts, then
// a classifier on its encoder, thawed layer by layer.
//
// The book (docs/book): chapter 7, data-parallel training.
//
//   launch/tools/peal-mpirun -n 2 build/release/examples/09_train_text --data reviews.tar.gz
//     --num_train_epochs 3 --output_dir words --save_strategy epoch
//   launch/tools/peal-mpirun -n 2 build/release/examples/09_train_text --data reviews.tar.gz
//     --stage classifier --from words --num_train_epochs 5 --output_dir films
//     --save_strategy epoch
//   build/release/examples/09_train_text --resume_from_checkpoint films --do_train false
//     --data my_review.txt
//
// --data is a folder or archive with train/ and test/ in it, of folders of .txt files, one a class;
// or a folder with train.csv and test.csv, columns "text" and "label". A language model may go on
// from another one (--from), of other words. The words are saved beside the checkpoints. The
// Trainer's arguments are options, all of them: docs/training-arguments.md.
#include <peal/examples/text/stages.h>

using namespace peal;

int main(int argc, char** argv) {
  texts::Options o;
  launch::CommandLine line(
      "Trains a language model, then a classifier of texts, or with --do_train false judges the "
      "model of --resume_from_checkpoint; start it with peal-run or mpirun for several ranks.");
  line.option("--stage", &o.stage, "lm or classifier").one_of({"lm", "classifier"});
  line.option("--data", &o.data,
              "folder or archive with train/ and test/, or train.csv and test.csv; or texts to "
              "judge");
  line.option("--from", &o.from, "checkpoint of a language model to begin with, or their folder");
  line.option("--emb", &o.emb, "width of a word").positive();
  line.option("--hidden", &o.hidden, "width of a layer").positive();
  line.option("--layers", &o.layers, "how many").positive();
  line.option("--seq-len", &o.seq_len, "tokens that are learnt from at a time").positive();
  line.option("--max-words", &o.max_words, "of the vocabulary").positive();
  line.option("--min-count", &o.min_count, "how often a word of it comes").positive();
  line.option("--drop", &o.drop, "times the usual probabilities of dropout").not_negative();
  line.option("--unfreeze", &o.unfreeze, "epochs after which all layers of a classifier learn")
      .not_negative();
  line.option("--export", &o.export_file, "file for first weights, batches and rates, of one rank");
  if (const auto status = launch::parse_arguments(line, o.run, argc, argv)) return *status;

  return launch::run_main([&](launch::Job& job) {
    PEAL_CHECK(!o.data.empty(),
               "09_train_text: where are the texts? Name their folder or archive by --data");
    launch::check_all_read(o.data, job.world());
    o.resumed = o.run.do_train ? launch::find_checkpoint(job, o.run)
                               : launch::checkpoint_to_judge(job, o.run);
    o.from = launch::find_resume(job, o.from);
    if (!o.run.do_train) o.stage = launch::setting_in(o.resumed, "stage");
    o.stage == "lm" ? texts::language_model(job, o) : texts::classifier(job, o);
  });
}
