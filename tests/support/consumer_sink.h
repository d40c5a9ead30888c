// A builder unit's slots and its consumer sink, for tests that attach to it in the same process.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <incast/consumer.h>

#include "runtime/sinks/consumer/consumer_sink.h"
#include "support/fake_transport.h"
#include "transport/regions.h"

namespace incast::sinks {

using Taken = protocol::Sink::Taken;
using Delivery = ConsumerOptions::Delivery;
using Policy = ConsumerOptions::Policy;

constexpr std::uint32_t n_sources = 3;
constexpr std::uint64_t slot_bytes = 4096;
constexpr std::uint64_t source_bytes = 1024;

/// Memory that can be shared, and nothing else.
class SharedTransport final : public sources::FakeTransport {
public:
    Result<Local> allocate(std::size_t bytes) override { return regions_.allocate(bytes); }
    std::span<std::byte> memory(Local region) override { return regions_.memory(region); }
    Result<int> share(Local region) override { return regions_.share(region); }

private:
    transport::Regions regions_{4, true};
};

struct Handle {
    explicit Handle(incast_consumer* raw_in = nullptr) : raw(raw_in) {}
    Handle(Handle&& other) noexcept : raw(std::exchange(other.raw, nullptr)) {}
    Handle& operator=(Handle&& other) noexcept {
        std::swap(raw, other.raw);
        return *this;
    }
    ~Handle() { incast_consumer_free(raw); }
    incast_consumer* raw;
};

/// A builder unit's slots and its sink.
class ConsumerSinkTest : public ::testing::Test {
protected:
    void make(Policy policy, std::uint32_t consumers, std::uint32_t window, Delivery delivery = Delivery::one,
              Time patience = 0) {
        config_.run = 42;
        config_.sources = {{10, Peer{0}, source_bytes}, {20, Peer{0}, source_bytes}, {30, Peer{0}, source_bytes}};
        config_.credits = 4;
        config_.quarantine_slots = 0;
        config_.held_slots = window * consumers;
        slots_ = config_.credits + config_.held_slots;
        options_.kind = Kind::consumer;
        const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
        options_.consumer = {fmt::format("unit-{}-{}", ::getpid(), test).substr(0, consumer::max_name_bytes),
                             delivery,
                             policy,
                             consumers,
                             window,
                             patience};
        options_.node = 3;
        auto sink = make_sink(options_, config_);
        ASSERT_TRUE(sink.ok()) << sink.error().message;
        sink_ = std::move(*sink);
        region_ = transport_.allocate(slots_ * slot_bytes).value();
        memory_ = transport_.memory(region_);
        ASSERT_TRUE(sink_->attach(transport_, region_).ok());
        for (std::uint32_t slot = 0; slot < slots_; ++slot) {
            free_.push_back(static_cast<std::uint16_t>(slot));
        }
    }

    /// The sink answers from time to time, as a node's thread would.
    Handle attach(int timeout_ms = 10'000) {
        incast_consumer* raw = nullptr;
        int status = INCAST_CONSUMER_NOBODY;
        std::atomic<bool> answered = false;
        std::thread knocking([&] {
            status = incast_consumer_attach(options_.consumer.name.c_str(), 3, timeout_ms, &raw);
            answered = true;
        });
        while (!answered) {
            tick(ps_per_us);  // however often: nobody's patience may end meanwhile
            std::this_thread::yield();
        }
        knocking.join();
        last_status_ = status;
        return Handle(raw);
    }

    void tick(Time by = 2 * ps_per_ms) {
        now_ += by;
        sink_->tick(now_);
        std::array<std::uint16_t, 4> slots;
        for (std::size_t many = slots.size(); many == slots.size();) {
            many = sink_->returned(now_, slots);
            for (std::size_t index = 0; index < many; ++index) {
                free_.push_back(slots[index]);
                std::memset(memory_.data() + slots[index] * slot_bytes, 0xEE, slot_bytes);  // the next writer
            }
        }
        std::array<protocol::MepId, 4> meps;
        for (std::size_t many = meps.size(); many == meps.size();) {
            many = sink_->durable(now_, meps);
            durable_.insert(durable_.end(), meps.begin(), meps.begin() + static_cast<std::ptrdiff_t>(many));
        }
    }

    /// Offers the next MEP; source 20 of every fifth is missing.
    Taken offer() {
        const std::uint16_t slot = free_.front();
        protocol::BuiltMep mep;
        mep.mep = next_;
        mep.slot = slot;
        mep.first_event = next_ * 10;
        mep.n_events = 10;
        std::array<protocol::BuiltSource, n_sources> sources;
        for (std::uint32_t source = 0; source < n_sources; ++source) {
            if (source == 1 && next_ % 5 == 4) {
                sources[source].flag = wire::SourceFlag::missing_dead;
                ++mep.missing_sources;
                ++mep.flagged_sources;
                continue;
            }
            std::byte* body = memory_.data() + slot * slot_bytes + source * source_bytes;
            std::memset(body, content(next_, source), 100 + source);
            sources[source] = {wire::SourceFlag::ok, &head_, {body, 100 + source}};
        }
        mep.sources = sources;
        const Taken taken = sink_->take(now_, mep);
        if (taken != Taken::busy) {
            ++next_;
            if (taken != Taken::done) {
                free_.pop_front();
            }
        }
        return taken;
    }

    static int content(protocol::MepId mep, std::uint32_t source) { return static_cast<int>((mep * 7 + source) % 251); }

    /// Everything that can be read of it is what was offered as that MEP.
    static void expect_whole(const Handle& consumer, const incast_consumer_event& event) {
        EXPECT_EQ(event.first_event, event.mep * 10);
        ASSERT_EQ(event.n_sources, n_sources);
        for (std::uint32_t source = 0; source < n_sources; ++source) {
            incast_consumer_mfp mfp;
            ASSERT_EQ(incast_consumer_get_mfp(consumer.raw, &event, source, &mfp), INCAST_CONSUMER_OK);
            EXPECT_EQ(mfp.source, 10 * (source + 1));
            if (source == 1 && event.mep % 5 == 4) {
                EXPECT_EQ(mfp.flag, INCAST_CONSUMER_SOURCE_MISSING_DEAD);
                EXPECT_EQ(mfp.data, nullptr);
                continue;
            }
            ASSERT_EQ(mfp.bytes, 100 + source);
            const int byte = content(event.mep, source);
            EXPECT_TRUE(std::all_of(mfp.data, mfp.data + mfp.bytes, [&](std::uint8_t each) { return each == byte; }));
        }
        EXPECT_EQ(incast_consumer_intact(consumer.raw, &event), INCAST_CONSUMER_OK);
    }

    static incast_consumer_event next(const Handle& consumer) {
        incast_consumer_event event{};
        EXPECT_EQ(incast_consumer_next(consumer.raw, 5000, &event), 1);
        expect_whole(consumer, event);
        return event;
    }
    static int status_of_next(const Handle& consumer) {
        incast_consumer_event event{};
        return incast_consumer_next(consumer.raw, 0, &event);
    }

    [[nodiscard]] const ConsumerStats& stats() const { return sink_->stats().consumers; }

    protocol::Config config_;
    SinkOptions options_;
    SharedTransport transport_;
    std::unique_ptr<RuntimeSink> sink_;
    Local region_{};
    std::span<std::byte> memory_;
    std::uint32_t slots_ = 0;
    std::deque<std::uint16_t> free_;
    std::vector<protocol::MepId> durable_;
    wire::Head head_;
    protocol::MepId next_ = 0;
    Time now_ = ps_per_s;
    int last_status_ = 0;
};

}  // namespace incast::sinks
