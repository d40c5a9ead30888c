// Compares two files: histograms bin by bin, with their errors and statistics; trees by a hash over their entries, in
// which the order does not count, as clients are merged in the order of their coming. Exit status 1 if anything differs.
#include <TFile.h>
#include <TH1.h>
#include <TKey.h>
#include <TLeaf.h>
#include <TTree.h>

#include <array>
#include <cstring>

int differing = 0;

void differ(const char *name, const char *what)
{
   printf("%s: %s\n", name, what);
   ++differing;
}

void compare(const TH1 &a, const TH1 &b)
{
   std::array<double, TH1::kNstat> of_a{}, of_b{};
   a.GetStats(of_a.data());
   b.GetStats(of_b.data());
   if (a.GetNcells() != b.GetNcells() || a.GetEntries() != b.GetEntries() || of_a != of_b)
      return differ(a.GetName(), "the number of bins, of entries, or the statistics");
   for (int bin = 0; bin < a.GetNcells(); ++bin)
      if (a.GetBinContent(bin) != b.GetBinContent(bin) || a.GetBinError(bin) != b.GetBinError(bin))
         return differ(a.GetName(), "a bin");
   printf("%s: %d bins are equal\n", a.GetName(), a.GetNcells());
}

/// The sum of a hash of each entry, so that the order does not count (the mixing is that of splitmix64).
ULong64_t hash_of(TTree &tree)
{
   ULong64_t sum = 0;
   for (Long64_t entry = 0; entry < tree.GetEntries(); ++entry) {
      tree.GetEntry(entry);
      ULong64_t row = 0;
      for (TObject *each : *tree.GetListOfLeaves()) {
         auto *leaf = static_cast<TLeaf *>(each);
         for (int at = 0; at < leaf->GetLen(); ++at) {
            const double value = leaf->GetValue(at);
            ULong64_t bits = 0;
            memcpy(&bits, &value, sizeof bits);
            row = (row ^ bits) + 0x9E3779B97F4A7C15;
            row = (row ^ (row >> 30)) * 0xBF58476D1CE4E5B9;
            row = (row ^ (row >> 27)) * 0x94D049BB133111EB;
            row ^= row >> 31;
         }
      }
      sum += row;
   }
   return sum;
}

void compare(TTree &a, TTree &b)
{
   if (a.GetEntries() != b.GetEntries() || a.GetNbranches() != b.GetNbranches() || hash_of(a) != hash_of(b))
      return differ(a.GetName(), "the entries");
   printf("%s: %lld entries are equal\n", a.GetName(), a.GetEntries());
}

void equal(const char *first, const char *second)
{
   std::unique_ptr<TFile> a(TFile::Open(first)), b(TFile::Open(second));
   if (!a || !b || a->GetListOfKeys()->GetSize() == 0) gSystem->Exit(2);
   if (a->GetListOfKeys()->GetSize() != b->GetListOfKeys()->GetSize()) differ(first, "the number of objects");
   for (TObject *key : *a->GetListOfKeys()) {
      TObject *x = a->Get(key->GetName());
      TObject *y = b->Get(key->GetName());
      if (y == nullptr)
         differ(key->GetName(), "it is only in one of them");
      else if (auto *histogram = dynamic_cast<TH1 *>(x))
         compare(*histogram, *dynamic_cast<TH1 *>(y));
      else if (auto *tree = dynamic_cast<TTree *>(x))
         compare(*tree, *dynamic_cast<TTree *>(y));
      else
         differ(key->GetName(), "of a class that is not compared");
   }
   gSystem->Exit(differing == 0 ? 0 : 1);
}
