// The reference of verbs_vs_loop.py: a plain loop of RDMA writes with immediate data over one queue pair, and nothing
// else. The writer polls, the other side sleeps when there is nothing to do. A writer keeps `depth` writes under way,
// each from a buffer of its own into a place of its own; the other side takes the immediates and posts receives again.
//
//   verbs_loop --listen ADDRESS                                      prints "port N", serves one writer, and ends
//   verbs_loop --connect ADDRESS --port N --from ADDRESS [--bytes B --depth D --warm-up S --seconds S]
//
// The writer prints one line: bytes per second of what was completed within the measured time.
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t receives = 512;
constexpr std::size_t places_bytes = std::size_t{16} << 20;
constexpr std::uint8_t ack_timeout = 14;  // 4.096 us * 2^14 = 67 ms; rdma_cm's own is 30 times that
constexpr std::size_t alignment = 4096;

template <class T, int (*destroy)(T*)>
struct Destroy {
    void operator()(T* each) const { destroy(each); }
};
template <class T, int (*destroy)(T*)>
using Owned = std::unique_ptr<T, Destroy<T, destroy>>;

void destroy_channel(rdma_event_channel* channel) {
    rdma_destroy_event_channel(channel);
}
struct DestroyChannel {
    void operator()(rdma_event_channel* channel) const { destroy_channel(channel); }
};

void must(bool well, const char* what) {
    if (!well) throw std::system_error(errno, std::generic_category(), what);
}

/// Where the writer may write: in the private data of the acceptance.
struct Places {
    std::uint64_t address = 0;
    std::uint32_t key = 0;
};

struct FreeMemory {
    void operator()(std::byte* memory) const { std::free(memory); }
};

/// One end of the connection: its memory, completion queue and queue pair.
class End {
public:
    End(rdma_cm_id* id, std::uint32_t sends, int access)
        : id_(id), memory_(static_cast<std::byte*>(std::aligned_alloc(alignment, places_bytes))) {
        must(memory_ != nullptr, "memory");
        std::memset(memory_.get(), 1, places_bytes);
        domain_.reset(ibv_alloc_pd(id->verbs));
        must(domain_ != nullptr, "ibv_alloc_pd");
        channel_.reset(ibv_create_comp_channel(id->verbs));
        must(channel_ != nullptr, "ibv_create_comp_channel");
        queue_.reset(ibv_create_cq(id->verbs, static_cast<int>(sends + receives), nullptr, channel_.get(), 0));
        must(queue_ != nullptr, "ibv_create_cq");
        must(ibv_req_notify_cq(queue_.get(), 0) == 0, "ibv_req_notify_cq");
        region_.reset(ibv_reg_mr(domain_.get(), memory_.get(), places_bytes, access));
        must(region_ != nullptr, "ibv_reg_mr");
        must(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, const_cast<std::uint8_t*>(&ack_timeout),
                             sizeof ack_timeout) == 0,
             "rdma_set_option");
        ibv_qp_init_attr wanted{};
        wanted.send_cq = wanted.recv_cq = queue_.get();
        wanted.qp_type = IBV_QPT_RC;
        wanted.cap.max_send_wr = sends;
        wanted.cap.max_recv_wr = receives;
        wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
        must(rdma_create_qp(id, domain_.get(), &wanted) == 0, "rdma_create_qp");
    }
    ~End() { rdma_destroy_qp(id_); }
    End(const End&) = delete;
    End& operator=(const End&) = delete;

    void post_receives(std::uint32_t count) {
        std::array<ibv_recv_wr, receives> chain{};
        for (std::uint32_t each = 0; each < count; ++each)
            chain[each].next = each + 1 < count ? &chain[each + 1] : nullptr;
        ibv_recv_wr* bad = nullptr;
        must(count == 0 || ibv_post_recv(id_->qp, chain.data(), &bad) == 0, "ibv_post_recv");
    }
    void write(std::uint64_t number, std::uint32_t bytes, const Places& to) {
        const std::uint64_t offset = number * bytes;
        ibv_sge piece{reinterpret_cast<std::uintptr_t>(memory_.get()) + offset, bytes, region_->lkey};
        ibv_send_wr request{};
        request.wr_id = number;
        request.sg_list = &piece;
        request.num_sge = 1;
        request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        request.send_flags = IBV_SEND_SIGNALED;
        request.imm_data = htonl(static_cast<std::uint32_t>(number));
        request.wr.rdma = {to.address + offset, to.key};
        ibv_send_wr* bad = nullptr;
        must(ibv_post_send(id_->qp, &request, &bad) == 0, "ibv_post_send");
    }
    /// Those that ended, at most as many as there is room for.
    std::span<ibv_wc> ended() {
        const int count = ibv_poll_cq(queue_.get(), static_cast<int>(completions_.size()), completions_.data());
        must(count >= 0, "ibv_poll_cq");
        return std::span(completions_).first(static_cast<std::size_t>(count));
    }
    /// Readable once something has ended since rearm(), which is to be followed by ended().
    [[nodiscard]] int wait_fd() const { return channel_->fd; }
    void rearm() {
        ibv_cq* queue = nullptr;
        void* context = nullptr;
        must(ibv_get_cq_event(channel_.get(), &queue, &context) == 0, "ibv_get_cq_event");
        ibv_ack_cq_events(queue, 1);
        must(ibv_req_notify_cq(queue, 0) == 0, "ibv_req_notify_cq");
    }
    [[nodiscard]] Places places() const { return {reinterpret_cast<std::uintptr_t>(memory_.get()), region_->rkey}; }

