// A readout unit alone: a builder unit and the event manager are played by hand, message by message, on inproc with a
// scripted clock.
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/node.h"
#include "protocol/shape.h"
#include "support/protocol.h"
#include "transport/inproc/inproc.h"
#include "wire/control.h"

namespace incast::protocol {
namespace {

using wire::AttemptEntry;
using wire::ControlKind;
using wire::ControlView;

constexpr Peer ru{0};
constexpr Peer bu{1};
constexpr Peer em{2};
constexpr std::uint32_t mfp_bytes = 100;

class ReadoutAlone : public ::testing::Test {
protected:
    ReadoutAlone() {
        config_ = testing::make_config(1, 1, false, 1, mfp_bytes);
        config_.credits = 8;
        config_.retention_meps = 16;
    }

    /// It is in the view, holds its first MEPs, and may write to the BU.
    void start() {
        ASSERT_TRUE(validate(config_).ok()) << validate(config_).error().message;
        const Shape shape(config_);
        for (const Peer peer : {ru, bu, em}) {
            transport::EndpointOptions options;
            options.self = peer;
            options.incarnation = 1;
            options.run = config_.run;
            options.max_peers = 3;
            ends_.push_back(medium_->endpoint(options).value());
        }
        reader_ = std::make_unique<Node>(config_, ru, 1, end(ru), &source_, nullptr, nullptr);
        ASSERT_TRUE(reader_->start(now_).ok());
        for (const Peer peer : {bu, em}) {
            reader_->update_peer(now_, peer, 1, end(peer).address());
            step();
            ASSERT_NE(end(peer).connect(ru, end(ru).address(), 1), Post::refused);
        }
        step();
        for (const ViewEntry& up :
             {ViewEntry{0, 1, role_ru, wire::Change::up}, ViewEntry{1, 1, role_bu, wire::Change::up}})
            say<ControlKind::view>(em, {up});
        slots_ = end(bu).allocate(shape.layout.slot_bytes * shape.slots).value();
        const Blob key = end(bu).expose(slots_).value();
        wire::ControlMessage<ControlKind::region> region(config_.run, 1, 1);
        wire::set_key(region, {.slot_bytes = shape.layout.slot_bytes, .slots = shape.slots}, key.view());
        ASSERT_EQ(end(bu).send(ru, region.bytes()), Post::done);
        step();
        ASSERT_EQ(reader_->state(), NodeState::running);
    }

    using ViewEntry = wire::ViewEntry;
    Transport& end(Peer peer) { return *ends_[static_cast<std::size_t>(peer)]; }
    void step() {
        reader_->step(now_ += ps_per_us);
        listen();
    }
    template <ControlKind kind>
    void say(Peer from, const std::vector<typename wire::Traits<kind>::Entry>& entries) {
        wire::ControlMessage<kind> message(config_.run, 1, 1);
        for (const auto& entry : entries) {
            ASSERT_TRUE(message.add(entry));
        }
        ASSERT_EQ(end(from).send(ru, message.bytes()), Post::done);
    }
    template <ControlKind kind>
    void tell(Peer from, const typename wire::Traits<kind>::Body& body) {
        wire::ControlMessage<kind> message(config_.run, 1, 1);
        message.set_body(body);
        ASSERT_EQ(end(from).send(ru, message.bytes()), Post::done);
    }
    /// MEPs of the first attempt for credits and slots of the same number.
    void announce(MepId base, std::uint16_t meps, MepId released_below = 0) {
        wire::ControlMessage<ControlKind::announce> message(config_.run, 1, 1);
        message.set_body({released_below, base, 1, 0});
        for (std::uint16_t index = 0; index < meps; ++index) {
            const auto slot = static_cast<std::uint16_t>((base + index) % config_.credits);
            ASSERT_TRUE(message.add({static_cast<std::uint16_t>(bu), slot, credit_of(base + index)}));
        }
        ASSERT_EQ(end(em).send(ru, message.bytes()), Post::done);
        step();
    }
    static std::uint32_t credit_of(MepId mep) { return static_cast<std::uint32_t>(mep) + 1; }
    AttemptEntry attempt(MepId mep) const {
        return {.mep = mep,
                .credit = credit_of(mep),
                .bu = static_cast<std::uint16_t>(bu),
                .slot = static_cast<std::uint16_t>(mep % config_.credits),
                .attempt = 1};
    }
    void placed(std::uint64_t contributions) {
        tell<ControlKind::placed>(bu, {contributions});
        step();
    }
    void listen() {
        std::array<Event, 64> events;
        for (const Peer peer : {bu, em}) {
            const std::size_t count = end(peer).poll(now_, events);
            for (std::size_t index = 0; index < count; ++index) {
                const Event& event = events[index];
                if (event.kind == Event::Kind::notice) {
                    notices_.push_back(event.size_or_value);
                } else if (event.kind == Event::Kind::message) {
                    const auto message = ControlView::parse({event.data, event.size_or_value});
                    for (std::uint32_t each = 0;
                         message->kind() == ControlKind::abort_ack && each < message->header().count; ++each) {
                        acknowledged_.push_back(message->entry<ControlKind::abort_ack>(each).credit);
                    }
                    if (message->kind() == ControlKind::available) {
                        available_ = message->body<ControlKind::available>().below;
                    }
                }
            }
        }
    }

