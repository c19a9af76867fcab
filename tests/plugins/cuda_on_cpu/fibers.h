#ifndef STAR_FIBERS_H
#define STAR_FIBERS_H

//! The threads of a block, each a fiber that gives way at barriers. Warps run one after the other, each time in another
//! order, so that a barrier that is missing shows.

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <ucontext.h>
#include <vector>

namespace fibers
{

constexpr int32_t kWARP{32};
constexpr size_t kSTACK_BYTES{64 << 10};

//! How a warp folds its values into one: what it has so far, the next value, whose lane that is.
using Reduce = uint32_t (*)(uint32_t, uint32_t, int32_t);

enum class State
{
    kREADY,
    kAT_WARP,
    kAT_BLOCK,
    kDONE,
};

struct Fiber
{
    ucontext_t start{};
    jmp_buf place{}; //!< Where it gave way.
    bool started{false};
    std::unique_ptr<char[]> stack{std::make_unique<char[]>(kSTACK_BYTES)};
    State state{State::kREADY};
    uint32_t value{};
};

inline std::vector<Fiber> gFibers;
inline Fiber* gCurrent{nullptr};
inline jmp_buf gScheduler;
inline Reduce gReduce{nullptr};
inline std::function<void()> gKernel;
inline std::vector<char> gDynamicShared;

//! Jumps, since swapcontext asks the kernel for the signals at each switch.
[[gnu::noinline]] inline void giveWay(State state)
{
    gCurrent->state = state;
    if (_setjmp(gCurrent->place) == 0)
    {
        _longjmp(gScheduler, 1);
    }
}

//! Let a fiber run until it gives way.
[[gnu::noinline]] inline void resume(Fiber& fiber)
{
    gCurrent = &fiber;
    if (_setjmp(gScheduler) != 0)
    {
        return;
    }
    if (gCurrent->started)
    {
        _longjmp(gCurrent->place, 1);
    }
    gCurrent->started = true;
    setcontext(&gCurrent->start);
}

inline void waitForBlock()
{
    giveWay(State::kAT_BLOCK);
}

inline uint32_t waitForWarp(uint32_t value, Reduce reduce)
{
    Fiber& self = *gCurrent;
    self.value = value;
    gReduce = reduce;
    giveWay(State::kAT_WARP);
    return self.value;
}

inline void runThread()
{
    gKernel();
    giveWay(State::kDONE);
}

inline bool areAll(State state, size_t begin, size_t end)
{
    return std::all_of(
        &gFibers[begin], &gFibers[begin] + (end - begin), [state](Fiber const& fiber) { return fiber.state == state; });
}

inline void releaseWarp(size_t begin)
{
    uint32_t reduced{0};
    for (int32_t lane = 0; lane < kWARP; ++lane)
    {
        reduced = gReduce(reduced, gFibers[begin + lane].value, lane);
    }
    for (int32_t lane = 0; lane < kWARP; ++lane)
    {
        gFibers[begin + lane].value = reduced;
        gFibers[begin + lane].state = State::kREADY;
    }
}

inline void startFibers(uint32_t threads)
{
    gFibers.resize(std::max<size_t>(gFibers.size(), threads));
    gFibers.erase(gFibers.begin() + threads, gFibers.end());
    for (Fiber& fiber : gFibers)
    {
        getcontext(&fiber.start);
        fiber.start.uc_stack.ss_sp = fiber.stack.get();
        fiber.start.uc_stack.ss_size = kSTACK_BYTES;
        fiber.started = false;
        fiber.state = State::kREADY;
        makecontext(&fiber.start, runThread, 0);
    }
}

//! Let a warp run until its threads are at a barrier of the block, or done.
//!
//! \return Whether it was not there already.
inline bool runWarp(size_t begin, uint32_t& threadIndex)
{
    bool moved{false};
    for (bool again = true; again;)
    {
        again = false;
        for (size_t thread = begin; thread < begin + kWARP; ++thread)
        {
            if (gFibers[thread].state == State::kREADY)
            {
                threadIndex = static_cast<uint32_t>(thread);
                resume(gFibers[thread]);
                moved = true;
            }
        }
        if (areAll(State::kAT_WARP, begin, begin + kWARP))
        {
            releaseWarp(begin);
            again = true;
        }
    }
    return moved;
}

//! \param threads A multiple of the warp. A block whose threads wait for each other for ever ends the process.
inline void runBlock(uint32_t threads, size_t sharedBytes, uint32_t& threadIndex, std::function<void()> kernel)
{
    static std::mt19937 random(0);
    gKernel = std::move(kernel);
    gDynamicShared.assign(sharedBytes, static_cast<char>(0xab));
    startFibers(threads);
    std::vector<size_t> warps(threads / kWARP);
    while (!areAll(State::kDONE, 0, threads))
    {
        for (size_t warp = 0; warp < warps.size(); ++warp)
        {
            warps[warp] = warp * kWARP;
        }
        std::shuffle(warps.begin(), warps.end(), random);
        bool moved{false};
        for (size_t const warp : warps)
        {
            moved = runWarp(warp, threadIndex) || moved;
        }
        if (moved)
        {
            continue;
        }
        if (!areAll(State::kAT_BLOCK, 0, threads))
        {
            std::abort();
        }
        for (Fiber& fiber : gFibers)
        {
            fiber.state = State::kREADY;
        }
    }
}

} // namespace fibers

#endif // STAR_FIBERS_H
