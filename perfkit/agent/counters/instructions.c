/* Requests to callgrind, for processes without torch. Where no Valgrind runs the process, they do nothing. */
#include <valgrind/callgrind.h>

void toggle(void) { CALLGRIND_TOGGLE_COLLECT; }

void toggle_and_dump(void) {
  CALLGRIND_TOGGLE_COLLECT;
  CALLGRIND_DUMP_STATS;
}
