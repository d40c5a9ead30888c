#pragma once

#ifdef __CLING__
#pragma link C++ class TRioSystem;
#pragma link C++ class TRioSocket;
#pragma link C++ class TRioServerSocket - ;
#endif
