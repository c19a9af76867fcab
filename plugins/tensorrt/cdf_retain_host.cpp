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
