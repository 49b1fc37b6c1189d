/* Messages of the library of arenas: to the simulator's log. */
#ifndef COUNTERSTEER_HELPERS_LOCAL_H
#define COUNTERSTEER_HELPERS_LOCAL_H
#include <scx/common.bpf.h>

#define bpf_stream_printk(stream, args...) bpf_printk(args)
#define scx_out(args...) bpf_printk(args)
#define scx_err(args...) bpf_printk(args)
#define scx_out_loc(format, args...) bpf_printk("%s:%d " format, __func__, __LINE__, ##args)
#define scx_err_loc(format, args...) bpf_printk("%s:%d " format, __func__, __LINE__, ##args)

#endif
