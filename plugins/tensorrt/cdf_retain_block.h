#ifndef STAR_CDF_RETAIN_BLOCK_H
#define STAR_CDF_RETAIN_BLOCK_H

//! What the threads of a block do with one row, in shared memory. For device code alone.
//! A barrier must stand between two of these functions: no thread waits for the others at their ends.

#include "cdf_retain_row.h"

#include <cuda_runtime.h>

namespace star
{

constexpr int32_t kWARP{32};
constexpr uint32_t kALL_LANES{0xffffffffU};
constexpr int32_t kMOST_THREADS{1024};

//! Longer rows are searched for the last survivor: to rank each patch would cost the square of their length.
constexpr int32_t kMOST_RANKED{256};

//! What the threads of a block sum up together.
struct RowSums
{
    uint32_t top; //!< The largest order.
    uint32_t units;
    int32_t kept;
    uint32_t keptBits[kLARGEST_PATCHES / kWARP]; //!< A bit for each position.
    Standing steps[kKEY_BITS];                   //!< One for each step of the search: none waits until it is cleared.
};

__host__ __device__ constexpr int32_t roundUpToWarp(int32_t count)
{
    return (count + kWARP - 1) / kWARP * kWARP;
}

//! A thread a patch, as far as a block has so many.
inline int32_t threadsFor(int32_t patches)
{
    int32_t const threads = roundUpToWarp(patches);
    return threads < kMOST_THREADS ? threads : kMOST_THREADS;
}

__device__ inline bool isFirstLane()
{
    return threadIdx.x % kWARP == 0;
}

//! A barrier must follow.
__device__ inline void clearSums(RowSums& sums)
{
    if (threadIdx.x == 0)
    {
        sums.top = 0;
        sums.units = 0;
        sums.kept = 0;
    }
    for (int32_t step = threadIdx.x; step < kKEY_BITS; step += blockDim.x)
    {
        sums.steps[step] = {0, 0};
    }
}

//! Read the orders of the row's scores into shared memory and find the largest.
template <typename Order>
__device__ void stageScores(float const* score, int32_t validCount, Order order, Patch* patches, RowSums& sums)
{
    uint32_t top{0};
    for (int32_t i = threadIdx.x; i < validCount; i += blockDim.x)
    {
        patches[i] = {order(score[i]), 0};
        top = max(top, patches[i].order);
    }
    top = __reduce_max_sync(kALL_LANES, top);
    if (isFirstLane())
    {
        atomicMax(&sums.top, top);
    }
}

//! Turn the scores into units and sum them. Whole numbers: no order of the atomics changes the sum.
__device__ inline void countUnits(int32_t validCount, Patch* patches, RowSums& sums)
{
    float const top = floatOf(sums.top);
    uint32_t units{0};
    for (int32_t i = threadIdx.x; i < validCount; i += blockDim.x)
    {
        patches[i].units = unitsOf(floatOf(patches[i].order), top, validCount);
        units += patches[i].units;
    }
    units = __reduce_add_sync(kALL_LANES, units);
    if (isFirstLane())
    {
        atomicAdd(&sums.units, units);
    }
}

//! What ranks before a key, summed over the block.
__device__ inline Standing standingBefore(uint64_t key, int32_t validCount, Patch const* patches, Standing& sum)
{
    uint32_t rank{0};
    uint32_t units{0};
    for (int32_t i = threadIdx.x; i < validCount; i += blockDim.x)
    {
        bool const before = keyOf(patches[i].order, i) > key;
        rank += before ? 1 : 0;
        units += before ? patches[i].units : 0;
    }
    rank = __reduce_add_sync(kALL_LANES, rank);
    units = __reduce_add_sync(kALL_LANES, units);
    if (isFirstLane())
    {
        atomicAdd(&sum.rank, static_cast<int32_t>(rank));
        atomicAdd(&sum.unitsBefore, static_cast<int32_t>(units));
    }
    __syncthreads();
    return sum;
}

//! Bisect the keys for one that survivors alone are above, in kKEY_BITS steps at most.
//!
//! No patch up to `below` is kept, and one with the key `atLeast` would be. Of the patches above the one and up to the
//! other, the first is kept, since it stands where `atLeast` does: with one such patch, or none, the search is over.
__device__ inline uint64_t findCut(
    float threshold, int32_t largest, int32_t validCount, Patch const* patches, RowSums& sums)
{
    uint64_t below{0};
    uint64_t atLeast{keyOf(sums.top, 0)};
    int32_t rankOfBelow{validCount};
    int32_t rankOfAtLeast{0};
    for (int32_t step = 0; rankOfBelow - rankOfAtLeast > 1; ++step)
    {
        uint64_t const middle = below + (atLeast - below) / 2;
        Standing const standing = standingBefore(middle, validCount, patches, sums.steps[step]);
        if (isKept(standing, threshold, largest))
        {
            atLeast = middle;
            rankOfAtLeast = standing.rank;
        }
        else
        {
            below = middle;
            rankOfBelow = standing.rank;
        }
    }
    return below;
}

//! Leave one bit for each patch. Warps stay whole up to the end of the loop.
__device__ inline void markKept(
    float threshold, int32_t largest, int32_t validCount, Patch const* patches, RowSums& sums)
{
    bool const ranked = validCount <= kMOST_RANKED;
    uint64_t const cut = ranked ? 0 : findCut(threshold, largest, validCount, patches, sums);
    for (int32_t i = threadIdx.x; i < roundUpToWarp(validCount); i += blockDim.x)
    {
        bool kept{false};
        if (i < validCount)
        {
            kept = ranked ? isKept(standingOf(patches, validCount, i), threshold, largest)
                          : keyOf(patches[i].order, i) > cut;
        }
        uint32_t const bits = __ballot_sync(kALL_LANES, kept);
        if (isFirstLane())
        {
            sums.keptBits[i / kWARP] = bits;
            atomicAdd(&sums.kept, __popc(bits));
        }
    }
}

//! Survivors in the words before this one, which is the same for a whole warp.
__device__ inline uint32_t keptBefore(int32_t word, RowSums const& sums)
{
    uint32_t kept{0};
    for (int32_t other = threadIdx.x % kWARP; other < word; other += kWARP)
    {
        kept += __popc(sums.keptBits[other]);
    }
    return __reduce_add_sync(kALL_LANES, kept);
}

//! Call `write` with the place of each survivor among them, and its position: both ascend.
template <typename Write>
__device__ void placeSurvivors(int32_t validCount, RowSums const& sums, Write write)
{
    for (int32_t i = threadIdx.x; i < roundUpToWarp(validCount); i += blockDim.x)
    {
        uint32_t const bits = sums.keptBits[i / kWARP];
        uint32_t const lane = 1U << (i % kWARP);
        uint32_t const place = keptBefore(i / kWARP, sums) + __popc(bits & (lane - 1U));
        if (bits & lane)
        {
            write(place, i);
        }
    }
}

} // namespace star

#endif // STAR_CDF_RETAIN_BLOCK_H
