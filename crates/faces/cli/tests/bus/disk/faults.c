/* Preloaded into a process, makes its disk misbehave while a file in $FAULTS_FOLDER says so:
 *
 *   full   writes to the store fail with ENOSPC
 *   full-database  the same, only of the database itself: not of its log, nor of a copy
 *   broken syncs of the store fail with EIO
 *   hang   syncs of the store do not return; "hanging" exists while one of them waits
 *
 * With FAULTS_KILL_SYNC=N the process is killed in place of its Nth sync. Only the store's own files are concerned, not
 * its lock folder.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int named(const char *name, char *path, size_t size) {
    const char *folder = getenv("FAULTS_FOLDER");
    return folder && snprintf(path, size, "%s/%s", folder, name) < (int)size;
}

static int told(const char *name) {
    char path[4096];
    return named(name, path, sizeof path) && access(path, F_OK) == 0;
}

static int is_store_file(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return strstr(path, ".db") && !strstr(path, "-locks/") && !strstr(path, "-shm");
}

static int is_store(int fd) {
    char path[4096];
    return is_store_file(fd, path, sizeof path);
}

static int is_database(int fd) {
    char path[4096];
    return is_store_file(fd, path, sizeof path) && strcmp(strrchr(path, '.'), ".db") == 0;
}

static int is_full(int fd) {
    if (!(told("full") && is_store(fd)) && !(told("full-database") && is_database(fd))) return 0;
    errno = ENOSPC;
    return 1;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    static ssize_t (*next)(int, const void *, size_t);
    if (!next) next = dlsym(RTLD_NEXT, "write");
    return is_full(fd) ? -1 : next(fd, bytes, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    static ssize_t (*next)(int, const void *, size_t, off_t);
    if (!next) next = dlsym(RTLD_NEXT, "pwrite");
    return is_full(fd) ? -1 : next(fd, bytes, count, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    static ssize_t (*next)(int, const void *, size_t, off64_t);
    if (!next) next = dlsym(RTLD_NEXT, "pwrite64");
    return is_full(fd) ? -1 : next(fd, bytes, count, at);
}

/* Whether the sync is to fail. Returns late while it is to hang. */
static int misses(int fd) {
    char mark[4096];
    static int syncs;
    const char *last = getenv("FAULTS_KILL_SYNC");
    if (!is_store(fd)) return 0;
    if (last && __atomic_add_fetch(&syncs, 1, __ATOMIC_SEQ_CST) == atoi(last)) raise(SIGKILL);
    if (told("hang") && named("hanging", mark, sizeof mark)) {
        close(open(mark, O_CREAT | O_WRONLY, 0600));
        while (told("hang")) usleep(1000);
        unlink(mark);
    }
    if (!told("broken")) return 0;
    errno = EIO;
    return 1;
}

int fsync(int fd) {
    static int (*next)(int);
    if (!next) next = dlsym(RTLD_NEXT, "fsync");
    return misses(fd) ? -1 : next(fd);
}

int fdatasync(int fd) {
    static int (*next)(int);
    if (!next) next = dlsym(RTLD_NEXT, "fdatasync");
    return misses(fd) ? -1 : next(fd);
}
