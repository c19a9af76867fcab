//! The kernels behind the host library's C functions. The files .cpp are the kernels' sources; see test_kernel_source.py.

#include <vector>

#include "cdf_retain_kernel.cpp"

extern "C" int32_t cdfRetainHost(float const* score, int64_t const* validCount, int64_t batch, int64_t patches,
    float mass, int64_t* keepIndex, int64_t* keepCount, int64_t* width)
{
    std::vector<int32_t> workspace(star::cdfRetainWorkspaceSize(batch, patches) / sizeof(int32_t), -1);
    star::CdfRetainCall const call{static_cast<int32_t>(batch), static_cast<int32_t>(patches), mass, score, validCount,
        keepIndex, keepCount, width, workspace.data()};
    return star::launchCdfRetain(call, nullptr);
}