private:
    rdma_cm_id* id_;
    std::unique_ptr<std::byte, FreeMemory> memory_;
    Owned<ibv_pd, ibv_dealloc_pd> domain_;
    Owned<ibv_comp_channel, ibv_destroy_comp_channel> channel_;
    Owned<ibv_cq, ibv_destroy_cq> queue_;
    Owned<ibv_mr, ibv_dereg_mr> region_;
    std::array<ibv_wc, 64> completions_{};
};

struct Event {
    rdma_cm_event_type kind{};
    rdma_cm_id* id = nullptr;
    Places places;
};

Event next_event(rdma_event_channel* channel) {
    rdma_cm_event* event = nullptr;
    must(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
    Event seen{event->event, event->id, {}};
    if (event->event == RDMA_CM_EVENT_ESTABLISHED && event->param.conn.private_data_len >= sizeof seen.places)
        std::memcpy(&seen.places, event->param.conn.private_data, sizeof seen.places);
    rdma_ack_cm_event(event);
    return seen;
}

Event expect(rdma_event_channel* channel, rdma_cm_event_type kind) {
    const Event seen = next_event(channel);
    if (seen.kind != kind) throw std::runtime_error(std::string("rdma_cm: ") + rdma_event_str(seen.kind));
    return seen;
}

sockaddr_in address_of(const std::string& text, std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    if (inet_pton(AF_INET, text.c_str(), &address.sin_addr) != 1)
        throw std::runtime_error("'" + text + "' is no IPv4 address");
    return address;
}

rdma_conn_param parameters() {
    rdma_conn_param wanted{};
    wanted.retry_count = 6;
    wanted.rnr_retry_count = 7;
    return wanted;
}

void serve(rdma_event_channel* channel, const std::string& at) {
    rdma_cm_id* raw = nullptr;
    must(rdma_create_id(channel, &raw, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
    const Owned<rdma_cm_id, rdma_destroy_id> listener(raw);
    sockaddr_in address = address_of(at, 0);
    must(rdma_bind_addr(raw, reinterpret_cast<sockaddr*>(&address)) == 0, "rdma_bind_addr");
    must(rdma_listen(raw, 1) == 0, "rdma_listen");
    std::printf("port %u\n", ntohs(rdma_get_src_port(raw)));
    std::fflush(stdout);
    const Owned<rdma_cm_id, rdma_destroy_id> id(expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST).id);
    End end(id.get(), 1, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    end.post_receives(receives);
    const Places places = end.places();
    rdma_conn_param wanted = parameters();
    wanted.private_data = &places;
    wanted.private_data_len = sizeof places;
    must(rdma_accept(id.get(), &wanted) == 0, "rdma_accept");
    (void)expect(channel, RDMA_CM_EVENT_ESTABLISHED);
    // It sleeps, as the other side of ib_write_bw does: on soft-RoCE the processor has the device's work, too.
    for (std::array<pollfd, 2> waits{{{channel->fd, POLLIN, 0}, {end.wait_fd(), POLLIN, 0}}}; waits[0].revents == 0;) {
        must(poll(waits.data(), waits.size(), -1) > 0, "poll");
        if (waits[1].revents != 0) end.rearm();
        for (std::span<ibv_wc> ended = end.ended(); !ended.empty(); ended = end.ended()) {
            for (const ibv_wc& each : ended)
                must(each.status == IBV_WC_SUCCESS, ibv_wc_status_str(each.status));
            end.post_receives(static_cast<std::uint32_t>(ended.size()));
        }
    }
    (void)expect(channel, RDMA_CM_EVENT_DISCONNECTED);
}

/// Which device is used follows from the addresses of both ends.
struct Way {
    std::string from;
    std::string to;
    std::uint16_t port = 0;
};

struct Load {
    std::uint32_t bytes = 64 << 10;
    std::uint32_t depth = 32;
    double warm_up_s = 0.5;
    double seconds = 2;
};

void write_to(rdma_event_channel* channel, const Way& way, const Load& load) {
    if (std::uint64_t{load.bytes} * load.depth > places_bytes || load.depth > receives / 2)
        throw std::runtime_error("--bytes times --depth is more than there is room for");
    rdma_cm_id* raw = nullptr;
    must(rdma_create_id(channel, &raw, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
    const Owned<rdma_cm_id, rdma_destroy_id> id(raw);
    sockaddr_in from = address_of(way.from, 0);
    sockaddr_in to = address_of(way.to, way.port);
    constexpr int limit_ms = 5000;
    must(rdma_resolve_addr(raw, reinterpret_cast<sockaddr*>(&from), reinterpret_cast<sockaddr*>(&to), limit_ms) == 0,
         "rdma_resolve_addr");
    (void)expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    must(rdma_resolve_route(raw, limit_ms) == 0, "rdma_resolve_route");
    (void)expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    End end(raw, load.depth, IBV_ACCESS_LOCAL_WRITE);
    rdma_conn_param wanted = parameters();
    must(rdma_connect(raw, &wanted) == 0, "rdma_connect");
    const Places places = expect(channel, RDMA_CM_EVENT_ESTABLISHED).places;

    const auto after = [begin = Clock::now()](double seconds) {
        return begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    };
    const Clock::time_point measured_from = after(load.warm_up_s);
    const Clock::time_point until = after(load.warm_up_s + load.seconds);
    for (std::uint32_t number = 0; number < load.depth; ++number)
        end.write(number, load.bytes, places);
    std::uint64_t writes = 0;
    for (Clock::time_point now = Clock::now(); now < until; now = Clock::now()) {
        for (const ibv_wc& each : end.ended()) {
            if (each.status != IBV_WC_SUCCESS) throw std::runtime_error(ibv_wc_status_str(each.status));
            writes += now >= measured_from ? 1 : 0;
            end.write(each.wr_id, load.bytes, places);
        }
    }
    std::printf("%.0f\n", static_cast<double>(writes * load.bytes) / load.seconds);
    rdma_disconnect(raw);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("A plain loop of RDMA writes with immediate data");
    std::string listens_at;
    Way way;
    Load load;
    app.add_option("--listen", listens_at, "address of an RDMA device");
    CLI::Option* const connect = app.add_option("--connect", way.to, "address of the one that listens");
    app.add_option("--port", way.port, "its port")->needs(connect);
    app.add_option("--from", way.from, "own address")->needs(connect);
    app.add_option("--bytes", load.bytes, "of a write");
    app.add_option("--depth", load.depth, "writes under way")->check(CLI::Range(1U, receives / 2));
    app.add_option("--warm-up", load.warm_up_s, "seconds before it is measured");
    app.add_option("--seconds", load.seconds, "that are measured");
    CLI11_PARSE(app, argc, argv);
    try {
        const std::unique_ptr<rdma_event_channel, DestroyChannel> channel(rdma_create_event_channel());
        must(channel != nullptr, "rdma_create_event_channel");
        if (!listens_at.empty()) {
            serve(channel.get(), listens_at);
        } else {
            write_to(channel.get(), way, load);
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "verbs_loop: %s\n", error.what());
        return 1;
    }
    return 0;
}
