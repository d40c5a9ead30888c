// Connections by messages of CM alone, as the first version of [S2] had them: a message carries up to 4072 bytes, and
// the next one goes when it was acknowledged. ROOT gets a socket of the kernel, and a thread for each direction carries
// what goes through it, so TMonitor, Select and all options work as they do for any socket. Needs SoftRIO's libmport.
#pragma once

#include <atomic>
#include <memory>
#include <string>

namespace incast_root {

/// One side of such a connection. It lives until its threads are done, whoever has let go of it.
class MessageConnection {
public:
    virtual ~MessageConnection() = default;
    /// What ROOT reads and writes; whoever takes it closes it, which ends the connection behind what was written.
    [[nodiscard]] virtual int fd() const = 0;
    /// The other side is gone without having ended.
    [[nodiscard]] virtual bool is_lost() const = 0;
};

/// Takes connections. Its end takes a tenth of a second at most.
class MessageListener {
public:
    virtual ~MessageListener() = default;
    /// Readable while there is a connection to take.
    [[nodiscard]] virtual int fd() const = 0;
    /// The next one, or null: there is none now.
    virtual std::shared_ptr<MessageConnection> take() = 0;
    /// In the form that connect_messages() takes.
    [[nodiscard]] virtual std::string address() const = 0;
};

/// Both of `cm://DESTID:CHANNEL`, to listen also `*` for either. Null: why not, in one line.
std::shared_ptr<MessageConnection> connect_messages(const std::string& address, std::string& why);
std::unique_ptr<MessageListener> listen_for_messages(const std::string& address, std::string& why);
/// Waits until what was written to connections that were closed has left, for so long at most.
void drain_messages(int timeout_ms);

}  // namespace incast_root
