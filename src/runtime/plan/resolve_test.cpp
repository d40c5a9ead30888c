#include "runtime/plan/resolve.h"

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/builtin/builtin.h"
#include "wire/mfp.h"

namespace incast::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::uint64_t mib = 1U << 20U;

Machine machine_with(std::uint64_t cache_bytes) {
    Machine machine;
    machine.last_level_cache_bytes = cache_bytes;
    machine.cores = 8;
    machine.memory_bytes = std::uint64_t{65536} * mib;
    return machine;
}

/// One that is faster at storing past the cache, as Intel's are.
Machine streaming_machine() {
    Machine machine = machine_with(32 * mib);
    machine.plain_over_streaming = [](std::uint64_t, unsigned) { return 0.8; };
    return machine;
}

/// The choice of the transport that a run across hosts takes, by the name that the list gives it.
const char* across_hosts() {
    static const std::string word = "transport.name=" + std::string(transport::chosen_transport(true).name);
    return word.c_str();
}

Result<Plan> resolve_on(const Machine& machine, std::initializer_list<const char*> assignments) {
    ConfigText text;
    for (const char* assignment : assignments) {
        if (const Result<Ok> done = text.assign(assignment); !done) {
            return done.error();
        }
    }
    return resolve(text, machine);
}

Result<Plan> resolve_with(std::initializer_list<const char*> assignments, std::uint64_t cache_bytes = 32 * mib) {
    return resolve_on(machine_with(cache_bytes), assignments);
}

Plan plan_on(const Machine& machine, std::initializer_list<const char*> assignments) {
    Result<Plan> plan = resolve_on(machine, assignments);
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    return plan ? *plan : Plan{};
}

Plan plan_of(std::initializer_list<const char*> assignments, std::uint64_t cache_bytes = 32 * mib) {
    return plan_on(machine_with(cache_bytes), assignments);
}

TEST(Resolve, SelfTrafficIsCopiedPastTheCacheIfTheSlotsDoNotFit) {
    const auto streams = [](const char* credits, std::uint64_t cache_bytes) {
        return plan_of({"run.nodes=4", "protocol.mfp_size=1MiB", "sink.kind=touch", credits}, cache_bytes)
            .protocol.stream_self_copies;
    };
    // 4 MiB a slot, 4 builder units.
    EXPECT_FALSE(streams("protocol.credits=1", 32 * mib));
    EXPECT_TRUE(streams("protocol.credits=4", 32 * mib));
    EXPECT_FALSE(streams("protocol.credits=3", 32 * mib)) << "half as much again is still better off in it";
    EXPECT_TRUE(streams("protocol.credits=7", 1024 * mib)) << "8 cores have 64 MiB of it at best";
    EXPECT_FALSE(streams("protocol.credits=2", 1024 * mib));
    const auto unread = {"transport.name=shm", "sink.kind=null"};
    EXPECT_TRUE(plan_on(streaming_machine(), unread).protocol.stream_self_copies) << "nothing reads them";
    EXPECT_FALSE(plan_of(unread).protocol.stream_self_copies);
}

