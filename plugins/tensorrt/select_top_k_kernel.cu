#include "select_top_k_kernel.h"
#include "cdf_retain_block.h"

namespace star
{
namespace
{

//! One block a row: its k survivors in ascending position, and the rows of tokens to take, prefix first.
__global__ void selectTopK(SelectTopKCall const call)
{
    extern __shared__ Patch patches[];
    __shared__ RowSums sums;
    int64_t const row = blockIdx.x;
    int64_t* const keep = call.keep + row * call.k;
    int64_t* const rows = call.rows + row * (call.prefix + call.k);
    clearSums(sums);
    __syncthreads();
    auto const order = [](float score) { return orderOf(score); };
    stageScores(call.score + row * call.patches, call.patches, order, patches, sums);
    __syncthreads();
    markKept(FLT_MAX, call.k, call.patches, patches, sums); // By count alone: nothing has mass.
    __syncthreads();
    placeSurvivors(call.patches, sums,
        [&](uint32_t place, int32_t position)
        {
            keep[place] = position;
            rows[call.prefix + place] = call.prefix + position;
        });
    for (int32_t i = threadIdx.x; i < call.prefix; i += blockDim.x)
    {
        rows[i] = i;
    }
}

} // namespace

cudaError_t launchSelectTopK(SelectTopKCall const& call, cudaStream_t stream) noexcept
{
    bool const defined = call.batch >= 1 && call.patches <= kLARGEST_PATCHES && call.k >= 1 && call.k <= call.patches;
    if (!defined || call.prefix < 0)
    {
        return cudaErrorInvalidValue;
    }
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(call.batch);
    config.blockDim = dim3(threadsFor(call.patches));
    config.dynamicSmemBytes = call.patches * sizeof(Patch);
    config.stream = stream;
    return cudaLaunchKernelEx(&config, selectTopK, call);
}

} // namespace star
