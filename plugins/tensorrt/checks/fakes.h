#ifndef STAR_FAKES_H
#define STAR_FAKES_H

//! What TensorRT hands to a plugin, in so far as it can be had without TensorRT: expressions of dimensions, as text,
//! and a logger that keeps its lines.

#include <NvInferRuntime.h>
#include <cstdint>
#include <deque>
#include <limits>
#include <string>
#include <vector>

namespace fakes
{

constexpr int64_t kUNKNOWN{std::numeric_limits<int64_t>::min()};

//! A dimension that knows how it was made: "N", "2", "ceil_div(N, 2)", "size(2, opt ceil_div(N, 2), upper N)".
class Dimension final : public nvinfer1::IDimensionExpr, public nvinfer1::apiv::VDimensionExpr
{
public:
    explicit Dimension(std::string text, int64_t value = kUNKNOWN, bool isSize = false)
        : mText(std::move(text))
        , mValue(value)
        , mIsSize(isSize)
    {
        mImpl = this;
    }

    bool isConstant() const override
    {
        return mValue != kUNKNOWN;
    }

    int64_t getConstantValue() const override
    {
        return mValue;
    }

    bool isSizeTensor() const override
    {
        return mIsSize;
    }

    static std::string const& textOf(nvinfer1::IDimensionExpr const& expression)
    {
        return static_cast<Dimension const&>(expression).mText;
    }

private:
    std::string mText;
    int64_t mValue;
    bool mIsSize;
};

//! Makes such dimensions and owns them.
class Builder final : public nvinfer1::IExprBuilder, public nvinfer1::apiv::VExprBuilder
{
public:
    Builder()
    {
        mImpl = this;
    }

    nvinfer1::IDimensionExpr const* constant(int64_t value) override
    {
        return &mMade.emplace_back(std::to_string(value), value);
    }

    nvinfer1::IDimensionExpr const* operation(nvinfer1::DimensionOperation operation,
        nvinfer1::IDimensionExpr const& first, nvinfer1::IDimensionExpr const& second) override
    {
        bool const known = operation == nvinfer1::DimensionOperation::kCEIL_DIV;
        std::string const name{known ? "ceil_div" : "operation"};
        return &mMade.emplace_back(name + "(" + Dimension::textOf(first) + ", " + Dimension::textOf(second) + ")");
    }

    nvinfer1::IDimensionExpr const* declareSizeTensor(
        int32_t output, nvinfer1::IDimensionExpr const& opt, nvinfer1::IDimensionExpr const& upper) override
    {
        std::string const text = "size(" + std::to_string(output) + ", opt " + Dimension::textOf(opt) + ", upper "
            + Dimension::textOf(upper) + ")";
        return &mMade.emplace_back(text, kUNKNOWN, true);
    }

private:
    std::deque<Dimension> mMade;
};

class Logger final : public nvinfer1::ILogger
{
public:
    void log(Severity, nvinfer1::AsciiChar const* message) noexcept override
    {
        lines.emplace_back(message);
    }

    std::vector<std::string> lines;
};

class LoggerFinder final : public nvinfer1::ILoggerFinder
{
public:
    nvinfer1::ILogger* findLogger() override
    {
        return &logger;
    }

    Logger logger;
};

} // namespace fakes

#endif // STAR_FAKES_H
