# The distributed wrappers: all of nn/ that sees comm/.
set(nn_parallel_sources parallel/agree.cpp parallel/bucket_plan.cpp parallel/buffer_sync.cpp parallel/comm_hook.cpp parallel/ddp.cpp
    parallel/grad_buckets.cpp parallel/members.cpp parallel/reducer.cpp amp/grad_scaler.cpp)
set(nn_parallel_links peal::comm)