    Config config_;
    Time now_ = 0;
    std::unique_ptr<transport::Medium> medium_ = transport::inproc::make({}).value();
    std::vector<std::unique_ptr<Transport>> ends_;
    testing::PlainSource source_{mfp_bytes};
    Local slots_{};
    std::unique_ptr<Node> reader_;
    std::vector<std::uint16_t> notices_;
    std::vector<std::uint32_t> acknowledged_;
    MepId available_ = 0;
};

TEST_F(ReadoutAlone, EB_S1_OnlyTheLastWriteOfAContributionSaysThatItIsComplete) {
    config_.message_size = 30;
    start();
    announce(0, 1);
    ASSERT_EQ(notices_, (std::vector<std::uint16_t>{0})) << "of four writes";
    const SlotLayout layout = slot_layout(config_);
    const Bytes body = end(bu).local({slots_, mfp_bytes, layout.source_offset[0] + sizeof(wire::Head)});
    for (std::uint32_t byte = 0; byte < mfp_bytes; ++byte) {
        ASSERT_EQ(body[byte], testing::content(0, 0, byte)) << byte;
    }
}

TEST_F(ReadoutAlone, EB_C2_ContributionsThatAreNotPlacedAreLimited) {
    config_.parallel_sends = 2;
    start();
    announce(0, 6);
    EXPECT_EQ(notices_.size(), 2U);
    step();
    EXPECT_EQ(notices_.size(), 2U);
    placed(1);
    EXPECT_EQ(notices_.size(), 3U);
    placed(3);
    EXPECT_EQ(notices_.size(), 5U);
    placed(5);
    EXPECT_EQ(notices_.size(), 6U);
}

TEST_F(ReadoutAlone, EB_C2_WritesThatAreNotAcknowledgedAreLimited) {
    config_.message_size = 30;
    config_.ack_per_write = true;
    config_.outstanding_writes = 3;
    start();
    announce(0, 2);
    EXPECT_EQ(notices_.size(), 3U);
    placed(1);
    EXPECT_EQ(notices_.size(), 4U);
    placed(4);
    EXPECT_EQ(notices_.size(), 7U);
    placed(7);
    EXPECT_EQ(notices_.size(), 8U) << "four for each MFP";
}

TEST_F(ReadoutAlone, EB_F1_WhatIsNotReleasedIsKept) {
    start();
    EXPECT_EQ(available_, config_.retention_meps) << "as many as it can keep";
    announce(0, 8);
    for (int more = 0; more < 5; ++more) {
        step();
    }
    EXPECT_EQ(available_, config_.retention_meps) << "sent is not released";
    announce(8, 0, 4);
    step();
    EXPECT_EQ(available_, config_.retention_meps + 4);
    EXPECT_EQ(source_.misuse, 0U);
}

TEST_F(ReadoutAlone, EB_F3_AnAbortIsAcknowledgedBehindWhatWasBegun) {
    config_.message_size = 30;
    config_.ack_per_write = true;
    config_.outstanding_writes = 2;
    start();
    announce(0, 2);
    ASSERT_EQ(notices_.size(), 2U) << "of four writes of the first MFP";
    say<ControlKind::abort>(em, {attempt(0), attempt(1)});
    step();
    EXPECT_EQ(acknowledged_, (std::vector<std::uint32_t>{credit_of(1)})) << "the second was not begun";
    placed(2);
    ASSERT_EQ(notices_.size(), 4U);
    EXPECT_EQ(acknowledged_, (std::vector<std::uint32_t>{credit_of(1), credit_of(0)}));
    placed(4);
    EXPECT_EQ(notices_.size(), 4U) << "nothing of the second";
}

TEST_F(ReadoutAlone, EB_T8_WhatABuilderCannotSayChangesNothing) {
    config_.parallel_sends = 2;
    start();
    announce(0, 4);
    ASSERT_EQ(notices_.size(), 2U);
    placed(3);
    EXPECT_EQ(notices_.size(), 2U) << "more than were sent";
    placed(1);
    ASSERT_EQ(notices_.size(), 3U);
    placed(0);
    EXPECT_EQ(notices_.size(), 3U) << "fewer than before";
    say<ControlKind::abort>(bu, {attempt(3)});
    step();
    EXPECT_TRUE(acknowledged_.empty()) << "where RUs push, the EM voids attempts";
    say<ControlKind::request>(bu, {attempt(5)});
    step();
    EXPECT_EQ(reader_->counters().bad_messages, 4U);
    placed(3);
    EXPECT_EQ(notices_.size(), 4U);
}

TEST_F(ReadoutAlone, EB_T8_OnlyTheEventManagerAnnounces) {
    start();
    wire::ControlMessage<ControlKind::announce> message(config_.run, 1, 1);
    message.set_body({8, 0, 1, 0});
    ASSERT_TRUE(message.add({static_cast<std::uint16_t>(bu), 0, 1}));
    ASSERT_EQ(end(bu).send(ru, message.bytes()), Post::done);
    step();
    step();
    EXPECT_TRUE(notices_.empty());
    EXPECT_EQ(available_, config_.retention_meps);
    EXPECT_EQ(reader_->counters().bad_messages, 1U);
}

}  // namespace
}  // namespace incast::protocol