TEST(Resolve, StoresOfShmStreamWhereThatIsFasterAndNothingReadsTheBodies) {
    const auto stores = [](const Machine& machine, std::initializer_list<const char*> assignments) {
        const Plan plan = plan_on(machine, assignments);
        const auto chosen = plan.config.transport_settings.find("stores");
        const auto told = plan.values.find("transport.shm.stores");  // the other processes
        EXPECT_EQ(chosen == plan.config.transport_settings.end() ? "" : chosen->second,
                  told == plan.values.end() ? "" : told->second);
        return told == plan.values.end() ? std::string() : told->second;
    };
    const Machine streaming = streaming_machine();
    Machine plain = streaming;
    plain.plain_over_streaming = [](std::uint64_t, unsigned) { return 1.3; };
    EXPECT_EQ(stores(streaming, {"transport.name=shm", "sink.kind=null"}), "streaming");
    EXPECT_EQ(stores(plain, {"transport.name=shm", "sink.kind=null"}), "plain");
    EXPECT_EQ(stores(streaming, {"transport.name=shm", "sink.kind=verify", "sink.verify=header"}), "streaming");
    EXPECT_EQ(stores(streaming, {"transport.name=shm", "sink.kind=verify", "sink.verify=full"}), "plain");
    EXPECT_EQ(stores(streaming, {"transport.name=shm", "sink.kind=null", "transport.shm.stores=plain"}), "plain");
    EXPECT_EQ(stores(streaming, {across_hosts(), "sink.kind=null"}), "");
    const char* const large = "protocol.mfp_size=1MiB";
    EXPECT_EQ(stores(plain, {"transport.name=shm", "sink.kind=touch", large, "run.nodes=4", "protocol.credits=1"}),
              "plain");
    const auto consumed = {"transport.name=shm", "sink.kind=consumer", "sink.name=x", large,
                           "run.nodes=4",        "protocol.credits=1"};
    EXPECT_EQ(stores(plain, consumed), "streaming") << "the slots that processes hold count";
    plain.cores = 2;
    EXPECT_EQ(stores(plain, consumed), "plain") << "builder units wait for them";
    plain.cores = 8;
    EXPECT_EQ(stores(plain, {"transport.name=shm", "sink.kind=null", large, "run.nodes=4", "protocol.credits=4"}),
              "streaming");
    EXPECT_EQ(stores(plain, {"transport.name=shm", "sink.kind=null", large, "transport.shm.cache_bytes=1048576"}), "")
        << "the transport decides";
    // Whoever is told does not measure.
    plain.plain_over_streaming = [](std::uint64_t, unsigned) -> double { throw std::logic_error("measured"); };
    EXPECT_EQ(stores(plain, {"transport.name=shm", "sink.kind=null", "transport.shm.stores=streaming"}), "streaming");
    EXPECT_EQ(stores(plain, {across_hosts(), "sink.kind=null"}), "");
}

TEST(Resolve, FoldedNodesDoEverything) {
    const Plan plan = plan_of({"run.nodes=3"});
    ASSERT_EQ(plan.protocol.nodes.size(), 3U);
    EXPECT_EQ(plan.protocol.nodes[0].roles, protocol::role_em | protocol::role_ru | protocol::role_bu);
    EXPECT_EQ(plan.protocol.nodes[2].roles, protocol::role_ru | protocol::role_bu);
}

TEST(Resolve, WithoutBlockLessMemoryIsAChoice) {
    const auto less = {"source.trigger_rate=100kHz", "protocol.credits=2", "source.memory=2MiB"};
    EXPECT_FALSE(resolve_with(less).ok()) << "EB-F1";
    const Plan throttle =
        plan_of({"source.trigger_rate=100kHz", "protocol.credits=2", "source.memory=2MiB", "source.policy=throttle"});
    EXPECT_GE(throttle.memory_meps, 8U);
    EXPECT_EQ(throttle.protocol.retention_meps, throttle.memory_meps);
    const Plan drop =
        plan_of({"source.trigger_rate=100kHz", "protocol.credits=2", "source.memory=2MiB", "source.policy=drop"});
    EXPECT_EQ(drop.memory_meps, throttle.memory_meps);
    EXPECT_EQ(drop.protocol.retention_meps, 2 * drop.memory_meps) << "what was dropped keeps its number";
    EXPECT_EQ(drop.triggers.memory_meps, drop.memory_meps);
}

TEST(Resolve, MemoryIsForTheHighestRate) {
    const Plan steady = plan_of({"source.trigger_rate=10kHz"});
    const Plan step = plan_of({"source.trigger_rate=10kHz", "source.trigger_steps=40kHz@1s,10kHz@2s"});
    EXPECT_GT(step.ru_memory_needed_bytes, 3 * steady.ru_memory_needed_bytes);
}

