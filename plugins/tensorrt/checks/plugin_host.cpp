//! plugin_host LIBRARY: load the plugin as TensorRT does, ask it everything that needs no GPU, print the answers as
//! `key: value` lines.

#include "fakes.h"

#include <cmath>
#include <cstdio>
#include <dlfcn.h>
#include <memory>

using namespace nvinfer1;

namespace
{

using Plugin = std::unique_ptr<IPluginV3>;
using GetCreators = IPluginCreatorInterface* const* (*)(int32_t&);
using SetLoggerFinder = void (*)(ILoggerFinder*);

fakes::LoggerFinder gFinder;

void say(char const* key, std::string const& value)
{
    std::printf("%s: %s\n", key, value.c_str());
}

//! Whether a call failed, and the line that it logged.
void sayRefused(char const* key, bool refused)
{
    std::vector<std::string>& lines = gFinder.logger.lines;
    say(key, (refused ? "refused, " : "accepted, ") + (lines.empty() ? "no line" : lines.back()));
    lines.clear();
}

Plugin make(IPluginCreatorV3One& creator, float const* mass, PluginFieldType type = PluginFieldType::kFLOAT32)
{
    PluginField const field("mass", mass, type, 1);
    PluginFieldCollection const fields{mass == nullptr ? 0 : 1, &field};
    return Plugin(creator.createPlugin("test", &fields, TensorRTPhase::kBUILD));
}

Plugin makeBounded(IPluginCreatorV3One& creator, float const* mass, int32_t const* widest)
{
    PluginField const fields[]{PluginField("mass", mass, PluginFieldType::kFLOAT32, 1),
        PluginField("widest", widest, PluginFieldType::kINT32, 1)};
    PluginFieldCollection const both{2, fields};
    return Plugin(creator.createPlugin("test", &both, TensorRTPhase::kBUILD));
}

template <typename Capability>
Capability& capabilityOf(IPluginV3& plugin, PluginCapabilityType type)
{
    return *static_cast<Capability*>(plugin.getCapabilityInterface(type));
}

IPluginV3OneBuild& buildOf(Plugin const& plugin)
{
    return capabilityOf<IPluginV3OneBuild>(*plugin, PluginCapabilityType::kBUILD);
}

IPluginV3OneRuntime& runtimeOf(Plugin const& plugin)
{
    return capabilityOf<IPluginV3OneRuntime>(*plugin, PluginCapabilityType::kRUNTIME);
}

//! The fields that an engine stores.
std::string storedIn(Plugin const& plugin)
{
    PluginField const* const fields = runtimeOf(plugin).getFieldsToSerialize()->fields;
    return std::to_string(*static_cast<float const*>(fields[0].data)) + "/"
        + std::to_string(*static_cast<int32_t const*>(fields[1].data));
}

void tellIdentity(IPluginCreatorV3One& creator)
{
    PluginFieldCollection const& fields = *creator.getFieldNames();
    say("kind", creator.getInterfaceInfo().kind);
    say("name", creator.getPluginName());
    say("version", creator.getPluginVersion());
    say("namespace", creator.getPluginNamespace());
    for (int32_t i = 0; i < fields.nbFields; ++i)
    {
        PluginFieldType const type = fields.fields[i].type;
        char const* const word = type == PluginFieldType::kFLOAT32 ? " float32"
            : type == PluginFieldType::kINT32                      ? " int32"
                                                                   : " other";
        say("field", fields.fields[i].name + std::string{word});
    }
}

void tellCreator(IPluginCreatorV3One& creator)
{
    float const masses[]{0.0F, -0.5F, 1.5F, NAN, 0.5F, 1.0F};
    for (float const& mass : masses)
    {
        sayRefused(("mass " + std::to_string(mass)).c_str(), make(creator, &mass) == nullptr);
    }
    sayRefused("no mass", make(creator, nullptr) == nullptr);
    sayRefused("mass of another type", make(creator, masses + 4, PluginFieldType::kINT32) == nullptr);
    int32_t const widths[]{-1, 0, 1, 4096, 4097};
    for (int32_t const& widest : widths)
    {
        sayRefused(("widest " + std::to_string(widest)).c_str(), makeBounded(creator, masses + 4, &widest) == nullptr);
    }
}

int32_t shapesOf(Plugin const& plugin, int64_t patches, int32_t rank, DimsExprs (&outputs)[3], fakes::Builder& builder)
{
    static fakes::Dimension const batch("B");
    static std::deque<fakes::Dimension> dimensions;
    bool const known = patches > 0;
    dimensions.emplace_back(known ? std::to_string(patches) : "N", known ? patches : fakes::kUNKNOWN);
    DimsExprs inputs[2]{};
    inputs[0].nbDims = rank;
    inputs[0].d[0] = &batch;
    inputs[0].d[1] = &dimensions.back();
    inputs[1].nbDims = 1;
    inputs[1].d[0] = &batch;
    return buildOf(plugin).getOutputShapes(inputs, 2, nullptr, 0, outputs, 3, builder);
}

void tellShapes(Plugin const& plugin)
{
    fakes::Builder builder;
    DimsExprs outputs[3]{};
    say("outputs", std::to_string(buildOf(plugin).getNbOutputs()));
    say("shapes", shapesOf(plugin, 0, 2, outputs, builder) == 0 ? "told" : "refused");
    for (DimsExprs const& shape : outputs)
    {
        std::string text;
        for (int32_t i = 0; i < shape.nbDims; ++i)
        {
            text += fakes::Dimension::textOf(*shape.d[i]) + (i + 1 < shape.nbDims ? " | " : "");
        }
        say("shape", text);
    }
    say("width is a size tensor", outputs[0].d[1]->isSizeTensor() ? "yes" : "no");
    sayRefused("4096 patches", shapesOf(plugin, 4096, 2, outputs, builder) != 0);
    sayRefused("4097 patches", shapesOf(plugin, 4097, 2, outputs, builder) != 0);
    sayRefused("rank 3", shapesOf(plugin, 0, 3, outputs, builder) != 0);
}

void tellTypes(Plugin const& plugin)
{
    DataType const inputs[]{DataType::kFLOAT, DataType::kINT64};
    DataType outputs[3]{};
    say("types", buildOf(plugin).getOutputDataTypes(outputs, 3, inputs, 2) == 0 ? "told" : "refused");
    for (DataType const type : outputs)
    {
        say("type", type == DataType::kINT64 ? "int64" : "other");
    }
    for (int32_t pos = 0; pos < 5; ++pos)
    {
        std::string accepted;
        for (DataType const type : {DataType::kFLOAT, DataType::kHALF, DataType::kINT32, DataType::kINT64})
        {
            for (TensorFormat const format : {TensorFormat::kLINEAR, TensorFormat::kHWC8, TensorFormat::kCHW32})
            {
                DynamicPluginTensorDesc tensors[5]{};
                tensors[pos].desc.type = type;
                tensors[pos].desc.format = format;
                bool const supported = buildOf(plugin).supportsFormatCombination(pos, tensors, 2, 3);
                accepted += supported ? std::to_string(static_cast<int32_t>(type)) + " " : "";
            }
        }
        say("accepts", accepted);
    }
}

void tellSizes(Plugin const& plugin, int64_t batch, int64_t patches)
{
    DynamicPluginTensorDesc inputs[2]{};
    DynamicPluginTensorDesc const outputs[3]{};
    inputs[0].desc.dims = {2, {batch, -1}};
    inputs[0].max = {2, {batch, patches}};
    inputs[1].desc.dims = {1, {batch}};
    PluginTensorDesc shapes[2]{};
    shapes[0].dims = inputs[0].max;
    shapes[1].dims = inputs[1].desc.dims;
    void* const none[3]{};
    say("workspace", std::to_string(buildOf(plugin).getWorkspaceSize(inputs, 2, outputs, 3)));
    sayRefused("configure", buildOf(plugin).configurePlugin(inputs, 2, outputs, 3) != 0);
    sayRefused("shape change", runtimeOf(plugin).onShapeChange(shapes, 2, nullptr, 3) != 0);
    if (patches > 4096) // Less would run.
    {
        sayRefused("enqueue", runtimeOf(plugin).enqueue(shapes, nullptr, none, none, nullptr, nullptr) != 0);
    }
}

//! A layer that says how many patches it can keep: 138 are enough for 196 of them, not for 198.
void tellWidth(Plugin const& plugin)
{
    fakes::Builder builder;
    DimsExprs outputs[3]{};
    shapesOf(plugin, 0, 2, outputs, builder);
    say("bounded", fakes::Dimension::textOf(*outputs[0].d[1]));
    PluginTensorDesc shapes[2]{};
    shapes[0].dims = {2, {1, 198}};
    void* const none[3]{};
    sayRefused("too wide", runtimeOf(plugin).enqueue(shapes, nullptr, none, none, nullptr, nullptr) != 0);
}

void tellCopies(IPluginCreatorV3One& creator, Plugin plugin)
{
    Plugin const clone(plugin->clone());
    Plugin const attached(runtimeOf(plugin).attachToContext(nullptr));
    PluginFieldCollection const* const fields = runtimeOf(plugin).getFieldsToSerialize();
    Plugin const restored(creator.createPlugin("test", fields, TensorRTPhase::kRUNTIME));
    auto& core = capabilityOf<IPluginV3OneCore>(*clone, PluginCapabilityType::kCORE);
    plugin.reset(); // Copies must not read from it.
    say("stored", storedIn(clone) + " " + storedIn(attached) + " " + storedIn(restored));
    say("plugin", std::string{core.getPluginNamespace()} + "::" + core.getPluginName() + " " + core.getPluginVersion());
}

} // namespace

int main(int, char** argv)
{
    void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
    {
        std::fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    reinterpret_cast<SetLoggerFinder>(dlsym(library, "setLoggerFinder"))(&gFinder);
    int32_t count{0};
    IPluginCreatorInterface* const* const creators
        = reinterpret_cast<GetCreators>(dlsym(library, "getCreators"))(count);
    say("creators", std::to_string(count));
    auto& creator = *static_cast<IPluginCreatorV3One*>(creators[0]);
    tellIdentity(creator);
    tellCreator(creator);
    float const mass{0.7F};
    Plugin plugin = make(creator, &mass);
    tellShapes(plugin);
    tellTypes(plugin);
    tellSizes(plugin, 128, 196);
    tellSizes(plugin, 1, 4097);
    int32_t const widest{138};
    Plugin bounded = makeBounded(creator, &mass, &widest);
    tellWidth(bounded);
    tellCopies(creator, std::move(bounded));
    return 0;
}
