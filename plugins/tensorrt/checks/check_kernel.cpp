//! check_kernel CASES RESULTS: run the kernel on every case of a file.
//! check_kernel CASES: time it on the first case, replayed from a CUDA graph; prints microseconds a call.

#include "device_case.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <vector>

namespace star
{
namespace
{

constexpr int32_t kCALLS_A_GRAPH{100};
constexpr int32_t kREPLAYS{51};

CdfRetainCall callOf(Case const& source, DeviceCase const& device)
{
    return {static_cast<int32_t>(source.batch), static_cast<int32_t>(source.patches), source.mass, device.score.data(),
        device.validCount.data(), device.keepIndex.data(), device.keepCount.data(), device.width.data(),
        device.workspace.data()};
}

Result retain(Case const& source)
{
    DeviceCase const device(source);
    check(launchCdfRetain(callOf(source, device), nullptr));
    check(cudaDeviceSynchronize());
    return device.read();
}

cudaGraphExec_t capture(CdfRetainCall const& call, cudaStream_t stream)
{
    cudaGraph_t graph{};
    cudaGraphExec_t executable{};
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int32_t i = 0; i < kCALLS_A_GRAPH; ++i)
    {
        check(launchCdfRetain(call, stream));
    }
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&executable, graph, 0));
    check(cudaGraphDestroy(graph));
    return executable;
}

//! The median over replays, in microseconds a call. The first replay warms up.
float timeOf(Case const& source)
{
    DeviceCase const device(source);
    cudaStream_t stream{};
    cudaEvent_t start{};
    cudaEvent_t stop{};
    check(cudaStreamCreate(&stream));
    check(cudaEventCreate(&start));
    check(cudaEventCreate(&stop));
    cudaGraphExec_t const graph = capture(callOf(source, device), stream);
    std::vector<float> milliseconds(kREPLAYS + 1);
    for (float& elapsed : milliseconds)
    {
        check(cudaEventRecord(start, stream));
        check(cudaGraphLaunch(graph, stream));
        check(cudaEventRecord(stop, stream));
        check(cudaEventSynchronize(stop));
        check(cudaEventElapsedTime(&elapsed, start, stop));
    }
    std::sort(milliseconds.begin() + 1, milliseconds.end());
    return milliseconds[1 + kREPLAYS / 2] * 1000.0F / kCALLS_A_GRAPH;
}

} // namespace
} // namespace star

int main(int argc, char** argv)
{
    try
    {
        if (argc == 3)
        {
            star::runCases(argv[1], argv[2], star::retain);
            return 0;
        }
        if (argc == 2)
        {
            std::ifstream file(argv[1], std::ios::binary);
            star::Case first{};
            if (star::readCase(file, first))
            {
                std::printf("%.2f\n", static_cast<double>(star::timeOf(first)));
                return 0;
            }
        }
        std::fputs("check_kernel | need CASES to time, or CASES and RESULTS to compare\n", stderr);
    }
    catch (std::exception const& error)
    {
        std::fprintf(stderr, "%s\n", error.what());
    }
    return 1;
}
