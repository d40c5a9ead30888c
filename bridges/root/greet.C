// A program of ROOT that knows nothing of Incast: greet.C("serve") waits for one client and answers its histogram with
// the number of its entries; greet.C("ask") is that client.
#include <TH1.h>
#include <TMessage.h>
#include <TServerSocket.h>
#include <TSocket.h>

void serve(int port)
{
   TServerSocket listener(port, kTRUE);
   if (!listener.IsValid()) return;
   printf("listens at port %d\n", port);
   fflush(stdout);
   std::unique_ptr<TSocket> client(listener.Accept());
   TMessage *message = nullptr;
   if (client->Recv(message) <= 0) return;
   std::unique_ptr<TH1> histogram(static_cast<TH1 *>(message->ReadObject(message->GetClass())));
   delete message;
   client->Send(Form("%s has %.0f entries", histogram->GetName(), histogram->GetEntries()));
}

void ask(const char *host, int port)
{
   TSocket server(host, port);
   TH1F histogram("hpx", "px", 100, -4, 4);
   histogram.FillRandom("gaus", 10000);
   char answer[80] = "no answer";
   if (server.SendObject(&histogram) > 0) server.Recv(answer, sizeof answer);
   printf("%s\n", answer);
}

void greet(const char *what, int port = 9099, const char *host = "localhost")
{
   if (strcmp(what, "serve") == 0)
      serve(port);
   else
      ask(host, port);
}