TEST(Resolve, UnevenSourcesHaveTheRoomTheyNeed) {
    const Plan plan = plan_of({"run.nodes=4", "source.mean_ratio=10", "source.size_distribution=normal"});
    const auto& sources = plan.protocol.sources;
    ASSERT_EQ(sources.size(), 4U);
    const double ratio = static_cast<double>(sources[3].cap_bytes) / sources[0].cap_bytes;
    EXPECT_GT(ratio, 8.0);
    EXPECT_LT(ratio, 12.0);
    EXPECT_EQ(plan.cap_bytes, sources[3].cap_bytes);
    const Plan hot = plan_of({"run.nodes=4", "source.hot_factor=5", "source.hot_source=1"});
    EXPECT_GT(hot.protocol.sources[1].cap_bytes, 4 * hot.protocol.sources[0].cap_bytes);
    EXPECT_EQ(hot.protocol.sources[2].cap_bytes, hot.protocol.sources[0].cap_bytes);
}

TEST(Resolve, EventsWithAFactorInCommonNeedMoreRoom) {
    const Plan alone = plan_of({"source.size_distribution=normal", "source.size_correlation=0.5"});
    const Plan together =
        plan_of({"source.size_distribution=normal", "source.size_correlation=0.5", "source.correlated_events=64"});
    EXPECT_GT(together.cap_bytes, alone.cap_bytes);
}

TEST(Resolve, SplitNodesDoOneThingEach) {
    const Plan plan = plan_of({"run.roles=split", "run.nodes=5", "run.em=own"});
    EXPECT_EQ(plan.n_rus, 2U);
    EXPECT_EQ(plan.n_bus, 3U);
    ASSERT_EQ(plan.protocol.nodes.size(), 6U);
    EXPECT_EQ(plan.protocol.nodes[1].roles, protocol::role_ru);
    EXPECT_EQ(plan.protocol.nodes[2].roles, protocol::role_bu);
    EXPECT_EQ(plan.protocol.nodes[5].roles, protocol::role_em);
    EXPECT_EQ(plan_of({"run.roles=split", "run.nodes=5", "run.builder_units=1"}).n_rus, 4U);
    EXPECT_FALSE(resolve_with({"run.roles=split", "run.nodes=5", "run.builder_units=5"}).ok());
}

TEST(Resolve, PackingIsTheMostThatFits) {
    for (const char* size : {"fragment_size=1", "fragment_size=100", "fragment_size=1KiB", "fragment_size=60KiB"}) {
        const std::string setting = std::string("source.") + size;
        const Plan plan = plan_of({setting.c_str(), "protocol.mfp_size=64KiB"});
        const auto fragment = static_cast<std::uint32_t>(plan.config.fragment_size);
        EXPECT_LE(wire::mfp_bytes(plan.packing, fragment, 3).packet_bytes, 65536U) << setting;
        EXPECT_GT(wire::mfp_bytes(plan.packing + 1, fragment, 3).packet_bytes, 65536U) << setting;
        EXPECT_EQ(plan.cap_bytes, plan.mfp_bytes) << "fixed sizes need no reserve";
    }
    EXPECT_EQ(plan_of({"source.fragment_size=1MiB"}).packing, 1U) << "one fragment is the least";
    EXPECT_EQ(plan_of({"protocol.packing=7"}).packing, 7U);
}

TEST(Resolve, VaryingSizesGetAReserve) {
    for (const char* distribution : {"normal", "lognormal", "exponential"}) {
        const std::string setting = std::string("source.size_distribution=") + distribution;
        const Plan plan = plan_of({setting.c_str()});
        EXPECT_GT(plan.cap_bytes, plan.mfp_bytes) << distribution;
        EXPECT_LT(plan.cap_bytes, 4 * plan.mfp_bytes) << distribution;
    }
}

