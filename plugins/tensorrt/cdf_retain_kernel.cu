#include "cdf_retain_kernel.h"
#include "cdf_retain_block.h"

namespace star
{
namespace
{

constexpr int32_t kWRITE_THREADS{256};

//! One block a row: its count, and its survivors in ascending position with a stride of `patches`.
__global__ void selectSurvivors(CdfRetainCall const call)
{
    extern __shared__ Patch patches[];
    __shared__ RowSums sums;
    int64_t const row = blockIdx.x;
    int32_t const validCount = clampCount(call.validCount[row], call.patches);
    clearSums(sums);
    __syncthreads();
    auto const order = [](float score) { return bitsOf(usableScore(score)); };
    stageScores(call.score + row * call.patches, validCount, order, patches, sums);
    __syncthreads();
    countUnits(validCount, patches, sums);
    __syncthreads();
    float const threshold = thresholdOf(call.mass, static_cast<int32_t>(sums.units));
    markKept(threshold, largestCount(call.mass, validCount), validCount, patches, sums);
    __syncthreads();
    int32_t* const survivors = call.workspace + row * call.patches;
    placeSurvivors(validCount, sums, [&](uint32_t place, int32_t position) { survivors[place] = position; });
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
    config.blockDim = dim3(threadsFor(call.patches));
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
