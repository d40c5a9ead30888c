// One side of a pair that goes wrong. Messages are numbered and say how long they are; whoever receives checks both.
//    peer.C("watch", ADDRESS, N)   says where it listens, takes N sockets, one after the other, and says how each ended
//    peer.C("good", ADDRESS, N)    sends N messages and closes
//    peer.C("torn", ADDRESS, N)    the same, then a part of one
//    peer.C("endless", ADDRESS, 0) sends until it is ended
// ADDRESS: of a channel, or a port of this host.
#include <TMessage.h>
#include <TServerSocket.h>
#include <TSocket.h>

#include "TRioSocket.h"

bool is_port(const char *address)
{
   return TString(address).IsDigit();
}

TSocket *connect_to(const char *address)
{
   return is_port(address) ? new TSocket("localhost", atoi(address)) : new TRioSocket(address);
}

std::vector<char> contents_of(int number)
{
   std::vector<char> made(number % 7 == 6 ? 1000000 : 10 + number * 37 % 5000);
   for (std::size_t at = 0; at < made.size(); ++at) made[at] = static_cast<char>(at * 7 + number);
   return made;
}

int send_one(TSocket &socket, int number)
{
   const auto contents = contents_of(number);
   TMessage message(kMESS_ANY);
   message << number << static_cast<int>(contents.size());
   message.WriteFastArray(contents.data(), contents.size());
   return socket.Send(message);
}

void take_all(TSocket &socket)
{
   int got = 0, code = 0;
   while (true) {
      TMessage *message = nullptr;
      code = socket.Recv(message);
      if (code <= 0) break;
      int number = -1, size = -1;
      *message >> number >> size;
      auto contents = contents_of(got);
      std::vector<char> is(contents.size());
      if (number != got || size != static_cast<int>(contents.size())) break;
      message->ReadFastArray(is.data(), is.size());
      delete message;
      if (is != contents) break;
      ++got;
      if (got == 3) {
         printf("three came by %s\n", TRioSocket::GetTransport(socket).c_str());
         fflush(stdout);
      }
   }
   // What follows says the same.
   char more = 0;
   const bool is_broken = socket.TestBit(TSocket::kBrokenConn);
   const int after = socket.RecvRaw(&more, 1);
   printf("ended: code %d, broken %d, valid %d, after %d, messages %d\n", code, is_broken, socket.IsValid(), after, got);
   fflush(stdout);
}

void watch(const char *address, int count)
{
   std::unique_ptr<TServerSocket> listener;
   if (is_port(address))
      listener = std::make_unique<TServerSocket>(atoi(address), kFALSE, 10, -1, ESocketBindOption::kInaddrLoopback);
   else
      listener = std::make_unique<TRioServerSocket>(address);
   if (!listener->IsValid()) {
      printf("nowhere\n");
      return;
   }
   if (is_port(address))
      printf("at %d\n", listener->GetLocalPort());
   else
      printf("at %s\n", static_cast<TRioServerSocket &>(*listener).GetAddress().c_str());
   fflush(stdout);
   for (int taken = 0; taken < count; ++taken) {
      std::unique_ptr<TSocket> socket(listener->Accept());
      take_all(*socket);
   }
}

void peer(const char *what, const char *address, int count)
{
   const TString part = what;
   if (part == "watch") return watch(address, count);
   std::unique_ptr<TSocket> socket(connect_to(address));
   printf("valid %d\n", socket->IsValid());
   fflush(stdout);
   if (!socket->IsValid()) return;
   int sent = 1;
   for (int number = 0; sent > 0 && (part == "endless" || number < count); ++number) sent = send_one(*socket, number);
   if (part == "torn") {
      const unsigned char length[] = {0, 15, 66, 64};  // 1000000
      socket->SendRaw(length, sizeof length);
      socket->SendRaw("beginning", 9);
   }
   printf("sent: code %d, broken %d, valid %d\n", sent > 0, socket->TestBit(TSocket::kBrokenConn), socket->IsValid());
}