TEST(Resolve, CreditsKeepTheSlotsInTheCache) {
    const Plan plan = plan_of({"protocol.mfp_size=64KiB"}, 32 * mib);
    EXPECT_LE(plan.config.credits * plan.slot_bytes * plan.n_bus, 16 * mib);
    EXPECT_GT((plan.config.credits + 1) * plan.slot_bytes * plan.n_bus, 16 * mib);
    EXPECT_EQ(plan_of({across_hosts(), "protocol.mfp_size=8MiB"}).config.credits, 2U);
    EXPECT_EQ(plan_of({"transport.name=inproc", "protocol.mfp_size=8MiB"}).config.credits, 1U) << "all in one thread";
    const auto few = {"transport.name=shm", "protocol.mfp_size=8MiB", "run.nodes=8"};
    EXPECT_EQ(plan_of(few).config.credits, 2U) << "a core each";
    Machine shared = machine_with(32 * mib);
    shared.cores = 4;
    EXPECT_EQ(plan_on(shared, few).config.credits, 1U) << "another node has work while one waits";
    // Eight cores are credited with 64 MiB of a cache of 300.
    EXPECT_LE(plan_of({"protocol.mfp_size=64KiB"}, 300 * mib).config.credits * plan.slot_bytes * plan.n_bus, 32 * mib);
    EXPECT_EQ(plan_of({"transport.name=shm", "protocol.mfp_size=256"}).config.credits, 256U);
    EXPECT_EQ(plan_of({across_hosts(), "protocol.mfp_size=256"}).config.credits, 64U);
    EXPECT_EQ(plan_of({"protocol.credits=5"}).protocol.credits, 5U);
}

TEST(Resolve, SlotsLeaveTheCacheWhereNothingReadsTheirBodies) {
    const auto slots_bytes = [](std::initializer_list<const char*> assignments) {
        const Plan plan = plan_on(streaming_machine(), assignments);
        return plan.config.credits * plan.slot_bytes * plan.n_bus;
    };
    const char* const size = "protocol.mfp_size=256KiB";
    const std::uint64_t unread = slots_bytes({size, "transport.name=shm", "sink.kind=null"});
    EXPECT_GT(unread, 32 * mib) << "so that the transport streams";
    EXPECT_LE(unread, 64 * mib);
    EXPECT_EQ(slots_bytes({size, "transport.name=shm", "sink.kind=verify", "sink.verify=header"}), unread);
    EXPECT_LE(slots_bytes({size, "transport.name=shm", "sink.kind=verify", "sink.verify=sampled"}), 16 * mib);
    EXPECT_LE(slots_bytes({size, "transport.name=shm", "sink.kind=touch"}), 16 * mib);
    EXPECT_LE(slots_bytes({size, across_hosts(), "sink.kind=null"}), 16 * mib) << "the kernel never streams";
    const Plan plain = plan_of({size, "transport.name=shm", "sink.kind=null"});
    EXPECT_LE(plain.config.credits * plain.slot_bytes * plain.n_bus, 16 * mib) << "where plain stores are faster";
}

TEST(Resolve, BuilderUnitsWaitForConsumersWhereTheWindowsDoNotFit) {
    Machine machine = machine_with(32 * mib);
    machine.cores = 2;
    const auto wait = [&machine](const char* mfp_size, const char* setting) {
        return plan_on(machine, {"transport.name=shm", "run.nodes=4", "sink.kind=consumer", "sink.name=x", mfp_size,
                                 "protocol.credits=1", setting})
            .protocol.reuse_wait;
    };
    EXPECT_EQ(wait("protocol.mfp_size=1MiB", "sink.window=4"), ps_per_ms);
    EXPECT_EQ(wait("protocol.mfp_size=1MiB", "sink.reuse_wait=2ms"), 2 * ps_per_ms);
    EXPECT_EQ(wait("protocol.mfp_size=1MiB", "sink.reuse_wait=0"), 0);
    EXPECT_EQ(wait("protocol.mfp_size=4KiB", "sink.window=4"), 0) << "everything fits";
    EXPECT_EQ(wait("protocol.mfp_size=1MiB", "protocol.credits=16"), 0) << "not even the credits' slots fit";
    EXPECT_EQ(wait("protocol.mfp_size=1MiB", across_hosts()), 0) << "nodes may be on other hosts";
    machine.cores = 4;
    EXPECT_EQ(wait("protocol.mfp_size=1MiB", "sink.window=4"), 0) << "a core that waits has nothing else to do";
}

