// ROOT's gSystem, whose sockets may be channels of Incast: docs/root.md.
#pragma once

#include <memory>
#include <string>

#include <TUnixSystem.h>

namespace incast_root {
class Connections;
}

/// Loading the library puts one of these in the place of gSystem. What goes by a channel says INCAST_ROOT; everything
/// else is as in TUnixSystem. The codes that functions return are those of TUnixSystem, too.
class TRioSystem : public TUnixSystem {
public:
    /// The gSystem of this process from now on: it takes over handlers, timers and paths of the one before. The one
    /// before is kept, as pointers to it may be about.
    static TRioSystem* Install();
    ~TRioSystem() override;

    /// `shm`, `rio`, `verbs`: the transport behind a descriptor; `tcp` for any other one.
    std::string GetTransport(int sock) const;
    /// Where channels arrive at the listener behind a descriptor; empty: nowhere.
    std::string GetAddress(int sock) const;
    /// How many channels were opened or accepted so far.
    Int_t CountChannels() const;
    /// A channel to an address such as `shm://NAME` or `rio://DESTID:CHANNEL`: its descriptor, or -1.
    int OpenChannel(const char* address);
    /// The same for a listener at which only channels arrive.
    int AnnounceChannels(const char* address);
    /// At the end of the process: what was written leaves, and nothing can be sent any more.
    void EndChannels();

    int OpenConnection(const char* server, int port, int tcpwindowsize = -1, const char* protocol = "tcp") override;
    int AnnounceTcpService(int port, Bool_t reuse, int backlog, int tcpwindowsize = -1,
                           ESocketBindOption socketBindOption = ESocketBindOption::kInaddrAny) override;
    int AnnounceUnixService(const char* sockpath, int backlog) override;
    using TUnixSystem::AnnounceUnixService;
    int AcceptConnection(int sock) override;
    void CloseConnection(int sock, Bool_t force = kFALSE) override;
    int RecvRaw(int sock, void* buffer, int length, int flag) override;
    int SendRaw(int sock, const void* buffer, int length, int flag) override;
    int RecvBuf(int sock, void* buffer, int length) override;
    int SendBuf(int sock, const void* buffer, int length) override;
    int SetSockOpt(int sock, int option, int val) override;
    int GetSockOpt(int sock, int option, int* val) override;
    TInetAddress GetHostByName(const char* server) override;
    TInetAddress GetPeerName(int sock) override;
    TInetAddress GetSockName(int sock) override;

private:
    TRioSystem();
    bool PrepareChannels();
    /// A listener for a socket, which it takes, and for channels. Who looks for them finds the card.
    int ListenBeside(int socket, const std::string& address, const std::string& card);

    std::unique_ptr<incast_root::Connections> fConnections;  //!

    ClassDefOverride(TRioSystem, 0)  // gSystem with channels of Incast
};
