// A layer for LD_PRELOAD: the n-th call that changes what is below a folder fails: that opens a
// file for writing, writes, renames, links, makes a folder, or waits for the disk. Set by FAULT_AT,
// FAULT_KIND and FAULT_FOLDER, or by fault_arm; then calls of forked processes count, too.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int at = 0;
static char kind[16] = "";
static char folder[4096] = "";
static pid_t interrupted = 0;

// Shared by a process and its forks.
static struct {
  _Atomic int seen;
  _Atomic long written;
} * counts;

// Of the calls from now on the `number`-th, from 1, fails; 0: none. what: "ENOSPC" or "EIO" of the
// call; "EROFS" of it and of all that follow; "short": half of the bytes are written, and the next
// call has no space; "SIGINT": the signal is sent to this process, and the call is done.
void fault_arm(int number, const char* what, const char* below) {
  counts->seen = 0;
  counts->written = 0;
  interrupted = getpid();
  snprintf(kind, sizeof kind, "%s", what);
  snprintf(folder, sizeof folder, "%s", below);
  at = number;
}

// How many calls counted since then, and how many bytes they wrote.
int fault_count(void) { return counts->seen; }
long fault_written(void) { return counts->written; }

__attribute__((constructor)) static void start(void) {
  counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (counts == MAP_FAILED) abort();
  const char* number = getenv("FAULT_AT");
  if (number != NULL) fault_arm(atoi(number), getenv("FAULT_KIND"), getenv("FAULT_FOLDER"));
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_ours(const char* path) {
  return folder[0] != 0 && strncmp(path, folder, strlen(folder)) == 0;
}

static int is_ours_open(int file) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return 0;
  path[length] = 0;
  return is_ours(path);
}

enum fault { NONE, FAIL, SHORT };

// What is to happen to this call, which counts; errno is set where it is to fail.
static enum fault next_fault(void) {
  const int seen = ++counts->seen;
  const int is_short = strcmp(kind, "short") == 0;
  const int is_read_only = strcmp(kind, "EROFS") == 0;
  if (at > 0 && is_short && seen == at + 1) {
    errno = ENOSPC;
    return FAIL;
  }
  if (seen != at && !(at > 0 && is_read_only && seen > at)) return NONE;
  if (strcmp(kind, "SIGINT") == 0) {
    kill(interrupted, SIGINT);
    return NONE;
  }
  if (is_short) return SHORT;
  errno = is_read_only ? EROFS : strcmp(kind, "EIO") == 0 ? EIO : ENOSPC;
  return FAIL;
}

static int fails(int ours) { return ours && next_fault() == FAIL; }

static ssize_t counted(ssize_t bytes) {
  if (bytes > 0) counts->written += bytes;
  return bytes;
}

static int writes(int flags) { return (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT); }

#define OPEN(name)                                                  \
  int name(const char* path, int flags, ...) {                      \
    va_list rest;                                                   \
    va_start(rest, flags);                                          \
    const mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0; \
    va_end(rest);                                                   \
    if (fails(writes(flags) && is_ours(path))) return -1;           \
    return REAL(name)(path, flags, mode);                           \
  }
OPEN(open)
OPEN(open64)

int mkostemp(char* pattern, int flags) {
  return fails(is_ours(pattern)) ? -1 : REAL(mkostemp)(pattern, flags);
}

int mkstemp(char* pattern) { return fails(is_ours(pattern)) ? -1 : REAL(mkstemp)(pattern); }

ssize_t write(int file, const void* data, size_t size) {
  const int ours = is_ours_open(file);
  const enum fault fault = ours ? next_fault() : NONE;
  if (fault == FAIL) return -1;
  const ssize_t done = REAL(write)(file, data, fault == SHORT ? size / 2 : size);
  return ours ? counted(done) : done;
}

ssize_t sendfile(int to, int from, off_t* offset, size_t size) {
  const int ours = is_ours_open(to);
  const enum fault fault = ours ? next_fault() : NONE;
  if (fault == FAIL) return -1;
  const ssize_t done = REAL(sendfile)(to, from, offset, fault == SHORT ? (size + 1) / 2 : size);
  return ours ? counted(done) : done;
}

// Without waiting for the disk: nobody pulls the plug.
int fsync(int file) {
  const int ours = is_ours_open(file);
  if (fails(ours)) return -1;
  return ours ? 0 : REAL(fsync)(file);
}

int rename(const char* from, const char* to) {
  return fails(is_ours(to)) ? -1 : REAL(rename)(from, to);
}

int mkdir(const char* path, mode_t mode) {
  return fails(is_ours(path)) ? -1 : REAL(mkdir)(path, mode);
}

int link(const char* from, const char* to) {
  return fails(is_ours(to)) ? -1 : REAL(link)(from, to);
}

int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) {
  if (fails(is_ours(to))) return -1;
  return REAL(linkat)(from_folder, from, to_folder, to, flags);
}
