#include <scx/common.bpf.h>
