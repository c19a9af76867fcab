#include "cdf_retain_kernel.h"
#include "cdf_retain_row.h"

#include <cuda_runtime.h>

namespace star
{
namespace
{

constexpr int32_t kWARP{32};
constexpr int32_t kMOST_THREADS{1024};
constexpr int32_t kWRITE_THREADS{256};
constexpr uint32_t kALL_LANES{0xffffffffU};

//! What the threads of a block sum up together.
struct RowSums
{
    uint32_t topBits; //!< The largest score: floats that are not negative order as their bits do.
    uint32_t units;
    int32_t kept;
    uint32_t keptBits[kLARGEST_PATCHES / kWARP]; //!< A bit for each position.
};

__host__ __device__ constexpr int32_t roundUpToWarp(int32_t count)
{
    return (count + kWARP - 1) / kWARP * kWARP;
}

__device__ bool isFirstLane()
{
    return threadIdx.x % kWARP == 0;
}

//! Read the row's scores into shared memory and find the largest.
__device__ void stageScores(float const* score, int32_t validCount, Patch* patches, RowSums& sums)
{
    uint32_t top{0};
    for (int32_t i = threadIdx.x; i < validCount; i += blockDim.x)
    {
        float const usable = usableScore(score[i]);
        patches[i].score = usable;
        top = max(top, __float_as_uint(usable));
    }
    top = __reduce_max_sync(kALL_LANES, top);
    if (isFirstLane())
    {
        atomicMax(&sums.topBits, top);
    }
}

//! Turn the scores into units and sum them. Whole numbers: no order of the atomics changes the sum.
__device__ void countUnits(int32_t validCount, Patch* patches, RowSums& sums)
{
    float const top = __uint_as_float(sums.topBits);
    uint32_t units{0};
    for (int32_t i = threadIdx.x; i < validCount; i += blockDim.x)
    {
        patches[i].units = unitsOf(patches[i].score, top, validCount);
        units += patches[i].units;
    }
    units = __reduce_add_sync(kALL_LANES, units);
    if (isFirstLane())
    {
        atomicAdd(&sums.units, units);
    }
}

//! Decide each patch by itself and leave one bit for it. Warps stay whole up to the end of the loop.
__device__ void markKept(float mass, int32_t validCount, Patch const* patches, RowSums& sums)
{
    float const threshold = thresholdOf(mass, static_cast<int32_t>(sums.units));
    int32_t const largest = largestCount(mass, validCount);
    for (int32_t i = threadIdx.x; i < roundUpToWarp(validCount); i += blockDim.x)
    {
        bool const kept = i < validCount && isKept(standingOf(patches, validCount, i), threshold, largest);
        uint32_t const bits = __ballot_sync(kALL_LANES, kept);
        if (isFirstLane())
        {
            sums.keptBits[i / kWARP] = bits;
            atomicAdd(&sums.kept, __popc(bits));
        }
    }
}

//! Survivors at lower positions: a survivor's place in its row.
__device__ int32_t keptBefore(int32_t position, RowSums const& sums)
{
    int32_t kept = __popc(sums.keptBits[position / kWARP] & ((1U << (position % kWARP)) - 1U));
    for (int32_t word = 0; word < position / kWARP; ++word)
    {
        kept += __popc(sums.keptBits[word]);
    }
    return kept;
}

//! One block a row: its count, and its survivors in ascending position with a stride of `patches`.
__global__ void selectSurvivors(CdfRetainCall const call)
{
    extern __shared__ Patch patches[];
    __shared__ RowSums sums;
    int64_t const row = blockIdx.x;
    int32_t const validCount = clampCount(call.validCount[row], call.patches);
    if (threadIdx.x == 0)
    {
        sums.topBits = 0;
        sums.units = 0;
        sums.kept = 0;
    }
    __syncthreads();
    stageScores(call.score + row * call.patches, validCount, patches, sums);
    __syncthreads();
    countUnits(validCount, patches, sums);
    __syncthreads();
    markKept(call.mass, validCount, patches, sums);
    __syncthreads();
    for (int32_t i = threadIdx.x; i < validCount; i += blockDim.x)
    {
        if (sums.keptBits[i / kWARP] >> (i % kWARP) & 1U)
        {
            call.workspace[row * call.patches + keptBefore(i, sums)] = i;
        }
    }
    if (threadIdx.x == 0)
    {
        call.keepCount[row] = sums.kept;
    }
}

//! One block a row: every block finds the width again, which costs less than a third kernel in between.
__global__ void writeSurvivors(CdfRetainCall const call)
{
    __shared__ uint32_t width;
    if (threadIdx.x == 0)
    {
        width = 0;
    }
    __syncthreads();
    uint32_t widest{0};
    for (int32_t other = threadIdx.x; other < call.batch; other += blockDim.x)
    {
        widest = max(widest, static_cast<uint32_t>(call.keepCount[other]));
    }
    widest = __reduce_max_sync(kALL_LANES, widest);
    if (isFirstLane())
    {
        atomicMax(&width, widest);
    }
    __syncthreads();
    int64_t const row = blockIdx.x;
    int64_t const count = call.keepCount[row];
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x)
    {
        call.keepIndex[row * width + i] = i < count ? call.workspace[row * call.patches + i] : 0;
    }
    if (row == 0 && threadIdx.x == 0)
    {
        *call.width = width;
    }
}

} // namespace

size_t cdfRetainWorkspaceSize(int64_t batch, int64_t patches) noexcept
{
    return static_cast<size_t>(batch) * static_cast<size_t>(patches) * sizeof(int32_t);
}

cudaError_t launchCdfRetain(CdfRetainCall const& call, cudaStream_t stream) noexcept
{
    if (!isDefined(call.batch, call.patches, call.mass))
    {
        return cudaErrorInvalidValue;
    }
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(call.batch);
    config.blockDim = dim3(min(roundUpToWarp(call.patches), kMOST_THREADS));
    config.dynamicSmemBytes = call.patches * sizeof(Patch);
    config.stream = stream;
    cudaError_t const selected = cudaLaunchKernelEx(&config, selectSurvivors, call);
    if (selected != cudaSuccess)
    {
        return selected;
    }
    config.blockDim = dim3(kWRITE_THREADS);
    config.dynamicSmemBytes = 0;
    return cudaLaunchKernelEx(&config, writeSurvivors, call);
}

} // namespace star
