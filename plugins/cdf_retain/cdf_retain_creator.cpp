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

//! The one float32 of the field `mass`, or nullptr.
float const* findMass(PluginFieldCollection const& fields)
{
    for (int32_t i = 0; i < fields.nbFields; ++i)
    {
        PluginField const& field = fields.fields[i];
        if (std::strcmp(field.name, kMASS_FIELD) == 0 && field.type == PluginFieldType::kFLOAT32 && field.length == 1)
        {
            return static_cast<float const*>(field.data);
        }
    }
    return nullptr;
}

} // namespace

CdfRetainCreator::CdfRetainCreator() noexcept
    : mMassField(kMASS_FIELD, nullptr, PluginFieldType::kFLOAT32, 1)
    , mFieldNames{1, &mMassField}
{
}

IPluginV3* CdfRetainCreator::createPlugin(AsciiChar const*, PluginFieldCollection const* fc, TensorRTPhase) noexcept
{
    float const* const mass = fc == nullptr ? nullptr : findMass(*fc);
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
    return new (std::nothrow) CdfRetainPlugin(*mass);
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
