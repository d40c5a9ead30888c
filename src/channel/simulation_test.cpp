// One direction of a channel over a network as unkind as the transport contract allows, from seeds: writes are placed
// in pieces and in any order, notices wait for all writes before them, messages do not, posts are turned away, what is
// pending is read until it completes, and the network may die. What is read is what was written, and all of it unless
// the network died. INCAST_CHANNEL_SEEDS says how many seeds, 1000 if it is not set.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "channel/messages.h"
#include "channel/receiver.h"
#include "channel/sender.h"

namespace incast::channel {
namespace {

struct Plan {
    explicit Plan(base::Prng& random) {
        shape = {.buffers = 1 + static_cast<std::uint32_t>(random.below(6)),
                 .buffer_bytes = buffer_align * (1 + static_cast<std::uint32_t>(random.below(4)))};
        announce = static_cast<Way>(random.below(3));
        acknowledge = static_cast<Way>(random.below(3));
        shape.batch = 1 + static_cast<std::uint32_t>(random.below(shape.buffers));
        bytes = random.below(4000);
        has_messages = random.chance(300'000);
        in_place = random.chance(500'000) ? 300'000 : 0;
        pends = static_cast<std::uint32_t>(random.below(3)) * 400'000;
        turned_away = static_cast<std::uint32_t>(random.below(2)) * 300'000;
        chunk = 1 + random.below(400);
        looks = static_cast<std::uint32_t>(random.below(2)) * 200'000;
        dies = random.chance(200'000) ? random.below(3000) : ~std::uint64_t{0};
    }
    Shape shape;
    Way announce;
    Way acknowledge;
    std::uint64_t bytes;
    bool has_messages;
    std::uint32_t in_place;
    std::uint32_t pends;
    std::uint32_t turned_away;
    std::uint32_t looks;
    std::uint64_t chunk;
    std::uint64_t dies;  // after so many steps
};

/// A write on its way: `place` puts some of what is missing where it belongs.
struct Flight {
    std::vector<std::byte> copied;  // what was taken with the post
    Bytes live;                     // what is read as it is placed
    std::byte* target = nullptr;
    std::vector<bool> landed;  // by byte
    std::size_t missing = 0;
    Way way{};
    std::uint64_t number = 0;
    std::uint32_t slot = 0;
    bool is_pending = false;
    bool was_heard = false;

    void place(std::size_t at) {
        if (landed[at]) return;
        landed[at] = true;
        --missing;
        target[at] = at < copied.size() ? copied[at] : live[at - copied.size()];
    }
};

class Link {
public:
    Link(base::Prng& random, std::uint32_t pends, std::uint32_t turned_away)
        : random_(random), pends_(pends), turned_away_(turned_away) {}

    /// False: turned away, nothing happened.
    bool post(Bytes head, Bytes body, std::byte* target, Way way, std::uint64_t number, std::uint32_t slot) {
        if (random_.chance(turned_away_)) return false;
        Flight flight;
        flight.copied.assign(head.begin(), head.end());
        flight.is_pending = random_.chance(pends_);
        if (flight.is_pending)
            flight.live = body;
        else
            flight.copied.insert(flight.copied.end(), body.begin(), body.end());
        flight.target = target;
        flight.landed.resize(head.size() + body.size());
        flight.missing = flight.landed.size();
        flight.way = way;
        flight.number = number;
        flight.slot = slot;
        flights_.push_back(std::move(flight));
        return true;
    }
    [[nodiscard]] bool last_is_pending() const { return flights_.back().is_pending; }

    /// Some bytes of some write land.
    void place() {
        if (flights_.empty()) return;
        Flight& flight = flights_[random_.below(flights_.size())];
        if (flight.landed.empty()) return;
        if (random_.chance(500'000)) {
            for (std::size_t at = 0; at < flight.landed.size(); ++at)
                flight.place(at);
        } else {
            const std::size_t from = random_.below(flight.landed.size());
            const std::size_t to = from + random_.below(flight.landed.size() - from) + 1;
            for (std::size_t at = from; at < to; ++at)
                flight.place(at);
        }
    }

    /// The next notice or message, if it may come; `hear(way, number)`.
    template <class Hear>
    void announce(Hear&& hear) {
        for (Flight& flight : flights_) {
            if (flight.way == Way::doorbell && flight.missing > 0) return;
            if (flight.way == Way::doorbell && !all_before(flight)) return;
            if (flight.way == Way::memory || flight.was_heard) continue;
            flight.was_heard = true;
            hear(flight.way, flight.number);
            return;
        }
    }

    template <class Complete>
    void finish(Complete&& complete) {
        if (flights_.empty()) return;
        Flight& flight = flights_[random_.below(flights_.size())];
        if (flight.missing > 0) return;
        if (flight.is_pending) complete(flight.slot);
        flight.is_pending = false;
        while (!flights_.empty() && is_over(flights_.front()))
            flights_.pop_front();
    }

private:
    [[nodiscard]] bool all_before(const Flight& flight) const {
        for (const Flight& each : flights_) {
            if (&each == &flight) return true;
            if (each.missing > 0) return false;
        }
        return true;
    }
    static bool is_over(const Flight& flight) {
        return flight.missing == 0 && !flight.is_pending && (flight.way == Way::memory || flight.was_heard);
    }

    base::Prng& random_;
    std::uint32_t pends_;
    std::uint32_t turned_away_;
    std::deque<Flight> flights_;
};

class World {
public:
    explicit World(std::uint64_t seed)
        : random_(seed),
          plan_(random_),
          staging_(plan_.shape.bytes()),
          ring_(plan_.shape.bytes()),
          cells_(plan_.shape.cells() * sizeof(CreditCell)),
          sender_({.shape = plan_.shape, .announce = plan_.announce, .acknowledge = plan_.acknowledge}, staging_,
                  cells_),
          receiver_({.shape = plan_.shape, .announce = plan_.announce, .acknowledge = plan_.acknowledge}, ring_),
          writer_(sender_),
          reader_(receiver_),
          data_(random_, plan_.pends, plan_.turned_away),
          credits_(random_, 0, plan_.turned_away) {
        make_stream();
        source_ = stream_;
    }

    void run() {
        constexpr std::uint64_t most_steps = 400'000;
        for (std::uint64_t step = 0; !is_over(); ++step) {
            ASSERT_LT(step, most_steps) << "stuck: " << read_ << " of " << stream_.size() << " bytes were read";
            if (step >= plan_.dies) return read_all_there_is();
            act();
            if (::testing::Test::HasFailure()) return;
        }
        EXPECT_EQ(read_, stream_.size());
        EXPECT_EQ(messages_read_, lengths_.size());
    }

private:
    [[nodiscard]] bool is_over() const { return receiver_.has_ended() && read_ == stream_.size() && ended_; }

    void make_stream() {
        std::uint64_t left = plan_.bytes;
        std::uint64_t mixed = random_.next();
        const auto byte = [&] { return static_cast<std::byte>(mixed = base::mix64(mixed)); };
        while (left > 0) {
            const std::uint64_t length = plan_.has_messages ? std::min(left - 1, random_.below(600)) : left;
            if (plan_.has_messages) {
                lengths_.push_back(static_cast<std::uint32_t>(length));
                left -= 1;
            }
            for (std::uint64_t at = 0; at < length; ++at)
                stream_.push_back(byte());
            left -= length;
        }
    }

    void act() {
        switch (random_.below(9)) {
            case 0:
                return write();
            case 1:
                if (random_.chance(500'000)) sender_.flush();
                return;
            case 2:
                return post_data();
            case 3:
                return data_.place();
            case 4:
                return hear_data();
            case 5:
                return read();
            case 6:
                return post_credit();
            case 7:
                return wish();
            default:
                return hear_credit();
        }
    }

    void write() {
        scribble();
        if (plan_.has_messages) return write_message();
        const std::size_t left = source_.size() - sent_;
        if (left == 0) return sender_.finish();
        const Bytes next = Bytes(source_).subspan(sent_, std::min<std::size_t>(left, 1 + random_.below(plan_.chunk)));
        sent_ += random_.chance(plan_.in_place) ? sender_.write_in_place(next) : sender_.write(next);
    }

    void write_message() {
        if (!writer_.is_whole() || is_begun_) {
            const std::size_t want = std::min<std::size_t>(message_left_, random_.below(plan_.chunk + 1));
            const std::size_t done = writer_.write(Bytes(source_).subspan(sent_, want));
            sent_ += done;
            message_left_ -= done;
            is_begun_ = message_left_ > 0;
        } else if (messages_sent_ == lengths_.size()) {
            sender_.finish();
        } else if (writer_.begin(lengths_[messages_sent_])) {
            message_left_ = lengths_[messages_sent_++];
            is_begun_ = message_left_ > 0;
        }
    }

    /// The caller's memory is the caller's again: whoever still reads it is seen.
    void scribble() {
        if (plan_.has_messages) return;
        for (; scribbled_ < sender_.released(); ++scribbled_)
            source_[scribbled_] = std::byte{0xEE};
    }

    void post_data() {
        const auto out = sender_.next();
        if (!out) return;
        if (data_.post(out->head, out->body, ring_.data() + out->offset, plan_.announce, out->number, out->slot))
            sender_.posted(data_.last_is_pending());
    }

    void hear_data() {
        data_.announce([&](Way way, std::uint64_t number) {
            if (way == Way::doorbell)
                receiver_.rung();
            else
                receiver_.told(number);
        });
        data_.finish([&](std::uint32_t slot) { sender_.completed(slot); });
    }

    void read() {
        if (plan_.has_messages) return read_message();
        std::vector<std::byte> into(random_.below(plan_.chunk * 2));
        check(into, receiver_.read(into));
        ended_ = receiver_.has_ended();
    }

    void read_message() {
        const auto length = reader_.length();
        ASSERT_FALSE(reader_.is_broken());
        ended_ = reader_.has_ended();
        if (!length) return;
        ASSERT_LT(messages_read_, lengths_.size());
        ASSERT_EQ(*length, lengths_[messages_read_]);
        std::vector<std::byte> into(random_.below(plan_.chunk * 2));
        check(into, reader_.read(into));
        if (reader_.left() > 0) return;
        ++messages_read_;
        reader_.done();
    }

    void check(const std::vector<std::byte>& into, std::size_t done) {
        ASSERT_FALSE(receiver_.is_broken());
        ASSERT_LE(read_ + done, stream_.size());
        ASSERT_TRUE(std::equal(into.begin(), into.begin() + static_cast<std::ptrdiff_t>(done),
                               stream_.begin() + static_cast<std::ptrdiff_t>(read_)))
            << "behind byte " << read_;
        read_ += done;
    }

    /// A wish is a message: it comes some time after it was sent.
    void wish() {
        if (wish_) {
            receiver_.wanted(*wish_);
            wish_.reset();
        } else if (const auto known = sender_.wish()) {
            wish_ = known;
            sender_.wish_posted();
        }
        ASSERT_FALSE(receiver_.is_broken());
    }

    void post_credit() {
        const auto credit = receiver_.credit();
        if (!credit) return;
        const CreditCell cell = make_credit(credit->number);
        const Bytes bytes = std::as_bytes(std::span(&cell, 1));
        std::byte* target = plan_.acknowledge == Way::message ? unused_.data() : cells_.data() + credit->offset;
        const Way way = plan_.acknowledge == Way::doorbell && !credit->rings ? Way::memory : plan_.acknowledge;
        if (credits_.post(credit->is_new ? bytes : Bytes{}, {}, target, way, credit->number, 0))
            receiver_.credit_posted(*credit);
    }

    void hear_credit() {
        credits_.place();
        // A hub looks when it has no room; here nobody looks who waits to be rung.
        if (plan_.acknowledge == Way::memory || random_.chance(plan_.looks)) (void)sender_.look();
        credits_.announce([&](Way way, std::uint64_t number) {
            if (way == Way::doorbell)
                sender_.rung();
            else
                sender_.told(number);
        });
        credits_.finish([](std::uint32_t) {});
        ASSERT_FALSE(sender_.is_broken());
    }

    void read_all_there_is() {
        for (int round = 0; round < 1000; ++round)
            read();
        EXPECT_LE(read_, stream_.size());
    }

    base::Prng random_;
    Plan plan_;
    std::vector<std::byte> staging_;
    std::vector<std::byte> ring_;
    std::vector<std::byte> cells_;
    std::array<std::byte, sizeof(CreditCell)> unused_{};  // where credits lie that are told by messages
    Sender sender_;
    Receiver receiver_;
    MessageWriter writer_;
    MessageReader reader_;
    Link data_;
    Link credits_;
    std::vector<std::byte> stream_;
    std::vector<std::byte> source_;  // what is sent from
    std::vector<std::uint32_t> lengths_;
    std::optional<std::uint64_t> wish_;  // under way
    std::size_t sent_ = 0;
    std::size_t scribbled_ = 0;
    std::size_t read_ = 0;
    std::size_t messages_sent_ = 0;
    std::size_t message_left_ = 0;
    std::size_t messages_read_ = 0;
    bool is_begun_ = false;
    bool ended_ = false;
};

TEST(ChannelSimulation, CH_B1_WhatIsReadIsWhatWasWritten) {
    const char* given = std::getenv("INCAST_CHANNEL_SEEDS");
    const std::uint64_t seeds = given != nullptr ? std::strtoull(given, nullptr, 10) : 1000;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        World world(seed);
        world.run();
        if (::testing::Test::HasFailure()) return;
    }
}

}  // namespace
}  // namespace incast::channel
