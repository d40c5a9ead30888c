// What the mock device is made of. All of it belongs to one lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "mock_verbs.h"

namespace incast::mock_verbs {

/// Of a queue pair.
inline constexpr int reads_at_once = 16;

/// What every function of the device does first; whose allocations are its own (is_inside()).
class Entered {
public:
    Entered();
    ~Entered();
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
};

/// A descriptor that is readable while something waits.
class Signal {
public:
    Signal();
    ~Signal();
    Signal(const Signal&) = delete;
    Signal& operator=(const Signal&) = delete;
    void set(bool readable);
    int fd = -1;

private:
    bool readable_ = false;
};

struct Domain : ibv_pd {
    int users = 0;
};
struct Registration : ibv_mr {
    int access = 0;
};
struct Queue;
struct Channel : ibv_comp_channel {
    Signal signal;
    std::deque<Queue*> rung;
};
struct Queue : ibv_cq {
    std::deque<ibv_wc> completions;
    bool is_armed = false;
    int unacknowledged = 0;
    int users = 0;
};
struct Receive {
    std::uint64_t wr_id = 0;
    std::vector<ibv_sge> parts;
};
struct SharedQueue : ibv_srq {
    std::deque<Receive> receives;
    std::uint32_t max_wr = 0;
    int users = 0;
};
/// A request in a send queue.
struct Sent {
    ibv_send_wr wr{};
    std::array<ibv_sge, 16> parts{};
    std::vector<std::byte> inlined;
};
struct Pair : ibv_qp {
    ibv_qp_cap cap{};
    Pair* peer = nullptr;
    std::deque<Sent> waiting;               // not carried out: held back, or without a receive
    std::deque<Sent> reading;               // iWARP: reads under way, which others overtake
    std::deque<std::uint64_t> order;        // wr_id of all that take up a place
    std::deque<std::uint64_t> said_to_end;  // of those that will be in a completion
    std::uint8_t rnr_retry = 0;
    std::uint32_t rate = 0;
    std::uint32_t ece = 0;  // options that were accepted
    // Of a pair that was connected by hand.
    bool by_hand = false;
    std::uint32_t sq_psn = 0;
    std::uint32_t rq_psn = 0;
    bool misses_next = false;      // what arrives next is not noticed until more does
    std::optional<ibv_wc> missed;  // its completion
};
/// As ibv_open_device() makes it.
struct Opened : verbs_context {
    Signal signal;
    std::size_t number = 0;
    std::uint32_t ece_vendor = 0;
    std::uint32_t ece_options = 0;
    bool is_ended = false;
    bool is_told = false;  // that the device is gone
};

struct Id;
struct Event : rdma_cm_event {
    std::array<std::byte, 256> said{};
};
struct EventChannel : rdma_event_channel {
    Signal signal;
    std::deque<std::unique_ptr<Event>> events;
    std::set<const rdma_cm_event*> unacknowledged;
};
struct Id : rdma_cm_id {
    enum class State : std::uint8_t { idle, listening, connecting, requested, connected, ended };
    State state = State::idle;
    Id* other = nullptr;
    std::uint8_t rnr_retry = 0;
};

struct World {
    World();
    std::mutex mutex;
    ibv_device device{};
    verbs_context extended{};
    ibv_context& context = extended.context;
    Limits limits;
    Counts counts;
    std::vector<Rule> violations;
    bool keeps_violations = false;
    bool is_cut = false;
    bool holds = false;
    bool misses_first = false;
    bool is_removed = false;
    Port port;
    int failing_registrations = 0;
    int registration_error = 0;
    int failing_pairs = 0;
    int pair_error = 0;
    int failing_rates = 0;
    int rate_error = 0;
    int failing_paths = 0;
    int path_error = 0;
    Path path;
    int reject_status = 0;
    std::uint32_t next_key = 1;
    std::uint32_t next_pair = 17;
    std::uint16_t next_port = 20'000;
    std::map<std::uint32_t, Registration*> registrations;  // by either key
    std::map<std::uint32_t, Pair*> pairs;
    std::set<SharedQueue*> shared;
    std::set<Id*> ids;
    std::set<Opened*> opened;
    std::size_t devices_opened = 0;
    std::map<std::uint16_t, Id*> listeners;

    void broke(Rule rule, const std::string& what);
};
World& world();

// With the lock held.
void to_error(Pair& pair);
void connect_pairs(Pair& a, Pair& b);
void forget_pair(Pair& pair);
/// What waits in its send queue, as far as it goes.
void carry_out(Pair& pair);
/// iWARP: the reads that others have overtaken.
void finish_reads(Pair& pair);
Pair* create_pair(ibv_pd* domain, ibv_qp_init_attr& wanted);
bool destroy_pair(Pair* pair);
void raise(Id& id, rdma_cm_event_type kind, int status, const void* said, std::size_t bytes);

}  // namespace incast::mock_verbs
