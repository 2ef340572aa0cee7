// SPDX-License-Identifier: Apache-2.0
// All of data/ that a training program needs: data sets, shards and plans of batches, the loader.
#pragma once

#include <peal/data/batch.h>
#include <peal/data/batches.h>
#include <peal/data/collate.h>
#include <peal/data/concat_dataset.h>
#include <peal/data/dataset.h>
#include <peal/data/deal.h>
#include <peal/data/draw.h>
#include <peal/data/image_dataset.h>
#include <peal/data/images/colour.h>
#include <peal/data/images/image_folder.h>
#include <peal/data/images/mixup.h>
#include <peal/data/images/random_transforms.h>
#include <peal/data/loader.h>
#include <peal/data/mnist.h>
#include <peal/data/random_sampler.h>
#include <peal/data/sampler.h>
#include <peal/data/samples.h>
#include <peal/data/stream.h>
#include <peal/data/stream_loader.h>
#include <peal/data/subset.h>
#include <peal/data/synthetic_digits.h>
#include <peal/data/tables/encoded.h>
#include <peal/data/tables/statistics.h>
#include <peal/data/tables/table.h>
#include <peal/data/tensor_dataset.h>
#include <peal/data/text/byte_pairs.h>
#include <peal/data/text/language_model_set.h>
#include <peal/data/text/rules.h>
#include <peal/data/text/text_set.h>
#include <peal/data/text/token_file.h>
#include <peal/data/text/tokenizer.h>
#include <peal/data/text/vocabulary.h>
#include <peal/data/weighted.h>
