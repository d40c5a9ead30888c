// What stands behind the descriptors that this library gives to ROOT: channels, and listeners at which channels and
// sockets of the kernel arrive. Thread-safe; a descriptor that is not in here is the caller's own.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <sys/types.h>

#include <incast/channel.h>

#include "messages.h"
#include "settings.h"

namespace incast_root {

/// A descriptor of the kernel that this object closes.
class Descriptor {
public:
    Descriptor() = default;
    explicit Descriptor(int fd) : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Descriptor();
    [[nodiscard]] int fd() const { return fd_; }

private:
    int fd_ = -1;
};

/// One side of a channel. Its descriptor is readable exactly while there is something to read, or the end.
class Connection {
public:
    Connection(incast_channel* channel, pid_t owner, std::string transport)
        : channel_(channel), owner_(owner), transport_(std::move(transport)) {}
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    ~Connection();

    [[nodiscard]] incast_channel* channel() const { return channel_; }
    [[nodiscard]] const std::string& transport() const { return transport_; }
    [[nodiscard]] bool is_of_this_process() const;
    [[nodiscard]] int fd() const { return fd_; }
    /// 0 or an errno.
    int make_descriptor();

    std::atomic<bool> is_non_blocking = false;

private:
    incast_channel* channel_;
    pid_t owner_;
    std::string transport_;
    int fd_ = -1;
};

/// A listener of ROOT: a socket of the kernel, if the program asked for one, and one for channels beside it. Its
/// descriptor is readable while either has somebody to accept.
class Listener {
public:
    Listener(Descriptor socket, incast_channel_listener* channels, pid_t owner, std::string transport)
        : transport(std::move(transport)), socket_(std::move(socket)), channels_(channels), owner_(owner) {}
    Listener(Descriptor socket, std::unique_ptr<MessageListener> messages, pid_t owner)
        : transport("cm"), socket_(std::move(socket)), messages_(std::move(messages)), owner_(owner) {}
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    ~Listener();

    /// 0 or an errno.
    int make_descriptor();
    [[nodiscard]] int fd() const { return either_.fd(); }
    [[nodiscard]] int socket() const { return socket_.fd(); }
    [[nodiscard]] incast_channel_listener* channels() const { return channels_; }
    /// Null: channels arrive.
    [[nodiscard]] MessageListener* messages() const { return messages_.get(); }
    [[nodiscard]] std::string address() const;

    std::atomic<bool> is_non_blocking = false;
    const std::string transport;
    std::string card;  // a symbolic link that is removed with the listener

private:
    Descriptor socket_;
    incast_channel_listener* channels_ = nullptr;
    std::unique_ptr<MessageListener> messages_;
    pid_t owner_;
    Descriptor either_;
};

/// What ROOT returns instead of a number of bytes.
enum Outcome : int { ended = 0, failed = -1, no_out_of_band = -2, would_block = -4, broken = -5 };

class Connections {
public:
    explicit Connections(Settings settings) : settings_(std::move(settings)) {}

    [[nodiscard]] const Settings& settings() const { return settings_; }
    /// A channel to that address: its descriptor, or -1 with errno and message().
    int open(const std::string& address);
    /// Does now what the first channel or listener of that transport would have to wait for. False: as open().
    bool prepare(const std::string& address) { return is_of_messages(address) || hub_for(address) != nullptr; }
    /// One line on what failed last in this thread.
    static const char* message();
    /// Takes `socket`, which may be none (-1), whatever happens. Else as open().
    int listen(int socket, const std::string& address);
    /// A descriptor of a channel or of the kernel; -1: an error; -2: nobody there and the listener does not block.
    int accept(Listener& listener);

    /// Channels that were opened or accepted so far.
    [[nodiscard]] int count() const { return count_; }
    [[nodiscard]] std::shared_ptr<Connection> connection(int fd) const;
    [[nodiscard]] std::shared_ptr<Listener> listener(int fd) const;
    /// Of CM alone: the descriptor is a socket of the kernel, which is used like any other.
    [[nodiscard]] std::shared_ptr<MessageConnection> messages(int fd) const;
    /// True if it was one of these.
    bool close(int fd);
    /// Closes all of them and waits until what was written has left, for ten seconds at most.
    void end();

private:
    incast_channel_hub* hub_for(const std::string& address);
    void forget_parent();
    static bool is_of_messages(const std::string& address);
    int keep(incast_channel* channel, const std::string& transport);
    int keep(std::shared_ptr<MessageConnection> messages);

    Settings settings_;
    std::atomic<int> count_ = 0;
    mutable std::mutex mutex_;
    pid_t owner_ = 0;
    bool has_ended_ = false;
    std::map<std::string, incast_channel_hub*> hubs_;  // by transport
    std::map<int, std::shared_ptr<Connection>> connections_;
    std::map<int, std::shared_ptr<MessageConnection>> messages_;
    std::map<int, std::shared_ptr<Listener>> listeners_;
};

/// As TUnixSystem::SendRaw and RecvRaw, by the codes above. `options`: a value of ESendRecvOptions.
/// A message is never torn: of a connection that does not block nothing is taken, or all of it is.
int send(Connection& connection, const void* data, int bytes, int options);
int send(const MessageConnection& connection, const void* data, int bytes, int options);
int receive(Connection& connection, void* into, int bytes, int options);

}  // namespace incast_root
