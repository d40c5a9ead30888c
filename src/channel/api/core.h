// What is behind the C interface: one hub, its listeners and its channels. Everything is under one mutex.
//
// One thread at a time has the lead: it looks at the endpoint, and sleeps on the descriptor when there is nothing to
// do. Who waits for something leads if nobody else does; the others wait until it tells them. Without OWN_LOOP a thread
// of its own leads while nobody waits. It lets a lead that was given back rest for a moment, as the next one follows
// soon.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <incast/channel.h>

#include "channel/api/card.h"
#include "channel/api/cm.h"
#include "channel/api/directory.h"
#include "channel/api/endpoint.h"
#include "channel/hub/fork_guard.h"
#include "channel/hub/hub.h"
#include "channel/hub/level.h"
#include "channel/hub/spin.h"
#include "channel/messages.h"
#include "os/descriptor.h"
#include "os/poller.h"

namespace incast::channel::api {

class Core;

/// A channel of a hub as a sender and a receiver of messages see it.
struct HubStream {
    Hub* hub = nullptr;
    Id id{};
    std::size_t write(Bytes bytes) { return hub->write(id, bytes); }
    [[nodiscard]] bool has_room() const { return hub->has_room(id); }
    std::size_t read(std::span<std::byte> into) { return hub->read(id, into); }
    [[nodiscard]] bool has_ended() const { return hub->has_ended(id); }
};

}  // namespace incast::channel::api

struct incast_channel {
    enum class State : std::uint8_t { calling, dialling, opening, open, ended };
    explicit incast_channel(incast::channel::api::Core& owner) : core(owner) {}

    incast::channel::api::Core& core;
    State state = State::calling;
    int error = 0;
    std::string line;
    std::string peer_name;
    void* user = nullptr;

    incast::channel::api::Address address;
    incast::channel::Options options;
    std::uint32_t longest_message = incast::channel::max_message;
    incast::Time deadline = incast::time_never;  // of opening
    incast::Time spare = 0;                      // by which pauses of this process may put it off
    std::uint32_t call = 0;
    std::optional<incast::channel::api::WholeCard> offer = {};  // until it is this channel's turn
    bool is_bare = false;  // the offer: by now it can be used for a peer that is known, and for no other
    incast::Time call_at = incast::time_never;  // it is to come again
    incast::Peer peer{};
    std::uint32_t port = 0;

    incast::channel::Id id{};
    bool has_id = false;
    incast::channel::Level data;  // before there is an id
    incast::channel::Level room;
    bool has_finished = false;
    bool waits_for_data = true;
    bool waits_for_room = true;

    // Messages.
    incast::channel::api::HubStream stream;
    std::unique_ptr<incast::channel::BasicMessageWriter<incast::channel::api::HubStream>> writer;
    std::unique_ptr<incast::channel::BasicMessageReader<incast::channel::api::HubStream>> reader;
    std::vector<std::byte> rest;  // of a message that was taken
    std::size_t rest_at = 0;
    std::vector<std::byte> begun;  // of a message that comes
    bool is_given_back = false;    // once the rest has left
};

struct incast_channel_listener {
    explicit incast_channel_listener(incast::channel::api::Core& owner) : core(owner) {}
    incast::channel::api::Core& core;
    std::uint32_t port = 0;
    incast::channel::Kind kind{};
    std::uint32_t longest_message = incast::channel::max_message;
    std::string address;
    std::deque<incast_channel*> waiting;
    incast::channel::Level news;
};

namespace incast::channel::api {

class Core {
public:
    explicit Core(HubChoices choices);
    Core(const Core&) = delete;
    Core& operator=(const Core&) = delete;
    ~Core();

    [[nodiscard]] bool is_child() const { return fork_guard_.is_child(); }
    [[nodiscard]] const HubChoices& choices() const { return choices_; }
    [[nodiscard]] int fd() const { return poller_.fd(); }

    /// The mutex, for a call from outside. Who leads gives it up in between.
    class Entry {
    public:
        explicit Entry(Core& core) : lock_(core.mutex_, std::try_to_lock) {
            if (lock_.owns_lock()) return;
            core.callers_.fetch_add(1, std::memory_order_relaxed);
            lock_.lock();
            core.callers_.fetch_sub(1, std::memory_order_relaxed);
        }
        std::unique_lock<std::mutex>& lock() { return lock_; }

    private:
        std::unique_lock<std::mutex> lock_;
    };

    // --- all below: with the mutex

    incast_channel_listener* listen(const Address& address, Kind kind, std::uint32_t longest_message,
                                    std::uint32_t backlog);
    void close(incast_channel_listener* listener);
    incast_channel* connect(const Address& address, const Options& options, std::uint32_t longest_message,
                            Time patience);
    void close(incast_channel* channel, bool is_aborted);

    /// 0: it is being opened; 1: open; the negative errno that ended it.
    int state(const incast_channel& channel) const;
    [[nodiscard]] std::string message(const incast_channel& channel) const;
    [[nodiscard]] Hub& hub() { return *hub_; }
    /// What is left of a message that was taken leaves as far as it can. True: nothing is left.
    bool push_rest(incast_channel& channel);
    [[nodiscard]] bool has_data(incast_channel& channel);
    [[nodiscard]] bool has_room(const incast_channel& channel) const;
    /// One of those that have become ready, with what.
    std::pair<incast_channel*, std::uint32_t> next_ready();
    /// Nothing that was given back has still to leave.
    [[nodiscard]] bool is_drained() const;
    [[nodiscard]] bool sends_in_place() const;
    [[nodiscard]] std::uint32_t destid() const { return cm_ == nullptr ? 0 : destid_of(*cm_); }