TEST(Resolve, PastTheCacheABuilderUnitIsKeptBusy) {
    Machine machine = streaming_machine();
    machine.cores = 2;
    const auto credits = [&machine](const char* scheme) {
        return plan_on(machine,
                       {"transport.name=shm", "run.nodes=4", "sink.kind=null", "protocol.mfp_size=1MiB", scheme})
            .config.credits;
    };
    EXPECT_EQ(credits("protocol.scheme=push"), 2U);
    EXPECT_EQ(credits("protocol.scheme=pull"), 2U);
}

TEST(Resolve, SlotsOfConsumersLieWhereStoringIsFaster) {
    static std::uint64_t measured_bytes = 0;
    Machine machine = machine_with(32 * mib);
    machine.cores = 2;
    const auto plan = [&machine](const char* mfp_size, const char* setting) {
        return plan_on(machine,
                       {"transport.name=shm", "run.nodes=4", "sink.kind=consumer", "sink.name=x", mfp_size, setting});
    };
    const auto stores = [](const Plan& chosen) { return chosen.config.transport_settings.at("stores"); };
    const char* const large = "protocol.mfp_size=1MiB";
    machine.plain_over_streaming = [](std::uint64_t cached_bytes, unsigned cores) {
        measured_bytes = cached_bytes * cores;
        return 0.9;
    };
    const Plan past = plan(large, "sink.window=4");
    EXPECT_EQ(stores(past), "streaming");
    EXPECT_TRUE(past.protocol.stream_self_copies);
    EXPECT_EQ(past.protocol.reuse_wait, 0) << "what was filled last is in no cache";
    EXPECT_EQ(past.config.credits, 2U);
    EXPECT_EQ(measured_bytes, 4 * past.slot_bytes) << "of the one credit that there would be otherwise";
    EXPECT_EQ(plan(large, "protocol.credits=1").config.credits, 1U) << "as given";

    machine.plain_over_streaming = [](std::uint64_t, unsigned) { return 1.1; };
    const Plan within = plan(large, "sink.window=4");
    EXPECT_EQ(stores(within), "plain");
    EXPECT_EQ(within.protocol.reuse_wait, ps_per_ms);
    EXPECT_EQ(within.config.credits, 1U);

    machine.plain_over_streaming = [](std::uint64_t, unsigned) -> double { throw std::logic_error("measured"); };
    EXPECT_EQ(plan(large, "transport.shm.stores=streaming").protocol.reuse_wait, 0);
    EXPECT_EQ(plan(large, "transport.shm.stores=plain").protocol.reuse_wait, ps_per_ms);
    EXPECT_EQ(stores(plan("protocol.mfp_size=4KiB", "sink.window=4")), "plain") << "everything fits";
    EXPECT_EQ(stores(plan(large, "protocol.credits=16")), "streaming") << "not even the credits' slots fit";
    EXPECT_EQ(stores(plan(large, "sink.reuse_wait=0")), "streaming") << "nobody waits";
}

TEST(Resolve, WhatIsSimulatedDoesNotDependOnTheHost) {
    const std::initializer_list<const char*> settings = {"transport.name=sim", "protocol.mfp_size=64KiB"};
    const Plan small = plan_of(settings, 4 * mib);
    const Plan large = plan_of(settings, 300 * mib);
    EXPECT_EQ(small.config.credits, large.config.credits);
    EXPECT_EQ(small.config.prefill_bytes, large.config.prefill_bytes);
    EXPECT_NE(plan_of({across_hosts(), "protocol.mfp_size=64KiB"}, 4 * mib).config.credits,
              plan_of({across_hosts(), "protocol.mfp_size=64KiB"}, 300 * mib).config.credits);
}

