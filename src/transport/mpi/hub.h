// What the endpoints of one process share: MPI, which a process starts once. Whoever polls makes progress for all, and
// finds what concerns it in its mailbox. All of it is to be called with the lock held.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/mpi/library.h"
#include "transport/mpi/link.h"
#include "transport/mpi/wire.h"
#include "transport/regions.h"

namespace incast::transport::mpi {

struct Mailbox {
    std::uint32_t number = 0;  // of the endpoint, in this process: never another one's
    std::vector<Call> calls;
    std::vector<Peer> woken;  // something of their links has ended
};

class Hub {
public:
    /// Starts MPI at its first call. Error: one line.
    static Result<Hub*> of_process();
    explicit Hub(Library& library);

    [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
    [[nodiscard]] Library& library() { return library_; }

    void enroll(Mailbox& mailbox);
    void leave(Mailbox& mailbox);
    void say(int rank, const Call& call);
    /// Tags at which a link of so many streams receives. They come again only after all others.
    std::uint32_t take_tags(std::uint32_t streams);
    /// The number for the next link, which `peer` of that endpoint is told by.
    std::uint32_t take_number(Mailbox& mailbox, Peer peer);
    void seat(std::uint32_t number, Link& link) { seats_[number].link = &link; }
    /// It has ended, and nothing of it is under way.
    void give_back(std::uint32_t number);
    /// A link whose endpoint does not wait for its end. `regions`: what it still moves lies there.
    void adopt(std::uint32_t number, std::unique_ptr<Link> link, std::shared_ptr<const Regions> regions);

    void progress();

private:
    struct Seat {
        Link* link = nullptr;
        Mailbox* mailbox = nullptr;  // null: adopted
        Peer peer{};
        std::unique_ptr<Link> adopted;
        std::shared_ptr<const Regions> regions;
    };
    void listen(std::size_t place);
    void hear(const Call& call);

    std::mutex mutex_;
    Library& library_;
    std::map<std::uint32_t, Mailbox*> mailboxes_;
    std::uint32_t endpoints_ = 0;
    std::vector<Seat> seats_;  // by number; 0 is this one's own
    std::vector<std::uint32_t> free_;
    std::vector<std::uint32_t> adopted_;
    std::uint32_t next_tag_ = call_tag + 1;
    std::vector<Call> heard_;                  // places for calls that come
    std::vector<std::unique_ptr<Call>> said_;  // and for those that go
    std::vector<std::size_t> free_said_;
};

}  // namespace incast::transport::mpi
