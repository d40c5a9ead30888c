#include "TRioSocket.h"

#include <TMessage.h>

#include "TRioSystem.h"

TRioSocket::TRioSocket(const char* address) : TSocket(TRioSystem::Install()->OpenChannel(address)) {
    fUrl = address;
    fService = "channel";
    SetName(address);
    SetTitle(fService);
}

std::string TRioSocket::GetTransport(const TSocket& socket) {
    return TRioSystem::Install()->GetTransport(socket.GetDescriptor());
}

TMessage* TRioSocket::Receive(TSocket& socket) {
    TMessage* message = nullptr;
    socket.Recv(message);
    return message;
}

// TServerSocket takes what begins with a slash for the name of a place, and hands it to AnnounceUnixService().
TRioServerSocket::TRioServerSocket(const char* address)
    : TServerSocket((TRioSystem::Install(), ("/" + std::string(address)).c_str())) {}

std::string TRioServerSocket::GetAddress() const {
    return TRioSystem::Install()->GetAddress(GetDescriptor());
}
