/* Records what a process does to the files below one folder, in the order in which it happened.
 *
 * Built by the power-cut test and put under the real binary by LD_PRELOAD. Every change is appended to the trace as one
 * record (struct record, then path, second path and data) after the call has succeeded and before it returns, so that a
 * change which another call waits for always stands before that call in the trace. A sync has two records: what was
 * recorded before its begin is durable from its end on. `trace.rs` reads the format.
 *
 * Only the calls that SQLite and Rust's standard library make are here; the test compares the files with the trace and
 * fails if a change came by another way.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAGIC 0x544f4c53u

enum kind { OPENED = 1, WRITTEN, RESIZED, RENAMED, UNLINKED, SYNC_BEGUN, SYNC_ENDED, FOLDER_MADE };

struct record {
	uint32_t magic;
	uint32_t kind;
	uint64_t inode;
	/* Where data was written, the new size, or the number of the sync. */
	uint64_t number;
	uint32_t path_bytes;
	uint32_t target_bytes;
	uint64_t data_bytes;
};

static int trace = -1;
static char root[PATH_MAX];
static size_t root_bytes;
static uint64_t syncs;

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);
	if (!found)
		abort();
	return found;
}

__attribute__((constructor)) static void start(void)
{
	const char *folder = getenv("POWERCUT_ROOT"), *path = getenv("POWERCUT_TRACE");
	if (!folder || !path)
		return;
	root_bytes = strlen(folder);
	if (root_bytes >= sizeof root)
		abort();
	memcpy(root, folder, root_bytes + 1);
	trace = REAL(open)(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (trace < 0)
		abort();
}

static int is_below(const char *path)
{
	return strncmp(path, root, root_bytes) == 0 && (path[root_bytes] == '/' || path[root_bytes] == 0);
}

/* The path of an open file or folder below the root, in `path`; 0 for everything else. */
static int watched(int fd, struct stat *found, char *path)
{
	char link[64];
	if (trace < 0 || fstat(fd, found) != 0 || !(S_ISREG(found->st_mode) || S_ISDIR(found->st_mode)))
		return 0;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t bytes = readlink(link, path, PATH_MAX - 1);
	if (bytes < 0)
		return 0;
	path[bytes] = 0;
	return is_below(path);
}

/* One append: records of several threads and processes do not mix. A trace with a gap would be worse than none. */
static void note(enum kind kind, uint64_t inode, uint64_t number, const char *path, const char *target,
		 const void *data, size_t data_bytes)
{
	int before = errno;
	struct record record = { MAGIC, kind, inode, number, (uint32_t)strlen(path), (uint32_t)strlen(target), data_bytes };
	struct iovec parts[] = {
		{ &record, sizeof record },
		{ (void *)path, record.path_bytes },
		{ (void *)target, record.target_bytes },
		{ (void *)data, data_bytes },
	};
	size_t all = sizeof record + record.path_bytes + record.target_bytes + data_bytes;
	if (REAL(writev)(trace, parts, 4) != (ssize_t)all)
		abort();
	errno = before;
}

static int opened(int fd, int flags)
{
	struct stat found;
	char path[PATH_MAX];
	int changes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT);
	if (fd >= 0 && changes && watched(fd, &found, path) && S_ISREG(found.st_mode)) {
		note(OPENED, found.st_ino, 0, path, "", "", 0);
		if (flags & O_TRUNC)
			note(RESIZED, found.st_ino, 0, path, "", "", 0);
	}
	return fd;
}

static void written(int fd, const void *data, ssize_t bytes, off_t at)
{
	struct stat found;
	char path[PATH_MAX];
	if (bytes > 0 && watched(fd, &found, path))
		note(WRITTEN, found.st_ino, (uint64_t)at, path, "", data, (size_t)bytes);
}

static int resized(int fd, int done, off_t bytes)
{
	struct stat found;
	char path[PATH_MAX];
	if (done == 0 && watched(fd, &found, path))
		note(RESIZED, found.st_ino, (uint64_t)bytes, path, "", "", 0);
	return done;
}

static int sync_file(int fd, int (*sync)(int))
{
	struct stat found;
	char path[PATH_MAX];
	if (!watched(fd, &found, path))
		return sync(fd);
	uint64_t number = (uint64_t)getpid() << 32 | __atomic_add_fetch(&syncs, 1, __ATOMIC_SEQ_CST);
	note(SYNC_BEGUN, found.st_ino, number, path, "", "", 0);
	int done = sync(fd);
	if (done == 0)
		note(SYNC_ENDED, found.st_ino, number, path, "", "", 0);
	return done;
}

#define MODE(flags, mode)                                   \
	mode_t mode = 0;                                    \
	if ((flags) & (O_CREAT | __O_TMPFILE)) {            \
		va_list rest;                               \
		va_start(rest, flags);                      \
		mode = (mode_t)va_arg(rest, unsigned int);  \
		va_end(rest);                               \
	}

int open(const char *path, int flags, ...)
{
	MODE(flags, mode)
	return opened(REAL(open)(path, flags, mode), flags);
}

int open64(const char *path, int flags, ...)
{
	MODE(flags, mode)
	return opened(REAL(open64)(path, flags, mode), flags);
}

int openat(int folder, const char *path, int flags, ...)
{
	MODE(flags, mode)
	return opened(REAL(openat)(folder, path, flags, mode), flags);
}

int openat64(int folder, const char *path, int flags, ...)
{
	MODE(flags, mode)
	return opened(REAL(openat64)(folder, path, flags, mode), flags);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
	ssize_t done = REAL(write)(fd, data, bytes);
	/* Also right for files that are appended to: the position is the end of what was written. */
	if (done > 0 && trace >= 0)
		written(fd, data, done, lseek(fd, 0, SEEK_CUR) - done);
	return done;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
	ssize_t done = REAL(pwrite)(fd, data, bytes, at);
	written(fd, data, done, at);
	return done;
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t at)
{
	ssize_t done = REAL(pwrite64)(fd, data, bytes, at);
	written(fd, data, done, at);
	return done;
}

int ftruncate(int fd, off_t bytes)
{
	return resized(fd, REAL(ftruncate)(fd, bytes), bytes);
}

int ftruncate64(int fd, off64_t bytes)
{
	return resized(fd, REAL(ftruncate64)(fd, bytes), bytes);
}

int fsync(int fd)
{
	return sync_file(fd, REAL(fsync));
}

int fdatasync(int fd)
{
	return sync_file(fd, REAL(fdatasync));
}

int rename(const char *from, const char *to)
{
	int done = REAL(rename)(from, to);
	if (done == 0 && trace >= 0 && is_below(from))
		note(RENAMED, 0, 0, from, to, "", 0);
	return done;
}

int unlink(const char *path)
{
	int done = REAL(unlink)(path);
	if (done == 0 && trace >= 0 && is_below(path))
		note(UNLINKED, 0, 0, path, "", "", 0);
	return done;
}

int mkdir(const char *path, mode_t mode)
{
	int done = REAL(mkdir)(path, mode);
	if (done == 0 && trace >= 0 && is_below(path))
		note(FOLDER_MADE, 0, 0, path, "", "", 0);
	return done;
}
