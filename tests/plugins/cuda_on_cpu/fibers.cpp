#include "fibers.h"

#include <algorithm>
#include <csetjmp>
#include <cstdlib>
#include <memory>
#include <random>
#include <ucontext.h>
#include <vector>

uint32_t gThreadIndex{0};

// Where the linker puts the variables that a kernel declares __shared__.
extern "C" char __start_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_shared[] __attribute__((weak, visibility("hidden")));

namespace fibers
{
namespace
{

constexpr size_t kSTACK_BYTES{64 << 10};
constexpr char kNOISE{static_cast<char>(0xab)};

struct Fiber
{
    ucontext_t start{};
    jmp_buf place{}; //!< Where it gave way.
    bool started{false};
    std::unique_ptr<char[]> stack{std::make_unique<char[]>(kSTACK_BYTES)};
    uint32_t value{};
};

std::vector<Fiber> gFibers;
std::vector<uint32_t> gReady;        //!< The threads that can go on, in no order.
std::vector<uint32_t> gWaitingLanes; //!< For each warp, how many of its threads wait for the others.
uint32_t gWaitingThreads{0};         //!< How many wait for the block.
uint64_t gEpoch{0};
uint32_t gCurrent{0};
bool gInBlock{false};
jmp_buf gScheduler;
std::function<void()> gKernel;
std::vector<char> gDynamicShared;
std::mt19937 gRandom(0);

//! Jumps, since swapcontext asks the kernel for the signals at each switch.
[[gnu::noinline]] void giveWay()
{
    if (_setjmp(gFibers[gCurrent].place) == 0)
    {
        _longjmp(gScheduler, 1);
    }
}

//! Let a thread run until it gives way.
[[gnu::noinline]] void resume(uint32_t thread)
{
    gCurrent = gThreadIndex = thread;
    gInBlock = true;
    if (_setjmp(gScheduler) != 0)
    {
        gInBlock = false;
        return;
    }
    Fiber& fiber = gFibers[gCurrent];
    if (fiber.started)
    {
        _longjmp(fiber.place, 1);
    }
    fiber.started = true;
    setcontext(&fiber.start);
}

void runThread()
{
    gKernel();
    giveWay();
}

//! By itself, since getcontext may return twice.
[[gnu::noinline]] void start(Fiber& fiber)
{
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = fiber.stack.get();
    fiber.start.uc_stack.ss_size = kSTACK_BYTES;
    fiber.started = false;
    makecontext(&fiber.start, runThread, 0);
}

void startFibers(uint32_t threads)
{
    if (gFibers.size() != threads)
    {
        gFibers = std::vector<Fiber>(threads);
    }
    gReady.clear();
    for (uint32_t thread = 0; thread < threads; ++thread)
    {
        start(gFibers[thread]);
        gReady.push_back(thread);
    }
    gWaitingLanes.assign(threads / kWARP, 0);
    gWaitingThreads = 0;
}

//! Take one of the threads that can go on.
uint32_t draw()
{
    std::swap(gReady[gRandom() % gReady.size()], gReady.back());
    uint32_t const thread = gReady.back();
    gReady.pop_back();
    return thread;
}

void releaseWarp(uint32_t warp, Reduce reduce)
{
    uint32_t const begin = warp * kWARP;
    uint32_t reduced{0};
    for (int32_t lane = 0; lane < kWARP; ++lane)
    {
        reduced = reduce(reduced, gFibers[begin + lane].value, lane);
    }
    for (int32_t lane = 0; lane < kWARP; ++lane)
    {
        gFibers[begin + lane].value = reduced;
        gReady.push_back(begin + lane);
    }
    gWaitingLanes[warp] = 0;
}

void fillSharedWithNoise(size_t dynamicBytes)
{
    gDynamicShared.assign(dynamicBytes, kNOISE);
    std::fill(__start_shared, __stop_shared, kNOISE);
}

} // namespace

void waitForBlock()
{
    ++gWaitingThreads;
    if (gWaitingThreads == gFibers.size())
    {
        for (uint32_t thread = 0; thread < gFibers.size(); ++thread)
        {
            gReady.push_back(thread);
        }
        gWaitingThreads = 0;
        ++gEpoch;
    }
    giveWay();
}

uint32_t waitForWarp(uint32_t value, Reduce reduce)
{
    uint32_t const thread = gCurrent;
    gFibers[thread].value = value;
    uint32_t const warp = thread / kWARP;
    ++gWaitingLanes[warp];
    if (gWaitingLanes[warp] == kWARP)
    {
        releaseWarp(warp, reduce);
    }
    giveWay();
    return gFibers[thread].value;
}

void mayGiveWay()
{
    if (gRandom() % 4 == 0)
    {
        gReady.push_back(gCurrent);
        giveWay();
    }
}

bool isInBlock()
{
    return gInBlock;
}

uint32_t current()
{
    return gCurrent;
}

uint64_t epoch()
{
    return gEpoch;
}

char* dynamicShared()
{
    return gDynamicShared.data();
}

void runBlock(uint32_t threads, size_t sharedBytes, std::function<void()> kernel)
{
    gKernel = std::move(kernel);
    fillSharedWithNoise(sharedBytes);
    startFibers(threads);
    while (!gReady.empty())
    {
        resume(draw());
    }
    bool const stuck = gWaitingThreads > 0
        || std::any_of(gWaitingLanes.begin(), gWaitingLanes.end(), [](uint32_t lanes) { return lanes > 0; });
    if (stuck)
    {
        std::abort();
    }
    ++gEpoch;
}

} // namespace fibers
