#include "cdf_retain_creator.h"
#include "cdf_retain_row.h"

#include <new>

using namespace nvinfer1;

namespace star
{

CdfRetainCreator::CdfRetainCreator() noexcept
    : CreatorBase(PluginField(kMASS_FIELD, nullptr, PluginFieldType::kFLOAT32, 1),
          PluginField(kWIDEST_FIELD, nullptr, PluginFieldType::kINT32, 1))
{
}

IPluginV3* CdfRetainCreator::createPlugin(AsciiChar const*, PluginFieldCollection const* fc, TensorRTPhase) noexcept
{
    float const* const mass = findOne<float>(fc, kMASS_FIELD, PluginFieldType::kFLOAT32);
    if (mass == nullptr)
    {
        logError("mass | got none | need one float32");
        return nullptr;
    }
    if (!isMass(*mass))
    {
        logError("mass | got %g | need a share in (0, 1]", static_cast<double>(*mass));
        return nullptr;
    }
    int32_t const* const stated = findOne<int32_t>(fc, kWIDEST_FIELD, PluginFieldType::kINT32);
    int32_t const widest = stated == nullptr ? kNO_WIDEST : *stated; // A model of an earlier star-export has none.
    if (widest < kNO_WIDEST || widest > kLARGEST_PATCHES)
    {
        logError("widest | got %d | need a count from 1 to %d, or %d for none", widest, kLARGEST_PATCHES, kNO_WIDEST);
        return nullptr;
    }
    return new (std::nothrow) CdfRetainPlugin(*mass, widest);
}

} // namespace star
