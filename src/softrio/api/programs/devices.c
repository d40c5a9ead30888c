/* Device objects outlive the process that made them, and programs read them in files. Authority: the driver makes
 * objects of the kernel; rio-sysfs says which files they have. RIO_SYS stands for /sys. */
#include "check.h"

static void holds(const char* path, const char* text) {
    char read_back[64] = {0};
    FILE* file = fopen(path, "r");
    CHECK(file != NULL);
    CHECK(fgets(read_back, sizeof read_back, file) != NULL);
    fclose(file);
    CHECK(strcmp(read_back, text) == 0);
}

int main(int count, char** arguments) {
    did_val_t own = 0, there = 0;
    char line[128];
    riomp_mport_t port = open_port(0, &own), peer = open_port(1, &there);
    (void)peer;
    if (count == 1) {
        CHECK(riomp_mgmt_device_add(port, there, HC_MP, 0x10005, "first") == 0);
        CHECK(riomp_mgmt_device_add(port, there, HC_MP, 0x10005, "first") == -EEXIST);
        CHECK(riomp_mgmt_device_add(port, there, HC_MP, 0x10006, NULL) == 0);
        CHECK(riomp_mgmt_device_add(port, 999, HC_MP, 7, "nobody") == -EIO);
        execl(arguments[0], arguments[0], "again", (char*)NULL);
        return 2;
    }
    if (strcmp(arguments[1], "again") == 0) {
        CHECK(riomp_mgmt_device_add(port, there, HC_MP, 0x10005, "first") == -EEXIST);
        CHECK(riomp_mgmt_device_del(port, there, HC_MP, 0x10005, "first") == 0);
        CHECK(riomp_mgmt_device_del(port, there, HC_MP, 0x10005, "first") == -ENODEV);
        CHECK(riomp_mgmt_device_del(port, there, HC_MP, 0x10006, NULL) == 0);
        setenv("RIO_SYS", "sys", 1);
        execl(arguments[0], arguments[0], "shown", (char*)NULL);
        return 2;
    }
    snprintf(line, sizeof line, "0x%04x\n", own);
    holds("sys/class/rapidio_port/rapidio0/port_destid", line);
    holds("sys/class/rio_mport/rio_mport0/device/port_destid", line);
    CHECK(access("sys/class/rio_mport/rio_mport0/port_destid", F_OK) != 0);
    CHECK(riomp_mgmt_device_add(port, there, HC_MP, 0x10006, NULL) == 0);
    snprintf(line, sizeof line, "0x%04x\n", there);
    holds("sys/bus/rapidio/devices/00:e:0006/destid", line);
    holds("sys/bus/rapidio/devices/00:e:0006/vid", "0xffff\n");
    CHECK(riomp_mgmt_device_del(port, 0, 0, 0, "00:e:0006") == 0);
    CHECK(access("sys/bus/rapidio/devices/00:e:0006", F_OK) != 0);
    return 0;
}
