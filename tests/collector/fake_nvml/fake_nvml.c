/* A driver library without a driver: what nvidia-ml-py asks for, answered from one text file that tests change at run
   time. Lines are "GPU KEY VALUE"; GPU is an index or * for all; later lines win. FAKE_NVML_STATE names the file, which
   is replaced as a whole. Keys: see fake_driver.py. Build with -DOLD_DRIVER for a library that lacks the newer symbols. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, TIMED_OUT = 10, LOST = 15 };
enum { MAX_LINES = 4096, ALL_GPUS = -1, HANG_POLL_US = 5000, EVENT_POLL_US = 5000, XID_EVENT = 8 };

typedef struct { int gpu; char key[28]; char value[48]; } Line;
typedef void *Device;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Line lines[MAX_LINES];
static int num_lines;
static struct timespec read_at;
static ino_t read_inode;
static int is_open;
static unsigned events_taken;

/* Looks at the file once a millisecond at most: agents that are measured must not pay for the fake. */
static void refresh(void) {
    static long long looked_us;
    struct timespec clock;
    clock_gettime(CLOCK_MONOTONIC, &clock);
    long long now_us = clock.tv_sec * 1000000LL + clock.tv_nsec / 1000;
    const char *path = getenv("FAKE_NVML_STATE");
    struct stat now;
    if (now_us - looked_us < 1000 || !path || stat(path, &now)) return;
    looked_us = now_us;
    if (now.st_ino == read_inode && !memcmp(&now.st_mtim, &read_at, sizeof read_at)) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    char gpu[8];
    num_lines = 0;
    while (num_lines < MAX_LINES &&
           fscanf(file, "%7s %27s %47[^\n]", gpu, lines[num_lines].key, lines[num_lines].value) == 3)
        lines[num_lines++].gpu = gpu[0] == '*' ? ALL_GPUS : atoi(gpu);
    fclose(file);
    read_inode = now.st_ino;
    read_at = now.st_mtim;
}

static int find(int gpu, const char *key, char value[48]) {
    int found = 0;
    pthread_mutex_lock(&lock);
    refresh();
    for (int i = num_lines - 1; i >= 0 && !found; i--)
        if ((lines[i].gpu == gpu || lines[i].gpu == ALL_GPUS) && !strcmp(lines[i].key, key)) {
            memcpy(value, lines[i].value, sizeof lines[i].value);
            found = 1;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

static unsigned long long number(int gpu, const char *key, unsigned long long other) {
    char value[48];
    return find(gpu, key, value) ? strtoull(value, NULL, 0) : other;
}

static int index_of(Device device) { return (int)(long)device - 1; }

/* What every call about a device meets first: a hang, a loss, an error of the driver. */
static int trouble(Device device) {
    int gpu = index_of(device);
    if (!is_open) return UNINITIALIZED;
    while (number(gpu, "hang", 0)) usleep(HANG_POLL_US);
    if (number(ALL_GPUS, "driver_error", 0)) return (int)number(ALL_GPUS, "driver_error", 0);
    return number(gpu, "lost", 0) ? LOST : SUCCESS;
}

/* A value, "!N" for NVML's error N, or nothing: not supported. */
static int get(Device device, const char *key, unsigned long long *out) {
    char value[48];
    int error = trouble(device);
    if (error) return error;
    if (!find(index_of(device), key, value)) return NOT_SUPPORTED;
    if (value[0] == '!') return atoi(value + 1);
    *out = strtoull(value, NULL, 0);
    return SUCCESS;
}

static int get_uint(Device device, const char *key, unsigned *out) {
    unsigned long long value = 0;
    int error = get(device, key, &value);
    if (!error) *out = (unsigned)value;
    return error;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    int error = (int)number(ALL_GPUS, "init_error", 0);
    if (!error) is_open = 1;
    return error;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
    int error = is_open ? SUCCESS : UNINITIALIZED;
    is_open = 0;
    return error;
}
const char *nvmlErrorString(int error) {
    switch (error) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case NOT_SUPPORTED: return "Not Supported";
    case 9: return "Driver Not Loaded";
    case TIMED_OUT: return "Timeout";
    case LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}
int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    char value[48] = "590.48.01";
    find(ALL_GPUS, "driver", value);
    snprintf(text, size, "%s", value);
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    if (!is_open) return UNINITIALIZED;
    if (number(ALL_GPUS, "driver_error", 0)) return (int)number(ALL_GPUS, "driver_error", 0);
    *count = (unsigned)number(ALL_GPUS, "count", 0);
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned gpu, Device *device) {
    if (gpu >= number(ALL_GPUS, "count", 0)) return INVALID;
    if (number((int)gpu, "lost", 0)) return LOST;
    *device = (Device)(long)(gpu + 1);
    return SUCCESS;
}
static int text(Device device, const char *key, const char *other, char *out, unsigned size) {
    char value[48];
    snprintf(out, size, other, index_of(device));
    if (find(index_of(device), key, value)) snprintf(out, size, "%s", value);
    return SUCCESS;
}
int nvmlDeviceGetUUID(Device device, char *out, unsigned size) { return text(device, "uuid", "GPU-%d", out, size); }
int nvmlDeviceGetName(Device device, char *out, unsigned size) { return text(device, "name", "Fake %d", out, size); }

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
int nvmlDeviceGetPciInfo_v3(Device device, Pci *out) {
    memset(out, 0, sizeof *out);
    out->bus = 0x3b + (unsigned)index_of(device);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
    return SUCCESS;
}

typedef struct { unsigned version, sensor; int temperature; } Temperature;
#ifndef OLD_DRIVER
int nvmlDeviceGetTemperatureV(Device device, Temperature *out) {
    return get_uint(device, "temperature", (unsigned *)&out->temperature);
}
#endif
int nvmlDeviceGetTemperature(Device device, int sensor, unsigned *out) {
    (void)sensor;
    return get_uint(device, "temperature", out);
}
int nvmlDeviceGetPowerUsage(Device device, unsigned *out) { return get_uint(device, "power_mw", out); }
int nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned *out) { return get_uint(device, "limit_mw", out); }
int nvmlDeviceGetClockInfo(Device device, int kind, unsigned *out) { (void)kind; return get_uint(device, "clock_mhz", out); }
int nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned *out) { return get_uint(device, "width", out); }
int nvmlDeviceGetMaxPcieLinkWidth(Device device, unsigned *out) { return get_uint(device, "max_width", out); }
int nvmlDeviceGetCurrPcieLinkGeneration(Device device, unsigned *out) { return get_uint(device, "generation", out); }
int nvmlDeviceGetMaxPcieLinkGeneration(Device device, unsigned *out) { return get_uint(device, "max_generation", out); }
int nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long *out) { return get(device, "reasons", out); }

