#ifndef STAR_FIBERS_H
#define STAR_FIBERS_H

//! The threads of a block, each a fiber that gives way at barriers. Which of those that can run goes on is drawn by
//! chance, across all warps, so that a barrier that is missing shows.

#include <cstddef>
#include <cstdint>
#include <functional>

namespace fibers
{

constexpr int32_t kWARP{32};

//! How a warp folds its values into one: what it has so far, the next value, whose lane that is.
using Reduce = uint32_t (*)(uint32_t, uint32_t, int32_t);

void waitForBlock();

uint32_t waitForWarp(uint32_t value, Reduce reduce);

//! Let another thread of the block go on first, if chance will have it.
void mayGiveWay();

//! Whether a thread of a block runs, and not what launches it.
bool isInBlock();

//! The thread that runs now.
uint32_t current();

//! Barriers of the block that are passed, over all blocks: what lies between two is in no order.
uint64_t epoch();

//! Run a block, whose shared memory holds noise at first.
//!
//! \param threads A multiple of the warp. A block whose threads wait for each other for ever ends the process.
void runBlock(uint32_t threads, size_t sharedBytes, std::function<void()> kernel);

//! The dynamic shared memory of the block that runs.
char* dynamicShared();

} // namespace fibers

//! What the kernels read as threadIdx.x.
extern uint32_t gThreadIndex;

#endif // STAR_FIBERS_H
