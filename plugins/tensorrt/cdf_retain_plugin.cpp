#include "cdf_retain_plugin.h"
#include "cdf_retain_kernel.h"
#include "cdf_retain_row.h"

#include <new>

using namespace nvinfer1;

namespace star
{
namespace
{

// Tensor positions.
constexpr int32_t kSCORE{0};
constexpr int32_t kVALID_COUNT{1};
constexpr int32_t kKEEP_INDEX{0};
constexpr int32_t kKEEP_COUNT{1};
constexpr int32_t kWIDTH{2};

bool hasRanks(int32_t score, int32_t validCount)
{
    bool const matches = score == 2 && validCount == 1;
    if (!matches)
    {
        logError("shapes | got score of rank %d, valid_count of rank %d | need score [B, N], valid_count [B]", score,
            validCount);
    }
    return matches;
}

bool hasPatches(int64_t patches)
{
    bool const within = patches <= kLARGEST_PATCHES;
    if (!within)
    {
        logError("score | got %lld patches | need at most %d", static_cast<long long>(patches), kLARGEST_PATCHES);
    }
    return within;
}

//! TensorRT gives keep_index as much memory as the widest row needs.
bool hasRoom(float mass, int64_t patches, int32_t widest)
{
    if (widest == kNO_WIDEST || patches > kLARGEST_PATCHES) // The launch refuses more.
    {
        return true;
    }
    int32_t const largest = largestCount(mass, static_cast<int32_t>(patches));
    bool const fits = largest <= widest;
    if (!fits)
    {
        logError("widest | got %d for %lld patches | need at least %d", widest, static_cast<long long>(patches), largest);
    }
    return fits;
}

} // namespace

CdfRetainPlugin::CdfRetainPlugin(float mass, int32_t widest) noexcept
    : PluginBase(PluginField(kMASS_FIELD, &mMass, PluginFieldType::kFLOAT32, 1),
          PluginField(kWIDEST_FIELD, &mWidest, PluginFieldType::kINT32, 1))
    , mMass(mass)
    , mWidest(widest)
{
}

IPluginV3* CdfRetainPlugin::clone() noexcept
{
    return new (std::nothrow) CdfRetainPlugin(mMass, mWidest);
}

// ---- IPluginV3OneBuild ----

int32_t CdfRetainPlugin::configurePlugin(
    DynamicPluginTensorDesc const* in, int32_t nbInputs, DynamicPluginTensorDesc const*, int32_t nbOutputs) noexcept
{
    bool const valid = hasTensors(nbInputs, nbOutputs)
        && hasRanks(in[kSCORE].desc.dims.nbDims, in[kVALID_COUNT].desc.dims.nbDims) && hasPatches(in[kSCORE].max.d[1]);
    return valid ? kOK : kERROR;
}

int32_t CdfRetainPlugin::getOutputShapes(DimsExprs const* inputs, int32_t nbInputs, DimsExprs const*, int32_t,
    DimsExprs* outputs, int32_t nbOutputs, IExprBuilder& exprBuilder) noexcept
{
    if (!hasTensors(nbInputs, nbOutputs) || !hasRanks(inputs[kSCORE].nbDims, inputs[kVALID_COUNT].nbDims))
    {
        return kERROR;
    }
    IDimensionExpr const* const batch = inputs[kSCORE].d[0];
    IDimensionExpr const* const patches = inputs[kSCORE].d[1];
    if (patches->isConstant() && !hasPatches(patches->getConstantValue()))
    {
        return kERROR;
    }
    // The auto-tuning size must not depend on a size tensor, which the patches of every layer but the first are.
    bool const known = mWidest != kNO_WIDEST;
    IDimensionExpr const* const upper = known ? exprBuilder.constant(mWidest) : patches;
    IDimensionExpr const* const tuned
        = known ? upper : exprBuilder.operation(DimensionOperation::kCEIL_DIV, *patches, *exprBuilder.constant(2));
    outputs[kKEEP_INDEX].nbDims = 2;
    outputs[kKEEP_INDEX].d[0] = batch;
    outputs[kKEEP_INDEX].d[1] = exprBuilder.declareSizeTensor(kWIDTH, *tuned, *upper);
    outputs[kKEEP_COUNT].nbDims = 1;
    outputs[kKEEP_COUNT].d[0] = batch;
    outputs[kWIDTH].nbDims = 0; // A size tensor is a scalar.
    return kOK;
}

size_t CdfRetainPlugin::getWorkspaceSize(
    DynamicPluginTensorDesc const* inputs, int32_t, DynamicPluginTensorDesc const*, int32_t) const noexcept
{
    Dims const& largest = inputs[kSCORE].max;
    return cdfRetainWorkspaceSize(largest.d[0], largest.d[1]);
}

// ---- IPluginV3OneRuntime ----

int32_t CdfRetainPlugin::onShapeChange(
    PluginTensorDesc const* in, int32_t nbInputs, PluginTensorDesc const*, int32_t nbOutputs) noexcept
{
    bool const valid = hasTensors(nbInputs, nbOutputs) && hasRanks(in[kSCORE].dims.nbDims, in[kVALID_COUNT].dims.nbDims)
        && hasPatches(in[kSCORE].dims.d[1]);
    return valid ? kOK : kERROR;
}

int32_t CdfRetainPlugin::enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const*, void const* const* inputs,
    void* const* outputs, void* workspace, cudaStream_t stream) noexcept
{
    Dims const& shape = inputDesc[kSCORE].dims;
    if (!hasRoom(mMass, shape.d[1], mWidest))
    {
        return kERROR;
    }
    CdfRetainCall call{};
    call.batch = static_cast<int32_t>(shape.d[0]);
    call.patches = static_cast<int32_t>(shape.d[1]);
    call.mass = mMass;
    call.score = static_cast<float const*>(inputs[kSCORE]);
    call.validCount = static_cast<int64_t const*>(inputs[kVALID_COUNT]);
    call.keepIndex = static_cast<int64_t*>(outputs[kKEEP_INDEX]);
    call.keepCount = static_cast<int64_t*>(outputs[kKEEP_COUNT]);
    call.width = static_cast<int64_t*>(outputs[kWIDTH]);
    call.workspace = static_cast<int32_t*>(workspace);
    cudaError_t const error = launchCdfRetain(call, stream);
    if (error != cudaSuccess)
    {
        logError("launch | got %s for score [%d, %d]", cudaGetErrorName(error), call.batch, call.patches);
        return kERROR;
    }
    return kOK;
}

} // namespace star
