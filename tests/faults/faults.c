// A layer for LD_PRELOAD: one call that writes to a file, renames it or puts it on the disk fails.
//
//   FAULT_AT      which of the calls, from 1; 0: none
//   FAULT_KIND    "ENOSPC" or "EIO" of the call, "short": half of the bytes are written, and the
//                 next call has no space; "SIGINT": the signal is sent, and the call is done
//   FAULT_FOLDER  calls on files below this folder count
//   FAULT_LOG     a descriptor's number, to which a byte is written for each call that counts
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int seen = 0;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_ours(const char* path) {
  const char* folder = getenv("FAULT_FOLDER");
  return folder != NULL && strncmp(path, folder, strlen(folder)) == 0;
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

// Whether this call, which counts, is the one; errno is set where it is to fail.
static enum fault next_fault(void) {
  const char* log = getenv("FAULT_LOG");
  if (log != NULL) (void)!REAL(write)(atoi(log), ".", 1);
  const char* at = getenv("FAULT_AT");
  const char* kind = getenv("FAULT_KIND");
  if (at == NULL || kind == NULL || atoi(at) == 0) return NONE;
  ++seen;
  const int is_short = strcmp(kind, "short") == 0;
  if (is_short && seen == atoi(at) + 1) {
    errno = ENOSPC;
    return FAIL;
  }
  if (seen != atoi(at)) return NONE;
  if (strcmp(kind, "SIGINT") == 0) {
    kill(getpid(), SIGINT);
    return NONE;
  }
  if (is_short) return SHORT;
  errno = strcmp(kind, "EIO") == 0 ? EIO : ENOSPC;
  return FAIL;
}

ssize_t write(int file, const void* data, size_t size) {
  const enum fault fault = is_ours_open(file) ? next_fault() : NONE;
  if (fault == FAIL) return -1;
  return REAL(write)(file, data, fault == SHORT ? size / 2 : size);
}

ssize_t writev(int file, const struct iovec* parts, int count) {
  const enum fault fault = is_ours_open(file) ? next_fault() : NONE;
  if (fault == FAIL) return -1;
  return REAL(writev)(file, parts, fault == SHORT && count > 1 ? count - 1 : count);
}

int fsync(int file) {
  if (is_ours_open(file) && next_fault() == FAIL) return -1;
  return REAL(fsync)(file);
}

int rename(const char* from, const char* to) {
  if (is_ours(to) && next_fault() == FAIL) return -1;
  return REAL(rename)(from, to);
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  if (is_ours(to) && next_fault() == FAIL) return -1;
  return REAL(renameat)(from_folder, from, to_folder, to);
}

int mkdir(const char* path, mode_t mode) {
  if (is_ours(path) && next_fault() == FAIL) return -1;
  return REAL(mkdir)(path, mode);
}
