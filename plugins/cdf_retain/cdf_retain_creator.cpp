#include "cdf_retain_creator.h"
#include "cdf_retain_plugin.h"
#include "cdf_retain_row.h"
#include "log.h"

#include <cstring>
#include <new>

using namespace nvinfer1;

namespace star
{
namespace
{

//! The one number of a field, or nullptr.
template <typename T>
T const* findOne(PluginFieldCollection const& fields, char const* name, PluginFieldType type)
{
    for (int32_t i = 0; i < fields.nbFields; ++i)
    {
        PluginField const& field = fields.fields[i];
        if (std::strcmp(field.name, name) == 0 && field.type == type && field.length == 1)
        {
            return static_cast<T const*>(field.data);
        }
    }
    return nullptr;
}

//! A model of an earlier star-export has no such field.
int32_t widestOf(PluginFieldCollection const& fields)
{
    int32_t const* const widest = findOne<int32_t>(fields, kWIDEST_FIELD, PluginFieldType::kINT32);
    return widest == nullptr ? kNO_WIDEST : *widest;
}

} // namespace

CdfRetainCreator::CdfRetainCreator() noexcept
    : mFields{PluginField(kMASS_FIELD, nullptr, PluginFieldType::kFLOAT32, 1),
          PluginField(kWIDEST_FIELD, nullptr, PluginFieldType::kINT32, 1)}
    , mFieldNames{2, mFields}
{
}

IPluginV3* CdfRetainCreator::createPlugin(AsciiChar const*, PluginFieldCollection const* fc, TensorRTPhase) noexcept
{
    float const* const mass = fc == nullptr ? nullptr : findOne<float>(*fc, kMASS_FIELD, PluginFieldType::kFLOAT32);
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
    int32_t const widest = widestOf(*fc);
    if (widest < kNO_WIDEST || widest > kLARGEST_PATCHES)
    {
        logError("widest | got %d | need a count from 1 to %d, or %d for none", widest, kLARGEST_PATCHES, kNO_WIDEST);
        return nullptr;
    }
    return new (std::nothrow) CdfRetainPlugin(*mass, widest);
}

PluginFieldCollection const* CdfRetainCreator::getFieldNames() noexcept
{
    return &mFieldNames;
}

AsciiChar const* CdfRetainCreator::getPluginName() const noexcept
{
    return kPLUGIN_NAME;
}

AsciiChar const* CdfRetainCreator::getPluginVersion() const noexcept
{
    return kPLUGIN_VERSION;
}

AsciiChar const* CdfRetainCreator::getPluginNamespace() const noexcept
{
    return kPLUGIN_NAMESPACE;
}

} // namespace star

#define STAR_EXPORT extern "C" __attribute__((visibility("default")))

//! Whose headers this was built with; star-export asks before it hands the library to TensorRT.
STAR_EXPORT int32_t cdfRetainTensorRtMajor()
{
    return NV_TENSORRT_MAJOR;
}

// The two entry points through which TensorRT loads a plugin library.

STAR_EXPORT IPluginCreatorInterface* const* getCreators(int32_t& nbCreators)
{
    static star::CdfRetainCreator creator;
    static IPluginCreatorInterface* const creators[]{&creator};
    nbCreators = 1;
    return creators;
}

STAR_EXPORT void setLoggerFinder(ILoggerFinder* finder)
{
    star::setLogFinder(finder);
}
