// An RDMA device that is not there: the functions of libibverbs and librdmacm that the transport uses, within one
// process, for any number of threads. Bytes are copied when they are posted. It checks what the specification of verbs
// asks of whoever uses a device, and says which rule was broken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace incast::mock_verbs {

enum class Rule : std::uint8_t {
    send_queue_full,       // more requests than the queue pair was made for
    never_signalled,       // a send queue filled up by requests of which none says that it has ended
    receive_queue_full,    // more receives than the shared queue was made for
    completions_overflow,  // more completions than their queue was made for, none of them polled
    too_many_parts,        // of a request
    inline_too_large,      // more than the queue pair said it could
    local_key,             // memory that is not registered, or not for that
    remote_key,            // the peer's memory is not registered, or not for that
    message_too_long,      // for the device, or for the receive that it meets
    pair_state,            // posted to a queue pair that cannot send, or moved to a state that does not come next
    attributes,            // of a state, missing or too many
    receiver_not_ready,    // a send or an immediate met no receive
    private_data,          // more than fits
    in_use,                // given back while something else still uses it
};
const char* to_string(Rule rule);

struct Limits {
    int max_qp = 1 << 16;
    int max_qp_wr = 16384;
    int max_sge = 16;
    int max_cqe = 1 << 20;
    int max_srq_wr = 1 << 18;
    std::uint32_t max_msg_sz = 1U << 23;
    std::uint32_t max_inline = 256;
    // Rates that the device can be told, in kbit/s, and of which types of queue pairs (bits).
    std::uint32_t rate_min = 0;
    std::uint32_t rate_max = 0;
    std::uint32_t rated_types = 0;
};

/// What the device's only port says of itself.
struct Port {
    bool is_infiniband = false;  // else Ethernet: RoCE
    bool is_active = true;
    std::uint16_t lid = 0;
    bool needs_grh = false;
    std::uint32_t mtu = 3;                                           // an ibv_mtu
    std::vector<std::string> gids{"127.0.0.1", "127.0.0.1", "::1"};  // the first of RoCE v1
};
void set_port(const Port& port);

/// How the last queue pair came to where it can receive: what a path was made of.
struct Path {
    std::uint16_t lid = 0;
    std::uint8_t service_level = 0;
    std::uint8_t traffic_class = 0;
    bool is_global = false;
    std::uint8_t gid_index = 0;
    std::uint32_t mtu = 0;
    std::uint8_t timeout = 0;
    std::uint8_t retry = 0;
    std::uint8_t rnr_retry = 0;
    std::uint8_t reads = 0;  // under way at once, of this side's
    std::uint8_t reads_of_peer = 0;
};
Path last_path();

/// Everything as at the start, violations included. Nothing of the device may be in use.
void reset();
void set_limits(const Limits& limits);
/// As soft-iWARP: it has no immediate data (such a request is not taken: EINVAL); others overtake reads; and while a
/// request waits for reads, the fenced one or one read too many, the device does not answer the peer's reads.
void set_iwarp(bool is_iwarp);
/// Ends the process with a line at the first violation, in place of keeping it: so it is until this is called.
void keep_violations(bool keep);
std::vector<Rule> violations();

/// Of the calls made since reset().
struct Counts {
    std::uint64_t post_send = 0;  // doorbells of send queues
    std::uint64_t requests = 0;   // in their chains
    std::uint64_t post_receive = 0;
    std::uint64_t signalled = 0;
    std::uint64_t inlined = 0;
    std::uint64_t largest_chain = 0;
    std::uint64_t registrations = 0;  // of memory
};
Counts counts();

/// What the device that was opened as the `number`-th offers for each connection (ECE); vendor 0: it knows nothing of
/// that, as at the start.
void set_ece(std::size_t number, std::uint32_t vendor, std::uint32_t options);
/// The options that were accepted for each queue pair.
std::vector<std::uint32_t> eces();

/// How many queue pairs there are of each protection domain that has some, the fewest first.
std::vector<std::size_t> pairs_of_domains();

/// The rate limit of each queue pair, in kbit/s.
std::vector<std::uint32_t> rates();

/// This thread is in a function of the device: what it allocates there is the mock's.
bool is_inside();

// --- faults that hardware cannot be made to show

/// The next registrations fail with that errno.
void fail_registrations(int many, int error);
void fail_pairs(int many, int error);
void fail_rates(int many, int error);
/// Every queue pair that is connected goes to the error state.
void break_pairs();
/// As when a cable is cut: requests that move something fail after their retries.
void cut(bool is_cut);
/// Requests are taken, and nothing becomes of them until this is called with false.
void hold(bool holds);
/// The next queue pairs do not become able to receive, with that errno.
void fail_paths(int many, int error);
/// What arrives first at a queue pair that has accepted is not noticed until more arrives.
void miss_first(bool misses);
/// Every id and every open device hears of it, and queue pairs end.
void remove_device();
/// Requests to connect are turned away, with that status.
void reject_all(int status);
/// Of the devices that are open the one that was opened as the `number`-th ends, for whoever opened it.
void end_device(std::size_t number);
/// As when the system ends a process: the memory of whoever registered some last is registered no more,
/// and its queue pairs still are there.
void lose_memory();
/// Receives posted to all shared queues are thrown away: the next send finds none.
void lose_receives();

}  // namespace incast::mock_verbs
