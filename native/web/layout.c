// What edgewise-worker.js takes for granted of edgewise.h.
#include <stddef.h>

#include "edgewise.h"

#define AT(member, offset)                                     \
  _Static_assert(offsetof(edgewise_value, member) == (offset), \
                 "edgewise-worker.js reads it "                \
                 "there")

AT(kind, 0);
AT(type, 4);
AT(dynamism, 8);
AT(rank, 12);
AT(sizes, 16);
AT(dim_order, 144);
AT(nbytes, 160);
AT(data, 164);
AT(integer, 168);
AT(number, 176);
AT(text, 184);
_Static_assert(sizeof(edgewise_value) == 192, "edgewise-worker.js makes them");
_Static_assert(offsetof(edgewise_load_options, threads) == 4, "edgewise-worker.js sets it");
_Static_assert(sizeof(edgewise_load_options) == 36, "edgewise-worker.js makes them");
