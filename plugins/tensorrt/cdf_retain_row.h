#ifndef STAR_CDF_RETAIN_ROW_H
#define STAR_CDF_RETAIN_ROW_H

//! CdfRetain within one row. Host and device share this code, so that tests on a CPU run what a GPU runs.
//! The numbered rules are those of the operator's definition, exporter/core/prune/ops/cdf_reference.py.

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define STAR_HOST_DEVICE __host__ __device__
#else
#define STAR_HOST_DEVICE
#endif

namespace star
{

//! With more patches a row, a unit of mass would be coarser than 1/4096 of the row's largest score.
constexpr int32_t kLARGEST_PATCHES{4096};

//! Bits of a key: those of an order, then those of a number from 1 to 4096.
constexpr int32_t kPOSITION_BITS{13};
constexpr int32_t kKEY_BITS{32 + kPOSITION_BITS};

//! Whole numbers up to here, and their sums, are exact in float32.
constexpr int32_t kEXACT_SUM{1 << 24};

//! A product p·n that is a whole number but for rounding must not be rounded up past it.
constexpr float kROUNDING_GUARD{1e-4F};

//! A patch of a row: a whole number that ranks as its score does, and its mass as a whole number of units.
struct Patch
{
    uint32_t order;
    int32_t units;
};

//! What stands before a patch in the ranking.
struct Standing
{
    int32_t rank;
    int32_t unitsBefore;
};

// Each result is rounded once, to nearest, as the reference implementation's are: on a device a product and the sum that follows would
// else be fused. On a host, -ffp-contract=off says the same.
STAR_HOST_DEVICE inline float multiply(float a, float b)
{
#if defined(__CUDA_ARCH__)
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

STAR_HOST_DEVICE inline float divide(float a, float b)
{
#if defined(__CUDA_ARCH__)
    return __fdiv_rn(a, b);
#else
    return a / b;
#endif
}

STAR_HOST_DEVICE inline float subtract(float a, float b)
{
#if defined(__CUDA_ARCH__)
    return __fsub_rn(a, b);
#else
    return a - b;
#endif
}

STAR_HOST_DEVICE inline uint32_t bitsOf(float value)
{
    uint32_t bits{};
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
}

STAR_HOST_DEVICE inline float floatOf(uint32_t bits)
{
    float value{};
    std::memcpy(&value, &bits, sizeof(value));
    return value;
}

//! Whether a mass is a share in (0, 1]. A NaN is none.
STAR_HOST_DEVICE inline bool isMass(float mass)
{
    return mass > 0.0F && mass <= 1.0F;
}

//! Whether the operator is defined for such rows.
STAR_HOST_DEVICE inline bool isDefined(int64_t batch, int64_t patches, float mass)
{
    return batch >= 1 && patches >= 1 && patches <= kLARGEST_PATCHES && isMass(mass);
}

//! A count outside [1, patches] is undefined input; it is clamped so that no memory outside the row is touched.
STAR_HOST_DEVICE inline int32_t clampCount(int64_t validCount, int32_t patches)
{
    int64_t const atLeastOne = validCount < 1 ? 1 : validCount;
    return static_cast<int32_t>(atLeastOne < patches ? atLeastOne : patches);
}

//! Rule 1: NaN and negative scores count as 0, infinity as the largest float.
STAR_HOST_DEVICE inline float usableScore(float score)
{
    float const finite = score < FLT_MAX ? score : FLT_MAX;
    return score > 0.0F ? finite : 0.0F;
}

// To the nearest whole number, ties to even, as the reference implementation rounds.
STAR_HOST_DEVICE inline int32_t nearest(float value)
{
#if defined(__CUDA_ARCH__)
    return __float2int_rn(value);
#else
    return static_cast<int32_t>(std::nearbyint(value));
#endif
}

//! Rule 3: round(score / top · floor(2^24 / validCount)).
STAR_HOST_DEVICE inline int32_t unitsOf(float score, float top, int32_t validCount)
{
    if (!(top > 0.0F))
    {
        return 0;
    }
    auto const largest = static_cast<float>(kEXACT_SUM / validCount);
    return nearest(multiply(divide(score, top), largest));
}

//! Rule 2, by counting: no sort, and no order in which the whole numbers are summed, can change the outcome.
STAR_HOST_DEVICE inline Standing standingOf(Patch const* patches, int32_t validCount, int32_t position)
{
    uint32_t const order = patches[position].order;
    Standing standing{0, 0};
#if defined(__CUDA_ARCH__)
#pragma unroll 8
#endif
    for (int32_t other = 0; other < validCount; ++other)
    {
        Patch const patch = patches[other];
        bool const before = patch.order > order || (patch.order == order && other < position);
        standing.rank += before ? 1 : 0;
        standing.unitsBefore += before ? patch.units : 0;
    }
    return standing;
}

//! Rule 2 as a number: a patch ranks before those of a smaller key.
STAR_HOST_DEVICE inline uint64_t keyOf(uint32_t order, int32_t position)
{
    return static_cast<uint64_t>(order) << kPOSITION_BITS | static_cast<uint64_t>(kLARGEST_PATCHES - position);
}

//! Rule 4: the mass to reach. Without a positive score, and for a mass of 1, no sum reaches it.
STAR_HOST_DEVICE inline float thresholdOf(float mass, int32_t total)
{
    bool const reachable = total > 0 && mass < 1.0F;
    return reachable ? multiply(mass, static_cast<float>(total)) : FLT_MAX;
}

//! Rule 5: k(mass, n) = clamp(ceil(mass·n - 1e-4), 1, n), the count of STAR.
STAR_HOST_DEVICE inline int32_t largestCount(float mass, int32_t validCount)
{
    float const product = subtract(multiply(mass, static_cast<float>(validCount)), kROUNDING_GUARD);
    return clampCount(static_cast<int64_t>(ceilf(product)), validCount);
}

//! Rules 4 and 5 for one patch. Sums grow along the ranking, so those kept are the first of it.
STAR_HOST_DEVICE inline bool isKept(Standing const& standing, float threshold, int32_t largest)
{
    return static_cast<float>(standing.unitsBefore) < threshold && standing.rank < largest;
}

} // namespace star

#endif // STAR_CDF_RETAIN_ROW_H
