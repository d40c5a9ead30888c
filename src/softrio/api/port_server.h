// Lets other processes use a master port that this one has open: the children of its forks, and whoever asks for the
// same destination id. One thread waits for them, and each of their threads that is in a call has one here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "os/descriptor.h"

namespace incast::softrio::api {

struct Endpoint;

class PortServer {
public:
    /// nullptr: there is no name or thread for it; errno.
    static std::unique_ptr<PortServer> start(const std::shared_ptr<Endpoint>& endpoint);
    ~PortServer();
    PortServer(const PortServer&) = delete;
    PortServer& operator=(const PortServer&) = delete;

    struct Ticket {
        std::uint32_t process = 0;
        os::Descriptor life;  // what it made is undone once nobody has that open any more
    };
    /// For a child that may use all that this process has open.
    Ticket prepare_fork();
    /// Where that child finds this one.
    [[nodiscard]] const std::string& name() const;
    /// The destination id has changed, and with it where others look.
    void rename();
    /// In the child: the threads are the parent's.
    void abandon();

private:
    struct State;
    explicit PortServer(std::shared_ptr<State> state) : state_(std::move(state)) {}
    static void run(const std::shared_ptr<State>& state);
    std::shared_ptr<State> state_;
};

}  // namespace incast::softrio::api
