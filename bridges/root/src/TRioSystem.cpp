#include "TRioSystem.h"

#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>

#include <TList.h>
#include <TROOT.h>
#include <TSocket.h>
#include <TSysEvtHandler.h>
#include <TTimer.h>
#include <TVirtualMutex.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connections.h"
#include "places.h"

namespace {

using incast_root::Connections;

int port_of(int socket) {
    sockaddr_storage name{};
    socklen_t size = sizeof name;
    if (::getsockname(socket, reinterpret_cast<sockaddr*>(&name), &size) != 0) return -1;
    if (name.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(name).sin_port);
    if (name.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(name).sin6_port);
    return -1;
}

/// Data of SoftRIO's fabric `shm` stays on this host.
bool leaves_this_host(const std::string& transport) {
    if (transport == "shm") return false;
    const char* const fabric = std::getenv("RIO_FABRIC");
    return (transport != "rio" && transport != "cm") ||
           (fabric != nullptr && *fabric != 0 && std::strncmp(fabric, "shm", 3) != 0);
}

template <class Entry, class Move>
void move_all(TSeqCollection* list, Move&& move) {
    if (list == nullptr) return;
    TList entries;
    for (TObject* one : *list)
        entries.Add(one);
    for (TObject* one : entries)
        move(static_cast<Entry*>(one));
    entries.Clear("nodelete");
}

/// What programs told the old one, by functions that everybody may call.
void take_over(TSystem& from, TSystem& into) {
    move_all<TSignalHandler>(from.GetListOfSignalHandlers(), [&](TSignalHandler* one) {
        from.RemoveSignalHandler(one);
        into.AddSignalHandler(one);
    });
    move_all<TFileHandler>(from.GetListOfFileHandlers(), [&](TFileHandler* one) {
        from.RemoveFileHandler(one);
        into.AddFileHandler(one);
    });
    move_all<TStdExceptionHandler>(from.GetListOfStdExceptionHandlers(), [&](TStdExceptionHandler* one) {
        from.RemoveStdExceptionHandler(one);
        into.AddStdExceptionHandler(one);
    });
    move_all<TTimer>(from.GetListOfTimers(), [&](TTimer* one) {
        from.RemoveTimer(one);
        into.AddTimer(one);
    });
    into.SetMakeSharedLib(from.GetMakeSharedLib());
    into.SetMakeExe(from.GetMakeExe());
    into.SetFlagsDebug(from.GetFlagsDebug());
    into.SetFlagsOpt(from.GetFlagsOpt());
    into.SetAclicMode(from.GetAclicMode());
    into.SetBuildDir(from.GetBuildDir(), (from.GetAclicProperties() & TSystem::kFlatBuildDir) != 0);
    into.SetSoExt(from.GetSoExt());
    into.SetObjExt(from.GetObjExt());
    into.SetLinkdefSuffix(from.GetLinkdefSuffix());
}

void end_channels() {
    if (auto* const system = dynamic_cast<TRioSystem*>(gSystem)) system->EndChannels();
}

/// The loading of the library puts the new gSystem in place.
[[maybe_unused]] const bool is_installed = TRioSystem::Install() != nullptr;

}  // namespace

TRioSystem::TRioSystem() : fConnections(std::make_unique<Connections>(incast_root::read_settings())) {}

TRioSystem::~TRioSystem() = default;

TRioSystem* TRioSystem::Install() {
    ROOT::GetROOT();
    if (auto* const there = dynamic_cast<TRioSystem*>(gSystem)) return there;
    R__LOCKGUARD(gROOTMutex);
    TSystem* const before = gSystem;
    gSystem = nullptr;  // the constructor wants to be the only one
    auto* const made = new TRioSystem;
    gSystem = before;
    made->Init();  // which asks gSystem
    gSystem = made;
    take_over(*before, *made);
    std::atexit(&end_channels);
    return made;
}

void TRioSystem::EndChannels() {
    fConnections->end();
}

std::string TRioSystem::GetTransport(int sock) const {
    if (fConnections->messages(sock) != nullptr) return "cm";
    const auto connection = fConnections->connection(sock);
    return connection == nullptr ? "tcp" : connection->transport();
}

std::string TRioSystem::GetAddress(int sock) const {
    const auto listener = fConnections->listener(sock);
    return listener == nullptr ? "" : listener->address();
}

Int_t TRioSystem::CountChannels() const {
    return fConnections->count();
}

int TRioSystem::OpenChannel(const char* address) {
    const int fd = fConnections->open(address);
    if (fd < 0) Error("OpenConnection", "%s", Connections::message());
    return fd;
}

int TRioSystem::AnnounceChannels(const char* address) {
    const int fd = fConnections->listen(-1, address);
    if (fd >= 0) return fd;
    const int error = errno;
    Error("AnnounceService", "%s", Connections::message());
    return error == EADDRINUSE ? -2 : -1;
}

