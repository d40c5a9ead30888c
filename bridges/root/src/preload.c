/* For LD_PRELOAD: loads libIncastRoot.so, which stands beside this library, into programs of ROOT, and into no other
 * ones. What a program of ROOT starts, such as a shell, is left alone: it has no libCore. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

static int is_core(struct dl_phdr_info* info, size_t size, void* unused) {
    const char* slash = strrchr(info->dlpi_name, '/');
    const char* name = slash == NULL ? info->dlpi_name : slash + 1;
    (void)size;
    (void)unused;
    return strncmp(name, "libCore.so", 10) == 0;
}

__attribute__((constructor)) static void load(void) {
    Dl_info self;
    char path[4096];
    if (!dl_iterate_phdr(is_core, NULL) || dladdr((void*)&is_core, &self) == 0) return;
    const char* slash = strrchr(self.dli_fname, '/');
    const int folder = slash == NULL ? 0 : (int)(slash + 1 - self.dli_fname);
    const int length = snprintf(path, sizeof path, "%.*slibIncastRoot.so", folder, self.dli_fname);
    if (length < 0 || (size_t)length >= sizeof path) return;
    if (dlopen(path, RTLD_NOW | RTLD_GLOBAL) == NULL) fprintf(stderr, "%s: %s\n", self.dli_fname, dlerror());
}
