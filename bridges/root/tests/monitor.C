// A TMonitor with sockets of mixed kinds.
//    monitor.C("serve", N)   says where it listens: a TCP port for channels and sockets, and an address of rio. Takes N
//                            sockets, idles for two seconds, then counts what comes until all have ended
//    monitor.C("fill", N, PORT, RIO)   opens a third of them by each way, and sends numbers by each in turn
#include <TMessage.h>
#include <TMonitor.h>
#include <TServerSocket.h>
#include <TSocket.h>

#include <sys/resource.h>

#include "TRioSocket.h"

constexpr int kRounds = 50;

double cpu_seconds()
{
   rusage usage{};
   getrusage(RUSAGE_SELF, &usage);
   return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + 1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

void serve(int count)
{
   TServerSocket both(0, kFALSE, 128, -1, ESocketBindOption::kInaddrLoopback);
   TRioServerSocket rio("rio://*:*");
   printf("at %d %s\n", both.GetLocalPort(), rio.GetAddress().c_str());
   fflush(stdout);
   TMonitor monitor;
   monitor.Add(&both);
   monitor.Add(&rio);
   std::map<TSocket *, int> next;
   std::map<std::string, int> kinds;
   while (static_cast<int>(next.size()) < count) {
      auto *ready = static_cast<TServerSocket *>(monitor.Select());
      TSocket *socket = ready->Accept();
      ++kinds[TRioSocket::GetTransport(*socket)];
      next[socket] = 0;
   }
   for (const auto &[kind, number] : kinds) printf("%d by %s\n", number, kind.c_str());
   for (auto &[socket, number] : next) monitor.Add(socket);
   // All are silent until they are told to begin.
   const double before = cpu_seconds();
   TSocket *woken = monitor.Select(2000);
   printf("idle: %s, %.4f s of processor time in 2 s\n", woken == reinterpret_cast<TSocket *>(-1) ? "slept" : "woke up",
          cpu_seconds() - before);
   for (auto &[socket, number] : next) socket->Send("begin");
   int wrong = 0, empty = 0, open = count;
   while (open > 0) {
      TSocket *socket = monitor.Select();
      Int_t value = -1, kind = -1;
      if (socket->Select(TSocket::kRead, 0) != 1) ++empty;
      if (socket->Recv(value, kind) <= 0) {
         monitor.Remove(socket);
         --open;
      } else if (value != next[socket]++ || kind != 4711) {
         ++wrong;
      }
   }
   int all = 0;
   for (auto &[socket, number] : next) {
      all += number;
      delete socket;
   }
   printf("came: %d of %d, %d wrong, %d empty wake-ups\n", all, count * kRounds, wrong, empty);
}

void fill(int count, int port, const char *rio)
{
   std::vector<std::unique_ptr<TSocket>> sockets;
   for (int number = 0; number < count; ++number) {
      if (number % 3 == 0)
         sockets.push_back(std::make_unique<TSocket>("localhost", port));
      else if (number % 3 == 1)
         sockets.push_back(std::make_unique<TSocket>(
            static_cast<TUnixSystem *>(gSystem)->TUnixSystem::OpenConnection("localhost", port)));
      else
         sockets.push_back(std::make_unique<TRioSocket>(rio));
      if (!sockets.back()->IsValid()) printf("number %d is not open\n", number);
   }
   char text[16];
   for (auto &socket : sockets) socket->Recv(text, sizeof text);
   for (int round = 0; round < kRounds; ++round)
      for (auto &socket : sockets) socket->Send(round, 4711);
   for (auto &socket : sockets) socket->Close();
   printf("sent %d\n", count * kRounds);
}

void monitor(const char *what, int count, int port = 0, const char *rio = "")
{
   if (strcmp(what, "serve") == 0)
      serve(count);
   else
      fill(count, port, rio);
}