bool TRioSystem::PrepareChannels() {
    const bool is_ready = fConnections->prepare(fConnections->settings().transport + "://");
    if (!is_ready) Error("AnnounceService", "%s", Connections::message());
    return is_ready;
}

int TRioSystem::ListenBeside(int socket, const std::string& address, const std::string& card) {
    const int fd = fConnections->listen(socket, address);
    if (fd < 0) {
        Error("AnnounceService", "%s", Connections::message());
        return -1;
    }
    const auto listener = fConnections->listener(fd);
    if (incast_root::write_card(card, listener->address()))
        listener->card = card;
    else
        Warning("AnnounceService", "%s: %s; programs of this host find no channel", card.c_str(), std::strerror(errno));
    return fd;
}

int TRioSystem::OpenConnection(const char* server, int port, int tcpwindowsize, const char* protocol) {
    if (incast_root::is_channel_address(server)) return OpenChannel(server);
    const bool is_udp = protocol != nullptr && std::strcmp(protocol, "udp") == 0;
    if (!fConnections->settings().is_on() || is_udp)
        return TUnixSystem::OpenConnection(server, port, tcpwindowsize, protocol);
    const bool is_path = server[0] == '/' || !AccessPathName(server);
    const std::string address = is_path ? incast_root::place_of_path(server)
                                        : incast_root::place_of_port(fConnections->settings(), server, port);
    const char* why = "no server there has channels";
    if (!address.empty()) {
        const int fd = fConnections->open(address);
        if (fd >= 0) return fd;
        why = Connections::message();
    }
    if (!address.empty() || is_path || incast_root::is_this_host(server))
        Warning("OpenConnection", "%s: %s; a socket is tried", server, why);
    return TUnixSystem::OpenConnection(server, port, tcpwindowsize, protocol);
}

int TRioSystem::AnnounceTcpService(int port, Bool_t reuse, int backlog, int tcpwindowsize,
                                   ESocketBindOption socketBindOption) {
    const auto& settings = fConnections->settings();
    const bool is_here = socketBindOption == ESocketBindOption::kInaddrLoopback && leaves_this_host(settings.transport);
    if (!settings.is_on() || is_here)
        return TUnixSystem::AnnounceTcpService(port, reuse, backlog, tcpwindowsize, socketBindOption);
    if (!PrepareChannels()) return -1;
    const int socket = TUnixSystem::AnnounceTcpService(port, reuse, backlog, tcpwindowsize, socketBindOption);
    if (socket < 0) return socket;
    const int number = port_of(socket);
    // On RapidIO the port is the number of the CM channel, so that other hosts know it.
    const std::string address =
        settings.transport + (settings.transport == "shm" ? "://*" : "://*:" + std::to_string(number));
    return ListenBeside(socket, address, incast_root::card_of_port(number));
}

int TRioSystem::AnnounceUnixService(const char* sockpath, int backlog) {
    if (sockpath[0] == '/' && incast_root::is_channel_address(sockpath + 1)) return AnnounceChannels(sockpath + 1);
    const auto& settings = fConnections->settings();
    if (!settings.is_on()) return TUnixSystem::AnnounceUnixService(sockpath, backlog);
    if (!PrepareChannels()) return -1;
    const int socket = TUnixSystem::AnnounceUnixService(sockpath, backlog);
    if (socket < 0) return socket;
    return ListenBeside(socket, settings.transport + (settings.transport == "shm" ? "://*" : "://*:*"),
                        incast_root::card_of_path(sockpath));
}

int TRioSystem::AcceptConnection(int sock) {
    const auto listener = fConnections->listener(sock);
    if (listener == nullptr) return TUnixSystem::AcceptConnection(sock);
    const int fd = fConnections->accept(*listener);
    if (fd == -1) SysError("AcceptConnection", "accept");
    return fd;
}

void TRioSystem::CloseConnection(int sock, Bool_t force) {
    if (!fConnections->close(sock)) TUnixSystem::CloseConnection(sock, force);
}

int TRioSystem::RecvRaw(int sock, void* buffer, int length, int flag) {
    const auto connection = fConnections->connection(sock);
    if (connection == nullptr) {
        const int outcome = TUnixSystem::RecvRaw(sock, buffer, length, flag);
        const auto messages = fConnections->messages(sock);
        if (messages == nullptr) return outcome;
        // The end within what was asked for would pass for the rest of it.
        const bool is_torn = outcome > 0 && outcome < length && flag == kDefault;
        return is_torn || (outcome == 0 && messages->is_lost()) ? incast_root::broken : outcome;
    }
    const int outcome = incast_root::receive(*connection, buffer, length, flag);
    if (outcome == incast_root::failed) Error("RecvRaw", "cannot receive buffer: %s", incast_channel_message());
    return outcome;
}