TEST(Resolve, CreditsKeepWithinTheBuffersOfTheFabric) {
    // The limits of the old RapidIO libraries: 8 buffers of 2 MiB, 2 of them for quarantine.
    const std::initializer_list<const char*> whole{"protocol.mfp_size=64KiB", "protocol.layout=per-mep",
                                                   "protocol.max_buffers=8", "protocol.max_buffer_size=2MiB"};
    EXPECT_EQ(plan_of(whole, 300 * mib).config.credits, 6U);
    const std::initializer_list<const char*> pieces{"run.nodes=2", "protocol.mfp_size=1MiB",
                                                    "protocol.layout=segmented", "protocol.max_buffers=8",
                                                    "protocol.max_buffer_size=2MiB"};
    EXPECT_EQ(plan_of(pieces, 300 * mib).config.credits, 2U);
    EXPECT_EQ(plan_of(pieces, 300 * mib).protocol.layout, protocol::Layout::segmented);

    const Result<Plan> large = resolve_with(
        {"run.nodes=4", "protocol.mfp_size=1MiB", "protocol.layout=per-mep", "protocol.max_buffer_size=2MiB"});
    ASSERT_FALSE(large.ok());
    EXPECT_THAT(large.error().message, HasSubstr("protocol.max_buffer_size = 2.0 MiB"));
    const Result<Plan> many = resolve_with({"protocol.layout=segmented", "protocol.max_buffers=8"});
    ASSERT_FALSE(many.ok());
    EXPECT_THAT(many.error().message, HasSubstr("protocol.max_buffers = 8"));
    // Without limits of the fabric those of an endpoint are left, in which its readout unit's ring is, too.
    const std::initializer_list<const char*> wide{"run.nodes=2", "protocol.mfp_size=4KiB", "protocol.layout=segmented",
                                                  "source.sources_per_ru=100"};
    const Plan most = plan_of(wide, 300 * mib);
    EXPECT_EQ(most.config.credits + most.protocol.quarantine_slots, 1023U / 200U);
    const Result<Plan> too_wide = resolve_with(
        {"run.nodes=2", "protocol.mfp_size=4KiB", "protocol.layout=segmented", "source.sources_per_ru=600"});
    ASSERT_FALSE(too_wide.ok());
    EXPECT_THAT(too_wide.error().message, HasSubstr("protocol.layout = segmented"));
    const Result<Plan> shared = resolve_with({"protocol.layout=segmented", "sink.kind=consumer", "sink.name=x"});
    ASSERT_FALSE(shared.ok());
    EXPECT_THAT(shared.error().message, HasSubstr("protocol.layout = segmented"));
}

TEST(Resolve, EB_F1_ClosedLoopKeepsWhatAllCreditsCanHold) {
    const Plan plan = plan_of({"protocol.credits=8", "run.nodes=4"});
    // All of them in flight even while an eighth each is not yet reported, or not yet released.
    EXPECT_EQ(plan.protocol.retention_meps, 2 * 32U);
    EXPECT_EQ(plan_of({"protocol.credits=64", "run.nodes=4", "protocol.mfp_size=4KiB"}).protocol.retention_meps, 512U);
    EXPECT_LE(plan_of({"protocol.credits=64", "run.nodes=4", "protocol.mfp_size=1MiB"}).protocol.retention_meps,
              256U + 32U)
        << "as far as memory is worth it";
    const std::string least = "source.memory=" + std::to_string(plan.ru_memory_needed_bytes);
    EXPECT_EQ(plan_of({"protocol.credits=8", least.c_str()}).protocol.retention_meps, 32U);
    const std::string less = "source.memory=" + std::to_string(plan.ru_memory_needed_bytes - 1);
    const Result<Plan> refused = resolve_with({"protocol.credits=8", less.c_str()});
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, AllOf(HasSubstr("source.memory"), HasSubstr("EB-F1"),
                                               HasSubstr(std::to_string(plan.ru_memory_needed_bytes))));
}

TEST(Resolve, EB_F1_OpenLoopKeepsWhatArrivesUntilALossIsDetected) {
    const Plan closed = plan_of({"protocol.credits=2"});
    const Plan open = plan_of({"protocol.credits=2", "source.trigger_rate=10kHz", "protocol.detection_deadline=5s"});
    const double meps_in_five_seconds = 10'000.0 * 5 / open.packing;
    EXPECT_GE(static_cast<double>(open.protocol.retention_meps), meps_in_five_seconds);
    EXPECT_GT(open.ru_memory_needed_bytes, closed.ru_memory_needed_bytes);
}

