//! CdfRetain on the CPU behind a C interface: what a GPU runs, for tests where there is none.

#include "cdf_retain_row.h"

#include <algorithm>
#include <vector>

namespace star
{
namespace
{

//! Fills in a row's units and returns their sum.
int32_t stageRow(float const* score, std::vector<Patch>& patches)
{
    auto const validCount = static_cast<int32_t>(patches.size());
    float top{0.0F};
    for (int32_t i = 0; i < validCount; ++i)
    {
        patches[i].order = bitsOf(usableScore(score[i]));
        top = std::max(top, floatOf(patches[i].order));
    }
    int32_t total{0};
    for (Patch& patch : patches)
    {
        patch.units = unitsOf(floatOf(patch.order), top, validCount);
        total += patch.units;
    }
    return total;
}

//! The survivors of one row, ascending.
std::vector<int64_t> retainRow(float const* score, int32_t validCount, float mass)
{
    std::vector<Patch> patches(validCount);
    float const threshold = thresholdOf(mass, stageRow(score, patches));
    int32_t const largest = largestCount(mass, validCount);
    std::vector<int64_t> survivors;
    for (int32_t i = 0; i < validCount; ++i)
    {
        if (isKept(standingOf(patches.data(), validCount, i), threshold, largest))
        {
            survivors.push_back(i);
        }
    }
    return survivors;
}

} // namespace
} // namespace star

//! SelectTopK: \p keep has room for batch · k, \p rows for batch · (prefix + k).
extern "C" int32_t selectTopKHost(
    float const* score, int64_t batch, int64_t patches, int64_t k, int64_t prefix, int64_t* keep, int64_t* rows)
{
    std::vector<star::Patch> row(patches);
    for (int64_t each = 0; each < batch; ++each)
    {
        std::transform(score + each * patches, score + (each + 1) * patches, row.begin(),
            [](float value) { return star::Patch{star::orderOf(value), 0}; });
        for (int64_t i = 0; i < prefix; ++i)
        {
            *rows++ = i;
        }
        for (int32_t i = 0; i < patches; ++i)
        {
            if (star::standingOf(row.data(), static_cast<int32_t>(patches), i).rank < k)
            {
                *keep++ = i;
                *rows++ = prefix + i;
            }
        }
    }
    return 0;
}

//! \param keepIndex Room for batch · patches; rows are written one after the other, `width` wide.
//! \return 0, or 1 where the operator is not defined for such rows.
extern "C" int32_t cdfRetainHost(float const* score, int64_t const* validCount, int64_t batch, int64_t patches,
    float mass, int64_t* keepIndex, int64_t* keepCount, int64_t* width)
{
    if (!star::isDefined(batch, patches, mass))
    {
        return 1;
    }
    std::vector<std::vector<int64_t>> rows;
    size_t widest{0};
    for (int64_t row = 0; row < batch; ++row)
    {
        int32_t const valid = star::clampCount(validCount[row], static_cast<int32_t>(patches));
        rows.push_back(star::retainRow(score + row * patches, valid, mass));
        keepCount[row] = static_cast<int64_t>(rows.back().size());
        widest = std::max(widest, rows.back().size());
    }
    for (std::vector<int64_t>& survivors : rows)
    {
        survivors.resize(widest, 0);
        keepIndex = std::copy(survivors.begin(), survivors.end(), keepIndex);
    }
    *width = static_cast<int64_t>(widest);
    return 0;
}
