/* A driver of CUDA as far as incast.gpu calls it, whose device memory is the host's: shows what would be copied where,
 * and that all is given back. FAKE_CUDA_DEVICES: how many devices it has (1). FAKE_CUDA_PINS=0: refuses to pin. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_VALUE = 1, NO_MEMORY = 2, NO_DEVICE = 100, NOT_SUPPORTED = 801, MOST = 64 };

static uint64_t allocated[MOST];
static uintptr_t pinned[MOST];
static int rooms;
static int pins;
static int streams;
static int contexts;
static int copies_under_way;

static int number(const char* name, int usual) {
    const char* text = getenv(name);
    return text ? atoi(text) : usual;
}

int cuInit(unsigned flags) {
    if (flags != 0) return INVALID_VALUE;
    return number("FAKE_CUDA_DEVICES", 1) > 0 ? OK : NO_DEVICE;
}

int cuDeviceGet(int* device, int ordinal) {
    if (ordinal < 0 || ordinal >= number("FAKE_CUDA_DEVICES", 1)) return 101;
    *device = ordinal;
    return OK;
}

int cuDeviceGetName(char* name, int length, int device) {
    snprintf(name, (size_t)length, "fake %d", device);
    return OK;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
    (void)device;
    *context = &contexts;
    ++contexts;
    return OK;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    (void)device;
    return contexts-- > 0 ? OK : INVALID_VALUE;
}

int cuCtxSetCurrent(void* context) {
    return context == &contexts ? OK : INVALID_VALUE;
}

int cuStreamCreate(void** stream, unsigned flags) {
    if (flags != 1) return INVALID_VALUE;
    *stream = &streams;
    ++streams;
    return OK;
}

int cuStreamDestroy_v2(void* stream) {
    return stream == &streams && streams-- > 0 ? OK : INVALID_VALUE;
}

int cuMemAlloc_v2(uint64_t* address, size_t size) {
    if (rooms == MOST) return NO_MEMORY;
    void* memory = aligned_alloc(256, (size + 255) / 256 * 256);
    if (!memory) return NO_MEMORY;
    *address = (uint64_t)(uintptr_t)memory;
    allocated[rooms++] = *address;
    return OK;
}

int cuMemFree_v2(uint64_t address) {
    for (int at = 0; at < rooms; ++at) {
        if (allocated[at] != address) continue;
        free((void*)(uintptr_t)address);
        allocated[at] = allocated[--rooms];
        return OK;
    }
    return INVALID_VALUE;
}

int cuMemHostRegister_v2(void* base, size_t size, unsigned flags) {
    if (!number("FAKE_CUDA_PINS", 1)) return NOT_SUPPORTED;
    if (flags != 8 || size == 0 || pins == MOST) return INVALID_VALUE;
    pinned[pins++] = (uintptr_t)base;
    return OK;
}

int cuMemHostUnregister(void* base) {
    for (int at = 0; at < pins; ++at) {
        if (pinned[at] != (uintptr_t)base) continue;
        pinned[at] = pinned[--pins];
        return OK;
    }
    return INVALID_VALUE;
}

/* Done when the stream is waited for, so that a caller who does not wait sees nothing. */
static struct {
    uint64_t to;
    const void* from;
    size_t size;
} pending[1024];

int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t size, void* stream) {
    if (stream != &streams || copies_under_way == 1024) return INVALID_VALUE;
    pending[copies_under_way].to = to;
    pending[copies_under_way].from = from;
    pending[copies_under_way++].size = size;
    return OK;
}

int cuStreamSynchronize(void* stream) {
    if (stream != &streams) return INVALID_VALUE;
    for (int at = 0; at < copies_under_way; ++at) {
        memcpy((void*)(uintptr_t)pending[at].to, pending[at].from, pending[at].size);
    }
    copies_under_way = 0;
    return OK;
}

int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t size) {
    memcpy(to, (const void*)(uintptr_t)from, size);
    return OK;
}

int cuGetErrorString(int status, const char** text) {
    switch (status) {
        case NO_DEVICE:
            *text = "no CUDA-capable device is detected";
            return OK;
        case 101:
            *text = "invalid device ordinal";
            return OK;
        case NOT_SUPPORTED:
            *text = "operation not supported";
            return OK;
        default:
            *text = NULL;
            return INVALID_VALUE;
    }
}

/* Of the test: all that is not given back. */
int fake_cuda_kept(void) {
    return rooms + pins + streams + contexts;
}
int fake_cuda_rooms(void) {
    return rooms;
}
