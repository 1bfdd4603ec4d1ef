/* Makes every n-th write, sync or truncation of one database's files fail. Loaded with LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* Set by the test, through ctypes. */
char fault_path[4096];  /* files whose path begins with this */
int fault_every;        /* 0: none fails */
int fault_errno;        /* 0: half of a write succeeds and the rest does not, as when a disk fills up */
long fault_calls;       /* on these files, so far */
long fault_count;       /* of them, how many have failed */

static int is_ours(int descriptor) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strncmp(path, fault_path, strlen(fault_path)) == 0;
}

static int fails(int descriptor) {
    if (fault_every <= 0 || !is_ours(descriptor)) return 0;
    if (++fault_calls % fault_every) return 0;
    ++fault_count;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_full; /* the next write finds no space */

static int write_fails(int descriptor) {
    if (is_full && is_ours(descriptor)) return 1;
    return fails(descriptor);
}

static ssize_t failed_write(int descriptor, const void *bytes, size_t count, off64_t offset) {
    if (fault_errno == 0 && !is_full && count > 1) {
        is_full = 1;
        return REAL(pwrite64)(descriptor, bytes, count / 2, offset);
    }
    is_full = 0;
    errno = fault_errno ? fault_errno : ENOSPC;
    return -1;
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t count, off64_t offset) {
    if (write_fails(descriptor)) return failed_write(descriptor, bytes, count, offset);
    return REAL(pwrite64)(descriptor, bytes, count, offset);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t count, off_t offset) {
    if (write_fails(descriptor)) return failed_write(descriptor, bytes, count, offset);
    return REAL(pwrite)(descriptor, bytes, count, offset);
}

ssize_t write(int descriptor, const void *bytes, size_t count) {
    if (!write_fails(descriptor)) return REAL(write)(descriptor, bytes, count);
    off64_t offset = lseek64(descriptor, 0, SEEK_CUR);
    ssize_t written = failed_write(descriptor, bytes, count, offset);
    if (written > 0) lseek64(descriptor, written, SEEK_CUR);
    return written;
}

static int failed(void) {
    errno = fault_errno ? fault_errno : EIO;
    return -1;
}

int fsync(int descriptor) { return fails(descriptor) ? failed() : REAL(fsync)(descriptor); }

int fdatasync(int descriptor) { return fails(descriptor) ? failed() : REAL(fdatasync)(descriptor); }

int ftruncate(int descriptor, off_t length) {
    return fails(descriptor) ? failed() : REAL(ftruncate)(descriptor, length);
}

int ftruncate64(int descriptor, off64_t length) {
    return fails(descriptor) ? failed() : REAL(ftruncate64)(descriptor, length);
}
