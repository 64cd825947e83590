// A plugin of qemu-user that counts what an AArch64 program executes: instructions by class, in all
// and by block, with the block's function (of the program itself, not of shared libraries) and code.
// Written at the program's end to the file that COUNT_FILE names, as JSON. `benchmarks/arm.py`
// builds and runs it.
//
// Classes are told from the instructions' own 32 bits (Arm Architecture Reference Manual, chapter
// C4), not from a disassembler's text: that of QEMU 7.2 does not know the later extensions. Of SVE
// only what is counted for every instruction is counted. Counters are for one thread.
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qemu-plugin.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

enum Class { kInstructions, kLoads, kStores, kFloat, kDot, kMatrix, kInteger, kClasses };

static const char *const kNames[kClasses] = {
    "instructions",
    "loads",
    "stores",
    "float multiply-adds",
    "dot products",
    "matrix products",
    "integer multiply-adds",
};

typedef struct {
  uint32_t mask, value;
  enum Class class;
} Pattern;

static const Pattern kPatterns[] = {
    {0xBF20FC00, 0x0E20CC00, kFloat},    // FMLA, FMLS: vectors of float and double
    {0xBF60FC00, 0x0E400C00, kFloat},    // of half
    {0xBF80B400, 0x0F801000, kFloat},    // FMLA, FMLS by element
    {0xBFC0B400, 0x0F001000, kFloat},    // of half
    {0xFF000000, 0x1F000000, kFloat},    // FMADD and its kin: scalars
    {0x9FE0FC00, 0x0E809400, kDot},      // SDOT, UDOT
    {0xBFE0FC00, 0x0E809C00, kDot},      // USDOT
    {0x9FC0F400, 0x0F80E000, kDot},      // SDOT, UDOT by element
    {0xBF40F400, 0x0F00F000, kDot},      // USDOT, SUDOT by element
    {0xBFC0F400, 0x0F40F000, kDot},      // BFDOT by element
    {0xBFE0FC00, 0x2E40FC00, kDot},      // BFDOT
    {0xDFE0F400, 0x4E80A400, kMatrix},   // SMMLA, UMMLA, USMMLA
    {0xFFE0FC00, 0x6E40EC00, kMatrix},   // BFMMLA
    {0x9F20DC00, 0x0E208000, kInteger},  // SMLAL, UMLAL and those that subtract
    {0x9F009400, 0x0F000000, kInteger},  // MLA, MLS, SMLAL, UMLAL ... by element: see below
    {0x9F20FC00, 0x0E209400, kInteger},  // MLA, MLS
};

static enum Class class_of(uint32_t word) {
  for (size_t i = 0; i < sizeof kPatterns / sizeof *kPatterns; ++i) {
    const Pattern *p = &kPatterns[i];
    if ((word & p->mask) != p->value) continue;
    if (p->mask == 0x9F009400) {
      // By element, bits 15 to 12: 0 and 4 are MLA and MLS (U set), 2 and 6 SMLAL, SMLSL, UMLAL, UMLSL.
      const uint32_t opcode = word >> 12 & 0xF;
      const bool is_unsigned = word >> 29 & 1;
      if (!(opcode == 2 || opcode == 6 || (is_unsigned && (opcode == 0 || opcode == 4)))) continue;
    }
    return p->class;
  }
  if ((word & 0x0A000000) != 0x08000000) return kInstructions;
  if ((word & 0x3B000000) == 0x18000000) return kLoads;  // of a literal
  const bool is_single = (word & 0x38000000) == 0x38000000, is_vector = word >> 26 & 1;
  if (is_single && !is_vector && (word >> 22 & 3) == 2) {
    return word >> 30 == 3 ? kInstructions : kLoads;  // a prefetch, or a load that extends the sign
  }
  return word >> 22 & 1 ? kLoads : kStores;
}

// Blocks with less than this part of all instructions are left out.
enum { kLeast = 100000 };

// A block of instructions that are executed in a row, as QEMU translates them.
typedef struct Block {
  struct Block *next;
  char *symbol;
  uint64_t address, runs, counts[kClasses];
  uint32_t words[];  // as many as there are instructions
} Block;

static Block *blocks;

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
  (void)id;
  const size_t count = qemu_plugin_tb_n_insns(tb);
  Block *block = calloc(1, sizeof *block + count * sizeof *block->words);
  if (!block) abort();
  for (size_t i = 0; i < count; ++i) {
    const void *data = qemu_plugin_insn_data(qemu_plugin_tb_get_insn(tb, i));
    memcpy(&block->words[i], data, sizeof block->words[i]);
    const enum Class class = class_of(block->words[i]);
    if (class != kInstructions) ++block->counts[class];
  }
  block->counts[kInstructions] = count;
  block->address = qemu_plugin_tb_vaddr(tb);
  const char *symbol = qemu_plugin_insn_symbol(qemu_plugin_tb_get_insn(tb, 0));
  block->symbol = symbol ? strdup(symbol) : NULL;
  block->next = blocks;
  blocks = block;
  qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64, &block->runs, 1);
}

// By address: blocks of a symbol stand together, and one that was translated again by itself.
static int by_address(const void *a, const void *b) {
  const uint64_t x = (*(Block *const *)a)->address, y = (*(Block *const *)b)->address;
  return x < y ? -1 : x > y;
}

static void write_counts(FILE *file, const uint64_t counts[kClasses]) {
  for (int c = 0; c < kClasses; ++c) {
    fprintf(file, "%s\"%s\": %" PRIu64, c ? ", " : "", kNames[c], counts[c]);
  }
}

static void ended(qemu_plugin_id_t id, void *nothing) {
  (void)id, (void)nothing;
  const char *name = getenv("COUNT_FILE");
  FILE *file = name ? fopen(name, "w") : stderr;
  if (!file) {
    perror(name);
    return;
  }
  size_t count = 0;
  for (Block *b = blocks; b; b = b->next) ++count;
  Block **sorted = malloc((count ? count : 1) * sizeof *sorted);
  if (!sorted) abort();
  size_t at = 0;
  for (Block *b = blocks; b; b = b->next) sorted[at++] = b;
  qsort(sorted, count, sizeof *sorted, by_address);
  uint64_t total[kClasses] = {0};
  for (size_t i = 0; i < count; ++i) {
    for (int c = 0; c < kClasses; ++c) total[c] += sorted[i]->runs * sorted[i]->counts[c];
  }
  fprintf(file, "{\"blocks\": [");
  bool is_first = true;
  for (size_t i = 0; i < count; ++i) {
    const Block *b = sorted[i];
    if (b->runs * b->counts[kInstructions] < total[kInstructions] / kLeast) continue;
    fprintf(file, "%s\n{\"address\": %" PRIu64 ", \"symbol\": \"%s\", \"runs\": %" PRIu64 ", ",
            is_first ? "" : ",", b->address, b->symbol ? b->symbol : "", b->runs);
    write_counts(file, b->counts);
    fprintf(file, ", \"code\": [");
    for (size_t w = 0; w < b->counts[kInstructions]; ++w) {
      fprintf(file, "%s%" PRIu32, w ? ", " : "", b->words[w]);
    }
    fprintf(file, "]}");
    is_first = false;
  }
  fprintf(file, "\n], \"total\": {");
  write_counts(file, total);
  fprintf(file, "}}\n");
  if (name) fclose(file);
  free(sorted);
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
                                           char **argv) {
  (void)info, (void)argc, (void)argv;
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_atexit_cb(id, ended, NULL);
  return 0;
}