typedef struct { unsigned long long total, free, used; } Memory;
int nvmlDeviceGetMemoryInfo(Device device, Memory *out) {
    int error = get(device, "memory_total", &out->total);
    return error ? error : get(device, "memory_used", &out->used);
}

typedef struct { unsigned gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(Device device, Utilization *out) {
    out->memory = 0;
    return number(index_of(device), "mig", 0) ? NOT_SUPPORTED : get_uint(device, "utilization", &out->gpu);
}

#ifndef OLD_DRIVER
typedef struct {
    unsigned id, scope;
    long long timestamp, latency_us;
    unsigned type;
    int error;
    union { double real; unsigned long long whole; } value;
} Field;
/* Keys "fI" for any scope and "fI.S" for one; a value with a point is a double, else an unsigned long long. */
int nvmlDeviceGetFieldValues(Device device, int count, Field *fields) {
    int error = trouble(device);
    if (error == LOST) {
        for (int i = 0; i < count; i++) fields[i].error = LOST; /* as the real one: the call itself succeeds */
        return SUCCESS;
    }
    for (int i = 0; i < count && !error; i++) {
        char key[28], value[48];
        Field *field = &fields[i];
        snprintf(key, sizeof key, "f%u.%u", field->id, field->scope);
        int found = find(index_of(device), key, value);
        snprintf(key, sizeof key, "f%u", field->id);
        if (!found) found = find(index_of(device), key, value);
        field->error = !found ? NOT_SUPPORTED : value[0] == '!' ? atoi(value + 1) : SUCCESS;
        if (field->error) continue;
        field->type = strchr(value, '.') ? 0 : 3;
        if (field->type) field->value.whole = strtoull(value, NULL, 0);
        else field->value.real = strtod(value, NULL);
    }
    return error;
}
#endif

/* Key "tensor" is the percentage that two snapshots give. */
typedef struct { unsigned version, supported; } Support;
typedef struct { unsigned id; int error; double value; const char *texts[3]; } Metric;
typedef struct { unsigned version, count; int *before, *after; Metric metrics[1]; } Metrics;
int nvmlGpmQueryDeviceSupport(Device device, Support *out) {
    char value[48];
    out->supported = (unsigned)find(index_of(device), "tensor", value);
    return SUCCESS;
}
int nvmlGpmSampleAlloc(int **sample) { *sample = malloc(sizeof **sample); return SUCCESS; }
int nvmlGpmSampleFree(int *sample) { free(sample); return SUCCESS; }
int nvmlGpmSampleGet(Device device, int *sample) { *sample = index_of(device); return trouble(device); }
int nvmlGpmMetricsGet(Metrics *out) {
    if (out->count != 1 || out->before == out->after || *out->before != *out->after) return INVALID;
    out->metrics[0].error = out->metrics[0].id == 5 ? SUCCESS : NOT_SUPPORTED;
    out->metrics[0].value = (double)number(*out->after, "tensor", 0);
    return SUCCESS;
}

typedef struct { Device device; unsigned long long type, data; unsigned instance, compute; } Event;
static int event_set;
int nvmlEventSetCreate(void **set) { *set = &event_set; return SUCCESS; }
int nvmlEventSetFree(void *set) { (void)set; return SUCCESS; }
int nvmlDeviceRegisterEvents(Device device, unsigned long long types, void *set) {
    (void)types, (void)set;
    int error = trouble(device);
    return error ? error : (int)number(index_of(device), "register_error", 0);
}
/* Key "event" of a GPU is "NUMBER XID": each number is given out once, in order. */
int nvmlEventSetWait_v2(void *set, Event *out, unsigned timeout_ms) {
    (void)set;
    unsigned poll_us = (unsigned)number(ALL_GPUS, "event_poll_us", EVENT_POLL_US);
    for (unsigned waited_us = 0; waited_us <= timeout_ms * 1000; waited_us += poll_us) {
        if (!is_open) return UNINITIALIZED;
        if (number(ALL_GPUS, "wait_error", 0)) return (int)number(ALL_GPUS, "wait_error", 0);
        pthread_mutex_lock(&lock);
        refresh();
        for (int i = 0; i < num_lines; i++) {
            unsigned sequence = 0, xid = 0;
            if (strcmp(lines[i].key, "event") || sscanf(lines[i].value, "%u %u", &sequence, &xid) != 2) continue;
            if (sequence != events_taken + 1) continue;
            events_taken = sequence;
            *out = (Event){.device = (Device)(long)(lines[i].gpu + 1), .type = XID_EVENT, .data = xid};
            pthread_mutex_unlock(&lock);
            return SUCCESS;
        }
        pthread_mutex_unlock(&lock);
        usleep(poll_us);
    }
    return TIMED_OUT;
}
