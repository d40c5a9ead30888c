// Writes the histograms that a program has drawn to kept.root.
#include <TCanvas.h>
#include <TFile.h>
#include <TH1.h>
#include <TROOT.h>

void keep_of(TVirtualPad *pad, int &number)
{
   for (TObject *one : *pad->GetListOfPrimitives()) {
      if (auto *histogram = dynamic_cast<TH1 *>(one)) histogram->Write(Form("h%02d", number++));
      if (auto *inner = dynamic_cast<TVirtualPad *>(one)) keep_of(inner, number);
   }
}

void keep()
{
   TFile out("kept.root", "RECREATE");
   int number = 0;
   for (TObject *canvas : *gROOT->GetListOfCanvases()) keep_of(static_cast<TVirtualPad *>(canvas), number);
   printf("kept %d histograms\n", number);
}
