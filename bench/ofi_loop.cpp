// A plain loop of libfabric writes with completion data from one process to another, and nothing else: what the library
// does by itself with the same calls as the transport ofi. Prints the process that writes, when both have met, and
// bytes per second, as seen by who receives.
//
//     ofi_loop tcp 65536         PROVIDER BYTES [--depth N] [--warm-up S] [--seconds S]
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t places_bytes = std::size_t{64} << 20;
constexpr std::uint64_t order = FI_ORDER_SAS | FI_ORDER_SAW | FI_ORDER_WAS | FI_ORDER_WAW | FI_ORDER_RMA_WAW;
constexpr std::size_t batch = 32;

void must(std::int64_t error, const char* what) {
    if (error < 0) throw std::runtime_error(std::string(what) + ": " + fi_strerror(static_cast<int>(-error)));
}

struct Load {
    std::string provider;
    std::size_t bytes = 0;
    std::size_t depth = 32;
    double warm_up_s = 0.5;
    double seconds = 2;
};

/// What one side tells the other over the pipe between them.
struct Side {
    std::array<char, 256> name{};
    std::size_t name_bytes = 0;
    std::uint64_t address = 0;
    std::uint64_t key = 0;
};

/// One process's end. What it opens is given back with the process.
class End {
public:
    explicit End(const Load& load) : memory_(static_cast<std::byte*>(std::aligned_alloc(4096, places_bytes))) {
        std::memset(memory_, 1, places_bytes);
        fi_info* const hints = fi_allocinfo();
        hints->caps = FI_MSG | FI_RMA;
        hints->mode = FI_CONTEXT | FI_CONTEXT2;
        hints->ep_attr->type = load.provider == "tcp" ? FI_EP_MSG : FI_EP_RDM;
        hints->fabric_attr->prov_name = ::strdup(load.provider.c_str());
        hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
        hints->domain_attr->threading = FI_THREAD_DOMAIN;
        hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
        hints->tx_attr->msg_order = hints->rx_attr->msg_order = order;
        const bool is_ip = hints->ep_attr->type == FI_EP_MSG;
        must(
            fi_getinfo(FI_VERSION(1, 17), is_ip ? "127.0.0.1" : nullptr, nullptr, is_ip ? FI_SOURCE : 0, hints, &info_),
            "fi_getinfo");
        must(fi_fabric(info_->fabric_attr, &fabric_, nullptr), "fi_fabric");
        must(fi_domain(fabric_, info_, &domain_, nullptr), "fi_domain");
        fi_cq_attr queue{};
        queue.size = 4096;
        queue.format = FI_CQ_FORMAT_DATA;
        must(fi_cq_open(domain_, &queue, &queue_, nullptr), "fi_cq_open");
        must(fi_mr_reg(domain_, memory_, places_bytes, FI_WRITE | FI_REMOTE_WRITE, 0, 1, 0, &registration_, nullptr),
             "fi_mr_reg");
        if (is_connected()) {
            fi_eq_attr events{};
            events.wait_obj = FI_WAIT_FD;
            must(fi_eq_open(fabric_, &events, &events_, nullptr), "fi_eq_open");
        }
    }

    [[nodiscard]] bool is_connected() const { return info_->ep_attr->type == FI_EP_MSG; }

