// Sockets of ROOT by the address of a channel: docs/root.md.
#pragma once

#include <string>

#include <TServerSocket.h>
#include <TSocket.h>

class TMessage;

/// A socket to an address such as `shm://NAME` or `rio://DESTID:CHANNEL`. IsValid() says whether it is open.
class TRioSocket : public TSocket {
public:
    explicit TRioSocket(const char* address);

    /// `shm`, `rio`, `verbs`; of a socket that has no channel, `tcp`.
    static std::string GetTransport(const TSocket& socket);
    /// The next message, or null: ended or broken. It is the caller's. For Python, which cannot call Recv(TMessage *&).
    static TMessage* Receive(TSocket& socket);

    ClassDefOverride(TRioSocket, 0)  // a socket by the address of a channel
};

/// A server at such an address; `shm://*` or `rio://*:*` chooses one. Only channels arrive there. It has no ClassDef:
/// programs of ROOT ask whether IsA() is TServerSocket itself.
class TRioServerSocket : public TServerSocket {
public:
    explicit TRioServerSocket(const char* address);
    /// Where it really listens, in the form that TRioSocket takes; empty if it does not.
    std::string GetAddress() const;
};