TEST(Resolve, AnMfpMustFitIntoTheSlot) {
    const Plan plan = plan_of({"protocol.mfp_size=64KiB"});
    const std::string enough = "protocol.slot_size=" + std::to_string(plan.slot_bytes);
    EXPECT_TRUE(resolve_with({enough.c_str()}).ok());
    const std::string short_of = "protocol.slot_size=" + std::to_string(plan.slot_bytes - 256);
    const Result<Plan> refused = resolve_with({short_of.c_str()});
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, AllOf(HasSubstr("protocol.slot_size"), HasSubstr("larger than")));
}

TEST(Resolve, EB_S4_ASmallSlotCutsVaryingSizes) {
    const Plan plan = plan_of({"source.size_distribution=exponential", "protocol.slot_size=300KiB"});
    EXPECT_LE(plan.slot_bytes, 300U * 1024);
    EXPECT_LT(plan.cap_bytes, plan_of({"source.size_distribution=exponential"}).cap_bytes);
}

TEST(Resolve, TheEndOfTheRunDecidesHowItIsMeasured) {
    EXPECT_EQ(plan_of({}).duration, 10 * ps_per_s);
    EXPECT_FALSE(plan_of({}).measured_whole);
    const Plan counted = plan_of({"run.events=1000", "protocol.packing=300"});
    EXPECT_TRUE(counted.measured_whole);
    EXPECT_EQ(counted.protocol.total_meps, 4U);
    EXPECT_FALSE(plan_of({"run.events=1000", "run.duration=1s"}).measured_whole);
    EXPECT_EQ(plan_of({"run.duration=5min"}).sample_interval, 2 * ps_per_s);
}

/// A process that joins gets the values, and must come to the same agreement on another machine.
TEST(Resolve, ResolvedValuesResolveToTheSameAnywhere) {
    for (const char* setting : {"run.roles=split", "source.size_distribution=exponential", "source.trigger_rate=10kHz",
                                "run.events=12345", "protocol.slot_size=1MiB", "run.em=own"}) {
        const Plan here = plan_of({setting});
        ConfigText text;
        for (const auto& [key, value] : here.values) {
            ASSERT_TRUE(text.set(key, value).ok()) << key;
        }
        const Result<Plan> there = resolve(text, machine_with(1 * mib));
        ASSERT_TRUE(there.ok()) << there.error().message;
        EXPECT_EQ(protocol::fingerprint(there->protocol), protocol::fingerprint(here.protocol)) << setting;
        EXPECT_EQ(there->values, here.values) << setting;
        EXPECT_EQ(there->protocol.total_meps, here.protocol.total_meps);
    }
}

TEST(ResolveNet, ThePatternSaysHowManyNodesThereAre) {
    EXPECT_EQ(plan_of({"run.task=net", "net.pattern=one-to-one"}).n_nodes, 2U);
    EXPECT_EQ(plan_of({"run.task=net", "net.pattern=bipartite", "net.producers=3", "net.consumers=2"}).n_nodes, 5U);
    const Plan plan = plan_of({"run.task=net", "net.pattern=bipartite", "run.nodes=5", "net.consumers=1"});
    EXPECT_EQ(plan.net.pairs.size(), 4U);
    EXPECT_EQ(plan.protocol.nodes[3].roles, role_sender);
    EXPECT_EQ(plan.protocol.nodes[4].roles, role_receiver);
    EXPECT_EQ(plan.values.at("net.producers"), "4");
}

TEST(ResolveNet, SlotsAreFewAndRingsExceedTheCache) {
    const Plan plan = plan_of({"run.task=net", "run.nodes=4", "net.message_size=16KiB", "net.queues=2"});
    ASSERT_EQ(plan.net.pairs.size(), 12U);
    EXPECT_EQ(plan.net.outstanding, mib / 2 / (6 * std::uint64_t{16448}));
    EXPECT_GT(4 * plan.ru_memory_bytes, 128 * mib - 4 * std::uint64_t{65536});
    EXPECT_EQ(plan.values.at("net.outstanding"), std::to_string(plan.net.outstanding));
    EXPECT_EQ(plan_of({"run.task=net", "net.message_size=16B"}).net.outstanding, 64U);
    EXPECT_EQ(plan_of({"run.task=net", "net.message_size=256MiB", "net.working_set=1MiB"}).net.outstanding, 2U);
    EXPECT_EQ(plan_of({"run.task=net", "net.measure=latency"}).net.outstanding, 1U);
}

