#ifndef STAR_RANKING_H
#define STAR_RANKING_H

//! Which patches of a row survive: by number, or by mass. Ranks are by score, descending, then by position, ascending.

#include "cdf_retain_row.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>

namespace star
{

//! A patch as one number, the larger the earlier it ranks: no two are equal, whatever the scores are, NaN included.
//! \param score Not negative.
inline uint64_t standingOf(float score, int64_t position)
{
    uint32_t bits;
    std::memcpy(&bits, &score, sizeof(bits)); // Of numbers that are not negative, in their order.
    return static_cast<uint64_t>(bits) << 32 | static_cast<uint32_t>(~static_cast<uint32_t>(position));
}

inline float scoreIn(uint64_t standing)
{
    auto const bits = static_cast<uint32_t>(standing >> 32);
    float score;
    std::memcpy(&score, &bits, sizeof(score));
    return score;
}

//! The standing of the last of the `count` that rank first; moves these to the front, in any order.
inline uint64_t lastOf(uint64_t* standings, int64_t count, int64_t patches)
{
    std::nth_element(standings, standings + count - 1, standings + patches, std::greater<uint64_t>());
    return standings[count - 1];
}

//! Writes the positions of the `count` patches whose standing is `last` or before it, ascending.
inline void writeSurvivors(float const* scores, uint64_t last, int64_t count, int64_t* survivors)
{
    int64_t found{0};
    for (int64_t i = 0; found < count; ++i)
    {
        survivors[found] = i; // Overwritten by the next, unless this one survives.
        found += standingOf(scores[i], i) >= last ? 1 : 0;
    }
}

//! Rules 2 to 5 of CdfRetain: how many patches are kept. Halves the ranking instead of sorting it: sums of units have no order.
//! \param standings Of usable scores (rule 1); their order changes.
inline int64_t countByMass(uint64_t* standings, int32_t patches, float mass)
{
    float const top = scoreIn(*std::max_element(standings, standings + patches));
    auto const units = [=](uint64_t standing) { return unitsOf(scoreIn(standing), top, patches); };
    auto const sum = [=](int64_t from, int64_t to) {
        int32_t total{0};
        for (int64_t i = from; i < to; ++i)
        {
            total += units(standings[i]);
        }
        return total;
    };
    float const threshold = thresholdOf(mass, sum(0, patches));
    int64_t low{0}; // At least so many are kept,
    int64_t high{largestCount(mass, patches)}; // and at most so many.
    lastOf(standings, high, patches);
    int32_t before{0}; // The units of the first `low`.
    while (low < high)
    {
        int64_t const middle = (low + high) / 2;
        std::nth_element(standings + low, standings + middle, standings + high, std::greater<uint64_t>());
        int32_t const upTo = before + sum(low, middle);
        // The patch of rank `middle` is kept where what ranks before it does not reach the threshold.
        if (static_cast<float>(upTo) < threshold)
        {
            low = middle + 1;
            before = upTo + units(standings[middle]);
        }
        else
        {
            high = middle;
        }
    }
    return low;
}

} // namespace star

#endif // STAR_RANKING_H