    bool poll();
    /// By the loop of the owner.
    bool poll_awake() {
        has_slept_ = std::exchange(is_armed_, false) || has_slept_;
        return poll();
    }
    /// The same, while the descriptor was not readable: the kernel need not be asked.
    bool poll_unwoken();
    bool prepare_wait();
    /// After a call that may have left something to do: it is done, or who sleeps is woken.
    void settle();
    /// Until `is_so()`, or `timeout_ms` is over (negative: never). Drives the hub meanwhile.
    template <class Is>
    bool wait(std::unique_lock<std::mutex>& lock, int timeout_ms, Is&& is_so) {
        if (is_so()) return true;
        if (timeout_ms == 0) return false;
        const Time until = timeout_ms < 0 ? time_never : now() + timeout_ms * ps_per_ms;
        const bool was_armed = is_armed_;
        bool is_now = false;
        do {
            lead_or_follow(lock, until);
            is_now = is_so();
        } while (!is_now && now() < until);
        if (choices_.is_own_loop && was_armed) {  // the loop's descriptor tells again what happens
            is_armed_ = true;
            settle();
        }
        return is_now;
    }

    static Time now();

private:
    struct Remote {
        HubId hub{};
        Peer peer{};
        bool is_up = false;
        // Where both sides connect.
        Blob own = {};           // this hub's address for it
        Blob theirs = {};        // empty: not known yet
        std::uint32_t call = 0;  // by which it will be
        bool is_asked = false;   // connect() was taken
    };

    void make_hub(const Address& first, Use use);
    WholeCard offer(const os::Descriptor& socket, const Address& door, std::uint32_t port) const;
    Card card(Card::What what) const;
    incast_channel* add_channel();
    void remove(incast_channel* channel);
    void look_around(Time now);
    void take_peer_events();
    void take_directory_events();
    void take_offers();
    void take_offer(incast_channel& channel, WholeCard said);
    void strip(incast_channel& channel);
    void call_again(incast_channel& channel, Time at);
    void take_answer(std::uint32_t caller, const WholeCard& said);
    void begin_exchange(incast_channel& channel, const WholeCard& said);
    void end_exchange(const Directory::Event& event);
    bool add_remote(const HubId& hub);
    void connect_remotes();
    void lose(Peer peer, int error, const std::string& why);
    std::uint32_t call_for(const Address& address);
    bool advance(Time now);
    void forgive(Time now);
    void open_to(incast_channel& channel, Peer peer);
    void begin_messages(incast_channel& channel);
    void fail(incast_channel& channel, int error, std::string line);
    void accept_all();
    incast_channel* find_call(std::uint32_t call);
    std::string with_log(std::string line);

    void wake();
    void lead_or_follow(std::unique_lock<std::mutex>& lock, Time until);
    void lead(std::unique_lock<std::mutex>& lock, Time until);
    void end_lead();
    void sleep(std::unique_lock<std::mutex>& lock, Time until);
    void serve();

    static constexpr Time come_again_after = 10 * ps_per_ms;

    // Events of the poller.
    static constexpr std::uint64_t wake_id = 1;
    static constexpr std::uint64_t timer_id = 2;
    static constexpr std::uint64_t endpoint_id = 3;
    static constexpr std::uint64_t directory_id = std::uint64_t{1} << 32U;

    const HubChoices choices_;
    const HubId id_;
    ForkGuard fork_guard_;
    std::mutex mutex_;
    std::atomic<int> callers_ = 0;  // that wait for the mutex
    os::Poller poller_;
    os::Descriptor wake_;
    os::Descriptor timer_;
    Time timer_at_ = time_never;
    std::shared_ptr<CmPort> cm_;  // rio
    Endpoint endpoint_;
    std::unique_ptr<Hub> hub_;
    std::unique_ptr<Directory> directory_;
    std::vector<Remote> remotes_;
    std::vector<std::unique_ptr<incast_channel>> channels_;
    std::vector<incast_channel*> opening_;
    std::vector<incast_channel*> pushing_;  // have a rest
    std::vector<std::unique_ptr<incast_channel_listener>> listeners_;
    std::uint32_t next_port_ = 1;
    std::string last_log_;
    std::size_t next_ready_ = 0;
    bool reports_ready_ = false;  // somebody asks next_ready()

    bool is_armed_ = false;   // somebody sleeps on the descriptor, or is about to
    bool is_woken_ = false;   // wake_ is readable
    bool took_ = false;       // something that others may wait for
    bool has_slept_ = false;  // from a sleep, and no poll since
    bool look_ = true;        // at the poller, in the next poll
    Time next_look_ = 0;
    Time due_ = time_never;  // by when the next poll was to come
    Spin spin_;

    bool has_leader_ = false;
    std::uint64_t leads_ = 0;
    std::uint32_t followers_ = 0;
    bool rests_deep_ = false;  // the own thread waits until a lead ends
    Time last_lead_ = 0;
    bool thread_leads_ = false;
    bool stops_ = false;
    std::condition_variable told_;
    std::condition_variable lead_is_free_;
    std::thread thread_;
};

}  // namespace incast::channel::api
