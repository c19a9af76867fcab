#include "select_top_k_plugin.h"
#include "cdf_retain_row.h"
#include "select_top_k_kernel.h"

#include <new>

using namespace nvinfer1;

namespace star
{
namespace
{

constexpr char const* kK_FIELD{"k"};
constexpr char const* kPREFIX_FIELD{"num_prefix_tokens"};

bool hasRank(int32_t score)
{
    if (score != 2)
    {
        logError("shapes | got score of rank %d | need score [B, N]", score);
    }
    return score == 2;
}

bool hasPatches(int64_t patches, int32_t k)
{
    bool const within = k <= patches && patches <= kLARGEST_PATCHES;
    if (!within)
    {
        logError("score | got %lld patches | need %d to keep, at most %d", static_cast<long long>(patches), k,
            kLARGEST_PATCHES);
    }
    return within;
}

} // namespace

SelectTopKPlugin::SelectTopKPlugin(int32_t k, int32_t prefix) noexcept
    : PluginBase(PluginField(kK_FIELD, &mK, PluginFieldType::kINT32, 1),
          PluginField(kPREFIX_FIELD, &mPrefix, PluginFieldType::kINT32, 1))
    , mK(k)
    , mPrefix(prefix)
{
}

IPluginV3* SelectTopKPlugin::clone() noexcept
{
    return new (std::nothrow) SelectTopKPlugin(mK, mPrefix);
}

// ---- IPluginV3OneBuild ----

int32_t SelectTopKPlugin::configurePlugin(
    DynamicPluginTensorDesc const* in, int32_t nbInputs, DynamicPluginTensorDesc const*, int32_t nbOutputs) noexcept
{
    bool const valid
        = hasTensors(nbInputs, nbOutputs) && hasRank(in[0].desc.dims.nbDims) && hasPatches(in[0].max.d[1], mK);
    return valid ? kOK : kERROR;
}

int32_t SelectTopKPlugin::getOutputShapes(DimsExprs const* inputs, int32_t nbInputs, DimsExprs const*, int32_t,
    DimsExprs* outputs, int32_t nbOutputs, IExprBuilder& exprBuilder) noexcept
{
    if (!hasTensors(nbInputs, nbOutputs) || !hasRank(inputs[0].nbDims))
    {
        return kERROR;
    }
    IDimensionExpr const* const batch = inputs[0].d[0];
    IDimensionExpr const* const patches = inputs[0].d[1];
    if (patches->isConstant() && !hasPatches(patches->getConstantValue(), mK))
    {
        return kERROR;
    }
    outputs[0].nbDims = 2;
    outputs[0].d[0] = batch;
    outputs[0].d[1] = exprBuilder.constant(mK);
    outputs[1].nbDims = 3; // As GatherND takes them.
    outputs[1].d[0] = batch;
    outputs[1].d[1] = exprBuilder.constant(mPrefix + mK);
    outputs[1].d[2] = exprBuilder.constant(1);
    return kOK;
}

// ---- IPluginV3OneRuntime ----

int32_t SelectTopKPlugin::onShapeChange(
    PluginTensorDesc const* in, int32_t nbInputs, PluginTensorDesc const*, int32_t nbOutputs) noexcept
{
    bool const valid
        = hasTensors(nbInputs, nbOutputs) && hasRank(in[0].dims.nbDims) && hasPatches(in[0].dims.d[1], mK);
    return valid ? kOK : kERROR;
}

int32_t SelectTopKPlugin::enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const*, void const* const* inputs,
    void* const* outputs, void*, cudaStream_t stream) noexcept
{
    Dims const& shape = inputDesc[0].dims;
    SelectTopKCall const call{static_cast<int32_t>(shape.d[0]), static_cast<int32_t>(shape.d[1]), mK, mPrefix,
        static_cast<float const*>(inputs[0]), static_cast<int64_t*>(outputs[0]), static_cast<int64_t*>(outputs[1])};
    cudaError_t const error = launchSelectTopK(call, stream);
    if (error != cudaSuccess)
    {
        logError("launch | got %s for score [%d, %d]", cudaGetErrorName(error), call.batch, call.patches);
        return kERROR;
    }
    return kOK;
}

// ---- IPluginCreatorV3One ----

SelectTopKCreator::SelectTopKCreator() noexcept
    : CreatorBase(PluginField(kK_FIELD, nullptr, PluginFieldType::kINT32, 1),
          PluginField(kPREFIX_FIELD, nullptr, PluginFieldType::kINT32, 1))
{
}

IPluginV3* SelectTopKCreator::createPlugin(AsciiChar const*, PluginFieldCollection const* fc, TensorRTPhase) noexcept
{
    int32_t const* const k = findOne<int32_t>(fc, kK_FIELD, PluginFieldType::kINT32);
    int32_t const* const prefix = findOne<int32_t>(fc, kPREFIX_FIELD, PluginFieldType::kINT32);
    if (k == nullptr || prefix == nullptr)
    {
        logError("%s | got none | need one int32", k == nullptr ? kK_FIELD : kPREFIX_FIELD);
        return nullptr;
    }
    if (*k < 1 || *k > kLARGEST_PATCHES || *prefix < 0 || *prefix > kLARGEST_PATCHES)
    {
        logError("SelectTopK | got k %d, num_prefix_tokens %d | need k from 1, prefix tokens from 0, both to %d", *k,
            *prefix, kLARGEST_PATCHES);
        return nullptr;
    }
    return new (std::nothrow) SelectTopKPlugin(*k, *prefix);
}

} // namespace star
