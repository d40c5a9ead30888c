#include "planted.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "transport/decorator/forward.h"

namespace incast::conformance {

namespace {

using transport::decorator::Forward;

class LongKeys final : public Forward {
public:
    using Forward::Forward;
    Result<Blob> expose(Local region, const Grant& grant) override {
        auto key = inner().expose(region, grant);
        if (key) key->bytes.resize(max_key_bytes + 1);
        return key;
    }
};

class LongAddress final : public Forward {
public:
    using Forward::Forward;
    [[nodiscard]] Blob address() const override { return {std::vector<std::byte>(max_address_bytes + 1)}; }
};

/// Whoever asks for something gets everything.
class GrantsToAll final : public Forward {
public:
    using Forward::Forward;
    Result<Blob> expose(Local region, const Grant&) override { return inner().expose(region, {}); }
};

/// The number of a released region names the next one, and so do the keys of the old one.
class KeysThatOutliveTheirRegion final : public Forward {
public:
    using Forward::Forward;
    Result<Local> allocate(std::size_t bytes) override {
        if (released_.empty()) return inner().allocate(bytes);
        const Local region = released_.back();
        released_.pop_back();
        std::ranges::fill(inner().memory(region), std::byte{0});
        gone_.erase(region);
        return region;
    }
    Result<Ok> release(Local region) override {
        if (!gone_.insert(region).second) return Error{"it is released"};
        released_.push_back(region);
        return Ok{};
    }
    std::span<std::byte> memory(Local region) override {
        return gone_.contains(region) ? std::span<std::byte>{} : inner().memory(region);
    }
    [[nodiscard]] Bytes local(Slice where) const override {
        return gone_.contains(where.region) ? Bytes{} : inner().local(where);
    }
    Result<Blob> expose(Local region, const Grant& grant) override {
        return gone_.contains(region) ? Error{"it is released"} : inner().expose(region, grant);
    }

private:
    std::vector<Local> released_;
    std::set<Local> gone_;
};

class ImportsThatStay final : public Forward {
public:
    using Forward::Forward;
    using Forward::release;
    Result<Ok> release(Remote) override { return Ok{}; }
};

class RegionsThatStay final : public Forward {
public:
    using Forward::Forward;
    using Forward::release;
    Result<Ok> release(Local) override { return Ok{}; }
};

/// What nobody is told of never arrives.
class LostWrites final : public Forward {
public:
    using Forward::Forward;
    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override {
        return notice.has_value() ? inner().write(peer, head, body, target, notice, token) : Post::done;
    }
};

/// Whole bodies are called damaged.
class WrongWord final : public Forward {
public:
    using Forward::Forward;
    std::size_t poll(Time now, std::span<Event> events) override {
        const std::size_t count = inner().poll(now, events);
        for (Event& event : events.first(count))
            if (event.kind == Event::Kind::notice) event.status = Status::damaged;
        return count;
    }
};

/// The end of a long greeting is lost.
class ShortGreetings final : public Forward {
public:
    using Forward::Forward;
    Result<Peer> dial(const Blob& address, Bytes greeting) override {
        return inner().dial(address, greeting.first(std::min<std::size_t>(greeting.size(), 1000)));
    }
};

/// Nobody is ever turned away.
class OpenDoor final : public Forward {
public:
    using Forward::Forward;
    void disconnect(Peer) override {}
};

/// Who dials is let in at once.
class NoDoor final : public Forward {
public:
    using Forward::Forward;
    std::size_t poll(Time now, std::span<Event> events) override {
        const std::size_t count = inner().poll(now, events);
        for (const Event& event : events.first(count))
            if (event.kind == Event::Kind::knock) (void)inner().accept(event.peer);
        return count;
    }
};

/// One place less than it says.
class OneDialledLess final : public Forward {
public:
    using Forward::Forward;
    Result<Peer> dial(const Blob& address, Bytes greeting) override {
        const auto peer = inner().dial(address, greeting);
        if (peer) dialled_.insert(*peer);
        return dialled_.size() > 1 ? Error{"dial: no place"} : peer;
    }

private:
    std::set<Peer> dialled_;
};

/// What was granted to a number is granted to whoever has it.
class GrantsForANumber final : public Forward {
public:
    using Forward::Forward;
    Result<Blob> expose(Local region, const Grant& grant) override {
        if (static_cast<std::uint32_t>(grant.peer) >= capabilities().max_peers) return inner().expose(region, {});
        return inner().expose(region, grant);
    }
};

class LongGreetings final : public Forward {
public:
    using Forward::Forward;
    Result<Peer> dial(const Blob& address, Bytes greeting) override {
        return inner().dial(address, greeting.first(std::min(greeting.size(), max_greeting_bytes)));
    }
};

/// Two that dial each other share what the one that knocks has.
class OneConnection final : public Forward {
public:
    using Forward::Forward;
    Post send(Peer peer, Bytes message) override {
        const Peer first{capabilities().max_peers};
        return inner().send(peer > first ? first : peer, message);
    }
};

/// Does not believe who started the peer.
class Disbelief final : public Forward {
public:
    using Forward::Forward;
    void ended(Peer, std::uint32_t) override {}
};

class DrainedTooEarly final : public Forward {
public:
    using Forward::Forward;
    [[nodiscard]] bool drained() const override { return true; }
};

/// A body that is in no region is not taken.
class OnlyRegions final : public Forward {
public:
    using Forward::Forward;
    Post write_from(Peer, Bytes, Bytes, Target, Notice, Token) override { return Post::refused; }
};

/// Says of itself what is not so.
class OtherNature final : public Forward {
public:
    explicit OtherNature(std::unique_ptr<Transport> wrapped) : Forward(std::move(wrapped)) {
        capabilities_ = inner().capabilities();
        Nature& nature = capabilities_.nature;
        nature.progress = nature.progress == Progress::manual ? Progress::independent : Progress::manual;
    }
    [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }

private:
    Capabilities capabilities_;
};

template <class Violation>
std::unique_ptr<Transport> plant(std::unique_ptr<Transport> inner) {
    return std::make_unique<Violation>(std::move(inner));
}

struct Entry {
    Planted planted;
    std::unique_ptr<Transport> (*make)(std::unique_ptr<Transport>);
};

constexpr std::array entries{
    Entry{{"long_keys", "TC_S3", "inproc"}, plant<LongKeys>},
    Entry{{"long_address", "TC_S3", "inproc"}, plant<LongAddress>},
    Entry{{"places_for_all", "TC_M10", "tcp"}, plant<GrantsToAll>},
    Entry{{"regions_for_all", "TC_M14", "shm"}, plant<GrantsToAll>},
    Entry{{"keys_that_outlive_their_region", "TC_M11", "inproc"}, plant<KeysThatOutliveTheirRegion>},
    Entry{{"imports_that_stay", "TC_M12", "inproc"}, plant<ImportsThatStay>},
    Entry{{"regions_that_stay", "TC_M13", "inproc"}, plant<RegionsThatStay>},
    Entry{{"other_nature", "TC_A1", "inproc"}, plant<OtherNature>},
    Entry{{"disbelief", "TC_F7", "tcp"}, plant<Disbelief>},
    Entry{{"drained_too_early", "TC_F8", "tcp"}, plant<DrainedTooEarly>},
    Entry{{"only_regions", "TC_M15", "inproc"}, plant<OnlyRegions>},
    Entry{{"wrong_word", "TC_N4", "inproc"}, plant<WrongWord>},
    Entry{{"short_greetings", "TC_D1", "inproc"}, plant<ShortGreetings>},
    Entry{{"no_door", "TC_D1", "inproc"}, plant<NoDoor>},
    Entry{{"open_door", "TC_D2", "inproc"}, plant<OpenDoor>},
    Entry{{"one_dialled_less", "TC_D3", "inproc"}, plant<OneDialledLess>},
    Entry{{"grants_for_a_number", "TC_D4", "tcp"}, plant<GrantsForANumber>},
    Entry{{"long_greetings", "TC_D5", "inproc"}, plant<LongGreetings>},
    Entry{{"one_connection", "TC_D6", "inproc"}, plant<OneConnection>},
    Entry{{"lost_writes", "TC_A2", "inproc"}, plant<LostWrites>},
};
constexpr auto list = [] {
    std::array<Planted, entries.size()> all;
    std::ranges::transform(entries, all.begin(), &Entry::planted);
    return all;
}();

}  // namespace

std::span<const Planted> planted_violations() {
    return list;
}

const Planted* planted_here() {
    const char* name = std::getenv("INCAST_PLANT");
    if (name == nullptr) return nullptr;
    const auto found = std::ranges::find(list, std::string_view(name), &Planted::name);
    if (found == list.end()) std::abort();
    return &*found;
}

std::unique_ptr<Transport> make_planted(std::unique_ptr<Transport> inner, const Planted& planted) {
    return std::ranges::find(entries, planted.name, [](const Entry& entry) { return entry.planted.name; })
        ->make(std::move(inner));
}

}  // namespace incast::conformance
