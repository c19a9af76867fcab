//! check_plugin LIBRARY CASES RESULTS: the same through the plugin, from creation to enqueue(), without TensorRT.

#include "device_case.h"

#include <NvInferRuntime.h>
#include <cstdio>
#include <dlfcn.h>
#include <exception>
#include <memory>

using namespace nvinfer1;

namespace star
{
namespace
{

using GetCreators = IPluginCreatorInterface* const* (*)(int32_t&);

IPluginCreatorV3One& loadCreator(char const* path)
{
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    auto const getCreators = reinterpret_cast<GetCreators>(library ? dlsym(library, "getCreators") : nullptr);
    if (getCreators == nullptr)
    {
        throw std::runtime_error(std::string{"library | got "} + dlerror());
    }
    int32_t count{0};
    return *static_cast<IPluginCreatorV3One*>(getCreators(count)[0]);
}

std::unique_ptr<IPluginV3> makePlugin(IPluginCreatorV3One& creator, float mass)
{
    PluginField const field("mass", &mass, PluginFieldType::kFLOAT32, 1);
    PluginFieldCollection const fields{1, &field};
    return std::unique_ptr<IPluginV3>(creator.createPlugin("check", &fields, TensorRTPhase::kRUNTIME));
}

//! The dense shapes of the inputs, as a context would give them.
void describe(Case const& source, PluginTensorDesc (&inputs)[2])
{
    inputs[0].dims.nbDims = 2;
    inputs[0].dims.d[0] = source.batch;
    inputs[0].dims.d[1] = source.patches;
    inputs[0].type = DataType::kFLOAT;
    inputs[1].dims.nbDims = 1;
    inputs[1].dims.d[0] = source.batch;
    inputs[1].type = DataType::kINT64;
}

Result retain(IPluginCreatorV3One& creator, Case const& source)
{
    DeviceCase const device(source);
    std::unique_ptr<IPluginV3> const plugin = makePlugin(creator, source.mass);
    auto* const runtime = plugin == nullptr
        ? nullptr
        : static_cast<IPluginV3OneRuntime*>(plugin->getCapabilityInterface(PluginCapabilityType::kRUNTIME));
    PluginTensorDesc inputDesc[2]{};
    PluginTensorDesc const outputDesc[3]{};
    describe(source, inputDesc);
    void const* const inputs[]{device.score.data(), device.validCount.data()};
    void* const outputs[]{device.keepIndex.data(), device.keepCount.data(), device.width.data()};
    if (runtime == nullptr || runtime->onShapeChange(inputDesc, 2, outputDesc, 3) != 0
        || runtime->enqueue(inputDesc, outputDesc, inputs, outputs, device.workspace.data(), nullptr) != 0)
    {
        throw std::runtime_error("plugin | got a refusal | need it to run every case");
    }
    check(cudaDeviceSynchronize());
    return device.read();
}

} // namespace
} // namespace star

int main(int argc, char** argv)
{
    try
    {
        if (argc == 4)
        {
            IPluginCreatorV3One& creator = star::loadCreator(argv[1]);
            star::runCases(argv[2], argv[3], [&](star::Case const& source) { return star::retain(creator, source); });
            return 0;
        }
        std::fputs("check_plugin | need LIBRARY CASES RESULTS\n", stderr);
    }
    catch (std::exception const& error)
    {
        std::fprintf(stderr, "%s\n", error.what());
    }
    return 1;
}
