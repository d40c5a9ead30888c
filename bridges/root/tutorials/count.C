// How many channels this process has had; a socket is none.
void count()
{
   const bool is_there = TClass::GetClass("TRioSystem") != nullptr && gSystem->InheritsFrom("TRioSystem");
   printf("channels: %d\n", is_there ? static_cast<int>(gROOT->ProcessLine("TRioSystem::Install()->CountChannels()")) : 0);
}