TEST(ResolveNet, AJoinedNodeDerivesTheSame) {
    for (const char* const buffers : {"net.buffers=cycled", "net.buffers=one"}) {
        const Plan plan =
            plan_of({"run.task=net", "net.pattern=one-to-one", "net.queues=3", "net.duplex=true", buffers});
        ConfigText text;
        for (const auto& [key, value] : plan.values) {
            ASSERT_TRUE(text.set(key, value).ok());
        }
        const Result<Plan> again = resolve(text, machine_with(mib));
        ASSERT_TRUE(again.ok()) << again.error().message;
        EXPECT_EQ(net::fingerprint(again->net), net::fingerprint(plan.net));
        EXPECT_EQ(again->net.outstanding, plan.net.outstanding);
        EXPECT_EQ(again->ru_memory_bytes, plan.ru_memory_bytes);
    }
}

TEST(ResolveNet, OneBufferIsOneMessage) {
    const Plan plan = plan_of({"run.task=net", "run.nodes=4", "net.message_size=16KiB", "net.buffers=one"});
    EXPECT_EQ(plan.ru_memory_bytes, 16384U);
    EXPECT_EQ(plan.values.at("net.working_set"), "16384");
    EXPECT_EQ(plan.net.outstanding, plan_of({"run.task=net", "run.nodes=4", "net.message_size=16KiB"}).net.outstanding);
}

TEST(Resolve, EB_C9_BoardsHaveAPlaceOfTheirOwnInEverySlot) {
    const Plan plan =
        plan_of({"source.kind=udp", "sink.kind=null", "run.nodes=3", "source.sources_per_ru=4", "protocol.packing=16",
                 "source.first_id=100", "source.largest_mfp=9000", "run.events=100"});
    ASSERT_EQ(plan.protocol.sources.size(), 12U);
    EXPECT_EQ(plan.protocol.sources.front().id, 100);
    EXPECT_EQ(plan.protocol.sources.back().id, 111);
    EXPECT_EQ(plan.protocol.sources.back().ru, Peer{2});
    EXPECT_EQ(plan.protocol.sources.back().cap_bytes, 9000U);
    EXPECT_EQ(plan.protocol.packing, 16U);
    EXPECT_EQ(plan.protocol.total_events, 100U);
    EXPECT_EQ(plan.total_events, 100U);
}

TEST(Resolve, WhatBoardsCannotHaveIsRefused) {
    const auto refusal = [](std::initializer_list<const char*> wrong) {
        ConfigText text;
        for (const char* common : {"source.kind=udp", "sink.kind=null", "run.nodes=2", "protocol.packing=4"}) {
            EXPECT_TRUE(text.assign(common));
        }
        for (const char* assignment : wrong) {
            EXPECT_TRUE(text.assign(assignment));
        }
        const Result<Plan> plan = resolve(text, machine_with(32 * mib));
        return plan ? std::string() : plan.error().message;
    };
    EXPECT_EQ(refusal({}), "");
    EXPECT_THAT(refusal({"sink.kind=verify"}), HasSubstr("sink.kind = verify"));
    EXPECT_THAT(refusal({"protocol.packing=auto"}), HasSubstr("protocol.packing = auto"));
    EXPECT_THAT(refusal({"source.address=nowhere"}), HasSubstr("source.address = nowhere"));
    EXPECT_THAT(refusal({"source.port=65535"}), HasSubstr("source.port = 65535"));
    EXPECT_THAT(refusal({"source.first_id=65534"}), HasSubstr("source.first_id = 65534"));
    EXPECT_THAT(refusal({"source.largest_mfp=64", "protocol.packing=100"}), HasSubstr("source.largest_mfp"));
    EXPECT_THAT(refusal({"source.trigger_rate=1kHz"}), HasSubstr("source.trigger_rate"));
}

}  // namespace
}  // namespace incast::runtime
