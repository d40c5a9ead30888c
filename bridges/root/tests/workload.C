// Small real work between processes, and the same in one process: workload.C(WHAT, ...), files are compared by equal.C.
//    "merge", N, FILE        says its port; takes a histogram of each of N fillers, adds them in their order, writes them
//    "fill", PORT, NUMBER    fills one from its own seed and sends it
//    "alone", N, FILE        fills and adds all of them itself
//    "gather", FILE          says its port; takes trees until their sender ends, merges them, writes them
//    "skim", PORT, INPUT     sends the events of a NanoAOD file with a muon, 50 events of it at a time
//    "skim-alone", FILE, INPUT   the same to a file
#include <TFile.h>
#include <TH1.h>
#include <TMessage.h>
#include <TRandom3.h>
#include <TServerSocket.h>
#include <TSocket.h>
#include <TTree.h>

#include "TRioSocket.h"

std::unique_ptr<TH1D> fill(int number)
{
   TRandom3 random(100 + number);
   auto made = std::make_unique<TH1D>("mass", "mass", 200, 60, 120);
   made->SetDirectory(nullptr);
   for (int event = 0; event < 200000; ++event) made->Fill(random.BreitWigner(91.2, 2.5));
   return made;
}

std::unique_ptr<TServerSocket> listen()
{
   auto made = std::make_unique<TServerSocket>(0, kFALSE, 20, -1, ESocketBindOption::kInaddrLoopback);
   printf("at %d\n", made->GetLocalPort());
   fflush(stdout);
   return made;
}

TObject *object_of(TSocket &socket)
{
   TMessage *message = nullptr;
   if (socket.Recv(message) <= 0) return nullptr;
   TObject *object = message->ReadObject(message->GetClass());
   delete message;
   return object;
}

void write(TObject *object, const char *file)
{
   TFile out(file, "RECREATE");
   out.WriteTObject(object);
}

void merge(int count, const char *file)
{
   auto listener = listen();
   std::map<int, TH1 *> parts;
   std::map<std::string, int> by;
   for (int taken = 0; taken < count; ++taken) {
      std::unique_ptr<TSocket> socket(listener->Accept());
      ++by[TRioSocket::GetTransport(*socket)];
      Int_t number = -1, kind = 0;
      socket->Recv(number, kind);
      parts[number] = static_cast<TH1 *>(object_of(*socket));
   }
   TH1 *all = nullptr;
   for (auto &[number, part] : parts)
      if (all == nullptr) all = part; else all->Add(part);
   write(all, file);
   for (const auto &[way, number] : by) printf("merged %d by %s\n", number, way.c_str());
}

/// The branches of muons, of the events from the first to before the last one.
TTree *skim(TTree &input, Long64_t first, Long64_t last)
{
   input.SetBranchStatus("*", false);
   for (const char *name : {"nMuon", "Muon_pt", "Muon_eta", "Muon_phi", "Muon_charge"}) input.SetBranchStatus(name, true);
   gROOT->cd();
   return input.CopyTree("nMuon >= 1", "", last - first, first);
}

constexpr Long64_t kBatch = 50;

void gather(const char *file)
{
   auto listener = listen();
   std::unique_ptr<TSocket> socket(listener->Accept());
   const std::string by = TRioSocket::GetTransport(*socket);
   TList parts;
   while (TObject *part = object_of(*socket)) parts.Add(part);
   TFile out(file, "RECREATE");
   TTree *all = TTree::MergeTrees(&parts);
   out.WriteTObject(all);
   printf("gathered %lld of %d parts by %s\n", all->GetEntries(), parts.GetSize(), by.c_str());
}

void send_skim(int port, const char *input)
{
   TSocket socket("localhost", port);
   TFile file(input);
   auto *tree = file.Get<TTree>("Events");
   for (Long64_t first = 0; first < tree->GetEntries(); first += kBatch) {
      std::unique_ptr<TTree> part(skim(*tree, first, std::min(first + kBatch, tree->GetEntries())));
      socket.SendObject(part.get());
   }
}

void skim_alone(const char *file, const char *input)
{
   TFile in(input);
   auto *tree = in.Get<TTree>("Events");
   TTree *all = skim(*tree, 0, tree->GetEntries());
   write(all, file);
   printf("skimmed %lld of %lld\n", all->GetEntries(), tree->GetEntries());
}

void workload(const char *what, int number, const char *file)
{
   const TString part = what;
   if (part == "merge") {
      merge(number, file);
   } else if (part == "alone") {
      auto all = fill(0);
      for (int each = 1; each < number; ++each) all->Add(fill(each).get());
      write(all.get(), file);
   } else if (part == "skim") {
      send_skim(number, file);
   }
}

void workload(const char *what, int port, int number)
{
   TSocket socket("localhost", port);
   socket.Send(number, 1);
   socket.SendObject(fill(number).get());
}

void workload(const char *what, const char *file, const char *input = "")
{
   if (strcmp(what, "gather") == 0)
      gather(file);
   else
      skim_alone(file, input);
}