int TRioSystem::SendRaw(int sock, const void* buffer, int length, int flag) {
    const auto connection = fConnections->connection(sock);
    if (connection == nullptr) {
        const auto messages = fConnections->messages(sock);
        return messages == nullptr ? TUnixSystem::SendRaw(sock, buffer, length, flag)
                                   : incast_root::send(*messages, buffer, length, flag);
    }
    const int outcome = incast_root::send(*connection, buffer, length, flag);
    if (outcome == incast_root::failed) Error("SendRaw", "cannot send buffer: %s", incast_channel_message());
    return outcome;
}

/// A length of four bytes in network order, then so many: what TUnixSystem says, too.
int TRioSystem::RecvBuf(int sock, void* buffer, int length) {
    if (fConnections->connection(sock) == nullptr) return TUnixSystem::RecvBuf(sock, buffer, length);
    Int_t header = 0;
    if (RecvRaw(sock, &header, sizeof header, kDefault) != sizeof header) return -1;
    const int count = static_cast<int>(ntohl(static_cast<UInt_t>(header)));
    if (count < 0 || count > length) {
        Error("RecvBuf", "record header exceeds buffer size");
        return -1;
    }
    if (count > 0 && RecvRaw(sock, buffer, count, kDefault) < 0) return -1;
    return count;
}

int TRioSystem::SendBuf(int sock, const void* buffer, int length) {
    if (fConnections->connection(sock) == nullptr) return TUnixSystem::SendBuf(sock, buffer, length);
    const UInt_t header = htonl(static_cast<UInt_t>(length));
    if (SendRaw(sock, &header, sizeof header, kDefault) < 0) return -1;
    if (length > 0 && SendRaw(sock, buffer, length, kDefault) < 0) return -1;
    return length;
}

int TRioSystem::SetSockOpt(int sock, int option, int val) {
    if (const auto listener = fConnections->listener(sock)) {
        if (option == kNoBlock) return listener->is_non_blocking = val != 0, 0;
        return listener->socket() < 0 ? 0 : TUnixSystem::SetSockOpt(listener->socket(), option, val);
    }
    const auto connection = fConnections->connection(sock);
    if (fConnections->messages(sock) != nullptr && option == kNoDelay) return 0;
    if (connection == nullptr) return TUnixSystem::SetSockOpt(sock, option, val);
    if (option == kNoBlock) connection->is_non_blocking = val != 0;
    return 0;  // what only TCP has makes no difference here
}

int TRioSystem::GetSockOpt(int sock, int option, int* val) {
    *val = 0;
    if (const auto listener = fConnections->listener(sock)) {
        if (option == kNoBlock) return *val = listener->is_non_blocking ? 1 : 0, 0;
        return listener->socket() < 0 ? 0 : TUnixSystem::GetSockOpt(listener->socket(), option, val);
    }
    const auto connection = fConnections->connection(sock);
    if (fConnections->messages(sock) != nullptr && option == kNoDelay) return *val = 1, 0;
    if (connection == nullptr) return TUnixSystem::GetSockOpt(sock, option, val);
    incast_channel_options ring = INCAST_CHANNEL_OPTIONS;
    const void* there = nullptr;
    switch (option) {
        case kNoBlock:
            *val = connection->is_non_blocking ? 1 : 0;
            break;
        case kNoDelay:
            *val = 1;
            break;
        case kSendBuffer:
        case kRecvBuffer:
            if (incast_channel_get_options(connection->channel(), &ring) == 0)
                *val = static_cast<int>(std::min<ULong64_t>(ULong64_t(ring.buffers) * ring.buffer_bytes, INT_MAX));
            break;
        case kBytesToRead:
            *val = static_cast<int>(std::max<Long64_t>(0, incast_channel_peek(connection->channel(), &there, 0)));
            break;
        default:
            break;
    }
    return 0;
}

/// A host of the RapidIO fabric alone has no address of the Internet: its name counts as one of this host.
TInetAddress TRioSystem::GetHostByName(const char* server) {
    if (incast_root::is_channel_address(server)) return TUnixSystem::GetHostByName("127.0.0.1");
    TInetAddress found = TUnixSystem::GetHostByName(server);
    if (found.IsValid() || fConnections->settings().hosts.count(server) == 0) return found;
    return TUnixSystem::GetHostByName("127.0.0.1");
}

/// Channels have no addresses of the Internet.
TInetAddress TRioSystem::GetPeerName(int sock) {
    if (fConnections->connection(sock) == nullptr && fConnections->messages(sock) == nullptr)
        return TUnixSystem::GetPeerName(sock);
    return TUnixSystem::GetHostByName("127.0.0.1");
}

TInetAddress TRioSystem::GetSockName(int sock) {
    if (const auto listener = fConnections->listener(sock); listener != nullptr && listener->socket() >= 0)
        return TUnixSystem::GetSockName(listener->socket());
    const bool is_of_kernel = fConnections->listener(sock) == nullptr && fConnections->connection(sock) == nullptr &&
                              fConnections->messages(sock) == nullptr;
    return is_of_kernel ? TUnixSystem::GetSockName(sock) : TUnixSystem::GetHostByName("127.0.0.1");
}