    /// Who receives, or who writes: both ends meet.
    void meet(int pipe, bool listens) {
        fid_pep* listening = nullptr;
        if (!is_connected()) {
            open(info_);
        } else if (listens) {
            must(fi_passive_ep(fabric_, info_, &listening, nullptr), "fi_passive_ep");
            must(fi_pep_bind(listening, &events_->fid, 0), "fi_pep_bind");
            must(fi_listen(listening), "fi_listen");
        }
        Side own;
        own.name_bytes = own.name.size();
        if (listening != nullptr || !is_connected())
            must(fi_getname(listening != nullptr ? &listening->fid : &endpoint_->fid, own.name.data(), &own.name_bytes),
                 "fi_getname");
        own.address =
            (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0 ? reinterpret_cast<std::uintptr_t>(memory_) : 0;
        own.key = fi_mr_key(registration_);
        if (::send(pipe, &own, sizeof own, 0) != sizeof own ||
            ::recv(pipe, &peer_, sizeof peer_, MSG_WAITALL) != sizeof peer_)
            throw std::runtime_error("the other process ended");
        if (!is_connected()) {
            must(fi_av_insert(addresses_, peer_.name.data(), 1, &at_, 0, nullptr) == 1 ? 0 : -FI_EINVAL,
                 "fi_av_insert");
            return;
        }
        if (listens) {
            open(expect(FI_CONNREQ));
            must(fi_accept(endpoint_, nullptr, 0), "fi_accept");
        } else {
            open(info_);
            must(fi_connect(endpoint_, peer_.name.data(), nullptr, 0), "fi_connect");
        }
        (void)expect(FI_CONNECTED);
    }

    /// False: the provider takes no more now.
    bool write(std::size_t place, std::size_t bytes) {
        iovec part{memory_ + place * bytes, bytes};
        void* descriptor = fi_mr_desc(registration_);
        const fi_rma_iov remote{.addr = peer_.address + place * bytes, .len = bytes, .key = peer_.key};
        const fi_msg_rma message{.msg_iov = &part,
                                 .desc = &descriptor,
                                 .iov_count = 1,
                                 .addr = at_,
                                 .rma_iov = &remote,
                                 .rma_iov_count = 1,
                                 .context = &contexts_[place],
                                 .data = place};
        const ssize_t error = fi_writemsg(endpoint_, &message, FI_COMPLETION | FI_REMOTE_CQ_DATA);
        if (error == -FI_EAGAIN) return false;
        must(error, "fi_writemsg");
        return true;
    }

    /// Calls each(completion).
    template <class Each>
    void poll(Each each) {
        std::array<fi_cq_data_entry, batch> completions{};
        const ssize_t got = fi_cq_read(queue_, completions.data(), completions.size());
        if (got == -FI_EAGAIN) {
            ::sched_yield();  // as Incast's nodes do where they share a core
            return;
        }
        must(got, "fi_cq_read");
        for (std::size_t at = 0; at < static_cast<std::size_t>(got); ++at)
            each(completions[at]);
    }
    /// The place of a write's own completion.
    [[nodiscard]] std::size_t place_of(const fi_cq_data_entry& completion) const {
        return static_cast<std::size_t>(static_cast<const fi_context2*>(completion.op_context) - contexts_.data());
    }

private:
    void open(fi_info* from) {
        must(fi_endpoint(domain_, from, &endpoint_, nullptr), "fi_endpoint");
        must(fi_ep_bind(endpoint_, &queue_->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
        if (is_connected()) {
            must(fi_ep_bind(endpoint_, &events_->fid, 0), "fi_ep_bind");
        } else {
            fi_av_attr wanted{};
            wanted.type = FI_AV_TABLE;
            must(fi_av_open(domain_, &wanted, &addresses_, nullptr), "fi_av_open");
            must(fi_ep_bind(endpoint_, &addresses_->fid, 0), "fi_ep_bind");
        }
        must(fi_enable(endpoint_), "fi_enable");
    }
    fi_info* expect(std::uint32_t wanted) {
        fi_eq_cm_entry entry{};
        std::uint32_t kind = 0;
        must(fi_eq_sread(events_, &kind, &entry, sizeof entry, 10'000, 0), "fi_eq_sread");
        if (kind != wanted) throw std::runtime_error("another event than expected");
        return entry.info;
    }

    std::byte* memory_;
    fi_info* info_ = nullptr;
    fid_fabric* fabric_ = nullptr;
    fid_domain* domain_ = nullptr;
    fid_cq* queue_ = nullptr;
    fid_mr* registration_ = nullptr;
    fid_eq* events_ = nullptr;
    fid_ep* endpoint_ = nullptr;
    fid_av* addresses_ = nullptr;
    fi_addr_t at_ = FI_ADDR_UNSPEC;
    Side peer_;
    std::vector<fi_context2> contexts_ = std::vector<fi_context2>(4096);
};

/// Answers once its writes are measured; the number of them.
std::uint64_t receive(End& end, const Load& load) {
    const auto after = [begin = Clock::now()](double seconds) {
        return begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    };
    const Clock::time_point from = after(load.warm_up_s);
    const Clock::time_point until = after(load.warm_up_s + load.seconds);
    std::uint64_t writes = 0;
    for (Clock::time_point now = Clock::now(); now < until; now = Clock::now()) {
        end.poll([&](const fi_cq_data_entry& each) {
            writes += (each.flags & FI_REMOTE_CQ_DATA) != 0 && now >= from ? 1 : 0;
        });
    }
    return writes;
}

[[noreturn]] void write_on(End& end, const Load& load) {
    std::vector<std::size_t> free(load.depth);
    for (std::size_t place = 0; place < load.depth; ++place)
        free[place] = place;
    for (;;) {
        while (!free.empty() && end.write(free.back(), load.bytes))
            free.pop_back();
        end.poll([&](const fi_cq_data_entry& each) { free.push_back(end.place_of(each)); });
    }
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("A plain loop of libfabric writes with completion data");
    Load load;
    app.add_option("provider", load.provider, "tcp or shm")->required();
    app.add_option("bytes", load.bytes, "of a write")->required()->check(CLI::Range(1UL, places_bytes));
    app.add_option("--depth", load.depth, "writes under way")->check(CLI::Range(1, 4096));
    app.add_option("--warm-up", load.warm_up_s, "seconds before it is measured");
    app.add_option("--seconds", load.seconds, "that are measured");
    CLI11_PARSE(app, argc, argv);
    if (load.bytes * load.depth > places_bytes) load.depth = places_bytes / load.bytes;
    std::array<int, 2> pipe{};
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pipe.data()) != 0) return 1;
    const pid_t child = ::fork();
    try {
        End end(load);
        end.meet(pipe[child == 0 ? 1 : 0], child != 0);
        if (child == 0) write_on(end, load);
        std::printf("writer %d\n", child);
        std::fflush(stdout);
        const std::uint64_t writes = receive(end, load);
        (void)::kill(child, SIGKILL);
        (void)::waitpid(child, nullptr, 0);
        std::printf("%.0f\n", static_cast<double>(writes * load.bytes) / load.seconds);
        std::fflush(stdout);
        ::_exit(0);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "ofi_loop: %s\n", error.what());
        if (child > 0) (void)::kill(child, SIGKILL);
        ::_exit(1);
    }
}
